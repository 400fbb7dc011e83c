//! Defines every limit of the cast engine, with its reason.

use std::time::Duration;

/// Cap on all times, so that their sums and multiples fit a `Duration`.
pub const LONGEST: Duration = Duration::from_secs(1 << 32);

/// Most chunks of one content. With chunks of 64 MiB that is 64 TiB; a bitmap of them has 128 KiB.
pub const MAX_CHUNKS: u32 = 1 << 20;

/// Longest message, bytes: the largest bitmap and the fields beside it.
pub const MESSAGE_BYTES: usize = 192 << 10;

/// Digests in one message: 128 KiB of them.
pub const HASHES_PER_MESSAGE: usize = 4096;

/// Longest address of a node, bytes: a host name and a port.
pub const ADDRESS_BYTES: usize = 300;

/// Most children of a node in its stripe. More make a node's share of its own port too thin to measure.
pub const MAX_ARITY: u32 = 64;

/// Contacts in one message: a predecessor for each stripe, helpers, successors of the source.
pub const MAX_CONTACTS: usize = 2 * MAX_ARITY as usize;

/// Most outstanding requests of a peer. An honest peer has at most its window; more is a flood.
pub const MAX_REQUESTS: usize = 1024;

/// Most peers of a node besides its coordinator. A node of a tree has up to twice the arity, and a few helpers.
pub const MAX_PEERS: usize = 256;

/// Most messages that a peer may send between two beats. An honest peer sends one per chunk and a few others.
pub const MESSAGES_PER_BEAT: u32 = 2048;

/// Unrequested, useless chunks that a peer may send before it is disconnected; each requested one makes up for one. A
/// cancelled request may cross its chunk.
pub const MAX_UNSOLICITED: u32 = 64;

/// Members of a cast. The coordinator holds some hundred bytes of each.
pub const MAX_MEMBERS: usize = 1 << 17;

/// Sends from the store in flight, besides one for each stripe. A node holds these chunks in memory beyond its window.
pub const STORE_SENDS: usize = 4;

/// Chunks in flight to one peer. A second one keeps the port busy until the first is confirmed.
pub const SENDS_AT_ONCE: usize = 2;

/// Helpers that the coordinator names at once to a node with missing chunks.
pub const HELPERS: usize = 3;

/// Nodes that may take over from the source as coordinator.
pub const SUCCESSORS: usize = 3;

/// Accusations by one member that have an effect. A node that accuses more peers is more likely a liar itself.
pub const MAX_ACCUSATIONS: u32 = 3;

/// Number of accusers after which a node is excluded, instead of only losing its successors.
pub const ACCUSERS: usize = 2;

/// Reviews after a move in which a node cannot be found slow: it must first connect and request chunks again.
pub const SETTLED_REVIEWS: u32 = 1;

/// Reviews before a demoted node is served in turn again, to test whether it keeps up; doubled each time it is found
/// slow.
pub const RECOVERED_REVIEWS: u32 = 4;

/// Multiple of its patience after which the coordinator fails a member without progress. A slow member may receive
/// chunks that it already has, because the first chunks come from several peers: a member with 12 s per chunk made no
/// progress for 132 s.
pub const IDLE_PATIENCES: u32 = 4;
