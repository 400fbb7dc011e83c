//! Bounds on what clients may have.

use std::time::Duration;

/// Clients at a time, those counted whose requests are not over yet.
pub const MAX_CLIENTS: usize = 16;
/// Requests of a client that are not answered, and answers that it has not taken.
pub const MAX_REQUESTS: usize = 256;
/// Payload of a client's requests and of replies that it has not taken, bytes. One request may always have its own.
pub const MAX_CLIENT_BYTES: usize = 64 << 20;
/// Payload of a request, bytes: what every client may ask for that asks for no lengths.
pub const MAX_PAYLOAD: u32 = 32 << 20;
/// Data of an option, bytes: a name is at most 4096.
pub const MAX_OPTION: u32 = 64 << 10;
/// Options of a negotiation.
pub const MAX_OPTIONS: u32 = 1024;
/// Time for a negotiation.
pub const NEGOTIATION: Duration = Duration::from_secs(10);
/// Extents in an answer: the client asks for the rest.
pub const MAX_EXTENTS: usize = 128;
