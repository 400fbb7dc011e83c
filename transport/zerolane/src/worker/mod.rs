//! Drives many connections and endpoints in one loop.
//!
//! A [`Worker`] owns endpoints and connections and advances all of them: one descriptor and one timer for a thousand
//! sockets. It runs in one of three ways, with the same code:
//!
//! - **called by the user**: [`Worker::progress`] does a bounded amount of work, [`Worker::wait`] sleeps until there is
//!   an [`Event`]; a program with its own event loop watches the descriptor ([`AsFd`]) after [`Worker::arm`];
//! - **in a thread of its own**: [`Worker::spawn`]. [`WorkerHandle`], [`EndpointHandle`] and [`ConnectionHandle`] are
//!   `Send + Sync`; posting pushes to a queue and wakes the thread if it sleeps. Peers are served, exported memory
//!   included, while the program does something else. [`background`] is one such worker for all of a process;
//! - **in an async runtime**: `Worker::run` with the feature `tokio`. Handles return futures that work in any runtime.
//!
//! For one peer, a [`Connection`] driven by its caller is fastest. [`Worker::adopt`] takes over a connection,
//! [`Worker::release`] gives it back.
//!
//! The crate's `examples` are whole programs: `rpc_server` answers a thousand clients in one thread, `kv_cache` is a
//! passive target that other processes fill and read, `tokio_echo` runs as tasks.
//!
//! An echo server of any number of clients in one thread:
//!
//! ```
//! use zerolane::request::Output;
//! use zerolane::worker::{Event, Worker};
//! use zerolane::{Connection, Options, Region};
//! let mut worker = Worker::new()?;
//! let endpoint = worker.listen("127.0.0.1:0", Options::default())?;
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
//!             Event::Completed { connection, completion } => {
//!                 let (Some(connection), Ok(len)) = (worker.connection(connection), completion.result) else {
//!                     continue;
//!                 };
//!                 // Not of what was sent.
//!                 let Output::Receive { memory, .. } = completion.output else {
//!                     continue;
//!                 };
//!                 let mut bytes = memory.into_region().expect("a region was posted");
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
mod agenda;
mod arrivals;
mod claims;
mod connecting;
mod connections;
mod endpoints;
mod handle;
mod incoming;
mod link;
mod numbered;
mod others;
mod partial;
mod pending;
mod poller;
mod pool;
mod release;
mod remote;
mod reply;
mod requests;
mod run;
mod set;
mod thread;
#[cfg(feature = "tokio")]
mod tokio;
mod untaken;

pub use crate::listener::Listener;
pub use handle::{ConnectionHandle, EndpointHandle, WorkerHandle};
pub use incoming::IncomingHandle;
pub(crate) use incoming::not_asked;
pub use pending::{Outcome, Pending};
pub use set::PendingSet;
pub use thread::{WorkerThread, background};

use crate::addresses::{ToAddresses, resolved};
use crate::completion::Completion;
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::receive_pool::ReceivePool;
use agenda::{Agenda, Due};
use claims::Claims;
use endpoints::Listening;
use link::Link;
use numbered::Numbered;
use poller::{Key, Poller};
use slotmap::{Key as _, KeyData, SlotMap};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use zerolane_lane::Ports;
use zerolane_lane::{CloseReason, ExportedRegion, Options, Process, Scheduler, Submissions, Waker};
use zerolane_wire::Rights;

/// Most events kept for the user. Completions beyond it stay with their connections, whose peers must wait.
const MAX_EVENTS: usize = 4096;

/// Identifies a connection of one worker. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(Key);

/// Identifies an endpoint of one worker. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(Key);

impl ConnectionId {
    /// Converts to a number, for places that cannot hold the type: a tag, another language.
    pub fn to_u64(self) -> u64 {
        self.0.data().as_ffi()
    }

    /// Converts from a number. A number that was not obtained from `to_u64` identifies no connection.
    pub fn from_u64(number: u64) -> ConnectionId {
        ConnectionId(KeyData::from_ffi(number).into())
    }
}

impl EndpointId {
    /// Converts to a number.
    pub fn to_u64(self) -> u64 {
        self.0.data().as_ffi()
    }

    /// Converts from a number. A number that was not obtained from `to_u64` identifies no endpoint.
    pub fn from_u64(number: u64) -> EndpointId {
        EndpointId(KeyData::from_ffi(number).into())
    }
}

/// An event of a worker's connections and endpoints.
// Nearly all events are completions; a box would be an allocation for each.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// An endpoint accepted a connection.
    Accepted {
        /// The endpoint.
        endpoint: EndpointId,
        /// The new connection.
        connection: ConnectionId,
    },
    /// A client asks for a connection: instead of [`Event::Accepted`], if the endpoint has
    /// [`ListenOptions::asks`](crate::options::ListenOptions::asks). [`Worker::connection`] shows who asks:
    /// [`Connection::peer_data`], [`Connection::peer_key`], [`Connection::peer_addr`]. [`Worker::accept_request`] or
    /// [`Worker::refuse_request`] answers.
    Requested {
        /// The endpoint.
        endpoint: EndpointId,
        /// The connection, if it is accepted.
        connection: ConnectionId,
    },
    /// An endpoint's socket failed; the endpoint is closed.
    EndpointFailed {
        /// The endpoint.
        endpoint: EndpointId,
        /// The reason.
        error: Error,
    },
    /// A connection begun with [`Worker::connect`] is established. Requests posted before start now.
    Connected {
        /// The connection.
        connection: ConnectionId,
    },
    /// A request is over, an immediate arrived, or a message that took memory of a [`ReceivePool`].
    Completed {
        /// The connection.
        connection: ConnectionId,
        /// The result, and the memory.
        completion: Completion,
    },
    /// The peer announced a Transfer that no posted receive matches. Reported once for each such Transfer.
    Announced {
        /// The connection.
        connection: ConnectionId,
        /// Its length, bytes.
        length: u64,
    },
    /// Datagrams of the peer wait to be taken ([`Connection::next_datagram`]). Reported again for later ones once
    /// [`Worker::connection`] was called.
    Datagrams {
        /// The connection.
        connection: ConnectionId,
    },
    /// A connection is over, or could not be made. This is its last event: all its requests have completed.
    Closed {
        /// The connection.
        connection: ConnectionId,
        /// The reason.
        reason: Error,
    },
}

/// The content of a slot.
#[derive(Debug)]
enum Slot {
    Connection(Box<Link>),
    Endpoint(Box<Listening>),
}

/// A handle's request to the worker.
type Submission = Box<dyn FnOnce(&mut Worker) + Send>;

/// The state that handles share with their worker.
struct Inbox {
    submissions: Submissions<Submission>,
    waker: Waker,
    /// The process that owns the worker; a copy in a child of fork is unusable.
    process: Process,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

/// Owns endpoints and connections, and advances all of them. See the [module](self).
///
/// The connections of a worker that is not called make no progress: their peers take this end for dead after the idle
/// timeout. A program that computes for long should run its worker in a thread ([`Worker::spawn`]).
///
/// After `fork` the worker belongs to the parent, with all that it owns: calls in the child fail with
/// [`Error::Forked`], or do nothing. The same holds for calls of the parent's handles in the child, and for requests
/// made before; their memory comes back. The child may drop its copies, which does not disconnect peers.
pub struct Worker {
    slots: SlotMap<Key, Slot>,
    poller: Poller,
    agenda: Agenda,
    /// The claims of connections that are over and still have handles.
    over: HashMap<Key, Claims>,
    /// Calls of [`Worker::progress`] since the descriptors were checked.
    unlooked: u32,
    events: VecDeque<Event>,
    inbox: Arc<Inbox>,
    /// Regions that every peer may use.
    numbered: Numbered,
    /// The memory of messages that its connections share.
    pool: Option<ReceivePool>,
    /// The endpoints among `slots`.
    endpoints: Vec<Key>,
    /// Submissions that have not started.
    taken: VecDeque<Submission>,
    ports: Ports,
    scheduler: Scheduler,
    max_spin: Duration,
    spin: Duration,
    stopping: bool,
}

impl Worker {
    /// Makes a worker that owns nothing.
    ///
    /// # Errors
    /// The system has no descriptor left: a worker needs three.
    pub fn new() -> Result<Worker> {
        let waker = Waker::default();
        let spin = Options::default().times.spin;
        Ok(Worker {
            slots: SlotMap::with_key(),
            poller: Poller::new(&waker)?,
            agenda: Agenda::default(),
            over: HashMap::new(),
            unlooked: 0,
            events: VecDeque::new(),
            inbox: Arc::new(Inbox {
                submissions: Submissions::default(),
                waker,
                process: Process::current(),
            }),
            numbered: Numbered::default(),
            pool: None,
            endpoints: Vec::new(),
            taken: VecDeque::new(),
            ports: Ports::default(),
            scheduler: Scheduler::default(),
            max_spin: spin,
            spin,
            stopping: false,
        })
    }

    /// Sets how long [`Worker::wait`], and a worker's thread, poll before they sleep: 50 us unless set. The time adapts
    /// to how often polling finds something, and is short while other programs want the core.
    pub fn set_spin(&mut self, spin: Duration) {
        self.max_spin = spin;
        self.spin = spin;
    }

    /// Listens on the first free address of `on` (port 0: any free port). The worker owns accepted connections; each is
    /// reported by [`Event::Accepted`].
    ///
    /// All connections of this worker share one [`Scheduler`], unless `options` name another.
    ///
    /// # Errors
    /// As for [`Endpoint::bind`](crate::Endpoint::bind).
    pub fn listen(&mut self, on: impl ToAddresses, options: Options) -> Result<EndpointId> {
        self.check_process()?;
        let listener = Listener::bind(on, self.shared(options))?;
        self.attend(listener, Vec::new())
    }

    /// Begins to connect to the first address of `to` that answers, and returns at once, except while a name server is
    /// asked. [`Event::Connected`] or [`Event::Closed`] reports the result; requests posted before that wait. Each
    /// address has [`TimeOptions::connect`](crate::options::TimeOptions::connect) to answer. [`Worker::connection`]
    /// before the end of that stays with the address tried then, because requests and exports belong to it.
    ///
    /// # Errors
    /// There is no address, no socket, or no route.
    pub fn connect(&mut self, to: impl ToAddresses, options: &Options) -> Result<ConnectionId> {
        self.check_process()?;
        self.connect_to(resolved(to, options.lane.choice)?, options)
    }

    /// Takes over a connection from an endpoint, its caller, or another worker.
    ///
    /// # Errors
    /// The system refused to watch it. The connection ends.
    pub fn adopt(&mut self, connection: Connection) -> Result<ConnectionId> {
        connection.check_process()?;
        self.own(Link::open(connection))
    }

    /// Gives up a connection, so that its caller can drive it or give it to another worker. `None` if it is not a
    /// connection of this worker, or is not established or accepted yet. Its events that were not taken stay here.
    pub fn release(&mut self, connection: ConnectionId) -> Option<Connection> {
        match self.slots.get(connection.0)? {
            Slot::Connection(link) if link.connection.driver.is_asked() => None,
            _ => self.let_go(connection),
        }
    }

    fn let_go(&mut self, connection: ConnectionId) -> Option<Connection> {
        self.check_process().ok()?;
        match self.slots.get(connection.0)? {
            Slot::Connection(link) if link.is_open() => {}
            _ => return None,
        }
        match self.remove(connection.0)? {
            Slot::Connection(mut link) => {
                link.connection.set_unread_of_handles(0);
                link.connection.driver.set_memory_wake(None);
                Some(link.connection)
            }
            Slot::Endpoint(_) => None,
        }
    }

    /// A connection, to post requests to. They start with the next [`Worker::progress`]. `None` if it is not a
    /// connection of this worker, or is over.
    ///
    /// The worker reports its completions as events: do not call [`Connection::poll`] or [`Connection::wait`], which
    /// would take them.
    pub fn connection(&mut self, connection: ConnectionId) -> Option<&mut Connection> {
        match self.slots.get_mut(connection.0)? {
            Slot::Connection(link) => {
                link.others = None;
                link.datagrams_told = false;
                self.agenda.add(connection.0, Due::Turn);
                Some(&mut link.connection)
            }
            Slot::Endpoint(_) => None,
        }
    }

    /// Bytes of datagrams that wait to leave, on a connection of this worker. Unlike [`Worker::connection`], this gives
    /// the worker nothing to do.
    pub fn datagram_bytes(&self, connection: ConnectionId) -> u64 {
        match self.slots.get(connection.0) {
            Some(Slot::Connection(link)) => link.connection.datagram_bytes(),
            _ => 0,
        }
    }

    /// An endpoint; `None` if it is not an endpoint of this worker, or is closed.
    pub fn endpoint(&self, endpoint: EndpointId) -> Option<&Listener> {
        match self.slots.get(endpoint.0)? {
            Slot::Endpoint(listening) => Some(&listening.listener),
            Slot::Connection(_) => None,
        }
    }

    /// Lets every client of `endpoint` that connects from now on use `region` with `rights`, by `name`: registered
    /// once, for any number of peers. [`ExportedRegion::revoke`](crate::ExportedRegion::revoke) ends the export for all
    /// peers, [`Connection::revoke_region`] for one. As on a connection, dropping the last handle of the region does
    /// not end the export, and revoking it returns the memory whatever the endpoint does; the name is then free again.
    ///
    /// # Errors
    /// There is no such endpoint, or the name is not 1 to 32 bytes without NUL. A duplicate name ends each connection that would get both
    /// regions.
    pub fn export(
        &mut self,
        endpoint: EndpointId,
        name: &str,
        region: &ExportedRegion,
        rights: Rights,
    ) -> Result<()> {
        let name = crate::key::region_name(name)?;
        self.check_process()?;
        if !region.is_of_this_process() {
            return Err(Error::Forked);
        }
        match self.slots.get_mut(endpoint.0) {
            Some(Slot::Endpoint(listening)) => {
                listening.accepting.export(name, region.exporting(), rights);
                Ok(())
            }
            _ => Err(Error::Closed(CloseReason::Local)),
        }
    }

    /// Stops listening. Accepted connections stay open. False if it was closed already.
    pub fn close_endpoint(&mut self, endpoint: EndpointId) -> bool {
        if self.check_process().is_err() {
            return false;
        }
        self.remove_endpoint(endpoint.0).is_some()
    }

    /// Begins to close a connection: posted sends are completed, as by [`Connection::close`], then the peer is told.
    /// [`Event::Closed`] follows. False if the connection is over already.
    pub fn close(&mut self, connection: ConnectionId) -> bool {
        if self.check_process().is_err() {
            return false;
        }
        let Some(Slot::Connection(link)) = self.slots.get_mut(connection.0) else {
            return false;
        };
        link.begin_to_close();
        self.agenda.add(connection.0, Due::Turn);
        true
    }

    /// The number of connections that are not over.
    pub fn connections(&self) -> usize {
        self.connection_ids().count()
    }

    /// The identifiers of connections that are not over.
    pub fn connection_ids(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        let slots = self.slots.iter();
        slots.filter_map(|(key, slot)| {
            matches!(slot, Slot::Connection(_)).then_some(ConnectionId(key))
        })
    }

    /// Removes and returns the next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.check_process().ok()?;
        let event = self.events.pop_front();
        self.use_room();
        event
    }

    /// Queues the connections whose completions found no room for events, once there is room.
    fn use_room(&mut self) {
        if self.events.len() >= MAX_EVENTS / 2 {
            return;
        }
        while let Some(key) = self.agenda.next(Due::Delivery) {
            self.agenda.add(key, Due::Turn);
        }
    }

    /// Appends up to `max` events to `into`; returns how many.
    pub fn take_events(&mut self, into: &mut Vec<Event>, max: usize) -> usize {
        let taken = std::iter::from_fn(|| self.next_event()).take(max);
        let before = into.len();
        into.extend(taken);
        into.len() - before
    }

    /// A handle with which any thread uses this worker, whichever way the worker runs.
    pub fn handle(&self) -> WorkerHandle {
        WorkerHandle::new(&self.inbox)
    }

    /// Ends a [`Worker::wait`] from another thread.
    pub fn waker(&self) -> Waker {
        self.inbox.waker.clone()
    }

    /// # Errors
    /// [`Error::Forked`]: the worker and the epoll instance belong to the parent process.
    fn check_process(&self) -> Result<()> {
        match self.inbox.process.is_current() {
            true => Ok(()),
            false => Err(Error::Forked),
        }
    }

    /// Adds the state that all connections of this worker share, except where the user chose otherwise.
    fn shared(&self, mut options: Options) -> Options {
        options
            .rate
            .scheduler
            .get_or_insert_with(|| self.scheduler.clone());
        options.listen.ports = self.ports.clone();
        options
    }

    fn own(&mut self, mut link: Link) -> Result<ConnectionId> {
        self.numbered.export_to(&mut link.connection)?;
        let key = self.insert(Slot::Connection(Box::new(link)))?;
        self.join_pool(key);
        Ok(ConnectionId(key))
    }

    /// Watches the object in `slot`.
    fn insert(&mut self, slot: Slot) -> Result<Key> {
        self.check_process()?;
        if self.stopping {
            // A worker that is stopping would never end if it took on new connections.
            return Err(pending::gone());
        }
        let key = self.slots.insert(slot);
        let watched = match &self.slots[key] {
            Slot::Connection(it) => self.poller.add_lane(&it.connection, key),
            Slot::Endpoint(it) => self.poller.add(it.listener.as_fd(), key),
        };
        if let Err(error) = watched {
            self.slots.remove(key);
            return Err(error.into());
        }
        self.agenda.enter(key);
        Ok(key)
    }

    /// Takes out what is in a slot, and watches it no more.
    fn remove(&mut self, key: Key) -> Option<Slot> {
        let slot = self.slots.remove(key)?;
        self.agenda.leave(key);
        match &slot {
            Slot::Connection(it) => self.poller.remove_lane(&it.connection),
            Slot::Endpoint(it) => self.poller.remove(it.listener.as_fd()),
        }
        Some(slot)
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

/// Readable when [`Worker::progress`] has something to do, after [`Worker::arm`]. Only watch it; do not read it.
impl AsFd for Worker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

/// Disconnects from all peers. Requests of handles are refused.
impl Drop for Worker {
    fn drop(&mut self) {
        // In a child of fork another thread's lock is never released.
        if self.inbox.process.is_current() {
            // Outside the lock, because the submissions may hold handles.
            drop(self.inbox.submissions.close());
        }
    }
}
