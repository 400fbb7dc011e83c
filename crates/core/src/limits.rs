//! Every limit of the protocol engine: name, unit, reason. Full means back-pressure or a counted drop.

use std::time::Duration;

/// Unanswered announcements an end holds for its peer, unless configured otherwise. Enough to keep
/// many small Transfers in flight; each costs tens of bytes.
pub const DEFAULT_SLOTS: u16 = 64;

/// Most slots an end may offer: bounds what a peer can make us remember.
pub const MAX_SLOTS: u16 = 1024;

/// Transfers a user may have posted in one direction before `Full`.
pub const MAX_POSTED: usize = 4096;

/// Blocks granted and not complete, per connection. A power of two: the low bits of Mx index the
/// placement table, the high bits are the entry's generation.
pub const MAX_LIVE_BLOCKS: usize = 256;

/// Separate missing ranges remembered per Block. A Data operation that would make more is dropped
/// and asked for again: alternate bytes of a Block must not cost memory.
pub const MAX_GAPS_PER_BLOCK: usize = 1024;

/// Grants a sender holds for one connection. A receiver that grants more than it was asked for
/// finds the rest dropped.
pub const MAX_HELD_GRANTS: usize = 1024;

/// Ranges queued to be sent again. More are asked for again later anyway.
pub const MAX_REPAIRS: usize = 4096;

/// Control operations queued to be sent. All of them are repeated by timers, so a drop only delays.
pub const MAX_CONTROL_QUEUE: usize = 512;

/// States sent for one Block in one report: 64 ranges; the rest follow with the next report.
pub const MAX_STATES_PER_REPORT: usize = 16;

/// Aborted Transfers whose End may be unconfirmed at a time. The oldest is forgotten first.
pub const MAX_ENDINGS: usize = 1024;

/// Smallest STU payload a peer may ask for, bytes: a peer that wants its payload byte by byte is
/// refused, for every STU costs a header.
pub const MIN_STU: u32 = 256;

/// log2 of the smallest buffer a peer may declare, for the same reason.
pub const MIN_BUFFER_LOG2: u8 = 8;

/// STUs in one Block: the STU number in Param has 16 bits.
pub const MAX_STUS_PER_BLOCK: u32 = 65_535;

/// Runs in one forecast.
pub const MAX_FORECAST_RUNS: usize = 8;

/// Retransmission timeout before a round trip was measured.
pub const INITIAL_RTO: Duration = Duration::from_millis(100);

/// Shortest retransmission timeout. A peer on a shared machine may be off its core for this long
/// without anything being lost.
pub const MIN_RTO: Duration = Duration::from_millis(20);

/// Longest retransmission timeout, after back-off.
pub const MAX_RTO: Duration = Duration::from_millis(1000);

/// Tries of an End before it is forgotten: the peer's own timers clean up after that.
pub const MAX_END_TRIES: u32 = 10;

/// Tries of one path probe size before the next smaller one.
pub const PROBE_TRIES: u32 = 3;

/// Reports of the same Block without progress after which the path is taken to swallow large
/// datagrams, and STUs shrink to the smallest.
pub const BLACK_HOLE_REPORTS: u32 = 4;

/// Smallest MTU every path must carry (IPv6's minimum).
pub const MIN_MTU: usize = 1280;

/// Keep-alives sent within one idle timeout: single losses must not kill a connection.
pub const KEEPALIVES_PER_IDLE_TIMEOUT: u32 = 5;
