//! One loop for many connections.
//!
//! A [`Worker`] owns endpoints and connections and moves all of them: one descriptor and one timer for a thousand
//! sockets. It runs in one of three ways, with the same code:
//!
//! - **called by the user**: [`Worker::progress`] does a bounded amount of work, [`Worker::wait`] sleeps until there
//!   is an [`Event`]; in an event loop of its own a program watches the descriptor ([`AsFd`]) after [`Worker::arm`];
//! - **in a thread of its own**: [`Worker::spawn`]. [`WorkerHandle`], [`EndpointHandle`] and [`ConnectionHandle`] are
//!   `Send + Sync`; to post is to push to a queue and to wake the thread if it sleeps. Peers are served while the
//!   program does something else, exported memory included;
//! - **in an async runtime**: `Worker::run` with the feature `tokio`. What handles return are futures, of any
//!   runtime.
//!
//! A [`Connection`] that its caller drives is the fastest for one peer. [`Worker::adopt`] takes one over,
//! [`Worker::release`] gives it back.
//!
//! Whole programs are in the crate's `examples`: `rpc_server` answers a thousand clients in one thread, `kv_cache` is a
//! passive target that others fill and read, `tokio_echo` is made of tasks.
//!
//! An echo server of any number of clients in one thread:
//!
//! ```
//! use zerolane::request::WorkKind;
//! use zerolane::worker::{Event, Worker};
//! use zerolane::{Connection, Options, Region};
//! let mut worker = Worker::new()?;
//! let endpoint = worker.listen("127.0.0.1:0".parse().unwrap(), Options::default())?;
//! let address = worker.endpoint(endpoint).expect("it listens").local_addr();
//! let client = std::thread::spawn(move || -> zerolane::Result<Vec<u8>> {
//!     let mut connection = Connection::connect(address, &Options::default())?;
//!     connection.send(b"hello")?;
//!     let mut back = vec![0; 5];
//!     connection.recv_into(&mut back)?;
//!     connection.close()?;
//!     Ok(back)
//! });
//! let mut left = None;
//! while left.is_none() {
//!     worker.wait(None)?;
//!     while let Some(event) = worker.next_event() {
//!         match event {
//!             Event::Accepted { connection, .. } => {
//!                 let connection = worker.connection(connection).expect("it was accepted now");
//!                 connection.post_recv(Region::anonymous(4096)?)?;
//!             }
//!             Event::Completed { connection, completion } if completion.kind == WorkKind::Receive => {
//!                 let (Some(connection), Ok(len)) = (worker.connection(connection), completion.result) else {
//!                     continue;
//!                 };
//!                 let mut bytes = completion.into_region();
//!                 bytes.split_off(len);
//!                 connection.post_send(bytes)?;
//!                 connection.post_recv(Region::anonymous(4096)?)?;
//!             }
//!             Event::Closed { reason, .. } => left = Some(reason),
//!             _ => {}
//!         }
//!     }
//! }
//! assert_eq!(client.join().unwrap()?, b"hello");
//! # Ok::<(), zerolane::Error>(())
//! ```

mod accepting;
mod arrivals;
mod claims;
mod connections;
mod endpoints;
mod handle;
mod link;
mod partial;
mod pending;
mod poller;
mod ready;
mod release;
mod remote;
mod reply;
mod run;
mod thread;
mod timers;
#[cfg(feature = "tokio")]
mod tokio;

pub use handle::{ConnectionHandle, EndpointHandle, WorkerHandle};
pub use pending::{Pending, Refused, RequestId};
pub use thread::WorkerThread;

use crate::options::{Ports, Scheduler};
use crate::{Completion, Connection, Endpoint, Error, Options, Result};
use claims::Claims;
use endpoints::Listening;
use link::Link;
use poller::{Key, Poller};
use ready::Ready;
use slotmap::{Key as _, KeyData, SlotMap};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use timers::Timers;
use zerolane_lane::{Process, Submissions, Waker};

/// Events kept for the user. Completions beyond it stay with their connections, and their peers are told to wait.
const MAX_EVENTS: usize = 4096;

/// Names a connection of one worker. Not used again when the connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(Key);

/// Names an endpoint of one worker. Not used again when the endpoint is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(Key);

impl ConnectionId {
    /// As a number, for programs that keep it where no type can be: a tag, another language.
    pub fn to_u64(self) -> u64 {
        self.0.data().as_ffi()
    }

    /// From a number. One that was made up names no connection.
    pub fn from_u64(number: u64) -> ConnectionId {
        ConnectionId(KeyData::from_ffi(number).into())
    }
}

impl EndpointId {
    /// As a number.
    pub fn to_u64(self) -> u64 {
        self.0.data().as_ffi()
    }

    /// From a number. One that was made up names no endpoint.
    pub fn from_u64(number: u64) -> EndpointId {
        EndpointId(KeyData::from_ffi(number).into())
    }
}

/// What happened to what a worker owns.
// Nearly all are completions; a box would be an allocation for each.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// An endpoint accepted a connection.
    Accepted {
        /// Where.
        endpoint: EndpointId,
        /// Which.
        connection: ConnectionId,
    },
    /// An endpoint's socket failed; it is closed.
    EndpointFailed {
        /// Which.
        endpoint: EndpointId,
        /// Why.
        error: Error,
    },
    /// A connection that [`Worker::connect`] began stands. Requests posted before begin now.
    Connected {
        /// Which.
        connection: ConnectionId,
    },
    /// A request is over, or an immediate came.
    Completed {
        /// Of which connection.
        connection: ConnectionId,
        /// How, and the memory.
        completion: Completion,
    },
    /// The peer announced a Transfer that no posted receive takes. Told once until one does.
    Announced {
        /// On which connection.
        connection: ConnectionId,
        /// Its length, bytes.
        length: u64,
    },
    /// A connection is over, or could not be made. Its last event: all its requests have completed.
    Closed {
        /// Which.
        connection: ConnectionId,
        /// Why.
        reason: Error,
    },
}

/// What a slot holds.
#[derive(Debug)]
enum Slot {
    Connection(Box<Link>),
    Endpoint(Box<Listening>),
}

/// What a handle asks for.
type Submission = Box<dyn FnOnce(&mut Worker) + Send>;

/// What handles share with their worker.
struct Inbox {
    submissions: Submissions<Submission>,
    waker: Waker,
    /// Whose worker it is: a child of fork has a copy, and no say.
    process: Process,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

/// Owns endpoints and connections, and moves all of them. See the [module](self).
///
/// Connections whose worker is not called make no progress: their peers take this end for dead after the idle
/// timeout. A program that computes for long has its worker run in a thread ([`Worker::spawn`]).
///
/// After `fork` it belongs to the parent, with all that it owns: calls in the child fail with [`Error::Forked`], or do nothing. So
/// do calls of its parent's handles, and requests that were made before; their memory comes back. The child may drop its
/// copies: peers are not told.
pub struct Worker {
    slots: SlotMap<Key, Slot>,
    poller: Poller,
    timers: Timers,
    /// Of connections that are over and have handles, what those may ask for.
    over: HashMap<Key, Claims>,
    /// Connections and endpoints that have something to do.
    ready: Ready,
    /// Calls of [`Worker::progress`] since the descriptors were looked at.
    unlooked: u32,
    /// Connections that may owe something before this end sleeps.
    restless: Vec<Key>,
    /// Connections in shared memory that told their peers not to wake this end: they are looked at.
    awake: Vec<Key>,
    /// Connections that were turned, and when they are due again was not looked at yet.
    untimed: Vec<Key>,
    /// Connections whose completions found no room among the events.
    starved: Vec<Key>,
    events: VecDeque<Event>,
    inbox: Arc<Inbox>,
    /// Of `slots`, the endpoints.
    endpoints: Vec<Key>,
    /// Submissions that have not begun.
    taken: VecDeque<Submission>,
    ports: Ports,
    scheduler: Scheduler,
    max_spin: Duration,
    spin: Duration,
    stopping: bool,
}

impl Worker {
    /// A worker that owns nothing yet.
    ///
    /// # Errors
    /// The system has no descriptor left: it takes three.
    pub fn new() -> Result<Worker> {
        let waker = Waker::default();
        let spin = Options::default().spin;
        Ok(Worker {
            slots: SlotMap::with_key(),
            poller: Poller::new(&waker)?,
            timers: Timers::default(),
            over: HashMap::new(),
            ready: Ready::default(),
            unlooked: 0,
            restless: Vec::new(),
            awake: Vec::new(),
            untimed: Vec::new(),
            starved: Vec::new(),
            events: VecDeque::new(),
            inbox: Arc::new(Inbox {
                submissions: Submissions::default(),
                waker,
                process: Process::current(),
            }),
            endpoints: Vec::new(),
            taken: VecDeque::new(),
            ports: Ports::default(),
            scheduler: Scheduler::default(),
            max_spin: spin,
            spin,
            stopping: false,
        })
    }

    /// Sets how long [`Worker::wait`], and a thread of its own, look for more before they sleep: 50 us unless set.
    /// The time adapts to the success of looking, and is short where other programs want the core.
    pub fn set_spin(&mut self, spin: Duration) {
        self.max_spin = spin;
        self.spin = spin;
    }

    /// Listens on `on` (port 0: any free port). Connections accepted are this worker's; each is told by
    /// [`Event::Accepted`].
    ///
    /// All that receives in this worker shares one [`Scheduler`], unless `options` name another.
    ///
    /// # Errors
    /// As of [`Endpoint::bind`].
    pub fn listen(&mut self, on: std::net::SocketAddr, options: Options) -> Result<EndpointId> {
        self.check_process()?;
        let endpoint = Endpoint::bind(on, self.shared(options))?;
        self.listen_on(endpoint)
    }

    /// Takes over an endpoint.
    ///
    /// # Errors
    /// The system refuses to watch it.
    pub fn listen_on(&mut self, endpoint: Endpoint) -> Result<EndpointId> {
        endpoint.check_process()?;
        let listening = Box::new(Listening::new(endpoint));
        let key = self.insert(Slot::Endpoint(listening))?;
        self.endpoints.push(key);
        Ok(EndpointId(key))
    }

    /// Begins to connect, and returns at once. [`Event::Connected`] or [`Event::Closed`] tells what came of it; what
    /// is posted before waits.
    ///
    /// # Errors
    /// No socket, or no route.
    pub fn connect(&mut self, to: std::net::SocketAddr, options: &Options) -> Result<ConnectionId> {
        self.check_process()?;
        let options = self.shared(options.clone());
        let driver = zerolane_lane::connect(to, &options)?;
        let connection = Connection::accepted(driver, &options);
        self.own(Link::connecting(connection, options.connect_timeout))
    }

    /// Takes over a connection: an endpoint's, another worker's.
    ///
    /// # Errors
    /// The system refuses to watch it. The connection ends.
    pub fn adopt(&mut self, connection: Connection) -> Result<ConnectionId> {
        connection.check_process()?;
        self.own(Link::open(connection))
    }

    /// Gives a connection out of its hands: for its caller to drive, or to another worker. `None` if it is none of
    /// this worker's, or is not connected yet. Its events that were not taken stay here.
    pub fn release(&mut self, connection: ConnectionId) -> Option<Connection> {
        self.check_process().ok()?;
        match self.slots.get(connection.0)? {
            Slot::Connection(link) if link.is_open() => self.poller.remove_lane(&link.connection),
            _ => return None,
        }
        match self.slots.remove(connection.0)? {
            Slot::Connection(mut link) => {
                link.connection.set_unasked(0);
                Some(link.connection)
            }
            Slot::Endpoint(_) => None,
        }
    }

    /// A connection, to be posted to. What it is asked begins with the next [`Worker::progress`]. `None` if it is
    /// none of this worker's, or is over.
    ///
    /// Its completions are events of the worker: [`Connection::poll`] and [`Connection::wait`] would take them
    /// away.
    pub fn connection(&mut self, connection: ConnectionId) -> Option<&mut Connection> {
        match self.slots.get_mut(connection.0)? {
            Slot::Connection(link) => {
                self.ready.push(connection.0, &mut link.queued);
                Some(&mut link.connection)
            }
            Slot::Endpoint(_) => None,
        }
    }

    /// An endpoint; `None` if it is none of this worker's, or is closed.
    pub fn endpoint(&self, endpoint: EndpointId) -> Option<&Endpoint> {
        match self.slots.get(endpoint.0)? {
            Slot::Endpoint(listening) => Some(&listening.endpoint),
            Slot::Connection(_) => None,
        }
    }

    /// Lets every client of `endpoint` that connects from now on use `region` with `rights`, by `name`: registered
    /// once, for any number of peers. [`ExportedRegion::revoke`](crate::ExportedRegion::revoke) ends it for all,
    /// [`Connection::revoke_region`] for one. As on a connection, the region is served on when its last handle is
    /// dropped, and a revocation gives it back whatever the endpoint does; then the name is free again.
    ///
    /// # Errors
    /// There is no such endpoint, or the name is too long. A name that is taken twice ends the connections that
    /// would have both.
    pub fn export(
        &mut self,
        endpoint: EndpointId,
        name: &str,
        region: &crate::ExportedRegion,
        rights: crate::Rights,
    ) -> Result<()> {
        let name = crate::remote::region_name(name)?;
        self.check_process()?;
        if !region.is_of_this_process() {
            return Err(Error::Forked);
        }
        match self.slots.get_mut(endpoint.0) {
            Some(Slot::Endpoint(listening)) => {
                listening.accepting.export(name, region.exporting(), rights);
                Ok(())
            }
            _ => Err(Error::Closed(crate::failure::CloseReason::Local)),
        }
    }

    /// Stops listening. Connections that were accepted go on. False if it was closed already.
    pub fn close_endpoint(&mut self, endpoint: EndpointId) -> bool {
        if self.check_process().is_err() {
            return false;
        }
        match self.slots.get(endpoint.0) {
            Some(Slot::Endpoint(listening)) => self.poller.remove(listening.endpoint.as_fd()),
            _ => return false,
        }
        self.endpoints.retain(|&it| it != endpoint.0);
        self.slots.remove(endpoint.0).is_some()
    }

    /// Begins to close a connection: what was posted to be sent is sent, as by [`Connection::close`], then the peer is
    /// told. [`Event::Closed`] follows. False if it is over already.
    pub fn close(&mut self, connection: ConnectionId) -> bool {
        if self.check_process().is_err() {
            return false;
        }
        let Some(Slot::Connection(link)) = self.slots.get_mut(connection.0) else {
            return false;
        };
        link.begin_to_close();
        self.ready.push(connection.0, &mut link.queued);
        true
    }

    /// Connections that are not over.
    pub fn connections(&self) -> usize {
        self.connection_ids().count()
    }

    /// The names of connections that are not over.
    pub fn connection_ids(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        let slots = self.slots.iter();
        slots.filter_map(|(key, slot)| {
            matches!(slot, Slot::Connection(_)).then_some(ConnectionId(key))
        })
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.check_process().ok()?;
        let event = self.events.pop_front();
        if self.events.len() < MAX_EVENTS / 2 {
            // What found no room is looked at again.
            for key in self.starved.drain(..) {
                if let Some(Slot::Connection(link)) = self.slots.get_mut(key) {
                    link.starved = false;
                    self.ready.push(key, &mut link.queued);
                }
            }
        }
        event
    }

    /// Puts up to `max` events to the end of `into`; returns how many.
    pub fn take_events(&mut self, into: &mut Vec<Event>, max: usize) -> usize {
        let taken = std::iter::from_fn(|| self.next_event()).take(max);
        let before = into.len();
        into.extend(taken);
        into.len() - before
    }

    /// A handle with which any thread posts to this worker, whichever way it runs.
    pub fn handle(&self) -> WorkerHandle {
        WorkerHandle::new(&self.inbox)
    }

    /// Ends a [`Worker::wait`] from another thread.
    pub fn waker(&self) -> Waker {
        self.inbox.waker.clone()
    }

    /// # Errors
    /// [`Error::Forked`]: it is of the parent process, as what it watches by: the child would watch for its parent.
    fn check_process(&self) -> Result<()> {
        match self.inbox.process.is_current() {
            true => Ok(()),
            false => Err(Error::Forked),
        }
    }

    /// What all connections of this worker share, unless the user said otherwise.
    fn shared(&self, mut options: Options) -> Options {
        options
            .scheduler
            .get_or_insert_with(|| self.scheduler.clone());
        options.ports = self.ports.clone();
        options
    }

    fn own(&mut self, link: Link) -> Result<ConnectionId> {
        Ok(ConnectionId(self.insert(Slot::Connection(Box::new(link)))?))
    }

    /// Watches what `slot` holds, and looks at it soon: something may have come before.
    fn insert(&mut self, slot: Slot) -> Result<Key> {
        self.check_process()?;
        if self.stopping {
            // It would not be over before what is asked for behind its end is.
            return Err(pending::gone());
        }
        let key = self.slots.insert(slot);
        let (watched, queued) = match &mut self.slots[key] {
            Slot::Connection(it) => (self.poller.add_lane(&it.connection, key), &mut it.queued),
            Slot::Endpoint(it) => (self.poller.add(it.endpoint.as_fd(), key), &mut it.queued),
        };
        if let Err(error) = watched {
            self.slots.remove(key);
            return Err(error.into());
        }
        self.ready.push(key, queued);
        Ok(key)
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("endpoints", &self.endpoints.len())
            .field("connections", &self.connections())
            .field("events", &self.events.len())
            .finish_non_exhaustive()
    }
}

/// Readable when [`Worker::progress`] has something to do, after [`Worker::arm`]. Only to be watched.
impl AsFd for Worker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

/// Peers are told that this end goes. What handles wait for is refused.
impl Drop for Worker {
    fn drop(&mut self) {
        // In a child of fork another thread's lock is never let go.
        if self.inbox.process.is_current() {
            // Outside the lock, for what they hold may be handles.
            drop(self.inbox.submissions.close());
        }
    }
}
