//! Defines every limit of the file service, with its unit and its reason.

/// UDP port on which a file service listens by default. In the user range, unassigned by IANA (9165 to 9190 are free)
/// and below Linux's ephemeral range, so that no outgoing socket occupies it.
pub const DEFAULT_PORT: u16 = 9181;

/// Version of the file service's messages. Both ends must speak the same one.
pub const FILE_PROTOCOL_VERSION: u16 = 10;

/// Bytes of a file that are hashed, compared on resume and transferred as one piece. Large enough to hide a Transfer's
/// two round trips behind the others in flight, small enough that a ring of them stays in the last-level
/// cache between the stages of the pipeline.
pub const UNIT_BYTES: usize = 1 << 20;

/// Bytes of every data buffer: one unit, or one pack with up to a unit of contents.
pub const BUFFER_BYTES: usize = UNIT_BYTES + MANIFEST_BYTES + 4096;

/// Data buffers that a copy owns at each end of a short path: one being filled or written, one in flight, one on its
/// way between the threads. With eight, which do not stay in the cache, a copy took a tenth longer.
pub const DATA_BUFFERS: usize = 3;

/// Microseconds of round trip per additional data buffer of a copy: a Transfer takes two round trips, and a few more
/// after a loss. One buffer a millisecond keeps 4 Gb/s busy over two of them.
pub const MICROSECONDS_PER_BUFFER: u128 = 1000;

/// Most data buffers that a copy owns at each end: 63 MiB, all of which may be in flight at once.
pub const MAX_DATA_BUFFERS: usize = 56;

/// Units of one request for a range, after which a client can stop.
pub const RANGE_UNITS: usize = 64;

/// Most bytes of a file that one request for a range asks for.
pub const RANGE_BYTES: usize = RANGE_UNITS * UNIT_BYTES;

/// Longest encoded request for a range, in bytes: a path with its offset, length and version.
pub const RANGE_REQUEST_BYTES: usize = PATH_BYTES + 128;

/// Seconds after which a client no longer uses a connection for ranges that it left alone: less than the server waits
/// ([`REQUEST_SECONDS`]), so that it does not ask a server that has gone.
pub const RANGE_IDLE_SECONDS: u64 = 5;

/// Most connections of one copy: a server admits [`SERVER_CONNECTIONS_OF_ORIGIN`] of a client, and reconnecting needs
/// some of them. Cores enough to use more connections would outrun any disk.
pub const MAX_CONNECTIONS: u16 = 16;

/// Bytes of a control message: requests, replies, feedback. Bounds the decoding that a peer can cause.
pub const CONTROL_BYTES: usize = 64 << 10;

/// Control buffers a copy owns at each end: one being handled, one in flight.
pub const CONTROL_BUFFERS: usize = 2;

/// Largest file content in bytes that travels inside a pack with others. Above, the Transfer is large enough to stand
/// alone.
pub const INLINE_BYTES: usize = 256 << 10;

/// Bytes of manifest in one pack. Bounds the work that one Transfer can cause at a receiver.
pub const MANIFEST_BYTES: usize = 128 << 10;

/// Bytes of one encoded record: a name, a link's target and a Patch of
/// [`PATCH_PIECES`] pieces fit.
pub const RECORD_BYTES: usize = 8 << 10;

/// Pieces of data in one unit that is partly holes: at the 4 KiB granularity of file systems no
/// unit has more than every second block.
pub const PATCH_PIECES: usize = UNIT_BYTES / 4096 / 2 + 1;

/// Most bytes of a file whose length the system does not report: its content is held in memory, one such file for each
/// copy.
pub const UNSIZED_BYTES: u64 = 32 << 20;

/// Units announced at once. A source that turns out to be shorter must still fill the announced units (with zeros,
/// before the file is abandoned), so this bounds the waste to 16 MiB.
pub const RUN_UNITS: u64 = 16;

/// Digests in one Have message (32 bytes each).
pub const HAVE_DIGESTS: usize = 1024;

/// Units of a partial file that are offered for resume. Both ends hold 32 bytes for each: 16 MiB for the first 512 GiB
/// of one file; the rest is sent again.
pub const RESUME_UNITS: u64 = 512 << 10;

/// Smallest file, bytes, for which a delta copy asks what the receiver has. Asking costs a round trip, and a file of
/// less than two units is sent or kept as a whole.
pub const DELTA_BYTES: u64 = 2 * UNIT_BYTES as u64;

/// Largest file size in bytes: the range of `off_t`.
pub const FILE_BYTES: u64 = i64::MAX as u64;

/// Steps of a sync, resumed after an outage, for which the receiver is asked what it has: one of them was in transit.
/// It exceeds the depth of directories, each of which is a step; each large file among them costs a round trip.
pub const RESUMED_STEPS: u64 = 2 * TREE_DEPTH as u64;

/// Longest name in bytes, as in Linux file systems (NAME_MAX).
pub const NAME_BYTES: usize = 255;

/// Names that a temporary file may have. The second is needed if another file has the first: a copy of a killed copy's
/// leftover, or a file marked on another file system.
pub const TEMPORARY_NAMES: u32 = 8;

/// Longest path in a request, and longest target of a link, bytes (PATH_MAX less the final NUL).
pub const PATH_BYTES: usize = 4095;

/// Bytes of a path in a failure report; longer ones are cut at the front.
pub const REPORT_PATH_BYTES: usize = 1024;

/// Bytes of free text in a failure report.
pub const REPORT_TEXT_BYTES: usize = 256;

/// Levels of directories below the one copied. Each costs one file descriptor at both ends and
/// one 32 KiB directory buffer at the sender (4 MiB in all).
pub const TREE_DEPTH: usize = 128;

/// Failures that a client remembers of a copy over several connections, each of which may meet them: 8 MiB with
/// [`MAX_CONNECTIONS`]. Further failures are reported, and counted, once for each connection that meets them.
pub const REPORTED_FAILURES: usize = 32 << 10;

/// Failures that wait for one Feedback message. At this number the receiver stops until the message is on its way.
pub const FEEDBACK_FAILURES: usize = 32;

/// Connections that a server serves at once. Each costs two threads, [`DATA_BUFFERS`] buffers ([`MAX_DATA_BUFFERS`] on
/// a long path) and up to [`TREE_DEPTH`] descriptors.
pub const SERVER_CONNECTIONS: usize = 32;

/// Most of these from one origin (an IPv4 address, or an IPv6 /64 network), so that one origin cannot keep all others
/// out.
pub const SERVER_CONNECTIONS_OF_ORIGIN: usize = 24;

/// Longest sleep of the connection's thread before it checks whether it must stop, milliseconds.
pub const PUMP_WAIT_MILLISECONDS: u64 = 50;

/// Seconds without a completed Transfer, either way, while some are in flight, after which a live peer counts as stuck.
/// A slow disk takes less for a buffer.
pub const STALL_SECONDS: u64 = 120;

/// Units of holes or kept data that are announced at once: 4 GiB. A receiver busy with more would look stuck.
pub const QUIET_UNITS: u64 = 4096;

/// Units that a receiver copies from its old file without a message to the sender: 16 MiB, for which the slowest disk
/// needs less than [`STALL_SECONDS`].
pub const COPIED_UNITS: u64 = 16;

/// Encoded size of a listing's entry without its name, bytes.
pub const ENTRY_OVERHEAD_BYTES: usize = 48;

/// Seconds that a client waits for the reply to its request, and a server until its reply is received.
pub const REPLY_SECONDS: u64 = 30;

/// Seconds that a server waits for a client's lost connection to release the files that it was writing.
pub const TURN_SECONDS: u64 = 20;

/// Seconds for which a client whose connection broke tries to reconnect, after each break, unless set otherwise.
pub const PATIENCE_SECONDS: u64 = 300;

/// Milliseconds before the first attempt to reconnect; doubled for each further one.
pub const FIRST_PAUSE_MILLISECONDS: u64 = 50;

/// Most milliseconds between two attempts to reconnect.
pub const MOST_PAUSE_MILLISECONDS: u64 = 1000;

/// Seconds without a datagram after which a client tries a second connection: the time of two keep-alives, sent every
/// tenth of the idle timeout, which a live peer answers.
pub const SILENCE_SECONDS: u64 = 3;

/// Seconds for one attempt to reconnect: the address may have changed meanwhile.
pub const RECONNECT_SECONDS: u64 = 2;

/// Seconds that a connected client has to send its request.
pub const REQUEST_SECONDS: u64 = 10;

/// Bytes per second that extend the time limit of a message as they arrive: a quarter of [`LEAST_RATE`].
pub const MESSAGE_RATE: u64 = LEAST_RATE / 4;

/// Smallest permitted limit of the payload rate, bytes per second: a unit of 1 MiB then takes half of
/// [`STALL_SECONDS`].
pub const LEAST_RATE: u64 = 16 << 10;

/// UDP port for broadcast questions about senders. Next to [`DEFAULT_PORT`], for the same reasons.
pub const DISCOVERY_PORT: u16 = 9182;

/// Seconds for which a receiver searches for its sender.
pub const SEARCH_SECONDS: u64 = 15;

/// Milliseconds between two questions of a receiver, because a broadcast may be lost.
pub const QUESTION_MILLISECONDS: u64 = 500;

/// Answers, or questions, that are read at once, from each network.
pub const ANSWERS_AT_ONCE: usize = 16;

/// Receivers for which a sender remembers the network that it answers on.
pub const ASKERS: usize = 64;

/// Places that a receiver tries for one code. Each could be an attacker, who then has one guess at the code: all
/// together one chance in six million.
pub const SENDER_PLACES: usize = 16;

/// Most of these at one address, so that one host cannot keep the right one from being tried.
pub const SENDER_PLACES_OF_HOST: usize = 4;

/// Milliseconds for the key exchange with one place: the right one is on the same network.
pub const SENDER_ANSWER_MILLISECONDS: u64 = 2000;

/// Bytes of the names listed in one offer, with [`ENTRY_OVERHEAD_BYTES`] each: as many as fit the message. Of the rest
/// the offer gives the number.
pub const OFFER_NAMES_BYTES: usize = CONTROL_BYTES - 1024;

/// Names at the top of a sender's offer; a receiver remembers which of them it has made.
pub const NEW_NAMES: usize = 64 << 10;

/// Bytes of one message of a tree's listing: thousands of entries. The other end starts to compare with the first
/// message.
pub const LISTING_PAGE_BYTES: usize = 128 << 10;

/// Bytes for names that a walk has read and sorted and not yet visited, in all open directories together: some three
/// million names. A directory that needs more is refused.
pub const LISTING_HELD_BYTES: usize = 96 << 20;

/// Most entries of one listing, so that a peer cannot continue without end.
pub const LISTING_ENTRIES: u64 = 1 << 26;

/// Bytes of the steps of a sync that one request carries out: some 50,000 files.
pub const PLAN_BYTES: usize = UNIT_BYTES;

/// Bytes of the steps of a sync that are held in memory. The rest goes to an unnamed temporary file.
pub const PLAN_HELD_BYTES: usize = 8 << 20;

/// Names that a server examines to expand the patterns of one request. A second or two of work.
pub const PATTERN_NAMES: u64 = 1 << 20;

/// Bytes of the paths that the patterns of one request match: some 200,000 paths.
pub const PATTERN_HELD_BYTES: usize = 8 << 20;

/// Compiled size of one pattern's expression, bytes.
pub const PATTERN_BYTES: usize = 1 << 20;

/// Compiled size of all patterns of a filter together, bytes: tens of thousands of ordinary ones.
pub const FILTER_BYTES: usize = 64 << 20;

/// Names of filter files that are looked up in each directory of a tree.
pub const FILTER_FILES: usize = 8;

/// Bytes of one filter file in a directory: all filter files of a directory fit a message of a listing.
pub const FILTER_FILE_BYTES: usize = 64 << 10;

/// Bytes of the filter files that apply to one directory: its own and those of its parents. Compiled, they need a
/// hundred times as much at most.
pub const FILTER_TEXT_BYTES: usize = 256 << 10;

/// Bytes for the cached states of a filter's automaton.
pub const FILTER_STATES_BYTES: usize = 2 << 20;

/// Bytes for the cached states of one filter file: there may be as many as directories nest.
pub const FILTER_FILE_STATES_BYTES: usize = 256 << 10;

/// Attempts to resolve a link below the served directory, which the kernel wants repeated if anything was renamed
/// meanwhile. A busy machine needs a few; a client that renames without end is refused after some 10 ms.
pub const LINK_TRIES: u32 = 10_000;

/// Bytes of the value of an extended attribute, as in Linux (XATTR_SIZE_MAX).
pub const ATTRIBUTE_BYTES: usize = 64 << 10;

/// Bytes of the names of a file's extended attributes, as in Linux (XATTR_LIST_MAX).
pub const ATTRIBUTE_NAMES_BYTES: usize = 64 << 10;

/// Extended attributes of one file that are copied.
pub const ATTRIBUTES_OF_FILE: usize = 256;

/// Bytes of their names and values. A receiver holds those of its open directories until they are complete: at most 16
/// MiB, at [`TREE_DEPTH`] of them.
pub const ATTRIBUTES_BYTES: usize = 128 << 10;

/// Files with several names that each end remembers of a copy with hard links. The memory for them is 40 MiB at the
/// receiver; without their paths 86 MiB at the sender, and 203 MiB where trees are compared.
pub const LINKED_FILES: usize = 1 << 20;

/// Bytes of the paths under which these files were met first.
pub const LINKED_PATHS_BYTES: usize = 64 << 20;

/// Directories to look in for files that a sync can link instead of copying: each is listed. As many as rsync allows.
pub const LINK_DIRECTORIES: usize = 20;

/// Seconds after which a server that is still removing files reports that.
pub const REMOVING_SECONDS: u64 = 5;

/// Bytes of the one line that a client, and the server started for it, each write to the channel of a login.
pub const RENDEZVOUS_LINE_BYTES: usize = 512;
