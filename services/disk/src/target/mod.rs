//! Serves disks to the initiators that connect.
//!
//! One thread owns the engine and all connections; a pool of threads does slow work. The engine therefore needs no lock, and
//! a slow disk does not hold up others while the pool has a free thread.
//!
//! | module | what it does |
//! |---|---|
//! | `peer` | the state of one initiator: its slots, its memory, its transfers |
//! | `commands` | incoming messages, logins |
//! | `steps` | executes the engine's steps |
//! | `pool`, `buffers` | the threads, and the memory |
//! | `memory` | limits the memory of an initiator, and queues work |
//! | `offence` | the reasons to disconnect an initiator |
//! | `losses` | disks that lost writes, recorded for the next process |

mod buffers;
mod commands;
mod losses;
mod memory;
mod offence;
mod peer;
mod pool;
mod steps;

pub use offence::{Offence, Offences};

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zerolane::keys::Access as Allowed;
use zerolane::request::ReceiveMessage;
use zerolane::security::PublicKey;
use zerolane::worker::{ConnectionId, EndpointId, Event, Worker};
use zerolane::{Options, Rights};
use zerolane_block::store::Store;
use zerolane_block::{Access, Disk, Initiator, Lun, NexusId, Refused, Target};

use crate::limits::{
    AT_ONCE_COMMANDS, CAPSULE_BYTES, DATA_PATIENCE, INITIATOR_BYTES, INITIATOR_CONNECTIONS,
    LOGIN_PATIENCE, LOOK, TARGET_RECEIVES,
};
use buffers::Buffers;
use losses::Losses;
use memory::Share;
use peer::{Draining, Flight, Peer, Stage};
use pool::{Done, Pool};
use steps::ABORTED;

/// An event at an initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// One has logged in.
    Connected(SocketAddr),
    /// One is gone, and why.
    Disconnected(SocketAddr, String),
    /// One was cut off.
    CutOff(SocketAddr, Offence),
    /// The unit that keys are granted by this name lost writes: its flushes fail from now on. Told again when that is written
    /// down later.
    Lost {
        /// Its name.
        unit: String,
        /// Whether the loss was recorded, so that initiators also learn of it from the next process.
        recorded: Result<(), String>,
    },
    /// The list of keys was read again: how many it has, or why it cannot be used.
    List(Result<usize, String>),
}

/// Why a target cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The network.
    #[error(transparent)]
    Zerolane(#[from] zerolane::Error),
    /// The system.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Settings of a target.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The units that each key may use. A unit counts as a region by its name ([`zerolane::keys::Rights::memory`]),
    /// readable, and writable if the key may write.
    pub allowed: Allowed,
    /// Threads that work on disks. With 2 or more, one disk always leaves a thread to the others.
    pub threads: usize,
    /// Most data in the capsule of a command, bytes. Each slot of each initiator takes as much memory. Zero: the target
    /// fetches all data, as from initiators without capsules.
    pub capsule_bytes: u32,
    /// Memory for the payload of one initiator over all its connections, bytes. Commands that need more wait.
    pub initiator_bytes: usize,
    /// Most connections of one initiator.
    pub initiator_connections: usize,
    /// How long an initiator may take to log in before it is disconnected.
    pub login_patience: Duration,
    /// An initiator whose data does not move for this long is disconnected, because commands of others may wait for it.
    /// So is one with a transfer that takes longer than this and all its pending data at 64 KiB/s.
    pub data_patience: Duration,
    /// The file that records lost writes for the next target on this machine, which must use the same path. `None`: an
    /// initiator that does not flush before this process ends does not learn of the loss.
    pub losses: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            allowed: Allowed::default(),
            threads: 4,
            capsule_bytes: CAPSULE_BYTES,
            initiator_bytes: INITIATOR_BYTES,
            initiator_connections: INITIATOR_CONNECTIONS,
            login_patience: LOGIN_PATIENCE,
            data_patience: DATA_PATIENCE,
            losses: None,
        }
    }
}

/// A target: its disks and the connected initiators.
pub struct Server {
    worker: Worker,
    engine: Target,
    units: Vec<(Lun, String)>,
    allowed: Allowed,
    capsule_bytes: u32,
    initiator_bytes: usize,
    initiator_connections: usize,
    login_patience: Duration,
    data_patience: Duration,
    peers: HashMap<ConnectionId, Peer>,
    shares: HashMap<Initiator, Share>,
    /// Initiators with work that waits for memory.
    waiting_for_memory: Vec<Initiator>,
    nexuses: HashMap<NexusId, ConnectionId>,
    draining: HashMap<ConnectionId, Draining>,
    pool: Pool,
    /// Work that needed no other thread.
    at_once: Vec<Done>,
    buffers: Buffers,
    losses: Losses,
    lineage: u64,
    /// A disk of it is gone with this process.
    is_mortal: bool,
    news: Vec<ServerEvent>,
    offences: Offences,
    looked: Instant,
}

impl Server {
    /// A target without units, that listens nowhere.
    ///
    /// # Errors
    /// The system has no thread or descriptor left.
    pub fn new(settings: Settings) -> Result<Server, ServerError> {
        let losses = Losses::new(settings.losses);
        let worker = Worker::new()?;
        let pool = Pool::new(settings.threads, worker.waker())?;
        Ok(Server {
            worker,
            engine: Target::new(),
            units: Vec::new(),
            allowed: settings.allowed,
            capsule_bytes: settings.capsule_bytes,
            initiator_bytes: settings.initiator_bytes,
            initiator_connections: settings.initiator_connections,
            login_patience: settings.login_patience,
            data_patience: settings.data_patience,
            peers: HashMap::new(),
            shares: HashMap::new(),
            waiting_for_memory: Vec::new(),
            nexuses: HashMap::new(),
            draining: HashMap::new(),
            pool,
            at_once: Vec::new(),
            buffers: Buffers::default(),
            lineage: losses.lineage()?,
            losses,
            is_mortal: false,
            news: Vec::new(),
            offences: Offences::new(),
            looked: Instant::now(),
        })
    }

    /// Adds a unit, to which keys are granted access by `name`. Initiators that knew an earlier unit with this number
    /// must reconnect: they then ask which disk it is, and get the access of their keys to this one.
    ///
    /// # Errors
    /// The number is taken, or there are too many.
    pub fn add_unit(
        &mut self,
        lun: Lun,
        name: &str,
        disk: Disk,
        store: Arc<dyn Store>,
    ) -> Result<(), Refused> {
        self.engine.add_unit(lun, disk, Arc::clone(&store))?;
        // Of the disk that it may have been before.
        self.news.extend(self.losses.look());
        self.is_mortal |= !store.outlives_process();
        let lineage = match self.is_mortal {
            // Writes are lost with this process, so the number must be unique to it.
            true => losses::of_process(),
            // A process locks the file that it serves, so the previous process has recorded its losses.
            false => self.losses.lineage(),
        };
        self.lineage = lineage.unwrap_or(0);
        self.losses.watch(lun, name, store);
        self.units.push((lun, name.to_owned()));
        self.pool.serve(self.units.len());
        let known = self.peers.iter().filter(|(_, it)| it.access.sees(lun));
        let known: Vec<_> = known.map(|(&id, _)| id).collect();
        for id in known {
            self.leave(id, REUSED);
        }
        self.take_steps();
        Ok(())
    }

    /// Removes a unit, between two calls of [`serve`](Server::serve). Initiators stay connected and are notified at the
    /// other units. From now on, commands for this unit fail with LOGICAL UNIT NOT SUPPORTED. Work that threads have
    /// begun for it completes. False if there is no such unit.
    pub fn remove_unit(&mut self, lun: Lun) -> bool {
        self.units.retain(|(it, _)| *it != lun);
        self.pool.serve(self.units.len());
        self.losses.release(lun);
        let was_there = self.engine.remove_unit(lun);
        self.take_steps();
        self.news.extend(self.losses.look());
        was_there
    }

    /// Listens on `on`, port 0: any free one. What key a client must have is the options' matter.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn listen(&mut self, on: SocketAddr, options: Options) -> Result<EndpointId, ServerError> {
        Ok(self.worker.listen(on, options)?)
    }

    /// The address of an endpoint, and the public key by which initiators recognise this target.
    pub fn endpoint(&self, of: EndpointId) -> Option<(SocketAddr, Option<PublicKey>)> {
        let endpoint = self.worker.endpoint(of)?;
        Some((endpoint.local_addr(), endpoint.public_key()))
    }

    /// The offences so far, for which initiators were disconnected.
    pub fn offences(&self) -> &Offences {
        &self.offences
    }

    /// Serves until `stop` returns true, which it checks a few times a second. Reports events of initiators to `tell`.
    ///
    /// # Errors
    /// The network failed.
    pub fn serve(
        &mut self,
        stop: impl Fn() -> bool,
        mut tell: impl FnMut(ServerEvent),
    ) -> Result<(), ServerError> {
        while !stop() {
            self.turn(LOOK)?;
            self.news.drain(..).for_each(&mut tell);
        }
        Ok(())
    }

    /// Waits for the work that its threads have begun, reports its results to `tell`, and ends the target. Dropping the
    /// target does the same without reports.
    pub fn end(mut self, tell: impl FnMut(ServerEvent)) {
        self.stop();
        self.news.drain(..).for_each(tell);
    }

    /// No initiator hears of a flush that ends now: if it fails, the next process has to know.
    fn stop(&mut self) {
        self.pool.stop();
        self.news.extend(self.losses.look());
    }

    fn turn(&mut self, timeout: Duration) -> Result<(), ServerError> {
        // Spinning would keep the threads from the work that it waits for.
        match self.pool.needs_core() {
            true => self.worker.wait_asleep(Some(timeout))?.got().is_some(),
            false => self.worker.wait(Some(timeout))?.got().is_some(),
        };
        // Send read data before reading more, so that the initiator can continue meanwhile.
        while self.at_once.len() < AT_ONCE_COMMANDS
            && let Some(event) = self.worker.next_event()
        {
            self.on_event(event)?;
            self.take_steps();
        }
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            self.look();
        }
        loop {
            self.take_steps();
            self.take_done();
            if !self.start_waiting() {
                return Ok(());
            }
        }
    }

    fn on_event(&mut self, event: Event) -> Result<(), ServerError> {
        match event {
            Event::Accepted { connection, .. } => self.come(connection),
            Event::Completed {
                connection,
                completion,
            } => self.on_completion(connection, completion),
            Event::Closed { connection, reason } => self.leave(connection, &reason.to_string()),
            Event::Announced { connection, .. } => self.cut(connection, Offence::Transfer),
            Event::EndpointFailed { error, .. } => return Err(error.into()),
            _ => {}
        }
        Ok(())
    }

    fn come(&mut self, id: ConnectionId) {
        let Some(connection) = self.worker.connection(id) else {
            return;
        };
        let (address, key) = (connection.peer_addr(), connection.peer_key());
        for _ in 0..TARGET_RECEIVES {
            // A closed connection reports that by an event.
            if connection.post(ReceiveMessage::new()).is_err() {
                break;
            }
        }
        let name = key.map_or_else(|| address.ip().to_string(), |key| key.to_string());
        let initiator = Initiator::named(name.as_bytes());
        match (initiator, self.access(key)) {
            (Some(initiator), Some(access)) => {
                let share = self.shares.entry(initiator.clone()).or_default();
                share.connections += 1;
                self.peers.insert(id, Peer::new(address, initiator, access));
                let new = self.of_same(id, |stage| matches!(stage, Stage::New));
                if new > self.initiator_connections {
                    self.leave(id, CROWDED);
                }
            }
            // Its key was taken off the list.
            _ => drop(self.worker.release(id)),
        }
    }

    /// The number of connections of the initiator of `id` whose stage satisfies `is_such`.
    fn of_same(&self, id: ConnectionId, is_such: impl Fn(&Stage) -> bool) -> usize {
        let initiator = self.peers.get(&id).map(|it| &it.initiator);
        let own = self.peers.values();
        let own = own.filter(|it| Some(&it.initiator) == initiator);
        own.filter(|it| is_such(&it.stage)).count()
    }

    /// The access of the owner of `key`; `None`: no access.
    fn access(&self, key: Option<PublicKey>) -> Option<Access> {
        let rights = self.allowed.rights(key)?;
        let seen = |name: &str| rights.memory(name, Rights::READ).read;
        let units = self.units.iter().filter(|(_, name)| seen(name));
        Some(Access {
            units: Some(units.map(|&(lun, _)| lun).collect()),
            read_only: !rights.write,
        })
    }

    /// Initiators that are silent for too long, the list of keys, and losses that could not be written down before.
    fn look(&mut self) {
        self.news.extend(self.losses.look());
        if let Some(news) = self.allowed.take_change() {
            self.news.push(ServerEvent::List(news));
        }
        self.shares.retain(|_, share| share.is_used());
        let mut silent = Vec::new();
        for (&id, peer) in &mut self.peers {
            let is_silent = match (&peer.stage, self.worker.connection(id)) {
                (Stage::New, _) => peer.since.elapsed() > self.login_patience,
                (_, Some(connection)) => peer.is_stuck(peer::moved(connection), self.data_patience),
                _ => false,
            };
            if is_silent {
                silent.push(id);
            }
        }
        for id in silent {
            self.cut(id, Offence::Silence);
        }
    }

    /// Disconnects an initiator for an offence.
    fn cut(&mut self, id: ConnectionId, offence: Offence) {
        if let Some(peer) = self.peers.get(&id) {
            *self.offences.entry(offence).or_default() += 1;
            self.news.push(ServerEvent::CutOff(peer.address, offence));
        }
        self.leave(id, &offence.to_string());
    }

    /// Removes a departed initiator: aborts its work in progress, and starts no more.
    fn leave(&mut self, id: ConnectionId, why: &str) {
        // Dropping the connection notifies its peer.
        drop(self.worker.release(id));
        let Some(peer) = self.peers.remove(&id) else {
            return;
        };
        self.news
            .push(ServerEvent::Disconnected(peer.address, why.to_owned()));
        if let Stage::In(member) = &peer.stage {
            self.nexuses.remove(&member.nexus);
            self.engine.detach(member.nexus);
        }
        let (initiator, session, at_work) = (peer.initiator.clone(), peer.session, peer.at_work);
        let moving = peer.into_flights().filter_map(|it| match it {
            Flight::Get { task, .. } => Some(task),
            Flight::Put { .. } | Flight::Fetch { .. } => None,
        });
        let mut over: Vec<_> = moving.collect();
        if let Some(share) = self.shares.get_mut(&initiator) {
            share.connections -= 1;
            let own = share.waiting.iter().filter(|it| it.owner == id);
            over.extend(own.map(|it| it.task));
            share.waiting.retain(|it| it.owner != id);
        }
        // Running jobs continue. Withdraw the waiting ones, to free their memory.
        let withdrawn = self.pool.withdraw(id);
        let at_work = at_work - withdrawn.len();
        for job in withdrawn {
            self.buffers.give(job.memory);
            over.push(job.task);
        }
        for task in over {
            self.engine.done(task, Err(ABORTED));
        }
        if at_work > 0 {
            let old = Draining { session, at_work };
            self.draining.insert(id, old);
        }
        self.admit();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Why connections are ended when a unit is added.
const REUSED: &str = "a unit that it knew was replaced";

/// Why one connection more of an initiator is ended.
const CROWDED: &str = "its initiator has too many connections";
