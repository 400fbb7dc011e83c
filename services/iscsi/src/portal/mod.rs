//! Joins the engine and its sessions without IO: takes initiators' bytes, and returns bytes for them and [`Job`]s.

mod commands;
mod job;
mod steps;

pub use job::{Done, Job};

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use zerolane_block::store::Store;
use zerolane_block::{Disk, Lun, NexusId, Refused, Target, TaskId};

use crate::limits::{MAX_CONNECTIONS, MAX_UNSENT_BYTES};
use crate::session::{Offence, Session, Stage};

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(u64);

/// Where an initiator comes from: its name and the number of its port.
type Port = (String, [u8; 6]);

/// A portal with one target.
#[derive(Debug)]
pub struct Portal {
    name: String,
    read_only: bool,
    engine: Target,
    luns: BTreeSet<Lun>,
    sessions: BTreeMap<Peer, Session>,
    nexuses: BTreeMap<NexusId, Peer>,
    jobs: VecDeque<Job>,
    /// Jobs that threads are executing, with their owners.
    running: BTreeMap<TaskId, (Peer, Port)>,
    /// Connections that there is something to send to, or that are over.
    changed: BTreeSet<Peer>,
    offences: BTreeMap<Offence, u64>,
    next: u64,
}

impl Portal {
    /// Serves a target called `name`; if `read_only`, no initiator may write.
    pub fn new(name: &str, read_only: bool) -> Portal {
        Portal {
            name: name.to_owned(),
            read_only,
            engine: Target::new(),
            luns: BTreeSet::new(),
            sessions: BTreeMap::new(),
            nexuses: BTreeMap::new(),
            jobs: VecDeque::new(),
            running: BTreeMap::new(),
            changed: BTreeSet::new(),
            offences: BTreeMap::new(),
            next: 0,
        }
    }

    /// The name of the target.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a unit.
    ///
    /// # Errors
    /// The number is taken, or there are too many.
    pub fn add_unit(&mut self, lun: Lun, disk: Disk, store: Arc<dyn Store>) -> Result<(), Refused> {
        self.engine.add_unit(lun, disk, store)?;
        self.luns.insert(lun);
        Ok(())
    }

    /// Adds a connection. `address` is the portal's address that the initiator used, as ADDRESS:PORT. `None` if there
    /// are [`MAX_CONNECTIONS`] already.
    pub fn connect(&mut self, address: &str) -> Option<Peer> {
        if self.sessions.len() >= MAX_CONNECTIONS {
            return None;
        }
        self.next += 1;
        let peer = Peer(self.next);
        self.sessions.insert(peer, Session::new(address.to_owned()));
        Some(peer)
    }

    /// Handles received bytes.
    pub fn receive(&mut self, peer: Peer, bytes: &[u8]) {
        if let Some(session) = self.sessions.get_mut(&peer) {
            session.decoder.push(bytes);
        }
        while let Some(session) = self.sessions.get_mut(&peer).filter(|it| !it.over) {
            let taken = match session.decoder.next(session.digests) {
                Ok(None) => break,
                Ok(Some(pdu)) => self.on_pdu(peer, pdu),
                Err(_) => Err(Offence::Frame),
            };
            if let Err(offence) = taken {
                self.cut(peer, offence);
            }
            self.settle();
        }
        self.changed.insert(peer);
    }

    /// The next bytes to send; empty if there are none now.
    pub fn take_output(&mut self, peer: Peer) -> Vec<u8> {
        let session = self.sessions.get_mut(&peer);
        session.map_or_else(Vec::new, |it| std::mem::take(&mut it.out))
    }

    /// Reports that the output taken last was sent, which makes room for more.
    pub fn on_sent(&mut self, peer: Peer) {
        self.admit(peer);
        self.settle();
    }

    /// Whether the server should not read from this initiator now.
    pub fn is_full(&self, peer: Peer) -> bool {
        let session = self.sessions.get(&peer);
        session.is_some_and(|it| it.out.len() > MAX_UNSENT_BYTES)
    }

    /// Whether the portal waits for a login, or data, of this initiator.
    pub fn is_owed(&self, peer: Peer) -> bool {
        self.sessions.get(&peer).is_some_and(Session::is_owed)
    }

    /// Whether the initiator has logged in.
    pub fn is_in(&self, peer: Peer) -> bool {
        let session = self.sessions.get(&peer);
        session.is_some_and(|it| !matches!(it.stage, Stage::Login(_)))
    }

    /// Whether the connection ends when all output is sent.
    pub fn is_over(&self, peer: Peer) -> bool {
        self.sessions.get(&peer).is_none_or(|it| it.over)
    }

    /// Why the initiator was disconnected, if it was.
    pub fn offence(&self, peer: Peer) -> Option<Offence> {
        self.sessions.get(&peer)?.offence
    }

    /// Disconnects an initiator for an offence.
    pub fn cut(&mut self, peer: Peer, offence: Offence) {
        *self.offences.entry(offence).or_default() += 1;
        if let Some(session) = self.sessions.get_mut(&peer) {
            session.offence = Some(offence);
        }
        self.end(peer);
        self.settle();
    }

    /// Takes the set of connections whose state changed.
    pub fn take_changed(&mut self) -> BTreeSet<Peer> {
        std::mem::take(&mut self.changed)
    }

    /// The number of initiators disconnected for each offence.
    pub fn offences(&self) -> &BTreeMap<Offence, u64> {
        &self.offences
    }

    /// The number of jobs that wait for a thread.
    pub fn jobs_waiting(&self) -> usize {
        self.jobs.len()
    }

    /// The next job for a thread.
    pub fn next_job(&mut self) -> Option<Job> {
        self.jobs.pop_front()
    }

    /// Removes a closed connection.
    pub fn disconnect(&mut self, peer: Peer) {
        self.end(peer);
        self.sessions.remove(&peer);
        self.settle();
    }
}
