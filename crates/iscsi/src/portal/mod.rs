//! The engine and the sessions at it, without IO: bytes of initiators go in, bytes for them and [`Job`]s come out.

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
    /// Work that threads have, and whose it is.
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

    /// An initiator has connected; `address` is what it reached the portal by, as ADDRESS:PORT. None if there are
    /// [`MAX_CONNECTIONS`].
    pub fn connect(&mut self, address: &str) -> Option<Peer> {
        if self.sessions.len() >= MAX_CONNECTIONS {
            return None;
        }
        self.next += 1;
        let peer = Peer(self.next);
        self.sessions.insert(peer, Session::new(address.to_owned()));
        Some(peer)
    }

    /// Bytes came.
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

    /// What is to be sent next; empty if there is nothing now.
    pub fn take_output(&mut self, peer: Peer) -> Vec<u8> {
        let session = self.sessions.get_mut(&peer);
        session.map_or_else(Vec::new, |it| std::mem::take(&mut it.out))
    }

    /// What was taken is sent, so that there is room for more.
    pub fn on_sent(&mut self, peer: Peer) {
        self.admit(peer);
        self.settle();
    }

    /// No bytes of this initiator should be read now.
    pub fn is_full(&self, peer: Peer) -> bool {
        let session = self.sessions.get(&peer);
        session.is_some_and(|it| it.out.len() > MAX_UNSENT_BYTES)
    }

    /// The initiator owes a login, or data.
    pub fn is_owed(&self, peer: Peer) -> bool {
        self.sessions.get(&peer).is_some_and(Session::is_owed)
    }

    /// The initiator has logged in.
    pub fn is_in(&self, peer: Peer) -> bool {
        let session = self.sessions.get(&peer);
        session.is_some_and(|it| !matches!(it.stage, Stage::Login(_)))
    }

    /// The connection ends when all is sent.
    pub fn is_over(&self, peer: Peer) -> bool {
        self.sessions.get(&peer).is_none_or(|it| it.over)
    }

    /// Why the initiator was cut off, if it was.
    pub fn offence(&self, peer: Peer) -> Option<Offence> {
        self.sessions.get(&peer)?.offence
    }

    /// Cuts an initiator off.
    pub fn cut(&mut self, peer: Peer, offence: Offence) {
        *self.offences.entry(offence).or_default() += 1;
        if let Some(session) = self.sessions.get_mut(&peer) {
            session.offence = Some(offence);
        }
        self.end(peer);
        self.settle();
    }

    /// Connections about which there is news.
    pub fn take_changed(&mut self) -> BTreeSet<Peer> {
        std::mem::take(&mut self.changed)
    }

    /// How many initiators were cut off, and for what.
    pub fn offences(&self) -> &BTreeMap<Offence, u64> {
        &self.offences
    }

    /// How much work there is for threads.
    pub fn jobs_waiting(&self) -> usize {
        self.jobs.len()
    }

    /// Work for a thread.
    pub fn next_job(&mut self) -> Option<Job> {
        self.jobs.pop_front()
    }

    /// A connection is no more.
    pub fn disconnect(&mut self, peer: Peer) {
        self.end(peer);
        self.sessions.remove(&peer);
        self.settle();
    }
}
