//! The target: disks for the initiators that connect.
//!
//! One thread has the engine and all connections; a pool of threads does what takes time. So the engine needs no
//! lock, and one slow disk holds up no other, to which it leaves a thread.
//!
//! | module | what it does |
//! |---|---|
//! | `peer` | what is known of one initiator: its slots, its memory, what moves |
//! | `commands` | messages in, logins |
//! | `steps` | what the engine says is done |
//! | `pool`, `buffers` | the threads, and the memory |
//! | `memory` | how much of it an initiator has, and what waits for more |
//! | `offence` | what an initiator is cut off for |
//! | `losses` | disks that lost writes, and what the next process has to know of them |

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
use peer::{Flight, Ghost, Peer, Stage};
use pool::{Done, Pool};
use steps::ABORTED;

/// What happened to initiators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// One has logged in.
    Came(SocketAddr),
    /// One is gone, and why.
    Left(SocketAddr, String),
    /// One was cut off.
    CutOff(SocketAddr, Offence),
    /// The unit that keys are granted by this name lost writes: its flushes fail from now on. Told again when that is written
    /// down later.
    Lost {
        /// Its name.
        unit: String,
        /// Whether that is written down, so that initiators learn of it from the next process, too.
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

/// How a target is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which keys may use which units: a unit is a region by its name ([`zerolane::keys::Rights::memory`]), to read,
    /// and to write if the key may.
    pub allowed: Allowed,
    /// Threads that work on disks. With 2 or more, one disk leaves one of them to the others.
    pub threads: usize,
    /// Data that a command may have in its capsule, bytes: as much memory for each slot of each initiator. Zero: all is
    /// fetched, as for initiators that know of none.
    pub capsule_bytes: u32,
    /// Memory for the payload of one initiator over all its connections, bytes. Commands that need more wait.
    pub initiator_bytes: usize,
    /// Connections that one initiator may have.
    pub initiator_connections: usize,
    /// An initiator that does not log in for so long is cut off.
    pub login_patience: Duration,
    /// An initiator whose data does not move for so long is cut off: commands of others may wait for it. And one of whose data
    /// some takes longer than that and all that is to move at 64 KiB/s.
    pub data_patience: Duration,
    /// Where it is written down that a disk lost writes, which the next target of this machine has to know: it is given the
    /// same path. `None`: initiators that do not flush before this process ends do not learn of it.
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

/// Disks, and the initiators that are connected.
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
    /// Those with work that waits for memory.
    hungry: Vec<Initiator>,
    nexuses: HashMap<NexusId, ConnectionId>,
    ghosts: HashMap<ConnectionId, Ghost>,
    pool: Pool,
    /// Work that needed no other thread.
    at_once: Vec<Done>,
    buffers: Buffers,
    losses: Losses,
    lineage: u64,
    /// A disk of it is gone with this process.
    is_mortal: bool,
    news: Vec<News>,
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
            hungry: Vec::new(),
            nexuses: HashMap::new(),
            ghosts: HashMap::new(),
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

    /// Adds a unit, which keys are granted by `name`. Initiators that knew another by its number, before it was taken away, are
    /// to connect again: they ask then which disk it is, and may do what their keys may do with this one.
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
            // What was written is gone with this process, so no other has this number.
            true => losses::of_process(),
            // A file is locked by the process that has it, so the one that had this one before has written down what it lost.
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

    /// Takes a unit away, between two calls of [`serve`](Server::serve): initiators stay connected meanwhile. They are told at
    /// the other units, and commands for this one are answered with LOGICAL UNIT NOT SUPPORTED from now on. What threads have
    /// begun for it ends as it would. False if there is none.
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

    /// The address that is listened on there, and the key by which initiators know this target.
    pub fn endpoint(&self, of: EndpointId) -> Option<(SocketAddr, Option<PublicKey>)> {
        let endpoint = self.worker.endpoint(of)?;
        Some((endpoint.local_addr(), endpoint.public_key()))
    }

    /// What initiators were cut off for so far.
    pub fn offences(&self) -> &Offences {
        &self.offences
    }

    /// Serves until `stop` says so, which is asked a few times a second; `tell` is told of initiators.
    ///
    /// # Errors
    /// The network failed.
    pub fn serve(
        &mut self,
        stop: impl Fn() -> bool,
        mut tell: impl FnMut(News),
    ) -> Result<(), ServerError> {
        while !stop() {
            self.turn(LOOK)?;
            self.news.drain(..).for_each(&mut tell);
        }
        Ok(())
    }

    /// Ends it when what its threads have begun is done, and tells what is to be told of that. Dropped, it does the same, and
    /// tells nothing.
    pub fn end(mut self, tell: impl FnMut(News)) {
        self.stop();
        self.news.drain(..).for_each(tell);
    }

    /// No initiator hears of a flush that ends now: if it fails, the next process has to know.
    fn stop(&mut self) {
        self.pool.stop();
        self.news.extend(self.losses.look());
    }

    fn turn(&mut self, timeout: Duration) -> Result<(), ServerError> {
        // A spin would keep the threads from what it waits for.
        match self.pool.needs_core() {
            true => self.worker.wait_asleep(Some(timeout))?,
            false => self.worker.wait(Some(timeout))?,
        };
        // What was read leaves before more is: its initiator goes on with that meanwhile.
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
            if !self.feed() {
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
            // One that is closed by now tells so.
            if connection.post_message_recv(None).is_err() {
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
                let strangers = self.of_same(id, |stage| matches!(stage, Stage::New));
                if strangers > self.initiator_connections {
                    self.leave(id, CROWDED);
                }
            }
            // Its key was taken off the list.
            _ => drop(self.worker.release(id)),
        }
    }

    /// How many connections the initiator of `id` has whose stage is such.
    fn of_same(&self, id: ConnectionId, is_such: impl Fn(&Stage) -> bool) -> usize {
        let initiator = self.peers.get(&id).map(|it| &it.initiator);
        let own = self.peers.values();
        let own = own.filter(|it| Some(&it.initiator) == initiator);
        own.filter(|it| is_such(&it.stage)).count()
    }

    /// What the owner of `key` may do; `None`: nothing.
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
        if let Some(news) = self.allowed.news() {
            self.news.push(News::List(news));
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

    /// Ends a connection whose initiator did what none does.
    fn cut(&mut self, id: ConnectionId, offence: Offence) {
        if let Some(peer) = self.peers.get(&id) {
            *self.offences.entry(offence).or_default() += 1;
            self.news.push(News::CutOff(peer.address, offence));
        }
        self.leave(id, &offence.to_string());
    }

    /// An initiator is gone: what it had in progress is aborted, and nothing more is begun of it.
    fn leave(&mut self, id: ConnectionId, why: &str) {
        // Dropped, it tells its peer.
        drop(self.worker.release(id));
        let Some(peer) = self.peers.remove(&id) else {
            return;
        };
        self.news.push(News::Left(peer.address, why.to_owned()));
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
        // What a thread has begun goes on, and the rest is not begun: its memory is not kept for that.
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
            let ghost = Ghost { session, at_work };
            self.ghosts.insert(id, ghost);
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
const REUSED: &str = "a unit that it knew is another by now";

/// Why one connection more of an initiator is ended.
const CROWDED: &str = "its initiator has as many connections as one may have";
