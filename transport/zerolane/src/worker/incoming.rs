//! Lets the program of a worker's endpoint decide about requests for connections.

use super::handle::{ConnectionHandle, EndpointHandle};
use super::pending::Pending;
use super::{ConnectionId, Due, Slot, Worker};
use crate::error::Error;
use std::io;
use std::net::SocketAddr;
use zerolane_lane::PublicKey;
use zerolane_wire::PrivateData;

impl Worker {
    /// Accepts the request of [`Event::Requested`](super::Event::Requested). The answer has `data`, or
    /// [`Options::private_data`](crate::Options::private_data) of the endpoint if it is `None`. False if there is no
    /// such request: it was decided, or the client gave up.
    pub fn accept_request(&mut self, connection: ConnectionId, data: Option<PrivateData>) -> bool {
        self.decide(connection, |driver| driver.accept(data))
    }

    /// Refuses such a request: the client's `connect` fails with
    /// [`Reason::Refused`](crate::failure::Reason::Refused). [`Event::Closed`](super::Event::Closed) follows. False if
    /// there is no such request.
    pub fn refuse_request(&mut self, connection: ConnectionId) -> bool {
        self.decide(connection, |driver| driver.refuse())
    }

    fn decide(
        &mut self,
        id: ConnectionId,
        decide: impl FnOnce(&mut zerolane_lane::Driver<zerolane_lane::AnyLane>),
    ) -> bool {
        if self.check_process().is_err() {
            return false;
        }
        let Some(Slot::Connection(link)) = self.slots.get_mut(id.0) else {
            return false;
        };
        let driver = &mut link.connection.driver;
        if !driver.is_asked() {
            return false;
        }
        decide(driver);
        self.agenda.add(id.0, Due::Turn);
        true
    }
}

impl EndpointHandle {
    /// Waits for the next request for a connection, to accept or refuse it. Refused with [`Error::Io`] unless the
    /// endpoint was made with [`ListenOptions::asks`](crate::options::ListenOptions::asks).
    pub fn incoming(&self) -> Pending<IncomingHandle> {
        let (id, worker) = (self.id(), self.worker());
        let (claim, pending) = Pending::new(
            worker.process(),
            Some(Box::new(move |unread: Option<IncomingHandle>| {
                worker.submit(move |worker| {
                    if let Some(listening) = worker.listening(id.0) {
                        listening.accepting.give_up(unread.map(|it| it.connection));
                    }
                });
            })),
        );
        self.worker().submit(move |worker| {
            let Some(listening) = worker.listening(id.0) else {
                return;
            };
            match listening.listener.asks() {
                true => listening.accepting.await_request(claim),
                false => claim.answer_or_drop(Err(not_asked())),
            }
        });
        pending
    }
}

/// The error of a program that waits for requests without
/// [`ListenOptions::asks`](crate::options::ListenOptions::asks).
pub(crate) fn not_asked() -> Error {
    let why = "the endpoint accepts by itself: set options.listen.asks to decide about requests";
    io::Error::new(io::ErrorKind::InvalidInput, why).into()
}

/// A client's request for a connection of a worker: see [`EndpointHandle::incoming`]. Dropping it refuses.
///
/// ```
/// use zerolane::options::PrivateData;
/// use zerolane::worker::Worker;
/// use zerolane::Options;
/// let worker = Worker::new()?.spawn()?;
/// let asks = Options::default().with(|it| it.listen.asks = true);
/// let endpoint = worker.listen("127.0.0.1:0", asks).wait()?;
/// let rank = Some(PrivateData::new(b"rank 3")?);
/// let options = Options::default().with(|it| it.private_data = rank);
/// let client = worker.connect(endpoint.local_addr(), &options);
/// let incoming = endpoint.incoming().wait()?;
/// assert_eq!(incoming.data(), b"rank 3");
/// let server = incoming.accept(Some(PrivateData::new(b"queue 7")?));
/// assert_eq!(client.wait()?.peer_data(), b"queue 7");
/// # Ok::<(), zerolane::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping it refuses the request"]
pub struct IncomingHandle {
    pub(super) connection: ConnectionHandle,
}

impl IncomingHandle {
    /// The client's private data; empty if it gave none.
    pub fn data(&self) -> &[u8] {
        self.connection.peer_data()
    }

    /// The client's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.connection.peer_addr()
    }

    /// The key that the client proved it owns; `None` in plain mode.
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.connection.peer_key()
    }

    /// Accepts the request: see [`Incoming::accept`](crate::Incoming::accept).
    pub fn accept(self, data: Option<PrivateData>) -> ConnectionHandle {
        self.connection.accept(data);
        self.connection
    }

    /// Refuses the request: see [`Incoming::refuse`](crate::Incoming::refuse).
    pub fn refuse(self) {
        // Closing an undecided connection refuses it.
        drop(self.connection);
    }
}

impl ConnectionHandle {
    /// Accepts the request of this connection, if it waits for that.
    pub(super) fn accept(&self, data: Option<PrivateData>) {
        let id = self.id();
        self.worker().submit(move |worker| {
            worker.accept_request(id, data);
        });
    }
}
