//! Receives the messages of initiators: logins, commands, task management.

use zerolane::failure::TransferError;
use zerolane::request::{Output, PutInline, ReceiveMessage};
use zerolane::worker::ConnectionId;
use zerolane::{Completion, RegionKey};
use zerolane_block::sense::{Code, Key, Sense};
use zerolane_block::sst::{
    CommandUnit, Login, ManagementUnit, Outcome, Roles, STATUS_BYTES, StatusUnit,
};
use zerolane_block::{Residual, Status};

use super::offence::{Offence, not_posted};
use super::peer::{Capsules, Flight, Held, Member, Name, Stage};
use super::{CROWDED, Server, ServerEvent};
use crate::limits::{TARGET_SLOTS, TARGET_TRANSFER_BYTES};
use crate::message::{self, Data, Message};

impl Server {
    pub(super) fn on_completion(&mut self, id: ConnectionId, completion: Completion) {
        let outcome = match (&completion.output, completion.result) {
            (Output::MessageReceived { control, .. }, Ok(_)) => self.on_message(id, control),
            (Output::MessageReceived { .. }, Err(_)) => Ok(()),
            // The end of the connection is reported after its failed transfers.
            (_, Err(TransferError::Closed(_))) => Ok(()),
            (_, result) => self.on_moved(id, completion, result.is_ok()),
        };
        if let Err(offence) = outcome {
            self.cut(id, offence);
        }
    }

    fn on_message(&mut self, id: ConnectionId, bytes: &[u8]) -> Result<(), Offence> {
        if let Some(connection) = self.worker.connection(id) {
            // A closed connection reports that by an event.
            let _ = connection.post(ReceiveMessage::new());
        }
        if !self.peers.contains_key(&id) {
            return Ok(());
        }
        match message::parse(bytes).map_err(|_| Offence::Message)? {
            Message::Login(login, status) => self.on_login(id, login, status),
            Message::Command(unit, data) => self.on_command(id, &unit, data),
            Message::Management(unit) => self.on_management(id, &unit),
        }
    }

    /// Handles the end of a data transfer.
    fn on_moved(
        &mut self,
        id: ConnectionId,
        completion: Completion,
        is_there: bool,
    ) -> Result<(), Offence> {
        let Some(peer) = self.peers.get_mut(&id) else {
            return Ok(());
        };
        if !is_there {
            // The initiator is disconnected next, which reports the failure to the engine.
            return Err(Offence::Memory);
        }
        let Some(flight) = peer.arrive(completion.context) else {
            return Ok(());
        };
        let memory = completion.into_region().map_err(|_| Offence::Memory)?;
        match flight {
            Flight::Put { .. } => self.buffers.give(memory),
            Flight::Get {
                task,
                tag,
                work,
                loan,
            } => self.set_to_work(id, task, tag, work, (memory, loan)),
            Flight::Fetch { task, .. } => self.engine.fetched(task, &memory),
        }
        Ok(())
    }

    fn on_login(
        &mut self,
        id: ConnectionId,
        login: Login,
        status: RegionKey,
    ) -> Result<(), Offence> {
        let Some(peer) = self.peers.get_mut(&id) else {
            return Ok(());
        };
        if !matches!(peer.stage, Stage::New) || !login.roles.initiator {
            return Err(Offence::Login);
        }
        let needed = u64::from(login.slots) * STATUS_BYTES as u64;
        if status.len() < needed || !status.rights().write {
            return Err(Offence::StatusRegion);
        }
        peer.session = login.session;
        peer.stage = Stage::Waiting(login, status);
        // The initiator knows of a broken connection before this end does. Its session is known to it alone.
        let is_older = |(&other, it): (&ConnectionId, &super::Peer)| {
            let was_in = !matches!(it.stage, Stage::New);
            (other != id && was_in && it.session == login.session).then_some(other)
        };
        let older: Vec<_> = self.peers.iter().filter_map(is_older).collect();
        for older in older {
            self.leave(older, "its initiator has connected again");
        }
        // With this one.
        let own = self.of_same(id, |stage| !matches!(stage, Stage::New));
        if own > self.initiator_connections {
            self.leave(id, CROWDED);
        }
        self.admit();
        Ok(())
    }

    /// Admits the initiators that no longer wait for old work.
    pub(super) fn admit(&mut self) {
        let waits = |it: &super::Peer| {
            let mut draining = self.draining.values();
            draining.any(|old| old.session == it.session)
        };
        let ready = self.peers.iter().filter_map(|(&id, it)| match it.stage {
            Stage::Waiting(login, status) if !waits(it) => Some((id, login, status)),
            _ => None,
        });
        let ready: Vec<_> = ready.collect();
        for (id, login, status) in ready {
            if self.let_in(id, &login, status).is_none() {
                self.leave(id, "the target is full");
            }
        }
    }

    fn let_in(&mut self, id: ConnectionId, login: &Login, status: RegionKey) -> Option<()> {
        let peer = self.peers.get_mut(&id)?;
        let connection = self.worker.connection(id)?;
        let access = peer.access.clone();
        let units = access.units.as_ref().map_or(0, Vec::len) as u16;
        let slots = login.slots.min(TARGET_SLOTS);
        let capsule_bytes = login.capsule_bytes.min(self.capsule_bytes);
        let (mut capsules, mut key) = (None, None);
        if capsule_bytes > 0 {
            let made = Capsules::new(slots, capsule_bytes).ok()?;
            key = Some(made.export(connection).ok()?);
            capsules = Some(made);
        }
        let nexus = self.engine.attach(peer.initiator.clone(), access).ok()?;
        self.nexuses.insert(nexus, id);
        peer.stage = Stage::In(Member {
            nexus,
            status,
            capsules,
            slots: vec![None; slots.into()],
            held: Default::default(),
        });
        self.news.push(ServerEvent::Connected(peer.address));
        let own = Login {
            roles: Roles {
                initiator: false,
                target: true,
            },
            alignment: 0,
            units,
            slots: TARGET_SLOTS,
            transfer_bytes: TARGET_TRANSFER_BYTES,
            // An initiator that knows of no capsules knows no other login than it had before.
            capsule_bytes,
            session: self.lineage,
        };
        let login = message::target_login(&own, key.as_ref());
        connection
            .post(zerolane::request::Message::new(&login).signalled(false))
            .ok()?;
        Some(())
    }

    fn on_command(
        &mut self,
        id: ConnectionId,
        unit: &CommandUnit,
        data: Data,
    ) -> Result<(), Offence> {
        if unit.data_in.max(unit.data_out) > u64::from(TARGET_TRANSFER_BYTES) {
            return Err(Offence::Length);
        }
        let held = Held {
            slot: unit.slot,
            data,
            task: None,
            read: None,
        };
        let name = Name::Command(unit.tag);
        let (engine, peer) = (&mut self.engine, self.peers.get_mut(&id));
        let member = peer.and_then(|it| it.member()).ok_or(Offence::Login)?;
        let in_capsule = data == Data::InCapsule;
        if in_capsule && unit.data_out > member.capsule_bytes() {
            return Err(Offence::Capsule);
        }
        let nexus = member.nexus;
        let is_live = |name: Name| match name {
            Name::Command(tag) => engine.has_command(nexus, tag),
            Name::Function(_) => true,
        };
        if member.held.contains_key(&name) && is_live(name) {
            return self.overlapped(id, unit);
        }
        if !member.take_slot(name, held, is_live) {
            return Err(Offence::Slot);
        }
        // There is such a nexus as long as there is the member.
        let _ = engine.submit(nexus, &unit.request(in_capsule));
        self.take_steps();
        Ok(())
    }

    /// A tag that is in use: its first command goes on, and has the name.
    fn overlapped(&mut self, id: ConnectionId, unit: &CommandUnit) -> Result<(), Offence> {
        let member = self.peers.get_mut(&id).and_then(|it| it.member());
        let member = member.ok_or(Offence::Login)?;
        if member.slots.get(usize::from(unit.slot)) != Some(&None) {
            return Err(Offence::Slot);
        }
        let outcome = Outcome::Response {
            status: Status::CheckCondition,
            sense: Some(Sense::new(Key::AbortedCommand, Code::OVERLAPPED_COMMANDS)),
            residual: Residual::None,
            data_in: 0,
        };
        self.put_status(id, unit.slot, unit.tag, outcome)
    }

    fn on_management(&mut self, id: ConnectionId, unit: &ManagementUnit) -> Result<(), Offence> {
        let held = Held {
            slot: unit.slot,
            data: Data::None,
            task: None,
            read: None,
        };
        let name = Name::Function(unit.tag);
        let (engine, peer) = (&mut self.engine, self.peers.get_mut(&id));
        let member = peer.and_then(|it| it.member()).ok_or(Offence::Login)?;
        let nexus = member.nexus;
        let is_live = |name: Name| match name {
            Name::Command(tag) => engine.has_command(nexus, tag),
            Name::Function(_) => true,
        };
        if member.held.contains_key(&name) || !member.take_slot(name, held, is_live) {
            return Err(Offence::Slot);
        }
        let _ = engine.manage(nexus, unit.tag, unit.lun, unit.function);
        self.take_steps();
        Ok(())
    }

    /// Reports the end of a command, after its data, because the initiator sees the immediate only once the data is in
    /// place.
    pub(super) fn put_status(
        &mut self,
        id: ConnectionId,
        slot: u16,
        tag: u64,
        outcome: Outcome,
    ) -> Result<(), Offence> {
        let member = self.peers.get_mut(&id).and_then(|it| it.member());
        let status = member.ok_or(Offence::Login)?.status;
        let Some(connection) = self.worker.connection(id) else {
            return Ok(());
        };
        let bytes = StatusUnit { tag, outcome }.encode();
        let at = u64::from(slot) * STATUS_BYTES as u64;
        let posted = connection.post(
            PutInline::new(&status, at, &bytes)
                .signalled(false)
                .immediate(u32::from(slot)),
        );
        posted.map(drop).or_else(|why| not_posted(&why.error))
    }
}
