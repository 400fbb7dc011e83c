//! Defines every limit on NBD clients: name, unit, reason.

use std::time::Duration;

/// Most simultaneous clients, including departed ones with requests in progress.
pub const MAX_CLIENTS: usize = 16;
/// Most unanswered requests and unread replies of a client.
pub const MAX_REQUESTS: usize = 256;
/// Most payload of a client's requests and unread replies, bytes. A single request is always allowed.
pub const MAX_CLIENT_BYTES: usize = 64 << 20;
/// Most payload of a request, bytes: the protocol's limit for clients that do not negotiate block sizes.
pub const MAX_PAYLOAD: u32 = 32 << 20;
/// Most data of an option, bytes. A name has at most 4096.
pub const MAX_OPTION: u32 = 64 << 10;
/// Most options in a negotiation.
pub const MAX_OPTIONS: u32 = 1024;
/// Longest time for a negotiation.
pub const NEGOTIATION: Duration = Duration::from_secs(10);
/// Most extents in a reply. The client asks for the rest.
pub const MAX_EXTENTS: usize = 128;
