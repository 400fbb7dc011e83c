//! Every limit of the file service, with its unit and its reason.

/// UDP port a file service listens on when none is named. In the user range, unassigned by IANA
/// (9165 to 9190 are free) and below Linux's ephemeral range, so no outgoing socket sits on it.
pub const DEFAULT_PORT: u16 = 9181;

/// Version of the file service's messages. Both ends must speak the same one.
pub const FILE_PROTOCOL_VERSION: u16 = 9;

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

/// Connections that one copy may have at once: a server has [`SERVER_CONNECTIONS_OF_ORIGIN`] for a client, and what breaks
/// needs others meanwhile. More cores than these keep busy are faster than any disk.
pub const MAX_CONNECTIONS: u16 = 16;

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

/// Most bytes of a file whose length the system does not say: they are held in memory, one such file for each copy.
pub const UNSIZED_BYTES: u64 = 32 << 20;

/// Units announced at once. A source that turns out shorter must still fill what was announced
/// (with zeros, then the file is abandoned), so this bounds the waste to 16 MiB.
pub const RUN_UNITS: u64 = 16;

/// Digests in one Have message (32 bytes each).
pub const HAVE_DIGESTS: usize = 1024;

/// Units of a partial file that are offered for resume. Both ends hold 32 bytes for each: 16 MiB
/// for the first 512 GiB of one file; what lies beyond is sent again.
pub const RESUME_UNITS: u64 = 512 << 10;

/// Smallest file, bytes, of which a delta copy asks what the receiver has: asking costs a round trip, and less than two
/// units are sent or kept as a whole.
pub const DELTA_BYTES: u64 = 2 * UNIT_BYTES as u64;

/// Largest file size in bytes: what `off_t` can say.
pub const FILE_BYTES: u64 = i64::MAX as u64;

/// Steps of a sync that goes on after an outage for which the receiver is asked what it has: one of them was on its
/// way. More of them than directories nest, for each of those is a step; each large file costs a round trip.
pub const BEGUN_STEPS: u64 = 2 * TREE_DEPTH as u64;

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

/// Failures that a client remembers of a copy over several connections, each of which may meet them: 8 MiB with
/// [`MAX_CONNECTIONS`]. Beyond, one that several meet is told, and counted, by each.
pub const TOLD_FAILURES: usize = 32 << 10;

/// Failures that wait for one Feedback message. When there are so many, nothing more is taken until it is on its way.
pub const FEEDBACK_FAILURES: usize = 32;

/// Connections a server serves at once. Each costs two threads, [`DATA_BUFFERS`] buffers
/// ([`MAX_DATA_BUFFERS`] far away) and up to [`TREE_DEPTH`] descriptors.
pub const SERVER_CONNECTIONS: usize = 32;

/// Of those, from one origin (an IPv4 address, or an IPv6 network of 64 bits): one origin cannot keep
/// all others out.
pub const SERVER_CONNECTIONS_OF_ORIGIN: usize = 24;

/// Milliseconds the connection's thread sleeps at most before it looks whether it is to stop.
pub const PUMP_WAIT_MILLISECONDS: u64 = 50;

/// A peer that is alive counts as stuck when no Transfer completes, either way, for this many seconds while some are
/// in flight. A slow disk takes less for a buffer.
pub const STALL_SECONDS: u64 = 120;

/// Units of holes or kept data that are announced at once: 4 GiB. A receiver that is busy with more would look stuck.
pub const QUIET_UNITS: u64 = 4096;

/// Units that a receiver copies from a file it has without a word to the sender, which hears of nothing meanwhile: 16 MiB,
/// for which the slowest disk does not take [`STALL_SECONDS`].
pub const COPIED_UNITS: u64 = 16;

/// Bytes of a listing's entry besides its name, encoded.
pub const ENTRY_OVERHEAD_BYTES: usize = 48;

/// Seconds a client waits for the reply to its request, and a server for its reply to be taken.
pub const REPLY_SECONDS: u64 = 30;

/// Seconds a server waits until the connection that a client lost has let go of what it was writing.
pub const TURN_SECONDS: u64 = 20;

/// Seconds for which a client whose connection broke connects again, each time, unless told otherwise.
pub const PATIENCE_SECONDS: u64 = 300;

/// Milliseconds a client waits before it connects again, at first, and doubled up to the most.
pub const FIRST_PAUSE_MILLISECONDS: u64 = 50;

/// Most milliseconds between two tries to connect again.
pub const MOST_PAUSE_MILLISECONDS: u64 = 1000;

/// Seconds without a datagram of a live connection after which a client tries another one beside it: two of the pings, a
/// tenth of the idle timeout each, that a peer which is there answers.
pub const SILENCE_SECONDS: u64 = 3;

/// Seconds that one try to connect again may take: the address may have changed meanwhile.
pub const RECONNECT_SECONDS: u64 = 2;

/// Seconds a connected client has to send its request.
pub const REQUEST_SECONDS: u64 = 10;

/// Bytes a second by which a message extends the time that it may take, as they move: a quarter of [`LEAST_RATE`].
pub const MESSAGE_RATE: u64 = LEAST_RATE / 4;

/// Least bytes of payload a second that a limit may let pass: a unit of 1 MiB then takes half of [`STALL_SECONDS`].
pub const LEAST_RATE: u64 = 16 << 10;

/// UDP port on which senders are asked for by broadcast. Beside [`DEFAULT_PORT`], for the same reasons.
pub const DISCOVERY_PORT: u16 = 9182;

/// Seconds for which a receiver looks for its sender.
pub const SEARCH_SECONDS: u64 = 15;

/// Milliseconds between two questions of a receiver: a broadcast may be lost.
pub const QUESTION_MILLISECONDS: u64 = 500;

/// Answers, or questions, that are taken at once, from each network.
pub const ANSWERS_AT_ONCE: usize = 16;

/// Receivers of which a sender remembers on which network it answers them.
pub const ASKERS: usize = 64;

/// Places that a receiver tries for one code. Each could be an attacker's, who has then one guess at the code: all
/// together one chance in six million.
pub const MEETING_PLACES: usize = 16;

/// Of those, at one address: one host cannot keep the right one from being tried.
pub const MEETING_PLACES_OF_HOST: usize = 4;

/// Milliseconds that one place has for the key exchange: the right one is on the same network.
pub const MEETING_ANSWER_MILLISECONDS: u64 = 2000;

/// Bytes of the names that one offer says, with [`ENTRY_OVERHEAD_BYTES`] each: the message has room for these. Of what is
/// beyond it says how much there is.
pub const OFFER_NAMES_BYTES: usize = CONTROL_BYTES - 1024;

/// Names at the top of what a sender offers; a receiver remembers which it has made.
pub const NEW_NAMES: usize = 64 << 10;

/// Bytes of one message of a tree's listing: thousands of entries, and the other end begins to compare
/// when the first of them is there.
pub const LISTING_PAGE_BYTES: usize = 128 << 10;

/// Bytes that a walk holds for names which are read and sorted and not yet looked at, in all open
/// directories together: some three million names. A directory that needs more is refused.
pub const LISTING_HELD_BYTES: usize = 96 << 20;

/// Most entries of one listing. A peer could otherwise go on for ever.
pub const LISTING_ENTRIES: u64 = 1 << 26;

/// Bytes of the steps of a sync that one request carries out: some 50,000 files.
pub const PLAN_BYTES: usize = UNIT_BYTES;

/// Bytes of the steps of a sync that are held in memory. Beyond, they are in a temporary file without a
/// name.
pub const PLAN_HELD_BYTES: usize = 8 << 20;

/// Names that a server looks at to find what the patterns of one request match. A second or two of work.
pub const PATTERN_NAMES: u64 = 1 << 20;

/// Bytes of the paths that the patterns of one request match: some 200,000 of them.
pub const PATTERN_HELD_BYTES: usize = 8 << 20;

/// Bytes of one pattern's expression, compiled.
pub const PATTERN_BYTES: usize = 1 << 20;

/// Bytes of all patterns of a filter together, compiled: tens of thousands of usual ones.
pub const FILTER_BYTES: usize = 64 << 20;

/// Names of filter files that are looked for in each directory of a tree.
pub const FILTER_FILES: usize = 8;

/// Bytes of one filter file in a directory: all of one directory fit a message of a listing.
pub const FILTER_FILE_BYTES: usize = 64 << 10;

/// Bytes of the filter files that hold in one place: that of its directory, and of those around it. Compiled, they need a
/// hundred times that at most.
pub const FILTER_TEXT_BYTES: usize = 256 << 10;

/// Bytes of the states that the automaton of a filter may keep.
pub const FILTER_STATES_BYTES: usize = 2 << 20;

/// The same of one filter file: there may be as many as directories nest.
pub const FILTER_FILE_STATES_BYTES: usize = 256 << 10;

/// Tries to resolve a link below the served directory, which the kernel wants repeated when something was renamed
/// meanwhile: on a busy machine a few, and a client that renames without end is refused after some 10 ms.
pub const LINK_TRIES: u32 = 10_000;

/// Bytes of the value of an extended attribute: what Linux lets be (XATTR_SIZE_MAX).
pub const ATTRIBUTE_BYTES: usize = 64 << 10;

/// Bytes of the names of a file's extended attributes: what Linux lets be (XATTR_LIST_MAX).
pub const ATTRIBUTE_NAMES_BYTES: usize = 64 << 10;

/// Extended attributes of one file that are copied.
pub const ATTRIBUTES_OF_FILE: usize = 256;

/// Bytes of their names and values. A receiver holds those of the directories that it is in until they are complete: at
/// most 16 MiB, at [`TREE_DEPTH`] of them.
pub const ATTRIBUTES_BYTES: usize = 128 << 10;

/// Files with several names that each end remembers of a copy that keeps hard links: 40 MiB at the receiver; besides their
/// paths 86 MiB at the sender, and 203 MiB where trees are compared.
pub const LINKED_FILES: usize = 1 << 20;

/// Bytes of the paths under which these were met first.
pub const LINKED_PATHS_BYTES: usize = 64 << 20;

/// Directories that may have files of a sync already, to be linked: each is listed. As many as rsync takes.
pub const LINK_DIRECTORIES: usize = 20;

/// Seconds after which a server that is still removing files says so.
pub const REMOVING_SECONDS: u64 = 5;

/// Bytes of the one line that a client, and a server started for it, say over the channel of a login.
pub const RENDEZVOUS_LINE_BYTES: usize = 512;
