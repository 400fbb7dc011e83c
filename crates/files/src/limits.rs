//! Every limit of the file service, with its unit and its reason.

/// UDP port a file service listens on when none is named. In the user range, unassigned by IANA
/// (9165 to 9190 are free) and below Linux's ephemeral range, so no outgoing socket sits on it.
pub const DEFAULT_PORT: u16 = 9181;

/// Version of the file service's messages. Both ends must speak the same one.
pub const FILE_PROTOCOL_VERSION: u16 = 2;

/// Bytes of a file that are hashed, compared on resume and transferred as one piece. Large enough to hide a Transfer's
/// two round trips behind the others in flight, small enough that a ring of them stays in the last-level
/// cache between the stages of the pipeline.
pub const UNIT_BYTES: usize = 1 << 20;

/// Bytes of every data buffer: one unit, or one pack with up to a unit of contents.
pub const BUFFER_BYTES: usize = UNIT_BYTES + MANIFEST_BYTES + 4096;

/// Data buffers a copy owns at each end of a short path: one being filled or written, one in flight, one on its way between
/// the threads. Eight, which leave the cache before they come round again, took a tenth longer.
pub const DATA_BUFFERS: usize = 3;

/// Microseconds of round trip for each of which a copy owns one data buffer more: a Transfer takes two
/// round trips, and a few more if something of it is lost. One a millisecond keeps 4 Gb/s busy over
/// two of them.
pub const MICROSECONDS_PER_BUFFER: u128 = 1000;

/// Most data buffers that a copy owns at each end: 63 MiB, as much of them as is in flight at once.
pub const MAX_DATA_BUFFERS: usize = 56;

/// Bytes of a control message: requests, replies, feedback. Bounds what a peer can make us decode.
pub const CONTROL_BYTES: usize = 64 << 10;

/// Control buffers a copy owns at each end: one being handled, one in flight.
pub const CONTROL_BUFFERS: usize = 2;

/// Bytes of file content up to which a file travels inside a pack with others. Above, the Transfer
/// is large enough to stand alone.
pub const INLINE_BYTES: usize = 256 << 10;

/// Bytes of manifest in one pack. Bounds the work that one Transfer can ask of a receiver.
pub const MANIFEST_BYTES: usize = 128 << 10;

/// Bytes of one encoded record: a name, a link's target and a Patch of
/// [`PATCH_PIECES`] pieces fit.
pub const RECORD_BYTES: usize = 8 << 10;

/// Pieces of data in one unit that is partly holes: at the 4 KiB granularity of file systems no
/// unit has more than every second block.
pub const PATCH_PIECES: usize = UNIT_BYTES / 4096 / 2 + 1;

/// Units announced at once. A source that turns out shorter must still fill what was announced
/// (with zeros, then the file is abandoned), so this bounds the waste to 16 MiB.
pub const RUN_UNITS: u64 = 16;

/// Digests in one Have message (32 bytes each).
pub const HAVE_DIGESTS: usize = 1024;

/// Units of a partial file that are offered for resume. Both ends hold 32 bytes for each: 16 MiB
/// for the first 512 GiB of one file; what lies beyond is sent again.
pub const RESUME_UNITS: u64 = 512 << 10;

/// Largest file size in bytes: what `off_t` can say.
pub const FILE_BYTES: u64 = i64::MAX as u64;

/// Bytes of one name. The limit of Linux file systems (NAME_MAX).
pub const NAME_BYTES: usize = 255;

/// Names that a temporary file may have. The second is needed if another file has the first:
/// a copy of what a killed copy left, or what was marked on another file system.
pub const TEMPORARY_NAMES: u32 = 8;

/// Bytes of a path in a request, and of a link's target (PATH_MAX less the final NUL).
pub const PATH_BYTES: usize = 4095;

/// Bytes of a path in a failure report; longer ones are cut at the front.
pub const REPORT_PATH_BYTES: usize = 1024;

/// Bytes of free text in a failure report.
pub const REPORT_TEXT_BYTES: usize = 256;

/// Levels of directories below the one copied. Each costs one file descriptor at both ends and
/// one 32 KiB directory buffer at the sender (4 MiB in all).
pub const TREE_DEPTH: usize = 128;

/// Failures that wait for one Feedback message.
pub const FEEDBACK_FAILURES: usize = 32;

/// Connections a server serves at once. Each costs two threads, [`DATA_BUFFERS`] buffers
/// ([`MAX_DATA_BUFFERS`] far away) and up to [`TREE_DEPTH`] descriptors.
pub const SERVER_CONNECTIONS: usize = 32;

/// Of those, from one origin (an IPv4 address, or an IPv6 network of 64 bits): one origin cannot keep
/// all others out.
pub const SERVER_CONNECTIONS_OF_ORIGIN: usize = 24;

/// Milliseconds the connection's thread sleeps at most before it looks whether it is to stop.
pub const PUMP_WAIT_MILLISECONDS: u64 = 50;

/// A peer that is alive counts as stuck when no Transfer completes for this many seconds while some are
/// in flight. A slow disk takes less for a buffer.
pub const STALL_SECONDS: u64 = 120;

/// Units of holes or kept data that are announced at once (4 GiB, about a second's hashing of zeros): a
/// receiver that hashes longer would look stuck.
pub const QUIET_UNITS: u64 = 4096;

/// Bytes of a listing's entry besides its name, encoded.
pub const ENTRY_OVERHEAD_BYTES: usize = 48;

/// Seconds a client waits for the reply to its request, and a server for its reply to be taken.
pub const REPLY_SECONDS: u64 = 30;

/// Seconds a connected client has to send its request.
pub const REQUEST_SECONDS: u64 = 10;
