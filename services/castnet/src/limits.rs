//! Defines every limit of a cast over connections, with its reason.

use std::time::Duration;

/// The port on which hosts wait for a cast.
pub const CAST_PORT: u16 = 9184;

/// Longest message between source and host outside the cast, bytes: it holds a name and an error text.
pub const WORD_BYTES: usize = 16 << 10;

/// Receives posted for messages of a peer. Each may be as long as the longest message, so there are few.
pub const MESSAGE_RECEIVES: usize = 2;

/// Sends of a link that its peer has not received. An honest peer receives each at once.
pub const MAX_SENDS: usize = 2048;

/// Bytes of sends of a link that its peer has not received. An honest peer waits for an answer before it asks again,
/// and the longest answer has [`MESSAGE_BYTES`](zerolane_cast::limits::MESSAGE_BYTES).
pub const MAX_UNSENT_BYTES: usize = 8 * zerolane_cast::limits::MESSAGE_BYTES;

/// Shortest chunk, bytes: a shorter one costs more to request than to send.
pub const LEAST_CHUNK: u64 = 256 << 10;

/// Longest chunk, bytes: a window of them must fit the memory of a small machine.
pub const MOST_CHUNK: u64 = 16 << 20;

/// Number of chunks of a content, unless they become too short or too long: the pipe then fills in a small part of the
/// time.
pub const CHUNKS: u64 = 1500;

/// Chunks in a node's memory, those on the way to it included: more by trees of more than three stripes.
pub const WINDOW: u32 = 16;

/// Limit in bytes on a window larger than [`WINDOW`]: 64 stripes of the longest chunks would take 4 GiB.
pub const WINDOW_BYTES: u64 = 512 << 20;

/// Beats in the silence after which a node counts as dead. The coordinator compares nodes every few beats, so short
/// beats find a slow node early.
pub const BEATS: u32 = 20;

/// Longest time between two beats, however long the silence: beats drive the cast.
pub const LONGEST_BEAT: Duration = Duration::from_secs(1);

/// Beats of silence after which no node receives from a node until it speaks again. Large enough for a node that waits
/// for a busy processor.
pub const SUSPICIOUS_BEATS: u32 = 6;

/// Number of latest chunks whose receive rate sets the forwarding rate: few enough to follow changes, and enough to
/// smooth out one early or late chunk.
pub const PACED_CHUNKS: usize = 12;

/// Forwarding rate in percent of the receive rate. More fills the host's own queue with most of a chunk; less never
/// catches up.
pub const PACE_PERCENT: u64 = 115;

/// Pause before the source repeats a call that a host did not answer.
pub const CALL_AGAIN: Duration = Duration::from_millis(500);

/// How long a host may take to answer a call.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// Simultaneous calls without an answer yet.
pub const CALLS: usize = 256;

/// Simultaneous callers that a host accepts before it knows its source.
pub const CALLERS: usize = 16;

/// How long a caller may take to send its offer.
pub const CALLER_PATIENCE: Duration = Duration::from_secs(10);

/// How long a source waits for the results of hosts that have all content, and for a host that answered its call to
/// rejoin, unless they report that they are working.
pub const FAREWELL: Duration = Duration::from_secs(10);

/// How often a host reports progress of slow steps: the check of an earlier attempt, and putting the content in place.
pub const TELL: Duration = Duration::from_secs(1);

/// How long a source waits for a host that reports putting the content in place, beyond the time at [`LEAST_RATE`]. It
/// covers a disk that writes out a machine's memory, and the end of a command.
pub const FINISHING: Duration = Duration::from_secs(3600);

/// Lowest rate, bytes/s, at which a slow command may read the content while the source waits.
pub const LEAST_RATE: u64 = 100_000;

/// How long connections may take to close at the end. If a close is lost and the peer has gone, nothing confirms it.
pub const PARTING: Duration = Duration::from_secs(1);

/// Bytes per read of the partial file, for a stream.
pub const FEED_BYTES: usize = 256 << 10;

/// Time between SIGTERM and SIGKILL for a command whose content stays incomplete.
pub const COMMAND_PATIENCE: Duration = Duration::from_secs(1);

/// How long a consumer may take to end when the content stays incomplete: longer than a command may. One that is
/// blocked by a disk, or by a reader of standard output, is abandoned.
pub const READER_PATIENCE: Duration = Duration::from_secs(3);
