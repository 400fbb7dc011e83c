//! Defines every limit of streams, with its reason.

use std::time::Duration;

/// Bytes of a message's memory: long enough for trains (up to 64 KiB) to follow each other without a pause between
/// messages, short enough that a stream of high priority waits for no longer than this many bytes of another.
pub const MESSAGE_BYTES: usize = 256 << 10;

/// Messages that a peer may send without an answer: receives posted at the other end, and the announcements that the
/// transport holds (its default slots). With [`MESSAGE_BYTES`], 16 MiB: 1 Gb/s over 100 ms.
pub const RECEIVES: usize = 64;

/// Of these, the messages that may be payload, so that credit and resets always find room.
pub(crate) const MAX_CHUNKS_POSTED: usize = RECEIVES - 8;

/// Messages that may overtake an incomplete one. Further receives are posted when it is complete.
pub(crate) const MAX_AHEAD: u64 = 4 * RECEIVES as u64;

/// Bytes that a stream may queue to travel with others in one message, copied. Less costs a message of its own less.
pub(crate) const SMALL_BYTES: usize = 8 << 10;

/// Bytes of a message of several frames: the transport sends up to 16 KiB without asking for a grant.
pub(crate) const BUNDLE_BYTES: usize = 16 << 10;

/// Payload from which a received message's memory is kept for the reader rather than copied out: it may hold at most
/// four times what it carries.
pub(crate) const KEEP_BYTES: usize = 64 << 10;

/// What a peer may send on a new stream before any credit.
pub const INITIAL_WINDOW: u64 = 64 << 10;

/// What a new stream may be granted beyond that at once, but at most one part in 16 of what is left of
/// [`EXTRA_WINDOW`], and nothing once half of that is in use: a bulk stream over a long path then does not begin with
/// round trips for credit.
pub const EARLY_WINDOW: u64 = 4 << 20;
pub(crate) const EARLY_PART: u64 = 16;

/// How much a window grows each time that it limits.
pub(crate) const WINDOW_GROWTH: u64 = 4;

/// The largest window of one stream: what [`RECEIVES`] messages hold.
pub const MAX_WINDOW: u64 = (RECEIVES * MESSAGE_BYTES) as u64;

/// What all streams of a connection together may be granted beyond [`INITIAL_WINDOW`] each.
pub const EXTRA_WINDOW: u64 = 64 << 20;

/// Streams of one connection that each end may have opened at a time.
pub const MAX_STREAMS: usize = 4096;

/// Bytes queued to be sent, for each priority: enough to fill the next messages while the sources are read.
pub(crate) const QUEUED_BYTES: usize = 1 << 20;

/// Frames owed to the peer. Each stream owes a few at most; a peer that causes more by demanding answers is cut off.
pub(crate) const MAX_OWED: usize = 16 * MAX_STREAMS;

/// Regions kept for reuse.
pub(crate) const MAX_SPARE: usize = RECEIVES;

/// Longest purpose of a stream, bytes: a host name of 255 bytes, a port, and words around them.
pub const MAX_PURPOSE: usize = 1024;

/// Longest words of a reset, bytes.
pub const MAX_WORDS: usize = 512;

/// Priorities: 0 is sent first.
pub const PRIORITIES: usize = 8;

/// The priority of a stream whose opener chooses none, as in RFC 9218.
pub const DEFAULT_PRIORITY: u8 = 3;

/// Payload in flight at least.
pub(crate) const MIN_FLIGHT: u64 = 4 * MESSAGE_BYTES as u64;

/// Payload in flight while the path's rate is not known: the transport has a slow start of its own, which a bound that
/// follows the rate seen would hold back.
pub(crate) const START_FLIGHT: u64 = 16 * MESSAGE_BYTES as u64;

/// Round trips without a quarter more rate after which the rate counts as known (BBR's startup has three).
pub(crate) const STALE_ROUNDS: u32 = 2;

/// How long a measurement of the path counts.
pub(crate) const PATH_MEMORY: Duration = Duration::from_secs(10);
