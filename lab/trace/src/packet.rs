//! Parses an IP packet as far as the replay needs.

use std::net::IpAddr;

/// One direction of traffic between two sockets; for other protocols, between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// Number of the IP protocol: 6 is TCP, 17 UDP.
    pub protocol: u8,
    /// The sender.
    pub source: IpAddr,
    /// Its port; 0 where the protocol has none, or it was not seen.
    pub source_port: u16,
    /// The receiver.
    pub destination: IpAddr,
    /// Its port, as above.
    pub destination_port: u16,
}

/// Where a packet's payload belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// By the number of its first byte. `begins`: it opens the connection.
    Sequence { number: u32, begins: bool },
    /// Behind what came before: the protocol numbers nothing.
    Unnumbered,
}

/// Which part of a datagram a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Whole,
    First,
    Middle,
    Last,
}

/// A fragment, as its header has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragment {
    /// Number of the datagram.
    pub(crate) id: u32,
    /// Bytes of it in front, transport header included.
    pub(crate) offset: u32,
    pub(crate) piece: Piece,
}

/// A packet of IP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) time: u64,
    pub(crate) key: FlowKey,
    /// Length on the wire, bytes.
    pub(crate) len: u32,
    /// Bytes behind the IP header.
    pub(crate) above_ip: u32,
    /// Bytes of headers from IP up.
    pub(crate) header: u32,
    /// Bytes of the transport's header here.
    pub(crate) transport: u32,
    /// Payload of the transport, bytes.
    pub(crate) payload: u32,
    pub(crate) position: Position,
    pub(crate) fragment: Option<Fragment>,
}

/// Why a packet is not counted with a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// Not IP.
    NotIp,
    /// Fewer bytes were recorded than its headers have.
    Cut,
    /// Its headers contradict each other.
    Malformed,
    /// An unknown link type.
    Link(i32),
}
