//! Defines every limit of the protocol engine: name, unit, reason. Full means back-pressure or a counted drop.

use core::time::Duration;

/// Unanswered announcements that an end holds for its peer, unless configured otherwise. Enough to keep many small
/// Transfers in flight; each costs tens of bytes.
pub const DEFAULT_SLOTS: u16 = 64;

/// Most slots that an end may offer. Bounds the memory that a peer can use here.
pub const MAX_SLOTS: u16 = 1024;

/// Transfers that a user may have posted in one direction before `Full`.
pub const MAX_POSTED: usize = 4096;

/// Blocks granted and not complete, per connection. A power of two: the low bits of Mx index the placement table, and
/// the high bits are the entry's generation.
pub const MAX_LIVE_BLOCKS: usize = 256;

/// Blocks remembered, including complete ones that follow an incomplete one.
pub const MAX_REMEMBERED_BLOCKS: usize = 4 * MAX_LIVE_BLOCKS;

/// Separate missing ranges remembered per Block. The receiver drops a Data operation that would create more, and asks
/// for it again: a peer that sends alternate bytes must not cost memory.
pub const MAX_GAPS_PER_BLOCK: usize = 1024;

/// Grants that a sender holds for one connection. A sender drops grants beyond this.
pub const MAX_HELD_GRANTS: usize = 1024;

/// Advance grants outstanding at a receiver, and advance grants that a sender holds for Transfers it has not announced.
pub const MAX_ADVANCE_GRANTS: usize = 64;

/// Overtaken ranges watched at a time. At 10 Gb/s, 50 ms and 5 % loss there are about 2500. Ranges beyond this wait
/// until the connection falls silent.
pub const MAX_OVERTAKEN: usize = 16_384;

/// Doublings of the wait for a requested repair.
pub const MAX_ASK_BACKOFF: u32 = 6;

/// How long a path that reordered is expected to reorder again.
pub const REORDERING_MEMORY: Duration = Duration::from_secs(30);

/// States sent in one go to ask for lost payload. The next ones follow a moment later.
pub const MAX_ASKS: usize = 64;

/// Bursts remembered that the receiver has not seen: 10 Gb/s over 50 ms in bursts of 11 STUs. A forgotten burst counts
/// as arrived long ago or lost.
pub const MAX_FLIGHT: usize = 8192;

/// Delivery rates remembered. Honest answers of the last rounds and 200 ms produce some hundred. If a peer answers each
/// burst, ever more slowly, the last rate but one is dropped.
pub const MAX_RATES: usize = 1024;

/// Ranges queued for retransmission. The receiver asks for further ranges again later.
pub const MAX_REPAIRS: usize = 4096;

/// Control operations queued for sending. Timers repeat all of them, so a drop only delays.
pub const MAX_CONTROL_QUEUE: usize = 512;

/// Datagrams, and bytes of them, that wait to leave: several windows of a fast path. Further ones are refused.
pub const MAX_DATAGRAMS_QUEUED: usize = 4096;
/// See [`MAX_DATAGRAMS_QUEUED`].
pub const MAX_DATAGRAM_BYTES_QUEUED: u64 = 4 << 20;

/// Bytes in flight above which datagrams wait where no pace limits them: nothing was granted for them.
pub const MAX_DATAGRAM_FLIGHT: u64 = 1 << 20;

/// UDP datagrams of a train that carries a datagram: as many as one send call of the kernel takes.
pub const MAX_DATAGRAM_SEGMENTS: u32 = 64;

/// Datagrams assembled from parts at a time. A further one replaces the oldest.
pub const MAX_DATAGRAMS_ASSEMBLED: usize = 16;

/// Numbers of datagrams remembered, so that none is delivered twice. Those that are this far behind the newest are
/// dropped. A multiple of 64.
pub const DATAGRAM_NUMBERS: u32 = 4096;

/// Blocks asked about at a time during silence.
pub const MAX_BLOCKS_ASKED: usize = 8;

/// Aborted Transfers whose End may be unconfirmed at a time. Ends that free a slot number at most one per slot and
/// direction. The other Ends only save the peer a question; the oldest of these is forgotten first.
pub const MAX_ENDINGS: usize = 4 * MAX_SLOTS as usize;

/// Smallest STU payload that a peer may ask for, bytes. Every STU costs a header, so a peer that asks for tiny STUs is
/// refused.
pub const MIN_STU: u32 = 256;

/// log2 of the smallest buffer that a peer may declare, for the same reason.
pub const MIN_BUFFER_LOG2: u8 = 8;

/// STUs in one Block: the STU number in Param has 16 bits.
pub const MAX_STUS_PER_BLOCK: u32 = 65_535;

/// Runs in one forecast.
pub const MAX_FORECAST_RUNS: usize = 8;

/// Retransmission timeout before the first round-trip measurement.
pub const INITIAL_RTO: Duration = Duration::from_millis(100);

/// Shortest retransmission timeout. A peer on a shared machine may be descheduled for this long without any loss.
pub const MIN_RTO: Duration = Duration::from_millis(20);

/// STUs after which the sender judges whether the path carries ECN marks.
pub const MARKS_TRIAL_STUS: u64 = 64;

/// Longest delay of a busy end that is compensated. A peer may claim any delay; a longer compensation would put a queue
/// in front of other flows.
pub const MAX_LATENESS: Duration = Duration::from_millis(8);

/// How much more payload may be in flight on one path than on another, bytes, where both are LAN paths. A few bursts:
/// each path sends several at a time, and each carries its part of the smallest window of grants.
pub const PATH_LEAD: u64 = 128 << 10;

/// Payload in flight from which the lane reports when datagrams arrived, bytes. With less in flight there is no rate to
/// keep, and short messages need not pay for the reports.
pub const TIMED_BYTES: u64 = 64 << 10;

/// Timeouts without news after which all payload in flight counts as lost (RFC 9002, 7.6.1).
pub const PERSISTENT_TIMEOUTS: u32 = 3;

/// Shortest wait for payload once the round trip is known. The scheduler causes shorter silences.
pub const MIN_DATA_RTO: Duration = Duration::from_millis(2);

/// Round-trip samples after which the round trip counts as known.
pub const KNOWN_AFTER_SAMPLES: u32 = 5;

/// Longest retransmission timeout, after back-off.
pub const MAX_RTO: Duration = Duration::from_millis(1000);

/// How long a peer must be silent before an ICMP "unreachable" about its address is believed. Our own address may have
/// changed: the peer's connected socket then refuses our datagrams until the peer notices our silence and accepts other
/// addresses, which a lane does within a second.
pub const REFUSAL_PATIENCE: Duration = Duration::from_secs(2);

/// Keep-alives in a row that an established peer must also leave unanswered. A NAT that assigned the peer a new address
/// refuses datagrams to the old one. The peer is found again as soon as it sends, which it does once per keep-alive
/// interval while it depends on this end.
pub const REFUSED_KEEPALIVES: u32 = 4;

/// Longest round trip that is believed. A longer one means that a clock jumped or a machine slept.
pub const MAX_RTT: Duration = Duration::from_secs(8);

/// Minimum tries of each handshake step within the connect timeout. At 20 % loss each way, five handshakes in a million
/// fail with 12 tries, and one in four thousand with 8.
pub const HANDSHAKE_TRIES: u32 = 12;

/// Shortest fixed wait for payload (classic profile): a timer that expires at once would never end.
pub const MIN_DATA_TIMEOUT: Duration = Duration::from_millis(1);

/// Interval at which a deferred request is repeated, in case the operation that ends the wait was lost. Long, because a
/// loss is unlikely.
pub const WAITING_INTERVAL: Duration = Duration::from_secs(1);

/// Clear_To_Sends repeated in answer to one question, so that a peer cannot make this end flood it.
pub const MAX_GRANTS_REPEATED: usize = 8;

/// Transfers asked about at a time when their end is overdue.
pub const MAX_STATE_REQUESTS: usize = 64;

/// Tries of one path probe size before the next smaller one.
pub const PROBE_TRIES: u32 = 3;

/// Repairs in a row, a round trip apart, after which the receiver has seen nothing new. Then the path is assumed to
/// drop large datagrams, and STUs shrink to the smallest.
pub const BLACK_HOLE_REPAIRS: u32 = 4;

/// MTU assumed before the path is probed: the minimum of IPv6. An IPv4 path may have less.
pub const BASE_MTU: usize = 1280;

/// Smallest MTU used over IPv4: every host accepts it (RFC 791).
pub const MIN_IPV4_MTU: usize = 576;

/// How long datagrams are lost, while none of the size in use is seen to arrive, before that size is verified.
pub const SUSPICION: Duration = Duration::from_millis(250);

/// Shortest time between the result of a verification and the next one.
pub const VERIFY_INTERVAL: Duration = Duration::from_secs(3);

/// Lost probes of the size in use, while other datagrams arrive, after which the size counts as too large. At 20 % loss
/// each way this is wrong once in 170 times. RFC 8899 has 3.
pub const VERIFY_TRIES: u32 = 5;

/// Lost probes of the least size, while other datagrams arrive, after which the path counts as too narrow. At 20 % loss
/// each way this is wrong once in 27,000 times. It ends a connection only if [`BLACK_HOLE_REPAIRS`] had no effect either.
pub const NARROW_TRIES: u32 = 2 * VERIFY_TRIES;

/// How long a loss counts as the start of the [`SUSPICION`] interval.
pub const SUSPICION_MEMORY: Duration = Duration::from_secs(10);

/// How long a path that carries less than [`BASE_MTU`] waits before larger sizes are probed again (RFC 8899, 5.1.1).
pub const PROBE_RAISE_INTERVAL: Duration = Duration::from_secs(600);

/// Keep-alive intervals in one idle timeout. All of them must pass in silence before the peer counts as dead, so that
/// neither a few losses nor a clock jump kills a connection.
pub const KEEPALIVES_PER_IDLE_TIMEOUT: u32 = 10;

/// Regions exported on one connection. Each costs half a KiB, and no time while it is unused.
pub const MAX_EXPORTS: usize = 65_536;

/// Longest put, get or message that travels as one unannounced datagram, bytes. Every path carries this much
/// ([`BASE_MTU`] less IPv6, UDP and our header), so no path probe must precede it. A seal reduces it.
pub const MAX_SMALL: u32 = (BASE_MTU - 48 - zerolane_wire::HEADER_LEN) as u32;

/// Longest Transfer whose payload leaves with its announcement, unless configured otherwise, bytes. For a longer
/// Transfer, the round trip for a grant is short compared with the copy at the receiver that the grant saves.
pub const DEFAULT_EAGER: u32 = 16 << 10;

/// Largest eager limit that a user may configure and a peer may ask for.
pub use zerolane_wire::MAX_EAGER;

/// Bytes of eager Transfers that an end holds for its peer while no receive is posted for them, unless configured
/// otherwise. Bounds the memory that a peer can make it hold.
pub const DEFAULT_EAGER_CREDIT: u32 = 64 << 10;

/// Separate missing ranges remembered of an eager Transfer: as many as 64 KiB has with every other one of the smallest
/// STUs missing.
pub const MAX_EAGER_GAPS: usize = (MAX_EAGER / MIN_STU / 2) as usize;

/// Requests for missing payload of an eager Transfer while no receive waits for it. The sender repeats the announcement
/// in any case.
pub const MAX_EAGER_ASKS: u32 = 6;

/// Longest put that leaves at once as a run of numbered operations, bytes, unless an end's eager limit is lower. It
/// takes as long to send as one round trip of 13 us at 10 Gb/s, which an announcement would cost.
pub const MAX_EAGER_PUT: u64 = 16 << 10;

/// Most numbered operations of one put. For a peer with tiny buffers, a put that needs more is announced.
pub const MAX_RUN: usize = 32;

/// Bytes left free in the last datagram of a put that leaves at once as several operations, for the put that follows:
/// for example a status of 64 bytes with its frame head and that of the frame before.
pub const BEHIND_RUN: u32 = 128;

/// Most datagrams of pending numbered operations when a put leaves at once as several, its own included: half of the
/// window, so that single-datagram operations keep room. No congestion controller but this window holds them back, so
/// puts beyond it are announced.
pub const MAX_EAGER_DATAGRAMS: usize = MAX_UNCONFIRMED_DATAGRAMS / 2;

/// Bytes of small operations in [`BUSY_TIME`] that make trains of them worthwhile.
pub const BUSY_BYTES: u64 = 4 << 10;

/// See [`BUSY_BYTES`].
pub const BUSY_TIME: Duration = Duration::from_millis(1);

/// How long the payload of messages is sent as Transfers once a message met no receive.
pub const LATE_RECEIVES: Duration = Duration::from_secs(1);

/// Bytes of control in a message (P0.1: Trapeze's control messages have 128).
pub const MAX_CONTROL: u32 = 128;

/// Bytes of a put that are copied when it is posted.
pub const MAX_INLINE: usize = 256;

// So it takes at most two operations: it crosses at most one boundary of the peer's buffers.
const _: () = assert!(MAX_INLINE <= MIN_STU as usize && MAX_INLINE <= 1 << MIN_BUFFER_LOG2);

/// Most datagrams of numbered operations in flight. The Responder's socket buffers them, and it holds as many datagrams
/// of any size that it grants.
pub const MAX_UNCONFIRMED_DATAGRAMS: usize = 256;

/// Fewest datagrams of numbered operations in flight, whatever the loss.
pub const MIN_UNCONFIRMED_DATAGRAMS: usize = 4;

/// Most numbered operations in flight where several share a datagram. The Initiator remembers 200 bytes of each,
/// and of the longer ones what they copied.
pub const MAX_UNCONFIRMED: usize = 1024;

/// A train has more datagrams than this. Shorter payload leaves with a header in each datagram.
pub const MIN_TRAIN: u32 = 4;

/// Payload that justifies a train in however few datagrams, bytes: for paths with very large datagrams, such as
/// loopback.
pub const LARGE_TRAIN: u32 = 16 << 10;

/// The length of a full-length train is a multiple of this, bytes: the line size of most caches, and the unit of most
/// ciphers. Each part then begins and ends on a word boundary.
pub(crate) const TRAIN_MULTIPLE: u32 = 64;

/// Page size of most machines, bytes. A train begins on a page boundary if its Block did.
pub(crate) const PAGE: u32 = 4096;

/// Datagrams that must arrive to make up for one lost datagram, as far as trains are concerned. One loss spoils a whole
/// train of 44; from one loss in 2,000 on, that costs more than trains save.
pub const TRAIN_LOSS_COST: u32 = 2_048;

/// Losses, in datagrams that would make up for them, after which no trains are offered.
pub const MAX_TRAIN_LOSSES: u32 = 3 * TRAIN_LOSS_COST;

/// First pause of trains after losses. Each further pause is twice as long.
pub const MIN_TRAIN_PAUSE: Duration = Duration::from_millis(100);

/// Longest pause of trains once losses have stopped.
pub const MAX_TRAIN_PAUSE: Duration = Duration::from_secs(5);

/// Time with trains after which the next pause is short again.
pub const TRAIN_PAUSE_FORGOTTEN: Duration = Duration::from_secs(10);

/// FetchOp values that a Responder keeps until they are confirmed. Its Initiator has no more in flight.
pub const MAX_FETCHES: usize = 64;

/// FetchOp values queued for sending, repeats included.
pub const MAX_VALUES: usize = 2 * MAX_FETCHES;

/// Single-datagram gets that an Initiator has in flight.
pub const MAX_GETS: usize = 64;

/// Gets that a Responder has yet to answer. Further gets are dropped, and the Initiator asks again.
pub const MAX_REPLIES: usize = 256;

/// Operations executed after which a confirmation leaves at once, without waiting for other traffic to carry it.
pub const CONFIRM_EVERY: u32 = 64;

/// How long a confirmation waits for other traffic to carry it: longer than a polling peer takes to answer, shorter
/// than a user notices.
pub const CONFIRM_DELAY: Duration = Duration::from_micros(20);

/// How long a confirmation waits at most while further operations arrive: the Initiator then sends many at once.
pub const MAX_CONFIRM_DELAY: Duration = Duration::from_micros(160);

/// How long an announcement waits for an advance grant that makes it needless, if the last advance grant came within
/// this time. As long as a polling peer takes to post a receive again after the previous one completes.
pub const ANNOUNCE_DELAY: Duration = Duration::from_micros(20);

/// Confirmations of Transfers that wait for other traffic. A further one leaves at once.
pub const MAX_CONFIRMATIONS: usize = 8;

/// Messages, immediates and similar events that the user has not read. A peer that sends more is deferred.
pub const MAX_UNREAD: usize = 1024;

/// Requests for regions kept until the program takes the connection. A peer repeats further ones.
pub const MAX_DEFERRED_REGIONS: usize = 16;

/// How long an Initiator waits before it asks again whether the Responder is ready, unless told otherwise.
pub const NOT_READY_INTERVAL: Duration = Duration::from_millis(100);

/// Bytes granted and not arrived on all connections of a receiver before its link is measured, and the minimum while no
/// payload is lost: 45 packets of 1500 bytes, of the 64 that a shallow switch queue holds.
pub const INITIAL_BUDGET: u64 = 64 << 10;

/// Longest intended wait of granted payload in the switch in front of the receiver: 43 packets at 1 Gb/s.
pub const MAX_QUEUE_MARGIN: Duration = Duration::from_micros(500);

/// The same after losses, at least: hosts take time to answer, and the link must not run dry.
pub const MIN_QUEUE_MARGIN: Duration = Duration::from_micros(125);

/// Shortest time over which the arrival rate is measured: many times a receiver's nap.
pub const MIN_BUDGET_INTERVAL: Duration = Duration::from_millis(8);

/// Shortest turn where connections take turns, in fast mode or for admission.
pub const ADMISSION_SLICE: Duration = Duration::from_millis(10);
