//! Connects to a target: login, slots, and commands one at a time.

use std::time::{Duration, Instant};

use zerolane::failure::{PostError, Refused};
use zerolane::request::{Message, Output, Put, ReceiveMessage};
use zerolane::{Completion, Connection, ExportedRegion, Region, RegionKey, Rights};
use zerolane_block::cdb::{Cdb, Command};
use zerolane_block::sense::Key;
use zerolane_block::sst::{CommandUnit, Login, Outcome, Roles, STATUS_BYTES, StatusUnit};
use zerolane_block::{Lun, Status};

use super::error::{DisplaySense, Error};
use crate::limits::{CAPSULE_BYTES, MAX_ATTENTIONS};
use crate::message::{self, Data, Place};

/// Makes a connection, each time that one is needed.
pub type Dial = Box<dyn FnMut() -> zerolane::Result<Connection> + Send>;

/// A login that was accepted.
pub(super) struct Link {
    pub(super) connection: Connection,
    status: ExportedRegion,
    /// The tag of the command in each slot.
    slots: Vec<Option<u64>>,
    free: Vec<u16>,
    /// The target's login.
    pub(super) target: Login,
    /// The target's memory for data that comes with commands, and how much of it each slot has, bytes.
    capsules: Option<(RegionKey, u32)>,
    /// The last tag.
    tag: u64,
}

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) slot: u16,
    pub(super) outcome: Outcome,
}

impl Link {
    /// Logs in over `connection` under the name `session`, for at most `slots` commands at a time.
    pub(super) fn open(
        mut connection: Connection,
        session: u64,
        slots: u16,
        patience: Duration,
    ) -> Result<Link, Error> {
        let bytes = usize::from(slots) * STATUS_BYTES;
        let status = Region::anonymous(bytes).map_err(|error| Error::System(error.to_string()))?;
        let status = ExportedRegion::new(status).map_err(|_| Error::Misaligned)?;
        let key = connection.export(&status, Rights::WRITE)?;
        let login = Login {
            roles: Roles {
                initiator: true,
                target: false,
            },
            alignment: 0,
            units: 0,
            slots,
            transfer_bytes: u32::MAX,
            capsule_bytes: CAPSULE_BYTES,
            session,
        };
        connection
            .post(ReceiveMessage::new())
            .map_err(zerolane::Error::from)?;
        connection
            .post(Message::new(message::login(&login, &key)).signalled(false))
            .map_err(zerolane::Error::from)?;
        let deadline = Instant::now().checked_add(patience);
        let (target, capsules) = loop {
            let completion = next(&mut connection, deadline)?;
            if let (Ok(_), Some(control)) = (completion.result, completion.control()) {
                let login = message::parse_target_login(control);
                break login.map_err(|error| Error::Protocol(error.to_string()))?;
            }
        };
        if !target.roles.target || target.transfer_bytes < 4096 {
            return Err(Error::Protocol(
                "a login answer that is not a target's".into(),
            ));
        }
        // No message comes. While a receive is posted the connection asks a silent target whether it lives: statuses are put, and
        // once the target has confirmed a command nothing else is outstanding.
        connection
            .post(ReceiveMessage::new())
            .map_err(zerolane::Error::from)?;
        let slots = slots.min(target.slots);
        let capsule_bytes = target.capsule_bytes.min(CAPSULE_BYTES);
        let capsules = capsules.filter(|_| capsule_bytes > 0);
        let room = u64::from(slots) * u64::from(capsule_bytes);
        if capsules.is_some_and(|it| it.len() < room || !it.rights().write) {
            return Err(Error::Protocol("capsules too small for its slots".into()));
        }
        Ok(Link {
            connection,
            status,
            slots: vec![None; slots.into()],
            free: (0..slots).rev().collect(),
            target,
            capsules: capsules.map(|it| (it, capsule_bytes)),
            tag: 0,
        })
    }

    /// Most simultaneous commands.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// A command can be sent.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Sends `bytes` in the capsule of the next command. False: there are too many, they would delay later data, or the
    /// target accepts none. `copy` fills a copy of them, for which no request waits.
    ///
    /// # Errors
    /// The connection's.
    pub(super) fn put_in_capsule(
        &mut self,
        bytes: u64,
        copy: impl FnOnce(&mut [u8]),
    ) -> Result<bool, zerolane::Error> {
        let (Some((region, most)), Some(&slot)) = (self.capsules, self.free.last()) else {
            return Ok(false);
        };
        let at = u64::from(slot) * u64::from(most);
        let fits = bytes <= most.into();
        if !fits || !self.connection.puts_at_once(&region, at, bytes) {
            return Ok(false);
        }
        let mut data = vec![0; bytes as usize];
        copy(&mut data);
        match self.connection.post(
            Put::new(&region, at, Region::from_vec(data))
                .signalled(false)
                .awaited(false),
        ) {
            Ok(_) => Ok(true),
            Err(Refused {
                error: zerolane::Error::Post(PostError::Full),
                ..
            }) => Ok(false),
            Err(refused) => Err(refused.into()),
        }
    }

    /// Sends a command; returns its slot. `None`: too much is under way in the connection.
    ///
    /// # Errors
    /// The connection's.
    pub(super) fn send(
        &mut self,
        lun: Lun,
        cdb: &Cdb,
        (data_in, data_out): (u64, u64),
        data: &Data,
    ) -> Result<Option<u16>, zerolane::Error> {
        let Some(&slot) = self.free.last() else {
            return Ok(None);
        };
        let mut unit = CommandUnit::new(slot, self.tag + 1, lun.encode(), cdb);
        (unit.data_in, unit.data_out) = (data_in, data_out);
        let bytes = message::command(&unit, data);
        match self.connection.post(Message::new(&bytes).signalled(false)) {
            Ok(_) => {}
            Err(Refused {
                error: zerolane::Error::Post(PostError::Full),
                ..
            }) => return Ok(None),
            Err(refused) => return Err(refused.into()),
        }
        self.tag += 1;
        self.free.pop();
        self.slots[usize::from(slot)] = Some(self.tag);
        Ok(Some(slot))
    }

    /// The end of a command from a completion, if it is one.
    ///
    /// # Errors
    /// The target violated the protocol, or a message was lost.
    pub(super) fn ended(&mut self, completion: &Completion) -> Result<Option<Ended>, Error> {
        if let Err(error) = completion.result {
            return Err(zerolane::Error::from(error).into());
        }
        let number = match completion.output {
            Output::Immediate(it) => it.number,
            Output::MessageReceived { .. } => {
                return Err(Error::Protocol("an unsolicited message".into()));
            }
            _ => return Ok(None),
        };
        let unknown = || Error::Protocol(format!("a status in slot {number}"));
        let slot = u16::try_from(number).map_err(|_| unknown())?;
        let place = self.slots.get_mut(usize::from(slot)).ok_or_else(unknown)?;
        let tag = place.take().ok_or_else(unknown)?;
        let mut bytes = [0; STATUS_BYTES];
        self.status
            .read(usize::from(slot) * STATUS_BYTES, &mut bytes);
        let unit = StatusUnit::parse(&bytes).map_err(|error| Error::Protocol(error.to_string()))?;
        if unit.tag != tag {
            return Err(unknown());
        }
        self.free.push(slot);
        let outcome = unit.outcome;
        Ok(Some(Ended { slot, outcome }))
    }

    /// Executes one command alone, and returns the data that it read. For a queue that is not in use yet.
    ///
    /// # Errors
    /// The connection's, or the command failed.
    pub(super) fn call(
        &mut self,
        lun: Lun,
        command: &Command,
        room: usize,
        patience: Duration,
    ) -> Result<Vec<u8>, Error> {
        let deadline = Instant::now().checked_add(patience);
        for _ in 0..MAX_ATTENTIONS {
            match self.call_once(lun, command, room, deadline)? {
                Ok(data) => return Ok(data),
                // An attention from before this connection.
                Err(Error::Sense(DisplaySense(sense))) if sense.key == Key::UnitAttention => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Protocol("too many attentions".into()))
    }

    fn call_once(
        &mut self,
        lun: Lun,
        command: &Command,
        room: usize,
        deadline: Option<Instant>,
    ) -> Result<Result<Vec<u8>, Error>, Error> {
        let cdb = command.cdb().ok_or(Error::Closed)?;
        let system = |error: std::io::Error| Error::System(error.to_string());
        let mut data = None;
        if room > 0 {
            let region = Region::anonymous(room).map_err(system)?;
            let region = ExportedRegion::new(region).map_err(|_| Error::Misaligned)?;
            let key = self.connection.export(&region, Rights::WRITE)?;
            data = Some((region, key));
        }
        let place = match data {
            Some((_, region)) => Data::At(Place { region, offset: 0 }),
            None => Data::None,
        };
        self.send(lun, &cdb, (room as u64, 0), &place)?;
        let outcome = loop {
            let completion = next(&mut self.connection, deadline)?;
            if let Some(ended) = self.ended(&completion)? {
                break ended.outcome;
            }
        };
        let mut bytes = Vec::new();
        if let Some((region, key)) = data {
            self.connection.revoke(&key);
            bytes.resize(room, 0);
            region.read(0, &mut bytes);
        }
        Ok(match result(&outcome) {
            Ok(moved) => {
                bytes.truncate(usize::try_from(moved).unwrap_or(room));
                Ok(bytes)
            }
            Err(error) => Err(error),
        })
    }

    /// Lets the target use `region` for data.
    pub(super) fn export(
        &mut self,
        region: &ExportedRegion,
        is_in: bool,
    ) -> Result<RegionKey, zerolane::Error> {
        self.connection.export(region, message::rights(is_in))
    }
}

/// Bytes that came, or why it failed.
pub(super) fn result(outcome: &Outcome) -> Result<u64, Error> {
    match *outcome {
        Outcome::Response {
            status: Status::Good,
            data_in,
            ..
        } => Ok(data_in),
        Outcome::Response {
            status: Status::ReservationConflict,
            ..
        } => Err(Error::Reserved),
        Outcome::Response {
            sense: Some(sense), ..
        } => Err(Error::Sense(DisplaySense(sense))),
        _ => Err(Error::Protocol("an unsolicited answer".into())),
    }
}

/// The next completion. Without a deadline, for one that no clock shows, it waits for as long as the connection lives.
fn next(connection: &mut Connection, deadline: Option<Instant>) -> Result<Completion, Error> {
    loop {
        let left = deadline.map(|it| it.saturating_duration_since(Instant::now()));
        if let Some(completion) = connection.wait(left)?.got() {
            return Ok(completion);
        }
        if left.is_some_and(|it| it.is_zero()) {
            return Err(Error::Protocol("no answer in time".into()));
        }
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
