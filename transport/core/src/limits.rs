//! Every limit of the protocol engine: name, unit, reason. Full means back-pressure or a counted drop.

use core::time::Duration;

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

/// Blocks remembered, complete ones behind one that is not included.
pub const MAX_REMEMBERED_BLOCKS: usize = 4 * MAX_LIVE_BLOCKS;

/// Separate missing ranges remembered per Block. A Data operation that would make more is dropped
/// and asked for again: alternate bytes of a Block must not cost memory.
pub const MAX_GAPS_PER_BLOCK: usize = 1024;

/// Grants a sender holds for one connection. A receiver that grants more than it was asked for
/// finds the rest dropped.
pub const MAX_HELD_GRANTS: usize = 1024;

/// Grants in advance at a time, and those that an end holds for what it has not announced.
pub const MAX_ADVANCE_GRANTS: usize = 64;

/// Overtaken ranges watched at a time. At 10 Gb/s, 50 ms and 5 % loss there are about 2500 of them;
/// what is beyond waits for the connection to fall silent.
pub const MAX_OVERTAKEN: usize = 16_384;

/// Doublings of the wait for a repair that was asked for and did not come.
pub const MAX_ASK_BACKOFF: u32 = 6;

/// How long a path that reordered is expected to do it again.
pub const REORDERING_MEMORY: Duration = Duration::from_secs(30);

/// States sent in one go to ask for what was lost: the next ones follow a moment later.
pub const MAX_ASKS: usize = 64;

/// Bursts remembered that the receiver has not seen: 10 Gb/s over 50 ms in bursts of 11 STUs. One
/// that is forgotten counts as long arrived or lost.
pub const MAX_FLIGHT: usize = 8192;

/// Rates of delivery remembered: some hundred follow from honest answers, of the last rounds and 200 ms. A
/// peer that answers each burst, ever more slowly, loses the last but one.
pub const MAX_RATES: usize = 1024;

/// Ranges queued to be sent again. More are asked for again later anyway.
pub const MAX_REPAIRS: usize = 4096;

/// Control operations queued to be sent. All of them are repeated by timers, so a drop only delays.
pub const MAX_CONTROL_QUEUE: usize = 512;

/// Blocks asked about at a time when nothing comes.
pub const MAX_BLOCKS_ASKED: usize = 8;

/// Aborted Transfers whose End may be unconfirmed at a time. Ends that free a slot are at most one
/// for each slot, in each direction; of the others, which only save the peer a question, the oldest
/// is forgotten first.
pub const MAX_ENDINGS: usize = 4 * MAX_SLOTS as usize;

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

/// STUs over which it is judged whether the path carries ECN marks.
pub const MARKS_TRIAL_STUS: u64 = 64;

/// Longest time by which an end that is off its core is made good for. A peer may claim to be as late: more than this
/// would be a queue in front of others.
pub const MAX_LATENESS: Duration = Duration::from_millis(8);

/// How much more payload may be in flight on one of several paths than on another, where both are no longer than a LAN, bytes: a
/// few bursts, so that each path sends several at a time, and each carries its part of the least window of grants.
pub const PATH_LEAD: u64 = 128 << 10;

/// Payload in flight from which on the lane tells when datagrams arrived, bytes: of less there is no rate to keep, and
/// a short message is not to pay for it.
pub const TIMED_BYTES: u64 = 64 << 10;

/// Timeouts without news of anything sent after which all of it counts as lost (RFC 9002, 7.6.1).
pub const PERSISTENT_TIMEOUTS: u32 = 3;

/// Shortest wait for payload once the round trip is known: shorter silences are the scheduler's.
pub const MIN_DATA_RTO: Duration = Duration::from_millis(2);

/// Measured round trips from which on the round trip counts as known.
pub const KNOWN_AFTER_SAMPLES: u32 = 5;

/// Longest retransmission timeout, after back-off.
pub const MAX_RTO: Duration = Duration::from_millis(1000);

/// How long a peer must have been silent before the network is believed that there is nothing at its address. It
/// may be our address that changed: then the peer's socket refuses what comes from the new one, until the
/// peer misses us and listens for others, which a lane does within a second.
pub const REFUSAL_PATIENCE: Duration = Duration::from_secs(2);

/// Keep-alives in a row that the peer of a connection that stands must have left unanswered, too. A NAT that gave it another
/// address refuses what is sent to the old one: it is found again as soon as it speaks, and it does once in a keep-alive's
/// time while anything of its own depends on this end.
pub const REFUSED_KEEPALIVES: u32 = 4;

/// Longest round trip that is believed: a longer one is a clock that jumped, or a machine that slept.
pub const MAX_RTT: Duration = Duration::from_secs(8);

/// Tries of each step of a handshake within the connect timeout, at least: at 20 % loss each way,
/// five in a million fail with 12, one in four thousand with 8.
pub const HANDSHAKE_TRIES: u32 = 12;

/// Shortest fixed wait for payload (classic profile): a timer that strikes at once never ends.
pub const MIN_DATA_TIMEOUT: Duration = Duration::from_millis(1);

/// Interval at which a request that was told to wait is repeated, in case what ends the wait was
/// lost. Long, because nothing is known to be wrong.
pub const WAITING_INTERVAL: Duration = Duration::from_secs(1);

/// Clear_To_Sends repeated in answer to one question: a peer cannot make us flood it.
pub const MAX_GRANTS_REPEATED: usize = 8;

/// Transfers asked about at a time when nothing was heard of their end.
pub const MAX_STATE_REQUESTS: usize = 64;

/// Tries of one path probe size before the next smaller one.
pub const PROBE_TRIES: u32 = 3;

/// Repairs in a row, a round trip apart, after none of which the receiver has seen anything new:
/// the path is taken to swallow large datagrams, and STUs shrink to the smallest.
pub const BLACK_HOLE_REPAIRS: u32 = 4;

/// MTU that a path is thought to carry before it was probed: IPv6's minimum. A path over IPv4 may have less.
pub const BASE_MTU: usize = 1280;

/// Smallest MTU that is used over IPv4: what every host there takes (RFC 791).
pub const MIN_IPV4_MTU: usize = 576;

/// How long datagrams have been lost, and none of the size in use was seen to arrive, when it is asked whether it still passes.
pub const SUSPICION: Duration = Duration::from_millis(250);

/// Shortest time between an answer to that and the next question.
pub const VERIFY_INTERVAL: Duration = Duration::from_secs(3);

/// Probes of the size in use that are lost, while something else is heard, when it does not pass: at 20 % loss each way that is
/// mistaken once in 170 times. RFC 8899 has 3.
pub const VERIFY_TRIES: u32 = 5;

/// How long a loss counts as the beginning of such a time.
pub const SUSPICION_MEMORY: Duration = Duration::from_secs(10);

/// How long a path that carries less than [`BASE_MTU`] is left alone before larger sizes are probed again (RFC 8899, 5.1.1).
pub const PROBE_RAISE_INTERVAL: Duration = Duration::from_secs(600);

/// Keep-alive intervals in one idle timeout. All of them in a row must pass in silence before the
/// peer counts as dead: a few losses must not kill a connection, nor a jump of the clock.
pub const KEEPALIVES_PER_IDLE_TIMEOUT: u32 = 10;

/// Regions exported on one connection. Each costs what is remembered of it (half a KiB), and
/// nothing in a turn that does not use it.
pub const MAX_EXPORTS: usize = 65_536;

/// Longest put, get or message that travels as one unannounced datagram, bytes: what every path
/// may carry ([`BASE_MTU`] less IPv6, UDP and our header), so that no path probe is needed first.
/// Less by the seal where datagrams have one.
pub const MAX_SMALL: u32 = (BASE_MTU - 48 - zerolane_wire::HEADER_LEN) as u32;

/// Longest Transfer whose payload leaves with its announcement, unless configured otherwise, bytes. On a
/// longer one the round trip for a grant is small beside what the grant saves: a copy at the receiver.
pub const DEFAULT_EAGER: u32 = 16 << 10;

/// Most that it may be configured to, and that a peer may ask for.
pub use zerolane_wire::MAX_EAGER;

/// Bytes of such Transfers that an end holds for its peer while no receive is posted for them, unless
/// configured otherwise: memory that a peer can make it hold.
pub const DEFAULT_EAGER_CREDIT: u32 = 64 << 10;

/// Separate missing ranges remembered of an eager Transfer: one of 64 KiB has as many with every other of the
/// smallest STUs.
pub const MAX_EAGER_GAPS: usize = (MAX_EAGER / MIN_STU / 2) as usize;

/// Times that what is missing of an eager Transfer is asked for while no receive waits for it. Its sender
/// repeats the announcement anyway.
pub const MAX_EAGER_ASKS: u32 = 6;

/// Longest put that leaves at once, as a run of numbered operations, bytes, where neither end takes less eagerly: as
/// long as a round trip at 10 Gb/s and 13 us, the one that an announcement would cost.
pub const MAX_EAGER_PUT: u64 = 16 << 10;

/// Numbered operations of one put, at most: a peer with tiny buffers is announced what would take more.
pub const MAX_RUN: usize = 32;

/// Room in the last datagram of a put that leaves at once as several operations, for what is put behind it, bytes: a status of
/// 64 bytes, say, with the head of its frame and that of the frame before.
pub const BEHIND_RUN: u32 = 128;

/// Datagrams of numbered operations that are not over when a put leaves at once as several, its own included, at most:
/// half of the window, so that what fits a datagram has room beside them. They wait for no congestion controller but
/// that window, so more are announced.
pub const MAX_EAGER_DATAGRAMS: usize = MAX_UNCONFIRMED_DATAGRAMS / 2;

/// Bytes of control in a message (P0.1: Trapeze's control messages have 128).
pub const MAX_CONTROL: u32 = 128;

/// Datagrams of numbered operations in flight at most: their buffers at the Responder are its socket's,
/// which holds as many of any size it grants.
pub const MAX_UNCONFIRMED_DATAGRAMS: usize = 256;

/// Datagrams of numbered operations in flight at least, however many were lost.
pub const MIN_UNCONFIRMED_DATAGRAMS: usize = 4;

/// Numbered operations in flight at most, where several share a datagram: what an Initiator remembers of them
/// takes 128 bytes each.
pub const MAX_UNCONFIRMED: usize = 1024;

/// Datagrams that a train has more of: what is shorter leaves with a header in each.
pub const MIN_TRAIN: u32 = 4;

/// Bytes of payload that are worth a train in however few datagrams: on a path that takes such large ones, as loopback
/// does.
pub const LARGE_TRAIN: u32 = 16 << 10;

/// Bytes that a train of full length is a multiple of: a line of most caches, and what ciphers take at a time. What is
/// shared begins and ends with whole words then.
pub(crate) const TRAIN_MULTIPLE: u32 = 64;

/// Bytes of a page of memory, on most machines: trains begin where one does if their Block did.
pub(crate) const PAGE: u32 = 4096;

/// Datagrams that have to arrive to make up for one that was lost, as far as trains are concerned: a train of 44
/// is spoiled by any of its own, and from one loss in 2,000 on that costs more than trains save.
pub const TRAIN_LOSS_COST: u32 = 2_048;

/// Losses not made up for after which no trains are offered, in datagrams that would make up for them.
pub const MAX_TRAIN_LOSSES: u32 = 3 * TRAIN_LOSS_COST;

/// How long no trains are offered after losses, the first time; twice as long each time after.
pub const MIN_TRAIN_PAUSE: Duration = Duration::from_millis(100);

/// Longest time that no trains are offered where nothing is lost any more.
pub const MAX_TRAIN_PAUSE: Duration = Duration::from_secs(5);

/// Time with trains after which the next pause is short again.
pub const TRAIN_PAUSE_FORGOTTEN: Duration = Duration::from_secs(10);

/// Values of FetchOps a Responder keeps until they are confirmed. Its Initiator sends no more.
pub const MAX_FETCHES: usize = 64;

/// Values queued to be sent, repeats included.
pub const MAX_VALUES: usize = 2 * MAX_FETCHES;

/// Gets of one datagram an Initiator has in flight.
pub const MAX_GETS: usize = 64;

/// Gets a Responder has yet to answer. More are dropped, and asked again.
pub const MAX_REPLIES: usize = 256;

/// Operations executed before they are confirmed without waiting for something to carry that.
pub const CONFIRM_EVERY: u32 = 64;

/// How long a confirmation waits for something that carries it: longer than a peer that polls takes
/// to answer, shorter than a user notices.
pub const CONFIRM_DELAY: Duration = Duration::from_micros(20);

/// How long an announcement waits for a grant in advance, which makes it needless, if the last one came within that: as long
/// as a peer that polls takes to post a receive again when the one before is over.
pub const ANNOUNCE_DELAY: Duration = Duration::from_micros(20);

/// Confirmations of Transfers that wait so. One more leaves at once.
pub const MAX_CONFIRMATIONS: usize = 8;

/// Messages, immediates and the like that the user has not looked at. A peer that sends more is told
/// to wait.
pub const MAX_UNREAD: usize = 1024;

/// How long an Initiator waits before it asks again whether the Responder is ready, unless told.
pub const NOT_READY_INTERVAL: Duration = Duration::from_millis(100);

/// Bytes that all connections of a receiver may have granted and not arrived before its link was
/// measured, and at least unless payload is lost: 45 packets of 1500 bytes, of the 64 that a shallow
/// switch queue holds.
pub const INITIAL_BUDGET: u64 = 64 << 10;

/// Longest time that granted payload is meant to wait in the switch in front of the receiver: 43
/// packets at 1 Gb/s.
pub const MAX_QUEUE_MARGIN: Duration = Duration::from_micros(500);

/// The same after losses, at least: hosts do not answer at once, and the link must not run dry.
pub const MIN_QUEUE_MARGIN: Duration = Duration::from_micros(125);

/// Shortest time over which the rate of arrivals is measured: many times what a receiver naps.
pub const MIN_BUDGET_INTERVAL: Duration = Duration::from_millis(8);

/// Shortest turn where connections are fast, or admitted at all, in turns.
pub const ADMISSION_SLICE: Duration = Duration::from_millis(10);
