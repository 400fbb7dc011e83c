//! Every limit of a cast over connections, with its reason.

use std::time::Duration;

/// The port on which hosts wait for a cast.
pub const CAST_PORT: u16 = 9184;

/// Longest word between a source and a host outside of the cast, bytes: a name and an error in words.
pub const WORD_BYTES: usize = 16 << 10;

/// Receives posted for messages of a peer. Each may be as long as the longest message, so there are few.
pub const MESSAGE_RECEIVES: usize = 2;

/// Sends of a link that its peer has not taken. An honest one takes each at once.
pub const MAX_SENDS: usize = 2048;

/// Bytes of sends of a link that its peer has not taken. An honest one waits for what it asked before it asks for more, and the
/// longest answer has [`MESSAGE_BYTES`](zerolane_cast::limits::MESSAGE_BYTES).
pub const MAX_UNSENT_BYTES: usize = 8 * zerolane_cast::limits::MESSAGE_BYTES;

/// Fewest bytes of a chunk: shorter ones cost more to ask for than to send.
pub const LEAST_CHUNK: u64 = 256 << 10;

/// Most bytes of a chunk: a window of them has to fit a small machine's memory.
pub const MOST_CHUNK: u64 = 16 << 20;

/// Chunks of a content, as far as they are neither too small nor too large: the pipe fills in a small part of the time.
pub const CHUNKS: u64 = 1500;

/// Chunks in a node's memory, those on the way to it included: more by trees of more than three stripes.
pub const WINDOW: u32 = 16;

/// Bytes of what is more than [`WINDOW`]: 64 stripes of the longest chunks would take 4 GiB.
pub const WINDOW_BYTES: u64 = 512 << 20;

/// Beats in the silence after which a node is taken for dead. Nodes are compared after several, so short ones find a slow
/// node soon.
pub const BEATS: u32 = 20;

/// The longest time between two beats, whatever the silence: a cast goes on by them.
pub const LONGEST_BEAT: Duration = Duration::from_secs(1);

/// Beats in the silence after which none receives from a node until it is heard of again: many enough for one that waits
/// for a busy processor.
pub const SUSPICIOUS_BEATS: u32 = 6;

/// Chunks that came last, of which a node takes the rate at which it passes them on: a few, so that it follows soon, and so
/// many that one that comes early or late makes no difference.
pub const PACED_CHUNKS: usize = 12;

/// That rate, in percent of the one at which they came: more fills the host's own queue with most of a chunk, less never
/// catches up.
pub const PACE_PERCENT: u64 = 115;

/// Calls at hosts that do not answer are repeated after this.
pub const CALL_AGAIN: Duration = Duration::from_millis(500);

/// How long a host may take to answer a call.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// Hosts that are called at a time and have not answered.
pub const CALLS: usize = 256;

/// Callers that a host listens to at a time before it knows its source.
pub const CALLERS: usize = 16;

/// How long a caller may take to say what it wants.
pub const CALLER_PATIENCE: Duration = Duration::from_secs(10);

/// How long a source waits for the last words of hosts that have all, and for one that answered its call to take part
/// again, if they do not say that they are at work.
pub const FAREWELL: Duration = Duration::from_secs(10);

/// How often a source hears how far a host is with what takes long: with what an earlier try left, and with putting all in its
/// place.
pub const TELL: Duration = Duration::from_secs(1);

/// How long a source waits for a host that says that it puts the content in its place, besides the time that [`LEAST_RATE`] takes
/// for it: longer than a disk takes for what a machine had in memory for it, or a command for what it does at its end.
pub const FINISHING: Duration = Duration::from_secs(3600);

/// Bytes a second of a host for which a source waits while a slow command reads the content.
pub const LEAST_RATE: u64 = 100_000;

/// How long connections have to end when all is over. Where the end of one is lost, and its peer has gone, none confirms it.
pub const PARTING: Duration = Duration::from_secs(1);

/// Bytes that a stream's reader asks of the partial file at a time.
pub const FEED_BYTES: usize = 256 << 10;

/// How long a command that reads the content has, when the rest does not come, between SIGTERM and SIGKILL.
pub const COMMAND_PATIENCE: Duration = Duration::from_secs(1);

/// How long what reads the content has to end, when the rest does not come: longer than a command has. What is blocked by a
/// disk, or by one that does not read standard output, is left.
pub const READER_PATIENCE: Duration = Duration::from_secs(3);
