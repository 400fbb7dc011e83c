//! Keeps what a forwarder knows of one connection.

use crate::engine::Role;
use crate::message::StreamId;
use crate::session::Session;
use std::collections::HashMap;
use zerolane::security::PublicKey;
use zerolane::worker::ConnectionId;

/// One connection, and what its streams belong to.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) session: Session,
    pub(super) key: Option<PublicKey>,
    pub(super) name: String,
    pub(super) uses: HashMap<StreamId, Use>,
}

/// What a stream is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// A socket's bytes: the link's number.
    Link(u64),
    /// Its target is being connected to.
    Dials,
    /// The peer asked for this listener.
    Lease(u64),
    /// This end asked the peer to listen, for the forward of this index.
    Asked(usize),
}

impl Peer {
    pub(super) fn new(
        connection: ConnectionId,
        role: Role,
        key: Option<PublicKey>,
        name: String,
    ) -> Peer {
        Peer {
            session: Session::new(connection, role),
            key,
            name,
            uses: HashMap::new(),
        }
    }
}
