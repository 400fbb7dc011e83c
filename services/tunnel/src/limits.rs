//! Defines the limits of a tunnel, with the reason of each.

use crate::packet::VNET_HEADER_LEN;
use std::time::Duration;

/// Peers of an interface: each has a connection and a queue.
pub const MAX_PEERS: usize = 256;

/// Prefixes of all peers together.
pub const MAX_PREFIXES: usize = 65_536;

/// Bytes of a configuration file.
pub const MAX_CONFIG: u64 = 1 << 20;

/// Longest datagram, bytes: as the transport's.
pub const LONGEST_DATAGRAM: usize = 60 << 10;

/// Bytes of a packet's length, in front of it in a datagram.
pub const LENGTH: usize = 2;

/// Bytes in front of each packet in a datagram: its length, and the header of virtio.
pub const PACKET_HEADERS: usize = LENGTH + VNET_HEADER_LEN;

/// Longest packet that the host leaves uncut, bytes: with its headers, it fits one datagram.
pub const MAX_PACKET: usize = LONGEST_DATAGRAM - PACKET_HEADERS;

/// Bytes of a datagram that one packet outside carries, about: with IPv6 on Ethernet. No datagram need be shorter.
pub const OUTER_PACKET: usize = 1384;

/// How much shorter than the MTU inside a segment of TCP is with its header: such a packet then crosses in one outside,
/// if the MTU is as far below the outer one as WireGuard's.
pub const SEGMENT_MARGIN: u32 = 48;

/// The MTU inside, unless configured: as WireGuard's, so that routes through both behave alike.
pub const DEFAULT_MTU: u32 = 1420;
/// The least MTU of IPv6 (RFC 8200).
pub const MIN_MTU: u32 = 1280;
/// The largest MTU inside: one packet and its header are one datagram.
pub const MAX_MTU: u32 = MAX_PACKET as u32;

/// Packets, and bytes of them, that wait for one peer. CoDel acts long before.
pub const MAX_QUEUED: usize = 1024;
/// See [`MAX_QUEUED`].
pub const MAX_QUEUED_BYTES: usize = 4 << 20;

/// Packets up to this length go before longer ones: acknowledgements, key strokes, voice.
pub const SHORT_PACKET: usize = 200;

/// How long a queue may stand, and for how long before packets are dropped: CoDel's target and interval.
pub const CODEL_TARGET: Duration = Duration::from_millis(2);
/// See [`CODEL_TARGET`].
pub const CODEL_INTERVAL: Duration = Duration::from_millis(100);

/// Bytes handed to a connection that have not left: what it can send before it is asked again.
pub const MAX_UNSENT: u64 = 128 << 10;
/// The same as a time, where the path has a pace: CoDel does not see these bytes wait.
pub const UNSENT: Duration = Duration::from_millis(2);

/// How often the path is looked at.
pub const LOOK_AT_PATH: Duration = Duration::from_millis(100);
/// A look at fewer bytes tells nothing of the path.
pub const FEWEST_BYTES: u64 = 20 << 10;
/// Weight of the earlier estimate of loss after a look.
pub const LOSSES_KEPT: f64 = 0.9;
/// Longest time for which a datagram occupies a path with a pace: a short packet waits behind it.
pub const SLOWEST: Duration = Duration::from_millis(1);
/// Fewest datagrams among which the bytes in flight are divided where packets are lost: TCP detects a loss by what
/// arrives after it.
pub const PARTS_IN_FLIGHT: f64 = 16.0;
/// Shortest round trip for that: on nearer paths, TCP has more in flight than a round trip takes.
pub const SHORTEST_ROUND: Duration = Duration::from_millis(10);
/// Part of long datagrams that may lose a packet.
pub const MOST_BROKEN: f64 = 0.05;

/// Packets taken from the interface, or from a connection, in one pass: the other direction gets a turn.
pub const PACKETS_PER_PASS: usize = 64;

/// Passes that find work before the driver looks at what else its program waits for.
pub const PASSES_UNWATCHED: u64 = 32;

/// How long after a failure a peer is called again: doubled each time, at most the second.
pub const FIRST_RETRY: Duration = Duration::from_millis(500);
/// See [`FIRST_RETRY`].
pub const LAST_RETRY: Duration = Duration::from_secs(5);
