//! Plays an initiator for a portal in memory. The test decides when the portal's jobs run.

use zerolane_iscsi::pdu::{
    Answer, AnswerBody, Decoder, Digests, NO_TAG, RawPdu, Request, RequestBody, Sequence,
};
use zerolane_iscsi::portal::{Peer, Portal};
use zerolane_iscsi::text;

use super::NAME;

/// An answer that owns its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub tag: u32,
    pub sequence: Sequence,
    pub body: AnswerBody,
    pub data: Vec<u8>,
}

pub struct Rig {
    pub portal: Portal,
}

pub struct Initiator {
    pub peer: Peer,
    decoder: Decoder,
    pub digests: Digests,
    pub command_number: u32,
    pub isid: u8,
}

impl Rig {
    pub fn new(portal: Portal) -> Rig {
        Rig { portal }
    }

    /// Does all work that there is.
    pub fn work(&mut self) {
        while let Some(job) = self.portal.next_job() {
            self.portal.finished(job.perform());
        }
    }

    pub fn connect(&mut self, isid: u8) -> Initiator {
        Initiator {
            peer: self.portal.connect("127.0.0.1:3260").unwrap(),
            decoder: Decoder::default(),
            digests: Digests::default(),
            command_number: 1,
            isid,
        }
    }

    /// An initiator that has logged in, with these keys beside its names.
    pub fn login(&mut self, isid: u8, keys: &[(&str, &str)]) -> Initiator {
        let mut initiator = self.connect(isid);
        let told = initiator.log_in(self, keys);
        assert!(
            matches!(
                told[..],
                [Told {
                    body: AnswerBody::Login {
                        status: 0,
                        transit: true,
                        ..
                    },
                    ..
                }]
            ),
            "{told:?}"
        );
        let on = |key| keys.contains(&(key, "CRC32C"));
        initiator.digests = Digests {
            header: on("HeaderDigest"),
            data: on("DataDigest"),
        };
        initiator
    }
}

impl Initiator {
    pub fn log_in(&mut self, rig: &mut Rig, keys: &[(&str, &str)]) -> Vec<Told> {
        let bytes = self.login_pdu(keys);
        rig.portal.receive(self.peer, &bytes);
        self.told(rig)
    }

    /// A login, as it is sent.
    pub fn login_pdu(&mut self, keys: &[(&str, &str)]) -> Vec<u8> {
        let mut data = Vec::new();
        text::put(&mut data, "InitiatorName", "iqn.2026-11.test:initiator");
        text::put(&mut data, "TargetName", NAME);
        for (key, value) in keys {
            text::put(&mut data, key, value);
        }
        let body = self.login_body(true, 1, 3);
        self.pdu(true, 7, body, &data)
    }

    pub fn login_body(&self, transit: bool, current: u8, next: u8) -> RequestBody {
        RequestBody::Login {
            transit,
            continued: false,
            current,
            next,
            version_max: 0,
            version_min: 0,
            isid: [0x80, 0, 0, 0, 0, self.isid],
            tsih: 0,
            connection: 1,
        }
    }

    /// Sends a PDU, with the next number.
    pub fn send(
        &mut self,
        rig: &mut Rig,
        immediate: bool,
        tag: u32,
        body: RequestBody,
        data: &[u8],
    ) {
        let bytes = self.pdu(immediate, tag, body, data);
        rig.portal.receive(self.peer, &bytes);
    }

    /// A PDU with the next number, as it is sent.
    fn pdu(&mut self, immediate: bool, tag: u32, body: RequestBody, data: &[u8]) -> Vec<u8> {
        let has_turn = !matches!(body, RequestBody::DataOut { .. } | RequestBody::Snack);
        let request = Request {
            immediate,
            tag,
            command_number: self.command_number,
            body,
            data: data.to_vec(),
        };
        self.command_number += u32::from(has_turn && !immediate);
        let mut bytes = Vec::new();
        request.encode(&mut bytes, self.digests);
        bytes
    }

    /// Sends a command of LUN 0.
    pub fn command(
        &mut self,
        rig: &mut Rig,
        tag: u32,
        cdb: &[u8],
        lengths: (u32, u32),
        data: &[u8],
    ) {
        self.open_command(rig, tag, cdb, lengths, data, true);
    }

    /// The same; unless it is `last`, unsolicited data follows it.
    pub fn open_command(
        &mut self,
        rig: &mut Rig,
        tag: u32,
        cdb: &[u8],
        (data_in, data_out): (u32, u32),
        data: &[u8],
        last: bool,
    ) {
        let mut whole = [0; 16];
        whole[..cdb.len()].copy_from_slice(cdb);
        let body = RequestBody::Command {
            last,
            read: data_in > 0,
            write: data_out > 0,
            attribute: 1,
            lun: [0; 8],
            expected: data_in.max(data_out),
            cdb: whole,
            extended: false,
        };
        self.send(rig, false, tag, body, data);
    }

    pub fn data(
        &mut self,
        rig: &mut Rig,
        tag: u32,
        (transfer_tag, data_number, offset): (u32, u32, u32),
        data: &[u8],
        last: bool,
    ) {
        let body = RequestBody::DataOut {
            last,
            transfer_tag,
            data_number,
            offset,
        };
        self.send(rig, false, tag, body, data);
    }

    /// What the portal has to say now.
    pub fn told(&mut self, rig: &mut Rig) -> Vec<Told> {
        let output = rig.portal.take_output(self.peer);
        rig.portal.on_sent(self.peer);
        self.decoder.push(&output);
        let mut told = Vec::new();
        while let Some(pdu) = self.decoder.next(self.digests).unwrap() {
            let pdu: RawPdu = pdu;
            let answer = Answer::parse(&pdu).unwrap();
            told.push(Told {
                tag: answer.tag,
                sequence: answer.sequence,
                body: answer.body,
                data: answer.data.to_vec(),
            });
        }
        told
    }

    /// Does the work, and takes what is told of it.
    pub fn outcome(&mut self, rig: &mut Rig) -> Vec<Told> {
        rig.work();
        self.told(rig)
    }

    /// Takes the unit attention that waits for each new initiator.
    pub fn ready(&mut self, rig: &mut Rig) {
        self.command(rig, NO_TAG - 1, &[0; 6], (0, 0), &[]);
        assert_eq!(self.outcome(rig).len(), 1);
    }
}
