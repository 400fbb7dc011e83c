//! Every limit that a stranger meets: name, unit, reason. Full means a counted refusal.

use std::time::Duration;

/// Key exchanges begun by strangers and not done, on one listening end. Each holds about 2 KiB.
pub const MAX_PENDING_HANDSHAKES: usize = 256;

/// Of those, of one origin: an IPv4 address, or an IPv6 network of 64 bits.
pub const MAX_PENDING_OF_ORIGIN: usize = 16;

/// With this many unfinished key exchanges a stranger has to prove its address by a cookie first. A
/// few clients that come at once never reach it; a flood from forged addresses soon does.
pub const COOKIE_FROM_PENDING: usize = 32;

/// With this many Hellos in one second it has to as well: key agreements for so many cost a core a
/// few percent.
pub const COOKIE_FROM_RATE: u32 = 200;

/// Key exchanges answered in one second, for all clients together and whatever they proved: bounds
/// what key agreements cost to about a fifth of a core.
pub const MAX_ANSWERS_PER_SECOND: u32 = 1000;

/// Of those, to one origin: one that proves its address again and again leaves half to the others.
pub const MAX_ANSWERS_OF_ORIGIN_PER_SECOND: u32 = 500;

/// Connections of one listening end, unless configured otherwise. Each has a socket, with its
/// memory in the kernel.
pub const MAX_CONNECTIONS: usize = 4096;

/// Of those, of one origin: no single peer keeps all others out.
pub const MAX_CONNECTIONS_OF_ORIGIN: usize = 1024;

/// Wrong guesses at a one-time code before it is void: a person who types it may err, and an
/// attacker has one chance in 33 million.
pub const CODE_GUESSES: u32 = 3;

/// How long an unfinished key exchange is remembered: as long as an Initiator tries.
pub const HANDSHAKE_LIFETIME: Duration = Duration::from_secs(5);

/// How long a secret makes cookies; each is good for once or twice that.
pub const COOKIE_LIFETIME: Duration = Duration::from_secs(60);
