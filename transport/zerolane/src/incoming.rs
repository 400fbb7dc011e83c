//! Shows a request for a connection to the program of an endpoint, which accepts or refuses it.

use crate::backlog::Refuser;
use crate::connection::Connection;
use std::net::SocketAddr;
use zerolane_lane::PublicKey;
use zerolane_wire::PrivateData;

/// A client's request for a connection: see [`Endpoint::incoming`](crate::Endpoint::incoming). Dropping it refuses.
///
/// ```
/// use zerolane::options::PrivateData;
/// use zerolane::{Connection, Endpoint, Options};
/// let asks = Options::default().with(|it| it.listen.asks = true);
/// let mut endpoint = Endpoint::bind("127.0.0.1:0", asks)?;
/// let address = endpoint.local_addr();
/// let client = std::thread::spawn(move || {
///     let rank = Some(PrivateData::new(b"rank 3")?);
///     Connection::connect(address, &Options::default().with(|it| it.private_data = rank))
/// });
/// let incoming = endpoint.incoming(None)?.expect("no timeout");
/// assert_eq!(incoming.data(), b"rank 3");
/// let connection = incoming.accept(Some(PrivateData::new(b"queue 7")?));
/// assert_eq!(connection.peer_data(), b"rank 3");
/// assert_eq!(client.join().unwrap()?.peer_data(), b"queue 7");
/// # Ok::<(), zerolane::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping it refuses the request"]
pub struct Incoming {
    connection: Connection,
    refuser: Option<Refuser>,
}

impl Incoming {
    pub(crate) fn new(connection: Connection, refuser: Option<Refuser>) -> Incoming {
        Incoming {
            connection,
            refuser,
        }
    }

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

    /// Accepts the request. The answer has `data`, or [`Options::private_data`](crate::Options::private_data) of the
    /// endpoint if it is `None`. Export memory and post receives before the connection's next call: its peer's requests
    /// are then answered.
    pub fn accept(self, data: Option<PrivateData>) -> Connection {
        let mut connection = self.connection;
        connection.answer(data);
        connection
    }

    /// Refuses the request: the client's `connect` fails with
    /// [`Reason::Refused`](crate::failure::Reason::Refused). If the endpoint has a backlog, its thread repeats that to
    /// a client that asks again.
    pub fn refuse(self) {
        if let Some(refuser) = self.refuser {
            refuser.refuse(self.connection);
        }
    }
}
