//! Defines every limit that applies to unauthenticated peers: name, unit, reason. Full means a counted refusal.

use std::time::Duration;

/// Unfinished key exchanges on one listening end. Each takes about 2 KiB.
pub const MAX_PENDING_HANDSHAKES: usize = 256;

/// Of those, from one origin, which has proven its address for most of them: an IPv4 address, or an IPv6 network of 64
/// bits. Half is left to the others. A host whose programs all start at once has a hundred and more.
pub const MAX_PENDING_OF_ORIGIN: usize = MAX_PENDING_HANDSHAKES / 2;

/// Unfinished key exchanges from which on a peer must first prove its address by a cookie. A few clients that come at
/// once never reach it; a flood from forged addresses soon does.
pub const COOKIE_FROM_PENDING: usize = 32;

/// Unfinished key exchanges of one origin from which on it must as well.
pub const COOKIE_FROM_PENDING_OF_ORIGIN: usize = 16;

/// Hellos in one second from which on it must as well: their key agreements take a few percent of a core.
pub const COOKIE_FROM_RATE: u32 = 200;

/// Key exchanges answered in one second, for all clients together, whatever they proved. Limits the key agreements to
/// about a fifth of a core.
pub const MAX_ANSWERS_PER_SECOND: u32 = 1000;

/// Of those, to one origin: an origin that proves its address repeatedly leaves half to the others.
pub const MAX_ANSWERS_OF_ORIGIN_PER_SECOND: u32 = 500;

/// Connections of one listening end, unless configured otherwise. Each has a socket, with its memory in the kernel.
pub const MAX_CONNECTIONS: usize = 4096;

/// Of those, from one origin: no single peer can exclude all others.
pub const MAX_CONNECTIONS_OF_ORIGIN: usize = 1024;

/// Connections that an endpoint accepts before its program does, unless configured otherwise. Each has a socket, too.
pub const DEFAULT_BACKLOG: u16 = 64;

/// Wrong guesses that invalidate a one-time code. A person may mistype it; an attacker has one chance in 33 million.
pub const CODE_GUESSES: u32 = 3;

/// Lifetime of an unfinished key exchange: as long as an Initiator tries.
pub const HANDSHAKE_LIFETIME: Duration = Duration::from_secs(5);

/// How long one secret makes cookies. Each cookie is valid for once or twice that time.
pub const COOKIE_LIFETIME: Duration = Duration::from_secs(60);
