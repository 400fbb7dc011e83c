//! Defines the handles by which any thread or task uses a worker.

use super::agenda::Due;
use super::arrivals::Standing;
use super::claims::{Claims, Peer};
use super::pending::{Claim, Pending, gone};
use super::requests::{Attempt, Direction, Post, Waiting, attempt};
use super::{ConnectionId, EndpointId, Event, Inbox, Slot, Submission, Worker};
use crate::addresses::{ToAddresses, resolved};
use crate::completion::Completion;
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::id::{Poster, RequestId};
use crate::request::{Receive, Request, Transfer};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use zerolane_lane::{
    Account, ExportedRegion, Memory, Options, PostError, Process, PublicKey, Waker, Writable,
};
use zerolane_wire::Rights;

/// Sends requests to a worker, from any thread, whichever way the worker runs. Cheap to clone.
///
/// Requests are carried out when the worker makes progress. If the worker has ended, they are refused.
#[derive(Clone, Debug)]
pub struct WorkerHandle {
    inbox: Arc<Inbox>,
}

impl WorkerHandle {
    pub(super) fn new(inbox: &Arc<Inbox>) -> WorkerHandle {
        WorkerHandle {
            inbox: Arc::clone(inbox),
        }
    }

    /// Connects to the first address of `to` that answers; each has
    /// [`TimeOptions::connect`](crate::options::TimeOptions::connect) to do so. Asks a name server in the calling
    /// thread.
    pub fn connect(&self, to: impl ToAddresses, options: &Options) -> Pending<ConnectionHandle> {
        let options = options.clone();
        let (claim, pending) = Pending::new(self.process(), None);
        let to = match resolved(to, options.lane.choice) {
            Ok(to) => to,
            Err(error) => {
                claim.answer_or_drop(Err(error));
                return pending;
            }
        };
        self.submit(move |worker| match worker.connect(to, &options) {
            Ok(id) => worker.hand_out(id, claim),
            Err(error) => claim.answer_or_drop(Err(error)),
        });
        pending
    }

    /// Gives a connection to the worker.
    pub fn adopt(&self, connection: Connection) -> Pending<ConnectionHandle> {
        let (claim, pending) = Pending::new(self.process(), None);
        self.submit(move |worker| match worker.adopt(connection) {
            Ok(id) => worker.hand_out(id, claim),
            Err(error) => claim.answer_or_drop(Err(error)),
        });
        pending
    }

    /// Listens on the first free address of `on` (port 0: any free port). Asks a name server in the calling thread.
    pub fn listen(&self, on: impl ToAddresses, options: Options) -> Pending<EndpointHandle> {
        let on = resolved(on, options.lane.choice);
        self.call(move |worker| {
            let id = worker.listen(on?, options)?;
            worker.endpoint_handle(id).ok_or_else(gone)
        })
    }

    /// Ends a [`Worker::wait`], or the sleep of a worker that runs by itself.
    pub fn waker(&self) -> Waker {
        self.inbox.waker.clone()
    }

    /// The process that owns the worker.
    pub(super) fn process(&self) -> Process {
        self.inbox.process
    }

    /// Has the worker call `act`, and answers with its result.
    pub(super) fn call<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Worker) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        let (claim, pending) = Pending::new(self.process(), None);
        self.submit(move |worker| claim.answer_or_drop(act(worker)));
        pending
    }

    /// Queues `act` for the worker. If the worker has ended, `act` is dropped, and the claims in it answer that it
    /// ended.
    pub(super) fn submit(&self, act: impl FnOnce(&mut Worker) + Send + 'static) {
        submit(&self.inbox, Box::new(act));
    }
}

fn submit(inbox: &Inbox, act: Submission) {
    // In a child of fork no thread takes it, and another thread's lock is never released.
    let pushed = match inbox.process.is_current() {
        true => inbox.submissions.push(act),
        false => Err(act),
    };
    match pushed {
        Ok(()) => inbox.waker.wake(),
        Err(act) => drop(act),
    }
}

impl Worker {
    /// Makes a handle of connection `id`, for any thread or task to post by: before [`Worker::spawn`] or `Worker::run`,
    /// which drop events, or later in the loop of the program. The connection has no events from then on, and closes
    /// with the last clone of the handle.
    ///
    /// What receives that were posted before bring is kept for the next receive of the handle, also if its event was not
    /// taken yet; so are immediates. Other completions are dropped.
    ///
    /// `None` if it is not a connection of this worker, is not established yet or is ending, or has a handle already.
    /// [`WorkerHandle::connect`] makes a connection with a handle.
    ///
    /// ```
    /// use zerolane::worker::{Event, Worker};
    /// use zerolane::{Options, Region};
    /// let mut worker = Worker::new()?;
    /// let endpoint = worker.listen("127.0.0.1:0", Options::default())?;
    /// let address = worker.endpoint(endpoint).expect("it listens").local_addr();
    /// worker.connect(address, &Options::default())?;
    /// let client = loop {
    ///     worker.wait(None)?;
    ///     match worker.next_event() {
    ///         Some(Event::Connected { connection }) => break worker.connection_handle(connection),
    ///         Some(Event::Closed { reason, .. }) => return Err(reason),
    ///         _ => {}
    ///     }
    /// };
    /// let client = client.expect("it is established");
    /// let _thread = worker.spawn()?;
    /// client.send(Region::from_vec(b"from any thread".to_vec())).detach();
    /// # Ok::<(), zerolane::Error>(())
    /// ```
    pub fn connection_handle(&mut self, connection: ConnectionId) -> Option<ConnectionHandle> {
        self.check_process().ok()?;
        let Some(Slot::Connection(link)) = self.slots.get_mut(connection.0) else {
            return None;
        };
        if !link.is_open() || link.claims.is_handled() {
            return None;
        }
        link.claims.hold();
        let peer = Peer::of(&link.connection);
        let events = std::mem::take(&mut self.events);
        let others = events
            .into_iter()
            .filter_map(|event| link.take_event(connection, event));
        self.events = others.collect();
        self.use_room();
        self.note_asked(connection);
        Some(ConnectionHandle::new(&self.inbox, connection, peer))
    }

    /// Makes a handle of an endpoint. It gets the connections accepted from then on, and those whose events were not
    /// taken yet; the endpoint has no events, and closes with the last clone of the handle. See
    /// [`Worker::connection_handle`].
    ///
    /// `None` if it is not an endpoint of this worker, is closed, or has a handle already.
    pub fn endpoint_handle(&mut self, endpoint: EndpointId) -> Option<EndpointHandle> {
        self.check_process().ok()?;
        let Some(Slot::Endpoint(listening)) = self.slots.get_mut(endpoint.0) else {
            return None;
        };
        if listening.accepting.is_handled() {
            return None;
        }
        listening.accepting.handle();
        let local = listening.listener.local_addr();
        let key = listening.listener.public_key();
        let accepted = self.events.iter().filter_map(|event| match event {
            Event::Accepted {
                endpoint: by,
                connection,
            }
            | Event::Requested {
                endpoint: by,
                connection,
            } if *by == endpoint => Some(*connection),
            _ => None,
        });
        for connection in accepted.collect::<Vec<_>>() {
            // One that is ending keeps its events.
            let Some(handle) = self.connection_handle(connection) else {
                continue;
            };
            if let Some(Slot::Endpoint(listening)) = self.slots.get_mut(endpoint.0) {
                listening.accepting.accepted(handle);
            }
        }
        let owned = Owned {
            inbox: Arc::clone(&self.inbox),
            close: Box::new(move |worker| {
                let _ = worker.close_endpoint(endpoint);
            }),
        };
        Some(EndpointHandle {
            shared: Arc::new(EndpointShared {
                owned,
                id: endpoint,
                local,
                key,
            }),
        })
    }

    /// Answers `claim` with a handle of connection `id` once it is established.
    fn hand_out(&mut self, id: ConnectionId, claim: Claim<ConnectionHandle>) {
        let Some(Slot::Connection(link)) = self.slots.get_mut(id.0) else {
            return;
        };
        let inbox = Arc::clone(&self.inbox);
        link.claims.await_connected(Box::new(move |connected| {
            let handle = connected.map(|peer| ConnectionHandle::new(&inbox, id, peer));
            // If the claim was given up, the handle is dropped, which closes the connection.
            claim.answer_or_drop(handle);
        }));
        if link.is_open() {
            let peer = Peer::of(&link.connection);
            link.claims.on_connected(|| peer);
        }
    }
}

/// Closed when its last handle is dropped.
struct Owned {
    inbox: Arc<Inbox>,
    close: Box<dyn Fn(&mut Worker) + Send + Sync>,
}

impl std::fmt::Debug for Owned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owned").finish_non_exhaustive()
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let nothing: Box<dyn Fn(&mut Worker) + Send + Sync> = Box::new(|_| {});
        let close = std::mem::replace(&mut self.close, nothing);
        submit(&self.inbox, Box::new(move |worker| close(worker)));
    }
}

/// An endpoint of a worker. It is closed when the last clone of its handle is dropped.
#[derive(Clone, Debug)]
pub struct EndpointHandle {
    shared: Arc<EndpointShared>,
}

#[derive(Debug)]
struct EndpointShared {
    owned: Owned,
    id: EndpointId,
    local: SocketAddr,
    key: Option<PublicKey>,
}

impl EndpointHandle {
    pub(super) fn worker(&self) -> WorkerHandle {
        WorkerHandle::new(&self.shared.owned.inbox)
    }

    pub(super) fn id(&self) -> EndpointId {
        self.shared.id
    }

    /// The address listened on.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.local
    }

    /// The key by which clients know this end; `None` in plain mode.
    pub fn public_key(&self) -> Option<PublicKey> {
        self.shared.key
    }

    /// Waits for the next connection. Connections that were not asked for are served too: they may use what the
    /// endpoint exports ([`EndpointHandle::export`]). With
    /// [`ListenOptions::asks`](crate::options::ListenOptions::asks), it accepts the next request with
    /// [`Options::private_data`]; until then requests wait.
    pub fn accept(&self) -> Pending<ConnectionHandle> {
        let (id, worker) = (self.shared.id, self.worker());
        let (claim, pending) = Pending::new(
            worker.process(),
            Some(Box::new(move |unread| {
                worker.submit(move |worker| {
                    if let Some(Slot::Endpoint(it)) = worker.slots.get_mut(id.0) {
                        it.accepting.give_up(unread);
                    }
                });
            })),
        );
        self.worker().submit(move |worker| {
            if let Some(Slot::Endpoint(it)) = worker.slots.get_mut(id.0) {
                it.accepting.await_next(claim);
            }
        });
        pending
    }

    /// Like [`Worker::export`]: lets every client that connects from now on use `region` with `rights`, by `name`.
    pub fn export(&self, name: &str, region: &ExportedRegion, rights: Rights) -> Pending<()> {
        let (id, name, region) = (self.shared.id, name.to_owned(), region.clone());
        self.worker()
            .call(move |worker| worker.export(id, &name, &region, rights))
    }
}

/// A connection of a worker, for use by any thread or task. Dropping the last clone closes it: posted sends are
/// completed in the background.
///
/// Requests of one thread start in the order in which it made them. Requests for which there is no room wait in order.
///
/// Immediates, and data received for a request that was given up, are kept until the last clone is dropped, also after
/// the connection is over. From 1024 of them on the peer holds immediates and messages back, and nothing else.
///
/// ```
/// use zerolane::worker::Worker;
/// use zerolane::{Options, Region};
/// let worker = Worker::new()?.spawn()?;
/// let endpoint = worker.listen("127.0.0.1:0", Options::default()).wait()?;
/// let client = worker.connect(endpoint.local_addr(), &Options::default()).wait()?;
/// let server = endpoint.accept().wait()?;
/// let received = server.recv(Region::anonymous(4096)?);
/// client.send(Region::from_vec(b"from any thread".to_vec())).wait()?.result?;
/// let received = received.wait()?;
/// let len = received.result?;
/// assert_eq!(&received.into_region()?[..len], b"from any thread");
/// # Ok::<(), zerolane::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ConnectionHandle {
    shared: Arc<ConnectionShared>,
}

#[derive(Debug)]
struct ConnectionShared {
    owned: Owned,
    id: ConnectionId,
    peer: Peer,
    /// Marks the identifiers of its requests.
    poster: Poster,
    /// Requests made so far.
    requests: AtomicU32,
}

impl ConnectionHandle {
    pub(super) fn new(inbox: &Arc<Inbox>, id: ConnectionId, peer: Peer) -> ConnectionHandle {
        let owned = Owned {
            inbox: Arc::clone(inbox),
            close: Box::new(move |worker| worker.forsake(id)),
        };
        ConnectionHandle {
            shared: Arc::new(ConnectionShared {
                owned,
                id,
                peer,
                poster: Poster::next(),
                requests: AtomicU32::new(0),
            }),
        }
    }

    pub(super) fn id(&self) -> ConnectionId {
        self.shared.id
    }

    pub(super) fn worker(&self) -> WorkerHandle {
        WorkerHandle::new(&self.shared.owned.inbox)
    }

    /// The identifier of the next request.
    fn next_request(&self) -> RequestId {
        let number = self.shared.requests.fetch_add(1, Ordering::Relaxed);
        self.shared.poster.request(number)
    }

    /// The peer's address at the time when the connection was made.
    pub fn peer_addr(&self) -> SocketAddr {
        self.shared.peer.address
    }

    /// The key that the peer proved it owns; `None` in plain mode.
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.shared.peer.key
    }

    /// See [`Connection::peer_data`].
    pub fn peer_data(&self) -> &[u8] {
        let data = self.shared.peer.data.as_ref();
        data.map_or(&[], |it| it.as_slice())
    }

    /// Makes a request: see [`Connection::post`]. Its success is always reported, to the returned [`Pending`].
    ///
    /// A receive takes what was kept for a receive that was given up, if anything: it then answers at once, in the
    /// memory of that receive, and its own memory is freed.
    pub fn post<R: Request + Send + 'static>(&self, request: R) -> Pending<Completion> {
        let direction = match R::TAKES {
            Some(kind) => Direction::Incoming(kind),
            None => Direction::Outgoing,
        };
        self.request(direction, attempt(request))
    }

    /// Sends `memory` as one Transfer.
    pub fn send(&self, memory: impl Into<Memory>) -> Pending<Completion> {
        self.post(Transfer::new(memory))
    }

    /// Receives the next Transfer into `memory`.
    pub fn recv(&self, memory: impl Writable) -> Pending<Completion> {
        self.post(Receive::new(memory))
    }

    /// Cancels request `id`, as [`Connection::cancel`] does: its [`Pending`] answers soon, with
    /// [`TransferError::Cancelled`](crate::failure::TransferError::Cancelled), or with what came before. False if it is
    /// over already, or is not a request of this handle.
    pub fn cancel(&self, id: RequestId) -> Pending<bool> {
        let connection = self.id();
        self.worker()
            .call(move |worker| Ok(worker.cancel(connection, id)))
    }

    /// Finishes sending, as [`Connection::finish`] does, after all requests made before.
    pub fn finish(&self) -> Pending<()> {
        let (claim, pending) = Pending::new(self.worker().process(), None);
        let mut claim = Some(claim);
        let waiting = Waiting {
            id: self.next_request(),
            post: Box::new(move |connection| {
                if let (Some(connection), Some(taken)) = (connection, claim.take()) {
                    match connection.finish() {
                        Err(Error::Post(PostError::Full)) => {
                            claim = Some(taken);
                            return Attempt::Full;
                        }
                        finished => taken.answer_or_drop(finished),
                    }
                }
                Attempt::Done
            }),
            claim: None,
        };
        self.wait_to_post(Direction::Outgoing, waiting);
        pending
    }

    /// The counters so far.
    pub fn account(&self) -> Pending<Account> {
        self.with(|connection| Ok(connection.account()))
    }

    /// Completes posted sends, as [`Connection::close`] does, then disconnects. Answers when the connection is over,
    /// with an error if a request made before was not sent.
    pub fn close(self) -> Pending<()> {
        let id = self.shared.id;
        let (claim, pending) = Pending::new(self.worker().process(), None);
        self.worker().submit(move |worker| {
            if let Some(Slot::Connection(link)) = worker.slots.get_mut(id.0) {
                link.claims.await_closed(claim);
                worker.close(id);
            }
        });
        pending
    }

    /// Answers with the reason when the connection is over, whichever end closed it: [`Error::Closed`] with
    /// [`CloseReason::Peer`](crate::failure::CloseReason::Peer),
    /// [`CloseReason::PeerDead`](crate::failure::CloseReason::PeerDead) and so on, or the failure of a socket. At once if
    /// it is over already.
    ///
    /// The end of a peer in shared memory is noticed at once, that of one over a network within
    /// [`TimeOptions::idle`](crate::options::TimeOptions::idle) if a request depends on it or
    /// [`TimeOptions::keep_alive`](crate::options::TimeOptions::keep_alive) is set.
    ///
    /// It is refused if the worker ends first, or releases the connection.
    ///
    /// ```
    /// use zerolane::failure::CloseReason;
    /// use zerolane::worker::Worker;
    /// use zerolane::{Connection, Error, Options};
    /// let worker = Worker::new()?.spawn()?;
    /// let endpoint = worker.listen("127.0.0.1:0", Options::default()).wait()?;
    /// let watching = Options::default().with(|it| it.times.keep_alive = true);
    /// let client = worker.connect(endpoint.local_addr(), &watching).wait()?;
    /// let server = endpoint.accept().wait()?;
    /// let closed = client.closed();
    /// drop(server);
    /// assert!(matches!(closed.wait()?, Error::Closed(CloseReason::Peer(_))));
    /// # Ok::<(), zerolane::Error>(())
    /// ```
    pub fn closed(&self) -> Pending<Error> {
        let (id, worker) = (self.shared.id, self.worker());
        let (claim, pending) = Pending::new(
            worker.process(),
            Some(Box::new(move |_| {
                worker.submit(move |worker| {
                    if let Some(claims) = worker.claims(id) {
                        claims.give_up_end();
                    }
                });
            })),
        );
        self.worker().submit(move |worker| {
            if let Some(claims) = worker.claims(id) {
                claims.await_end(claim);
            }
        });
        pending
    }

    /// Calls `on_closed` once, with the reason, when the connection is over, whichever end closed it, even without
    /// handles; soon if it is over already. See [`ConnectionHandle::closed`] for when that is noticed. If the worker ends
    /// first, or releases the connection, the reason is
    /// [`CloseReason::Local`](crate::failure::CloseReason::Local). Never called in a child of fork.
    ///
    /// It is called in the worker's thread, or here if the worker has ended already, and must neither block, because all
    /// connections of the worker would wait, nor panic.
    pub fn on_closed(&self, on_closed: impl FnOnce(Error) + Send + 'static) {
        let (id, worker) = (self.shared.id, self.worker());
        let mut called = Once {
            call: Some(on_closed),
            process: worker.process(),
        };
        worker.submit(move |worker| {
            if let Some(claims) = worker.claims(id) {
                claims.call_at_end(Box::new(move |reason| called.call(reason)));
            }
        });
    }

    /// Has the worker call `act` with the connection, for what a handle has no method for: paths, limits, addresses.
    ///
    /// `act` runs in the worker's thread: it must neither block, because all connections of the worker would wait, nor
    /// panic. Post by [`ConnectionHandle::post`] instead: nothing waits for a request that `act` posts.
    ///
    /// ```
    /// use zerolane::worker::Worker;
    /// use zerolane::Options;
    /// let worker = Worker::new()?.spawn()?;
    /// let endpoint = worker.listen("127.0.0.1:0", Options::default()).wait()?;
    /// let client = worker.connect(endpoint.local_addr(), &Options::default()).wait()?;
    /// let local = client.with(|connection| Ok(connection.local_addr())).wait()?;
    /// assert!(local.is_some());
    /// # Ok::<(), zerolane::Error>(())
    /// ```
    pub fn with<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Connection) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        let id = self.shared.id;
        self.worker().call(move |worker| {
            let connection = worker.connection(id);
            act(connection.ok_or_else(gone)?)
        })
    }

    pub(super) fn request(&self, direction: Direction, post: Post) -> Pending<Completion> {
        let (id, worker) = (self.shared.id, self.worker());
        let request = self.next_request();
        let (claim, pending) = Pending::new(
            worker.process(),
            Some(Box::new(move |unread: Option<Completion>| {
                worker.submit(move |worker| worker.give_up(id, request, unread));
            })),
        );
        let pending = pending.of_request(request);
        let waiting = Waiting {
            id: request,
            post,
            claim: Some(claim),
        };
        self.wait_to_post(direction, waiting);
        pending
    }

    /// Posts `waiting` after the requests that wait already.
    fn wait_to_post(&self, direction: Direction, mut waiting: Waiting) {
        let id = self.shared.id;
        self.worker().submit(move |worker| {
            if let Some(Slot::Connection(link)) = worker.slots.get_mut(id.0) {
                link.claims.post(direction, waiting, &mut link.connection);
                worker.note_asked(id);
            } else if let Some(over) = worker.over.get_mut(&id.0) {
                over.give_kept(direction, &mut waiting);
            }
        });
    }
}

/// Calls a function of the program once: with a reason, or when it is dropped.
struct Once<F: FnOnce(Error)> {
    call: Option<F>,
    process: Process,
}

impl<F: FnOnce(Error)> Once<F> {
    fn call(&mut self, reason: &Error) {
        if let Some(call) = self.call.take() {
            call(reason.again());
        }
    }
}

impl<F: FnOnce(Error)> Drop for Once<F> {
    fn drop(&mut self) {
        if self.process.is_current() {
            self.call(&gone());
        }
    }
}

impl Worker {
    /// Gives up a handle's request.
    fn give_up(&mut self, id: ConnectionId, request: RequestId, unread: Option<Completion>) {
        if let Some(unread) = unread {
            return self.claims(id).map_or((), |it| it.keep(unread));
        }
        let Some(Slot::Connection(link)) = self.slots.get_mut(id.0) else {
            return;
        };
        if let Some(posted) = link.claims.give_up(request) {
            link.connection.cancel(posted);
            // Its completion is ready now.
            self.connection(id);
        }
    }

    /// Cancels a handle's request, whose completion follows. False if it is over.
    fn cancel(&mut self, id: ConnectionId, request: RequestId) -> bool {
        let Some(Slot::Connection(link)) = self.slots.get_mut(id.0) else {
            return false;
        };
        match link.claims.standing(request) {
            Standing::Over => false,
            Standing::Waits => {
                link.claims.refuse(request);
                true
            }
            Standing::Posted(posted) => {
                let cancelled = link.connection.cancel(posted);
                // Its completion is ready now.
                self.connection(id);
                cancelled
            }
        }
    }

    /// The claims of a connection's handles and the data kept for them, also after the connection is over.
    pub(super) fn claims(&mut self, id: ConnectionId) -> Option<&mut Claims> {
        match self.slots.get_mut(id.0) {
            Some(Slot::Connection(link)) => Some(&mut link.claims),
            _ => self.over.get_mut(&id.0),
        }
    }

    /// Updates the count of kept data after a handle asked for some, so that the peer may continue.
    pub(super) fn note_asked(&mut self, id: ConnectionId) {
        if let Some(Slot::Connection(link)) = self.slots.get_mut(id.0) {
            link.report_unread();
            self.agenda.add(id.0, Due::Turn);
        }
    }

    /// Handles the drop of a connection's last handle.
    fn forsake(&mut self, id: ConnectionId) {
        self.over.remove(&id.0);
        if let Some(claims) = self.claims(id) {
            claims.forsake();
            self.close(id);
        }
    }
}
