//! Maps connections to peers, and tracks the receives and sends posted on each.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use zerolane::failure::TransferError;
use zerolane::request::InOrder;
use zerolane::worker::ConnectionId;
use zerolane::{Region, RequestId};
use zerolane_cast::NodeId;

use crate::pool::Chunk;

/// A connection to a peer.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: NodeId,
    /// This end opened the connection.
    pub(crate) dialed: bool,
    pub(crate) up: bool,
    /// Requested chunks that have not arrived.
    pub(crate) wanted: BTreeSet<u32>,
    /// Receives posted for its messages, in the order in which it sends them.
    pub(crate) messages: InOrder<Received>,
    /// Receives posted for the chunks.
    pub(crate) slots: Vec<RequestId>,
    /// Number and bytes of messages that the peer has not received.
    pub(crate) unsent: usize,
    pub(crate) unsent_bytes: usize,
    /// Chunks on the way to it.
    pub(crate) sending: BTreeMap<u32, Sending>,
    /// Chunks being read for it whose sends were withdrawn.
    pub(crate) withdrawn: BTreeSet<u32>,
}

/// A received message, or why the receive failed.
pub(crate) type Received = Result<(Region, usize), TransferError>;

/// A chunk on its way.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) id: RequestId,
    pub(crate) content: Chunk,
    /// It is in memory only for this send.
    pub(crate) from_store: bool,
}

/// All of them: one for each peer.
#[derive(Debug, Default)]
pub(crate) struct Links {
    links: HashMap<ConnectionId, Link>,
    by_peer: BTreeMap<NodeId, ConnectionId>,
}

impl Links {
    pub(crate) fn add(&mut self, connection: ConnectionId, id: NodeId, dialed: bool) {
        let link = Link {
            id,
            dialed,
            up: !dialed,
            wanted: BTreeSet::new(),
            messages: InOrder::default(),
            slots: Vec::new(),
            unsent: 0,
            unsent_bytes: 0,
            sending: BTreeMap::new(),
            withdrawn: BTreeSet::new(),
        };
        self.links.insert(connection, link);
        self.by_peer.insert(id, connection);
    }

    pub(crate) fn get(&mut self, connection: ConnectionId) -> Option<&mut Link> {
        self.links.get_mut(&connection)
    }

    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    pub(crate) fn to(&self, id: NodeId) -> Option<ConnectionId> {
        self.by_peer.get(&id).copied()
    }

    pub(crate) fn link_to(&mut self, id: NodeId) -> Option<(ConnectionId, &mut Link)> {
        let connection = self.to(id)?;
        Some((connection, self.links.get_mut(&connection)?))
    }

    pub(crate) fn remove(&mut self, connection: ConnectionId) -> Option<Link> {
        let link = self.links.remove(&connection)?;
        if self.by_peer.get(&link.id) == Some(&connection) {
            self.by_peer.remove(&link.id);
        }
        Some(link)
    }
}
