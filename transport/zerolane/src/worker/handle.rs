//! Defines the handles by which any thread or task uses a worker.

use super::claims::{Attempt, Claims, Direction, Peer, Post, Waiting, attempt};
use super::pending::{Claim, Pending, Refused, RequestId, gone};
use super::{ConnectionId, EndpointId, Inbox, Slot, Submission, Worker};
use crate::completion::Completion;
use crate::connection::Connection;
use crate::error::{Error, Posted, Result};
use crate::work::Work;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zerolane_lane::{
    Account, ExportedRegion, Memory, NotPosted, Options, Process, PublicKey, Region, Waker,
    WorkKind, Writable,
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

    /// Connects to `to`.
    pub fn connect(&self, to: SocketAddr, options: &Options) -> Pending<ConnectionHandle> {
        let options = options.clone();
        let (claim, pending) = Pending::new(self.process(), None);
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

    /// Listens on `on` (port 0: any free port).
    pub fn listen(&self, on: SocketAddr, options: Options) -> Pending<EndpointHandle> {
        let inbox = Arc::clone(&self.inbox);
        self.call(move |worker| {
            let id = worker.listen(on, options)?;
            let Some(Slot::Endpoint(listening)) = worker.slots.get_mut(id.0) else {
                return Err(gone());
            };
            listening.accepting.handle();
            let local = listening.endpoint.local_addr();
            let owned = Owned {
                inbox,
                close: Box::new(move |worker| {
                    let _ = worker.close_endpoint(id);
                }),
            };
            Ok(EndpointHandle {
                shared: Arc::new(EndpointShared { owned, id, local }),
            })
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
}

impl EndpointHandle {
    fn worker(&self) -> WorkerHandle {
        WorkerHandle::new(&self.shared.owned.inbox)
    }

    /// The address listened on.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.local
    }

    /// Waits for the next connection. Connections that were not asked for are served too: they may use what the
    /// endpoint exports ([`EndpointHandle::export`]).
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
/// let endpoint = worker.listen("127.0.0.1:0".parse().unwrap(), Options::default()).wait()?;
/// let client = worker.connect(endpoint.local_addr(), &Options::default()).wait()?;
/// let server = endpoint.accept().wait()?;
/// let received = server.recv(Region::anonymous(4096)?);
/// client.send(Region::from_vec(b"from any thread".to_vec())).wait()?.result?;
/// let received = received.wait()?;
/// assert_eq!(&received.memory[..received.result?], b"from any thread");
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
    /// Requests made so far.
    requests: AtomicU64,
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
                requests: AtomicU64::new(0),
            }),
        }
    }

    pub(super) fn id(&self) -> ConnectionId {
        self.shared.id
    }

    pub(super) fn worker(&self) -> WorkerHandle {
        WorkerHandle::new(&self.shared.owned.inbox)
    }

    /// The peer's address at the time when the connection was made.
    pub fn peer_addr(&self) -> SocketAddr {
        self.shared.peer.address
    }

    /// The key that the peer proved it owns; `None` in plain mode.
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.shared.peer.key
    }

    /// Sends `memory` as one Transfer.
    pub fn send(&self, memory: impl Into<Memory>) -> Pending<Completion> {
        self.send_with(memory, Work::default())
    }

    /// Like [`ConnectionHandle::send`], with the options in `work`. The request is always signalled.
    pub fn send_with(
        &self,
        memory: impl Into<Memory>,
        work: impl Into<Work>,
    ) -> Pending<Completion> {
        let work = signalled(work.into());
        let post = attempt(memory.into(), refused, move |connection, memory| {
            posted(connection.post_send_with(memory, work))
        });
        self.request(Direction::Outgoing, post)
    }

    /// Receives the next Transfer into `memory`. If a Transfer was kept for a receive that was given up, it answers at
    /// once, in the memory of that receive, and `memory` is freed.
    pub fn recv(&self, memory: impl Writable) -> Pending<Completion> {
        let post = attempt(memory, refused, |connection, memory| {
            posted(connection.post_recv(memory))
        });
        self.request(Direction::Incoming(WorkKind::Receive), post)
    }

    /// Sends a message: see [`Connection::post_message`].
    pub fn send_message(&self, control: &[u8], payload: Option<Memory>) -> Pending<Completion> {
        let control = control.to_vec();
        let post = attempt(payload, refused_some, move |connection, payload| {
            posted(connection.post_message(&control, payload, Work::default()))
        });
        self.request(Direction::Outgoing, post)
    }

    /// Receives the next message, its payload into `payload`. A message that was kept answers at once, as in
    /// [`ConnectionHandle::recv`].
    pub fn recv_message(&self, payload: Option<Region>) -> Pending<Completion> {
        let post = attempt(payload, refused_some, |connection, payload| {
            posted(connection.post_message_recv(payload))
        });
        self.request(Direction::Incoming(WorkKind::MessageReceived), post)
    }

    /// Finishes sending, as [`Connection::finish`] does, after all requests made before.
    pub fn finish(&self) -> Pending<()> {
        let (claim, pending) = Pending::new(self.worker().process(), None);
        let mut claim = Some(claim);
        let waiting = Waiting {
            number: self.shared.requests.fetch_add(1, Ordering::Relaxed),
            post: Box::new(move |connection| {
                if let (Some(connection), Some(claim)) = (connection, claim.take()) {
                    claim.answer_or_drop(connection.finish());
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
                link.claims.await_end(claim);
                worker.close(id);
            }
        });
        pending
    }

    /// Has the worker call `act` with the connection.
    pub(super) fn with<T: Send + 'static>(
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
        let number = self.shared.requests.fetch_add(1, Ordering::Relaxed);
        let (claim, pending) = Pending::new(
            worker.process(),
            Some(Box::new(move |unread: Option<Completion>| {
                worker.submit(move |worker| worker.give_up(id, number, unread));
            })),
        );
        let pending = pending.of_request(RequestId::new(id, number));
        let waiting = Waiting {
            number,
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

impl Worker {
    /// Gives up a handle's request.
    fn give_up(&mut self, id: ConnectionId, number: u64, unread: Option<Completion>) {
        if let Some(unread) = unread {
            return self.claims(id).map_or((), |it| it.keep(unread));
        }
        let Some(Slot::Connection(link)) = self.slots.get_mut(id.0) else {
            return;
        };
        if let Some(posted) = link.claims.give_up(number) {
            link.connection.cancel(posted);
            // Its completion is ready now.
            self.connection(id);
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
            self.ready.push(id.0, &mut link.queued);
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

/// Makes the request signalled, because a handle waits for it.
pub(super) fn signalled(work: Work) -> Work {
    Work {
        signalled: true,
        ..work
    }
}

/// Refuses a request and returns its memory to the caller.
pub(super) fn refused(error: Error, memory: impl Into<Memory>) -> Refused {
    refused_some(error, Some(memory))
}

fn refused_some(error: Error, memory: Option<impl Into<Memory>>) -> Refused {
    Refused {
        memory: memory.map(Into::into),
        ..Refused::because(error)
    }
}

pub(super) fn posted<M>(
    posted: Posted<M>,
) -> std::result::Result<zerolane_lane::TransferId, (Error, M)> {
    posted.map_err(|NotPosted { reason, memory }| (reason.into(), memory))
}
