//! Holds a target's state for one initiator's connection.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use zerolane::{Connection, ExportedRegion, Region, RegionKey, Rights};
use zerolane_block::sst::Login;
use zerolane_block::{Access, Initiator, NexusId, TaskId, Work};

use super::memory::Loan;
use crate::limits::LEAST_RATE;
use crate::message::Data;

/// The user of a slot. Commands and functions have separate tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Name {
    Command(u64),
    Function(u64),
}

/// A command or function without a status yet.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) slot: u16,
    /// Where its data is.
    pub(super) data: Data,
    /// The task that does its work. Tags are reused, tasks are not.
    pub(super) task: Option<TaskId>,
    /// The data that it read.
    pub(super) read: Option<(Region, Loan)>,
}

/// A transfer over the connection, which holds its memory until it completes.
#[derive(Debug)]
pub(super) enum Flight {
    /// Data to the initiator.
    Put { _loan: Loan },
    /// Data of a command that writes.
    Get {
        task: TaskId,
        tag: u64,
        work: Work,
        loan: Loan,
    },
    /// Parameters.
    Fetch { task: TaskId, _loan: Loan },
}

impl Flight {
    fn bytes(&self) -> u64 {
        let (Flight::Put { _loan: loan }
        | Flight::Get { loan, .. }
        | Flight::Fetch { _loan: loan, .. }) = self;
        loan.bytes() as u64
    }
}

/// A flight, and how long it may take.
#[derive(Debug)]
struct Departed {
    flight: Flight,
    at: Instant,
    /// Pending bytes of the connection when this transfer began, including its own.
    load: u64,
}

impl Departed {
    /// Whether it has taken longer than `patience` and its load at the least rate.
    fn is_late(&self, patience: Duration) -> bool {
        let most = Duration::from_millis(self.load * 1000 / LEAST_RATE);
        self.at.elapsed() > patience + most
    }
}

/// How far an initiator has come.
#[derive(Debug)]
pub(super) enum Stage {
    /// Its login has not come.
    New,
    /// The initiator waits until the work of its older connection is over.
    Waiting(Login, RegionKey),
    /// It is one of the engine's.
    In(Member),
}

/// Memory that an initiator puts data of commands into before it sends them: a capsule for each of its slots.
#[derive(Debug)]
pub(super) struct Capsules {
    region: ExportedRegion,
    /// Length of one.
    pub(super) bytes: u32,
}

impl Capsules {
    /// For so many slots, of so many bytes each. Memory that nothing is put into is none.
    pub(super) fn new(slots: u16, bytes: u32) -> io::Result<Capsules> {
        let region = Region::anonymous(usize::from(slots) * bytes as usize)?;
        let region = ExportedRegion::new(region);
        let region = region.map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(Capsules { region, bytes })
    }

    /// By which the initiator knows them.
    pub(super) fn export(&self, connection: &mut Connection) -> zerolane::Result<RegionKey> {
        connection.export(&self.region, Rights::WRITE)
    }

    /// Copies the start of the capsule of `slot`. The initiator may write to the capsule at any time, and data in use
    /// must not change.
    pub(super) fn copy(&self, slot: u16, into: &mut [u8]) {
        self.region
            .read(usize::from(slot) * self.bytes as usize, into);
    }
}

/// An initiator that the engine knows.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) nexus: NexusId,
    /// Its status region.
    pub(super) status: RegionKey,
    /// Where its commands' data comes with them.
    pub(super) capsules: Option<Capsules>,
    /// The user of each slot.
    pub(super) slots: Vec<Option<Name>>,
    pub(super) held: HashMap<Name, Held>,
}

/// The connection of an initiator.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) initiator: Initiator,
    pub(super) access: Access,
    /// Since when it is connected.
    pub(super) since: Instant,
    /// Its name over its connections: see [`Login::session`].
    pub(super) session: u64,
    pub(super) stage: Stage,
    /// By the contexts of their requests.
    flights: HashMap<u64, Departed>,
    /// Bytes of them.
    load: u64,
    /// When something was last seen to move.
    moved: Instant,
    /// Payload bytes that the connection had moved, when it was looked at.
    counted: u64,
    /// The context of the next request.
    pub(super) next: u64,
    /// Jobs that threads have.
    pub(super) at_work: usize,
}

/// Work of an initiator that is gone.
#[derive(Debug)]
pub(super) struct Draining {
    pub(super) session: u64,
    pub(super) at_work: usize,
}

impl Peer {
    pub(super) fn new(address: SocketAddr, initiator: Initiator, access: Access) -> Peer {
        Peer {
            address,
            initiator,
            access,
            since: Instant::now(),
            session: 0,
            stage: Stage::New,
            flights: HashMap::new(),
            load: 0,
            moved: Instant::now(),
            counted: 0,
            next: 0,
            at_work: 0,
        }
    }

    pub(super) fn member(&mut self) -> Option<&mut Member> {
        match &mut self.stage {
            Stage::In(member) => Some(member),
            _ => None,
        }
    }

    /// Names a request that moves something, from now on.
    pub(super) fn depart(&mut self, flight: Flight) -> u64 {
        // Zero means no name.
        self.next += 1;
        if self.flights.is_empty() {
            self.moved = Instant::now();
        }
        self.load += flight.bytes();
        let departed = Departed {
            flight,
            at: Instant::now(),
            load: self.load,
        };
        self.flights.insert(self.next, departed);
        self.next
    }

    /// Completes the transfer of a request.
    pub(super) fn arrive(&mut self, context: u64) -> Option<Flight> {
        self.moved = Instant::now();
        let flight = self.flights.remove(&context)?.flight;
        self.load -= flight.bytes();
        Some(flight)
    }

    /// The transfers that were incomplete when the connection ended.
    pub(super) fn into_flights(self) -> impl Iterator<Item = Flight> {
        self.flights.into_values().map(|it| it.flight)
    }

    /// Whether transfers are pending and none has moved for longer than `patience`, or one takes longer than all of
    /// them would at the least rate, even if other data moves. `moved` counts the bytes of the whole connection. The
    /// progress of one request is unknown: a get counts bytes without gaps, so its count stays the same until a repair
    /// arrives.
    pub(super) fn is_stuck(&mut self, moved: u64, patience: Duration) -> bool {
        if moved != std::mem::replace(&mut self.counted, moved) {
            self.moved = Instant::now();
        }
        let is_still = !self.flights.is_empty() && self.moved.elapsed() > patience;
        is_still || self.flights.values().any(|it| it.is_late(patience))
    }
}

/// Payload bytes that have moved over it.
pub(super) fn moved(connection: &Connection) -> u64 {
    let it = connection.account().protocol;
    // Do not count retransmissions, which may go to a peer that receives nothing.
    it.bytes_received + it.bytes_sent - it.bytes_resent
}

impl Member {
    /// Data that a command of it may have in its capsule, bytes.
    pub(super) fn capsule_bytes(&self) -> u64 {
        self.capsules.as_ref().map_or(0, |it| it.bytes.into())
    }

    /// Takes a slot for `name`. False if there is no such slot, or `is_live` says that it is in use.
    pub(super) fn take_slot(
        &mut self,
        name: Name,
        held: Held,
        is_live: impl Fn(Name) -> bool,
    ) -> bool {
        let Some(slot) = self.slots.get_mut(usize::from(held.slot)) else {
            return false;
        };
        if let Some(old) = *slot {
            if is_live(old) {
                return false;
            }
            // It was aborted, and gets no status.
            self.held.remove(&old);
        }
        *slot = Some(name);
        if let Some(old) = self.held.insert(name, held) {
            // Aborted, and its tag used again.
            let slot = self.slots.get_mut(usize::from(old.slot));
            if let Some(slot) = slot.filter(|it| **it == Some(name)) {
                let is_same = self.held.get(&name).is_some_and(|it| it.slot == old.slot);
                *slot = is_same.then_some(name);
            }
        }
        true
    }

    /// Frees the slot of `name` just before its status is put.
    pub(super) fn release(&mut self, name: Name) -> Option<Held> {
        let held = self.held.remove(&name)?;
        if let Some(slot) = self.slots.get_mut(usize::from(held.slot)) {
            *slot = None;
        }
        Some(held)
    }
}

#[cfg(test)]
#[path = "peer_tests.rs"]
mod tests;
