//! Plays an initiator that sends arbitrary messages.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use zerolane::request::{Message, Put, ReceiveMessage, WorkKind};
use zerolane::{Completion, Connection, Error, ExportedRegion, Options, Region, RegionKey, Rights};
use zerolane_block::cdb::{Command, Extent, Form};
use zerolane_block::sst::{CommandUnit, Login, Outcome, Roles, STATUS_BYTES, StatusUnit};
use zerolane_disk::message::{self, Data, Place};

pub const SLOTS: u16 = 8;
/// Longer than a target is silent for.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Raw {
    pub connection: Connection,
    pub status: ExportedRegion,
    pub status_key: RegionKey,
    pub data: ExportedRegion,
    pub data_key: RegionKey,
    /// What the target gave of capsules, and the length of one.
    pub capsules: Option<(RegionKey, u32)>,
    tag: u64,
}

pub fn login(session: u64) -> Login {
    Login {
        roles: Roles {
            initiator: true,
            target: false,
        },
        alignment: 0,
        units: 0,
        slots: SLOTS,
        transfer_bytes: 1 << 20,
        capsule_bytes: 0,
        session,
    }
}

/// A read of so many blocks.
pub fn read(lba: u64, blocks: u64) -> Command {
    Command::Read {
        form: Form::Sixteen,
        extent: Extent { lba, blocks },
        dpo: false,
        fua: false,
    }
}

/// A write of so many blocks.
pub fn write(lba: u64, blocks: u64) -> Command {
    Command::Write {
        form: Form::Sixteen,
        extent: Extent { lba, blocks },
        dpo: false,
        fua: false,
    }
}

impl Raw {
    /// Connected, and no more.
    pub fn connect(address: SocketAddr, options: &Options) -> Raw {
        let mut connection = Connection::connect(address, options).unwrap();
        let export = |connection: &mut Connection, bytes| {
            let region = Region::anonymous(bytes).unwrap();
            let region = ExportedRegion::new(region).unwrap();
            let key = connection.export(&region, Rights::ALL).unwrap();
            (region, key)
        };
        let (status, status_key) = export(&mut connection, usize::from(SLOTS) * STATUS_BYTES);
        let (data, data_key) = export(&mut connection, 1 << 20);
        Raw {
            connection,
            status,
            status_key,
            data,
            data_key,
            capsules: None,
            tag: 0,
        }
    }

    /// Logged in.
    pub fn open(address: SocketAddr, options: &Options) -> Raw {
        let mut raw = Raw::connect(address, options);
        raw.log_in(1 + fastrand::u64(..));
        raw
    }

    pub fn log_in(&mut self, session: u64) {
        self.log_in_with(session, 0);
    }

    /// Asks for so long capsules; returns what the target said.
    pub fn log_in_with(&mut self, session: u64, capsule_bytes: u32) -> Vec<u8> {
        self.connection.post(ReceiveMessage::new()).unwrap();
        let login = Login {
            capsule_bytes,
            ..login(session)
        };
        self.send(&message::login(&login, &self.status_key));
        let answer = self.until(WorkKind::MessageReceived);
        let answer = answer.control().unwrap().to_vec();
        let (login, key) = message::parse_target_login(&answer).unwrap();
        self.capsules = key.map(|it| (it, login.capsule_bytes));
        answer
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.connection
            .post(Message::new(bytes).signalled(false))
            .unwrap();
    }

    /// Has the connection go on until `done`. Nothing is expected of it meanwhile.
    pub fn turn_until(&mut self, done: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done() {
            assert!(Instant::now() < deadline, "it is not done");
            let wait = Some(Duration::from_millis(1));
            assert!(self.connection.wait(wait).unwrap().got().is_none());
        }
    }

    fn until(&mut self, kind: WorkKind) -> Completion {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(completion) = self.connection.wait(Some(PATIENCE)).unwrap().got()
                && completion.kind() == kind
            {
                return completion;
            }
        }
        panic!("no {kind:?}");
    }

    /// Waits until the target has ended the connection.
    pub fn wait_until_cut_off(mut self) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match self
                .connection
                .wait(Some(PATIENCE))
                .map(zerolane::Waited::got)
            {
                Ok(_) => {}
                Err(Error::Closed(_)) => return,
                Err(other) => panic!("{other}"),
            }
        }
        panic!("it is not cut off");
    }

    /// The next command's unit, in slot 0.
    pub fn unit(&mut self, command: &Command, data_in: u64, data_out: u64) -> CommandUnit {
        self.tag += 1;
        let lun = super::lun(0).encode();
        let mut unit = CommandUnit::new(0, self.tag, lun, &command.cdb().unwrap());
        (unit.data_in, unit.data_out) = (data_in, data_out);
        unit
    }

    pub fn place(&self) -> Place {
        Place {
            region: self.data_key,
            offset: 0,
        }
    }

    /// Sends a unit, with the data region if it has data.
    pub fn post(&mut self, unit: &CommandUnit) {
        let place = self.place();
        let has_data = unit.data_in + unit.data_out > 0;
        let data = if has_data {
            Data::At(place)
        } else {
            Data::None
        };
        self.send(&message::command(unit, &data));
    }

    /// Waits for a status.
    pub fn status(&mut self) -> StatusUnit {
        let slot = self.until(WorkKind::Immediate).immediate().unwrap().number as usize;
        let mut bytes = [0; STATUS_BYTES];
        self.status.read(slot * STATUS_BYTES, &mut bytes);
        StatusUnit::parse(&bytes).unwrap()
    }

    /// Has a command done; `out` is its data, and what is returned what came.
    pub fn call(&mut self, command: &Command, out: &[u8], room: u64) -> (Outcome, Vec<u8>) {
        self.data.write(0, out);
        let unit = self.unit(command, room, out.len() as u64);
        self.post(&unit);
        let status = self.status();
        assert_eq!(status.tag, unit.tag);
        let mut data = vec![0; room as usize];
        self.data.read(0, &mut data);
        if let Outcome::Response { data_in, .. } = status.outcome {
            data.truncate(data_in as usize);
        }
        (status.outcome, data)
    }

    /// Puts `bytes` into the capsule of `slot`, as far as that has room.
    pub fn put_capsule(&mut self, slot: u16, bytes: &[u8]) {
        let (region, each) = self.capsules.unwrap();
        let at = u64::from(slot) * u64::from(each);
        let memory = Region::from_vec(bytes.to_vec());
        let posted = self
            .connection
            .post(Put::new(&region, at, memory).signalled(false));
        posted.unwrap();
    }

    /// Has a command done whose data is in its capsule.
    pub fn call_in_capsule(&mut self, command: &Command, out: &[u8]) -> Outcome {
        self.put_capsule(0, out);
        let unit = self.unit(command, 0, out.len() as u64);
        self.send(&message::command(&unit, &Data::InCapsule));
        let status = self.status();
        assert_eq!(status.tag, unit.tag);
        status.outcome
    }

    /// Takes the attention of its first command.
    pub fn settle(&mut self) {
        self.call(&Command::TestUnitReady, &[], 0);
    }
}
