//! Every limit of a cast, with its reason.

use std::time::Duration;

/// Times beyond this are no limit: sums and multiples of them have room in a `Duration`.
pub const LONGEST: Duration = Duration::from_secs(1 << 32);

/// Most chunks of one content. With chunks of 64 MiB that is 64 TiB; a bitmap of them has 128 KiB.
pub const MAX_CHUNKS: u32 = 1 << 20;

/// Longest message, bytes: the largest bitmap and what goes with it.
pub const MESSAGE_BYTES: usize = 192 << 10;

/// Digests in one message: 128 KiB of them.
pub const HASHES_PER_MESSAGE: usize = 4096;

/// Longest address of a node, bytes: a host name and a port.
pub const ADDRESS_BYTES: usize = 300;

/// Most children of a node in its stripe. More make a node's share of its own port too thin to measure.
pub const MAX_ARITY: u32 = 64;

/// Contacts in one message: a predecessor for each stripe, helpers, successors of the source.
pub const MAX_CONTACTS: usize = 2 * MAX_ARITY as usize;

/// Requests that a peer may have outstanding. An honest peer has at most its window; more is a flood.
pub const MAX_REQUESTS: usize = 1024;

/// Peers of a node besides its coordinator. The nodes of a tree have as many as two arities, and a few helpers.
pub const MAX_PEERS: usize = 256;

/// Messages that a peer may send between two beats. An honest one sends one for each chunk and a few besides.
pub const MESSAGES_PER_BEAT: u32 = 2048;

/// Chunks that come unasked from one peer, and are of no use, before it is cut off; each that was asked for makes up for one. A
/// cancelled request may cross its chunk.
pub const MAX_UNASKED: u32 = 64;

/// Members of a cast. The coordinator holds some hundred bytes of each.
pub const MAX_MEMBERS: usize = 1 << 17;

/// Sends from the store in flight, besides one for each stripe: what a node holds in memory beyond its window.
pub const STORE_SENDS: usize = 4;

/// Chunks on their way to one peer: a second is ready while the first is, else the port rests until that is confirmed.
pub const SENDS_AT_ONCE: usize = 2;

/// Helpers that are named at once to a node that lacks chunks.
pub const HELPERS: usize = 3;

/// Nodes that may follow the source as coordinator.
pub const SUCCESSORS: usize = 3;

/// Accusations of one member that are acted on. A node that meets more liars is likelier to be one.
pub const MAX_ACCUSATIONS: u32 = 3;

/// Accusers after whom a node is cut out, not only left without successors.
pub const ACCUSERS: usize = 2;

/// Reviews after a change of its place in which a node is not found slow: it has to be connected, and asks anew.
pub const SETTLED_REVIEWS: u32 = 1;

/// Reviews that a node apart waits until it is served in turn, to see whether it keeps up; twice as many each time that it was
/// found slow.
pub const RECOVERED_REVIEWS: u32 = 4;

/// Times its patience after which the one that leads has failed a member that gained nothing. What a slow one is sent may be there
/// already, for the first chunks come from several: one to which a chunk takes 12 s gained nothing for 132 s.
pub const IDLE_PATIENCES: u32 = 4;
