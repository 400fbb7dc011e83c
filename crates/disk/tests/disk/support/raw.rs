//! An initiator that sends what it likes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use zerolane::request::WorkKind;
use zerolane::{Connection, Error, ExportedRegion, Options, Region, RegionKey, Rights, Work};
use zerolane_block::cdb::Command;
use zerolane_block::sst::{CommandUnit, Login, Outcome, Roles, STATUS_BYTES, StatusUnit};
use zerolane_disk::message::{self, Place};

pub const SLOTS: u16 = 8;
/// Longer than a target is silent for.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Raw {
    pub connection: Connection,
    pub status: ExportedRegion,
    pub status_key: RegionKey,
    pub data: ExportedRegion,
    pub data_key: RegionKey,
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
        status_region: 0,
        session,
    }
}

impl Raw {
    /// Connected, and no more.
    pub fn stranger(address: SocketAddr, options: &Options) -> Raw {
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
            tag: 0,
        }
    }

    /// Logged in.
    pub fn open(address: SocketAddr, options: &Options) -> Raw {
        let mut raw = Raw::stranger(address, options);
        raw.log_in(1 + fastrand::u64(..));
        raw
    }

    pub fn log_in(&mut self, session: u64) {
        self.connection.post_message_recv(None).unwrap();
        let bytes = message::login(&login(session), &self.status_key);
        self.send(&bytes);
        self.until(WorkKind::MessageReceived);
    }

    pub fn send(&mut self, bytes: &[u8]) {
        let work = Work::default().unsignalled();
        self.connection.post_message(bytes, None, work).unwrap();
    }

    fn until(&mut self, kind: WorkKind) -> u64 {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(completion) = self.connection.wait(Some(PATIENCE)).unwrap()
                && completion.kind == kind
            {
                return completion.value;
            }
        }
        panic!("no {kind:?}");
    }

    /// Waits until the target has ended the connection.
    pub fn wait_until_cut_off(mut self) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match self.connection.wait(Some(PATIENCE)) {
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
        self.send(&message::command(unit, has_data.then_some(&place)));
    }

    /// Waits for a status.
    pub fn status(&mut self) -> StatusUnit {
        let slot = self.until(WorkKind::Immediate) as usize;
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

    /// Takes the attention of its first command.
    pub fn settle(&mut self) {
        self.call(&Command::TestUnitReady, &[], 0);
    }
}
