//! Tests that numbers in the documents equal the constants that they come from.
//!
//! Each document has a list of [`Fact`]s: a few of its words, with the numbers in braces, and for each number an
//! expression of constants. In the part of a document about limits and timers (all of it, by default), a number without
//! a fact must be listed in [`Document::without`]: it comes from no constant.

use super::constants::{Sources, Trouble};
use std::fmt::Write;
use std::ops::Range;

/// Words of a document, with numbers in braces, and their expressions. `{~7 s}` may be rounded, by a hundredth.
struct Fact(&'static str, &'static [&'static str]);

struct Document {
    name: &'static str,
    text: &'static str,
    facts: &'static [Fact],
    /// First and last heading between which every number must be in a fact, or in `without`.
    checked: Option<(&'static str, &'static str)>,
    without: &'static [&'static str],
}

/// All decisions, concatenated.
const DECISIONS: &str = concat!(
    include_str!("../../../../docs/decisions/01-place-by-forecast.md"),
    include_str!("../../../../docs/decisions/02-grants-are-flow-control.md"),
    include_str!("../../../../docs/decisions/03-short-transfers.md"),
    include_str!("../../../../docs/decisions/04-trains.md"),
    include_str!("../../../../docs/decisions/05-sending.md"),
    include_str!("../../../../docs/decisions/06-loss-and-late-packets.md"),
    include_str!("../../../../docs/decisions/07-congestion-control.md"),
    include_str!("../../../../docs/decisions/08-pacing.md"),
    include_str!("../../../../docs/decisions/09-liveness-and-path-size.md"),
    include_str!("../../../../docs/decisions/10-security-by-default.md"),
    include_str!("../../../../docs/decisions/11-two-profiles.md"),
    include_str!("../../../../docs/decisions/12-one-sided-operations.md"),
    include_str!("../../../../docs/decisions/13-completions.md"),
    include_str!("../../../../docs/decisions/14-one-socket-per-connection.md"),
    include_str!("../../../../docs/decisions/15-shared-memory.md"),
    include_str!("../../../../docs/decisions/16-mapped-remote-memory.md"),
    include_str!("../../../../docs/decisions/17-exported-memory.md"),
    include_str!("../../../../docs/decisions/18-memory-of-requests.md"),
    include_str!("../../../../docs/decisions/19-raw-ethernet-and-ip118.md"),
    include_str!("../../../../docs/decisions/20-af-xdp.md"),
    include_str!("../../../../docs/decisions/21-progress-and-sleep.md"),
    include_str!("../../../../docs/decisions/22-workers.md"),
    include_str!("../../../../docs/decisions/23-file-copies.md"),
    include_str!("../../../../docs/decisions/24-sync.md"),
    include_str!("../../../../docs/decisions/25-send-by-code.md"),
    include_str!("../../../../docs/decisions/26-server-logs-and-metrics.md"),
    include_str!("../../../../docs/decisions/27-disks.md"),
    include_str!("../../../../docs/decisions/28-cast.md"),
    include_str!("../../../../docs/decisions/29-emulated-networks.md"),
    include_str!("../../../../docs/decisions/30-measuring.md"),
    include_str!("../../../../docs/decisions/31-bindings.md"),
    include_str!("../../../../docs/decisions/32-unchanged-programs.md"),
);

const DOCUMENTS: &[Document] = &[
    Document {
        name: "docs/guide/keys.md",
        text: include_str!("../../../../docs/guide/keys.md"),
        facts: &[Fact("After {three} wrong codes", &["CODE_GUESSES"])],
        checked: None,
        without: &[],
    },
    Document {
        name: "docs/guide/library.md",
        text: include_str!("../../../../docs/guide/library.md"),
        facts: &[
            Fact(
                "the idle timeout ({15 s} unless set)",
                &["config::idle_timeout"],
            ),
            Fact("keeps up to {64} connections", &["DEFAULT_BACKLOG"]),
            Fact("up to {4096} in each direction", &["MAX_POSTED"]),
            Fact(
                "Each end may open up to {4096}.",
                &["streams::limits::MAX_STREAMS"],
            ),
        ],
        checked: None,
        without: &[],
    },
    Document {
        name: "docs/reference/options.md",
        text: include_str!("../../../../docs/reference/options.md"),
        facts: &[
            Fact(
                "| `connect_timeout` | {5 s} |",
                &["config::connect_timeout"],
            ),
            Fact("| `idle_timeout` | {15 s} |", &["config::idle_timeout"]),
            Fact("| `spin` | {50 us} |", &["lane::options::spin"]),
            Fact(
                "| `times.datagram` | {100 ms} |",
                &["lane::options::datagram"],
            ),
            Fact(
                "| `receive_buffer` | {8 MiB} |",
                &["lane::options::receive_buffer"],
            ),
            Fact("| `max_in_flight` | {128 MiB} |", &["config::max_window"]),
            Fact(
                "| `SLOTS` | | {64} | 1 to {1024};",
                &["DEFAULT_SLOTS", "core::limits::MAX_SLOTS"],
            ),
            Fact(
                "| `flow.eager_limit` | {16 KiB} | 0 to {64 KiB};",
                &["DEFAULT_EAGER", "wire::connection::MAX_EAGER"],
            ),
            Fact("| `flow.block` | {1 MiB} |", &["config::block"]),
            Fact(
                "| `flow.classic_block` | {64 KiB} |",
                &["1 << config::classic_block_log2"],
            ),
            Fact("| `datagrams.stu` | {65,467} |", &["core::config::max_stu"]),
            Fact("| `backlog` | {64} |", &["DEFAULT_BACKLOG"]),
            Fact(
                "`listen.max_connections_of_origin` | {4096}, {1024} |",
                &[
                    "handshake::limits::MAX_CONNECTIONS",
                    "MAX_CONNECTIONS_OF_ORIGIN",
                ],
            ),
            Fact(
                "| `paths` | 1 | 1 to {8} |",
                &["wire::connection::MAX_PATHS"],
            ),
            Fact("| up to {64} bytes for the peer |", &["MAX_PRIVATE_DATA"]),
        ],
        checked: None,
        without: &[],
    },
    Document {
        name: "docs/guide/tunnel.md",
        text: include_str!("../../../../docs/guide/tunnel.md"),
        facts: &[
            Fact(
                "seals up to {60 KiB} of TCP",
                &["tunnel::limits::LONGEST_DATAGRAM"],
            ),
            Fact(
                "of the inside, {1280} to {61428} [{1420}]",
                &[
                    "tunnel::limits::MIN_MTU",
                    "tunnel::limits::LONGEST_DATAGRAM - tunnel::limits::LENGTH - tun::VNET_HEADER_LEN",
                    "tunnel::limits::DEFAULT_MTU",
                ],
            ),
        ],
        checked: None,
        without: &[],
    },
    Document {
        name: "docs/guide/forward.md",
        text: include_str!("../../../../docs/guide/forward.md"),
        facts: &[Fact(
            "`--priority` is 0 to {7} (default {3})",
            &["streams::limits::PRIORITIES - 1", "DEFAULT_PRIORITY"],
        )],
        checked: None,
        without: &[],
    },
    Document {
        name: "docs/guide/run.md",
        text: include_str!("../../../../docs/guide/run.md"),
        facts: &[
            Fact(
                "two round trips, at least {20 ms},",
                &["sockets::ANSWER_WITHIN"],
            ),
            Fact("do not agree within {three} seconds", &["AGREE_WITHIN"]),
        ],
        checked: None,
        without: &[],
    },
    Document {
        name: "ARCHITECTURE.md",
        text: include_str!("../../../../ARCHITECTURE.md"),
        facts: &[
            Fact(
                "{ten} silent keep-alive intervals in a row, about the idle timeout ({15 s})",
                &["KEEPALIVES_PER_IDLE_TIMEOUT", "config::idle_timeout"],
            ),
            Fact(
                "{four} unanswered pings and at least {2 s} of silence",
                &["REFUSED_KEEPALIVES", "REFUSAL_PATIENCE"],
            ),
            Fact(
                "suffice, about {6 s} with the default",
                &["REFUSED_KEEPALIVES * config::idle_timeout / KEEPALIVES_PER_IDLE_TIMEOUT"],
            ),
            Fact(
                "at once, or within {1 s} if a child",
                &["shm::LONGEST_SLEEP"],
            ),
        ],
        checked: Some(("### When a peer dies", "## Call lists")),
        without: &[],
    },
    Document {
        name: "docs/decisions",
        text: DECISIONS,
        facts: &[
            Fact(
                "with up to {64} pairs is predicted",
                &["receive::MAX_SEGMENTS"],
            ),
            Fact("After {16} lone datagrams", &["receive::SINGLES"]),
            Fact(
                "predicts up to {40} messages of one pair",
                &["MAX_MESSAGES"],
            ),
            Fact(
                "divided by {three}, and at most {2 MiB}",
                &["socket::BUFFER_OVERHEAD", "socket::WINDOW"],
            ),
            Fact(
                "From a round trip of {3 ms} on, {three} times what arrived",
                &["receive_window::LONG_RTT", "receive_window::PEAKS"],
            ),
            Fact(
                "`max_in_flight` ({128 MiB}) bounds it",
                &["config::max_window"],
            ),
            Fact("a copy: from {16 KiB} on it", &["DEFAULT_EAGER"]),
            Fact("A send takes {17} fragments", &["MAX_FRAGMENTS"]),
            Fact(
                "about {16} times a round trip; once in {4 MiB} on a LAN",
                &["QUESTIONS_PER_WINDOW", "QUESTION_INTERVAL"],
            ),
            Fact("if it is heavy for {three} rounds", &["HEAVY_ROUNDS"]),
            Fact(
                "{half} of what was delivered is sent",
                &["TRIAL_GAIN / model::UNIT"],
            ),
            Fact("by a higher pace, for {10 s};", &["loss::OWN_MEMORY"]),
            Fact(
                "holds still for {2 s} or {63} round trips",
                &["modes::HOLD", "HOLD_ROUNDS"],
            ),
            Fact(
                "stands for {24} rounds on a path of {4 ms} or more",
                &["CROWDED_ROUNDS", "delay::LONG_RTT"],
            ),
            Fact(
                "falls to {~seven tenths}.",
                &["compete::BACKOFF / model::UNIT"],
            ),
            Fact("shorter by {a twentieth} though", &["1 / RELIEF_PART"]),
            Fact("Every {10 s} it looks whether", &["PROBE_RTT_INTERVAL"]),
            Fact(
                "A round trip below {1 ms}, loss below {0.5 %}, no queue beyond {20 ms} that stands for {300 ms} \
                 and {three} rounds",
                &[
                    "LAN_RTT",
                    "LAN_LOSS_PERMILLE / 1000",
                    "LAN_QUEUE",
                    "auto::STANDING",
                    "STANDING_ROUNDS",
                ],
            ),
            Fact(
                "not trusted again for {10 s}, then {20 s}",
                &["QUARANTINE", "2 * QUARANTINE"],
            ),
            Fact(
                "is {an eighth} of a round trip's worth, of {125} to {500 us}",
                &[
                    "1 / QUANTA_PER_RTT",
                    "1000000 * MIN_QUANTUM_TIME",
                    "MAX_QUANTUM_TIME",
                ],
            ),
            Fact(
                "After {a millisecond}'s idleness the first burst has {8} segments, then 16, 32, {64}",
                &["send::IDLE", "FIRST_BURST", "send::MAX_SEGMENTS"],
            ),
            Fact(
                "after {ten} silent keep-alive intervals in a row",
                &["KEEPALIVES_PER_IDLE_TIMEOUT"],
            ),
            Fact(
                "and {four} unanswered pings then suffice, after at least {2 s} of silence",
                &["REFUSED_KEEPALIVES", "REFUSAL_PATIENCE"],
            ),
            Fact("{Four} repairs in a row", &["BLACK_HOLE_REPAIRS"]),
            Fact("vanish: back to {1280} bytes, and", &["BASE_MTU"]),
            Fact(
                "before payload: down to {576} bytes over",
                &["MIN_IPV4_MTU"],
            ),
            Fact(
                "not those of {576} bytes ({1280} otherwise)",
                &["MIN_IPV4_MTU", "BASE_MTU"],
            ),
            Fact(
                "{four} repairs without news and {10} lost probes",
                &["BLACK_HOLE_REPAIRS", "NARROW_TRIES"],
            ),
            Fact(
                "a State leaves {20 us} after the last operation, {160 us} after",
                &["CONFIRM_DELAY", "MAX_CONFIRM_DELAY"],
            ),
            Fact("to answer within {20 us}, and at", &["CONFIRM_DELAY"]),
            Fact("**A unit is {1 MiB}**", &["UNIT_BYTES"]),
            Fact("Its Blocks are of {1 GiB}", &["limits::BLOCK_BYTES"]),
            Fact("with those of {1 MiB} one in", &["config::block"]),
            Fact("in slices of {50 ms}", &["patience::SLICE"]),
        ],
        checked: Some(("", "")),
        without: &[
            "a 1500-byte datagram may hold",
            "A burst of 1500-byte datagrams is 88 pieces",
            "up to 64 KiB, with one header",
            "datagrams of 9000 bytes but only five of 1500",
            "RFC 8985",
            "issue 11929",
            "is version 1.",
            "A path that loses 5 % by itself",
            "over a round trip of 1 ms, 0.1 % of loss",
            "half of the time of 8 bytes",
            "IP protocol 118",
            "leaves 256 bytes in front",
            "17.7 against BLAKE3's 3.9 GB/s",
            "at 1.15 times the rate at which the last 12 chunks",
            "exchange up to 64 KiB with",
            "one in 700 would miss",
            "CPython 3.11 and later",
        ],
    },
    Document {
        name: "docs/reference/protocol.md",
        text: include_str!("../../../../docs/reference/protocol.md"),
        facts: &[
            Fact(
                "LEAVES of this path, by up to {65,535}, is a copy",
                &["links::MAX_AGE - 1"],
            ),
            Fact("Version {1}.", &["connection::VERSION"]),
            Fact("the {40}-byte header", &["HEADER_LEN"]),
            Fact("or exactly {32} bytes of them", &["OPTIONS_LEN"]),
            Fact(
                "plus 1; 0: none, and nothing follows the options | 0 to {65}",
                &["MAX_PRIVATE_DATA + 1"],
            ),
            Fact(
                "private data, and zeros up to {64} bytes",
                &["MAX_PRIVATE_DATA"],
            ),
            Fact("tell of the latest {256} announcements", &["ANNOUNCEMENTS"]),
            Fact(
                "answers ({1192} bytes; sealed, {1168}) is one Get",
                &["MAX_SMALL", "MAX_SMALL - TRAILER_LEN"],
            ),
            Fact(
                "Puts of at most {1192} bytes (sealed: {1168})",
                &["MAX_SMALL", "MAX_SMALL - TRAILER_LEN"],
            ),
            Fact("numbered: 0 to {1192} bytes", &["MAX_SMALL"]),
            Fact("A put of at most {16 KiB} may leave", &["MAX_EAGER_PUT"]),
            Fact("If {1024} immediates wait", &["MAX_UNREAD"]),
            Fact("Extended: up to {64} at a", &["MAX_FETCHES"]),
            Fact("repeats every {100 ms}", &["NOT_READY_INTERVAL"]),
            Fact(
                "none or more than {256}, in a train {1,024}. To",
                &["wire::MAX_FRAMES", "wire::MAX_TRAIN_FRAMES"],
            ),
            Fact("bytes of payload | 1 to {65,507} |", &["MAX_TRAIN"]),
            Fact("longest put ({1192} bytes and", &["MAX_SMALL"]),
            Fact(
                "| 0 | message: up to {128} bytes of control",
                &["limits::MAX_CONTROL"],
            ),
            Fact("up to {four} ranges, each", &["MAX_RANGES"]),
            Fact("at most {280} bytes, by step", &["wire::MAX_BODY"]),
            Fact("cookie ({16} bytes, 0 if none)", &["COOKIE_LEN"]),
            Fact("the code's {eight} ASCII digits", &["code::DIGITS"]),
            Fact("with a {16}-byte tag", &["TRAILER_LEN - NUMBER_LEN"]),
            Fact("g = number >> {22} has", &["GENERATION_LOG2"]),
            Fact("older than the newest by {8192}", &["window::WINDOW"]),
            Fact("After 2^{36} forgeries a", &["36 * MAX_FORGED / 2^36"]),
            Fact("shorter by {24} bytes, and", &["TRAILER_LEN"]),
            Fact(
                "message) is repeated {once a second}.",
                &["WAITING_INTERVAL"],
            ),
            Fact(
                "{100 ms} at first, {20 ms} at least",
                &["INITIAL_RTO", "MIN_RTO"],
            ),
            Fact("timeout doubles up to {1 s}.", &["MAX_RTO"]),
            Fact("forgets an exchange {5 s} after", &["HANDSHAKE_LIFETIME"]),
            Fact(
                "timeout has {ten} intervals",
                &["KEEPALIVES_PER_IDLE_TIMEOUT"],
            ),
            Fact("what an MTU of {1280} does", &["BASE_MTU"]),
            Fact("what an MTU of {576} carries", &["MIN_IPV4_MTU"]),
            Fact("TimedOut if {10} probes of", &["NARROW_TRIES"]),
            Fact("four deviations ({20 ms} at least)", &["MIN_RTO"]),
            Fact("before {2^31 - 2} others were", &["HANDLE - 2"]),
            Fact(
                "| STU | {65,467} bytes",
                &["MAX_UDP_PAYLOAD_V4 - HEADER_LEN"],
            ),
            Fact("and {65,535} STUs |", &["MAX_STUS_PER_BLOCK"]),
            Fact("the eager limit, bytes | 1 to {65,536} |", &["MAX_EAGER"]),
        ],
        checked: Some(("## Placement", "")),
        without: &[
            "are never 0 and are not",
            "| 2^64 - 1 bytes, 2^32 Blocks |",
            "| 2^32 - 1 bytes and",
            "| slots | 65,535 |",
            "unconfirmed | 32,768 |",
            "| 2^62 bytes with buffers of 2^30 |",
        ],
    },
    Document {
        name: "docs/reference/security.md",
        text: include_str!("../../../../docs/reference/security.md"),
        facts: &[
            Fact("and seals 2^{22} packets", &["GENERATION_LOG2"]),
            Fact(
                "has {three} tries at one in {100 million}",
                &["CODE_GUESSES", "CODES"],
            ),
            Fact(
                "forgotten | {256} | `limited(Pending)`",
                &["MAX_PENDING_HANDSHAKES"],
            ),
            Fact(
                "begun | {128} | `limited(PendingOfOrigin)`",
                &["MAX_PENDING_OF_ORIGIN"],
            ),
            Fact(
                "agreements | {1000} | `limited(Answers)`",
                &["MAX_ANSWERS_PER_SECOND"],
            ),
            Fact(
                "origin | {500} | `limited(AnswersOfOrigin)`",
                &["MAX_ANSWERS_OF_ORIGIN_PER_SECOND"],
            ),
            Fact(
                "trigger a cookie | {32}, {16}, {200} | `retried`",
                &[
                    "COOKIE_FROM_PENDING",
                    "COOKIE_FROM_PENDING_OF_ORIGIN",
                    "COOKIE_FROM_RATE",
                ],
            ),
            Fact("is remembered | {5 s} |", &["HANDSHAKE_LIFETIME"]),
            Fact("one-time code | {3} | `wrong_codes`", &["CODE_GUESSES"]),
            Fact(
                "told *Busy* | {4096} | `full`",
                &["handshake::MAX_CONNECTIONS"],
            ),
            Fact(
                "`max_connections_of_origin`) | {1024} | `full",
                &["MAX_CONNECTIONS_OF_ORIGIN"],
            ),
            Fact("repeat their request | {64} |", &["DEFAULT_BACKLOG"]),
            Fact("peer repeats others | {16} |", &["MAX_DEFERRED_REGIONS"]),
            Fact("client is told | {32} | `refused`", &["SERVER_CONNECTIONS"]),
            Fact(
                "... of one origin | {24} | `full_of_origin`",
                &["SERVER_CONNECTIONS_OF_ORIGIN"],
            ),
            Fact(
                "by connection ({2 KiB} each) | {64} each |",
                &["port::SHOWN", "MAX_KEPT"],
            ),
            Fact("wait for `accept` | {64} | `unread`", &["MAX_KEPT"]),
            Fact(
                "then the oldest is forgotten | {1024}, {30 s} |",
                &["MAX_REMEMBERED", "REMEMBER"],
            ),
            Fact("the rest is counted | {64} |", &["UNTRUSTED_CLIENTS"]),
            Fact(
                "shared memory**: {128} processes that came",
                &["MAX_VISITORS"],
            ),
            Fact(
                "says nothing for {10 s} loses its place; after {eight} datagrams",
                &["visitors::PATIENCE", "MAX_HEARD"],
            ),
            Fact("{512} others wait in the kernel", &["rendezvous::BACKLOG"]),
            Fact("Each maps {516 KiB}.", &["mapping::SHARED"]),
            Fact(
                "a ring of {256 KiB} each way, with records of at most {64 KiB}",
                &["mapping::RING", "MAX_MEMORY_STU"],
            ),
            Fact(
                "name up to {2} runs of payload in the sender's memory, of up to {1 MiB} each",
                &["MAX_RUNS", "shm::MAX_BURST"],
            ),
            Fact(
                "A turn takes {64} records, and no further one when they brought {128 KiB}",
                &["RECORDS_PER_TURN", "shm::BYTES_PER_TURN"],
            ),
            Fact(
                "{64} regions of the peer are mapped, with {1 TiB}",
                &["LEASES", "MAX_MAPPED"],
            ),
            Fact(
                "reads of offers | {64} (`options.flow.slots`)",
                &["DEFAULT_SLOTS"],
            ),
            Fact(
                "half of the window at most | {64} |",
                &["MAX_ADVANCE_GRANTS"],
            ),
            Fact(
                "one for all | {1}, {8} at most |",
                &["options::most", "wire::MAX_PATHS"],
            ),
            Fact(
                "then they are copied | {1024}, each with {64} bytes of ours",
                &["MAX_LENT", "give::TRAIN_END"],
            ),
            Fact("frames in a datagram | {256} |", &["wire::MAX_FRAMES"]),
            Fact(
                "has {1088 KiB} more, whatever the peer",
                &["BUFFERS * arrived::BYTES + path_thread::STAGE"],
            ),
            Fact("granted at a time | {256} |", &["MAX_LIVE_BLOCKS"]),
            Fact(
                "behind an incomplete one | {1024} |",
                &["MAX_REMEMBERED_BLOCKS"],
            ),
            Fact(
                "| {a third} of the socket buffer, {128 MiB} on long",
                &["1 / socket::BUFFER_OVERHEAD", "config::max_window"],
            ),
            Fact(
                "| a round trip and {0.5 ms} of the link",
                &["MAX_QUEUE_MARGIN"],
            ),
            Fact(
                "without a receive | {64 KiB} ({4} times `options.flow.eager_limit`)",
                &["DEFAULT_EAGER_CREDIT", "EAGER_TRANSFERS"],
            ),
            Fact(
                "length of an eager Transfer | {16 KiB} (`options.flow.eager_limit`), {64 KiB} at most",
                &["DEFAULT_EAGER", "MAX_EAGER"],
            ),
            Fact(
                "up to {60 KiB} each; the oldest makes way | {16} |",
                &["MAX_DATAGRAM", "MAX_DATAGRAMS_ASSEMBLED"],
            ),
            Fact(
                "not taken, and bytes of them | {4096}, {8 MiB} |",
                &["MAX_DATAGRAMS_UNREAD", "MAX_DATAGRAM_BYTES_UNREAD"],
            ),
            Fact(
                "wait to leave, and bytes of them | {4096}, {4 MiB} |",
                &["MAX_DATAGRAMS_QUEUED", "MAX_DATAGRAM_BYTES_QUEUED"],
            ),
            Fact("told to wait | {1024} |", &["MAX_UNREAD"]),
            Fact(
                "batch brought is copied ({2.5 MiB}, or {64 KiB} where",
                &["MAX_MESSAGES * receive::SPILL", "receive::SPILL"],
            ),
            Fact(
                "kernel merges), with {2560} by 64",
                &["MAX_MESSAGES * receive::MAX_SEGMENTS"],
            ),
            Fact(
                "regions exported: the user is told | {65,536} |",
                &["MAX_EXPORTS"],
            ),
            Fact("The lane adds {1024} completions", &["MAX_UNREAD"]),
            Fact("one datagram of {64 KiB}, and", &["receive::SPILL"]),
            Fact("at most {72} bytes", &["HEADER_LEN + OPTIONS_LEN"]),
            Fact("({8} grants at most", &["MAX_GRANTS_REPEATED"]),
            Fact(
                "losses until trains pause [b] | {3} |",
                &["MAX_TRAIN_LOSSES / TRAIN_LOSS_COST"],
            ),
            Fact(
                "by {2048} datagrams each; none of the first {2048} after a pause. The first pause takes {100 ms}, each \
                 further one twice as long, up to {5 s}.",
                &[
                    "TRAIN_LOSS_COST",
                    "TRAIN_LOSS_COST",
                    "MIN_TRAIN_PAUSE",
                    "MAX_TRAIN_PAUSE",
                ],
            ),
            Fact(
                "then they are forgotten | {128 KiB} |",
                &["2 * receive::SPILL"],
            ),
            Fact(
                "more are copied | {128} slots, {8 MiB}; {512}, {32 MiB} |",
                &[
                    "give::MAX_SLOTS",
                    "give::MAX_SLOTS * give::SLOT",
                    "MAX_SLOTS_OF_PROCESS",
                    "MAX_SLOTS_OF_PROCESS * give::SLOT",
                ],
            ),
            Fact("and {192 KiB} more where", &["train::BUFFER"]),
            Fact("keeps those {192 KiB}.", &["train::BUFFER"]),
        ],
        checked: Some(("## Limits", "")),
        without: &[
            "IPv6 network of 64 bits",
            "key exchanges (2 KiB each)",
            "(some 25 MiB of buffers each)",
            "by 64 comparisons",
            "| 1 batch |",
            "holds 6 MiB in these",
            "receive buffers take 5 MiB",
        ],
    },
    Document {
        name: "docs/measurements/incast.md",
        text: include_str!("../../../../docs/measurements/incast.md"),
        facts: &[
            Fact("in turns of {10 ms} or more", &["ADMISSION_SLICE"]),
            Fact("for the next {100 ms}.", &["fast::HOLD"]),
            Fact("in intervals of {8 ms} or more", &["MIN_BUDGET_INTERVAL"]),
            Fact(
                "best of the last {5} to {10 s}",
                &["budget::MEMORY", "2 * budget::MEMORY"],
            ),
            Fact(
                "byte in the last {5} to {10 s}.",
                &["budget::MEMORY", "2 * budget::MEMORY"],
            ),
            Fact("for a moment every {5 s}", &["budget::MEMORY"]),
            Fact("at most {500 us}: at", &["MAX_QUEUE_MARGIN"]),
            Fact("down to {125 us}, when", &["MIN_QUEUE_MARGIN"]),
            Fact(
                "when {a quarter} of the connections, or {three} of them",
                &["1 / LOSERS_PART", "MANY_LOSERS"],
            ),
            Fact("up to {sixteen} times", &["MAX_STRETCH / budget::ONE"]),
            Fact("is lost: {64 KiB}.", &["INITIAL_BUDGET"]),
            Fact("a sender of more than {16 KiB} sends", &["DEFAULT_EAGER"]),
            Fact(
                "eager credit ({64 KiB} by default)",
                &["DEFAULT_EAGER_CREDIT"],
            ),
            Fact("with their first {16 KiB} each", &["DEFAULT_EAGER"]),
            Fact("one STU ({a quarter} of the budget", &["1 / TRICKLE_PART"]),
            Fact("when {an eighth} of what arrives", &["1 / MISSES_PART"]),
            Fact(
                "fast mode for {a second}, and keeps it for {ten} if",
                &["fast::TRIAL", "fast::VERDICT"],
            ),
            Fact("after {two} intervals without payload", &["STALLED_AFTER"]),
            Fact(
                "less than {a quarter} of what its allowance",
                &["1 / UNUSED_PART"],
            ),
        ],
        checked: Some(("", "")),
        without: &[
            "Its port holds few packets, 64 say",
            "connection with weight 1 (",
            "at 1 Gb/s that is 43 packets",
            "- *stretch*: 1, unless",
        ],
    },
    Document {
        name: "docs/reference/memory-model.md",
        text: include_str!("../../../../docs/reference/memory-model.md"),
        facts: &[
            Fact(
                "at most {1192} bytes ({1168} on an encrypted",
                &["MAX_SMALL", "MAX_SMALL - TRAILER_LEN"],
            ),
            Fact("| {1024} completions not looked at", &["MAX_UNREAD"]),
            Fact("up to {65,536} on one connection", &["MAX_EXPORTS"]),
            Fact("more than {4096} pieces of one", &["MAX_POSTED"]),
            Fact("up to {64 KiB} of short ones", &["DEFAULT_EAGER_CREDIT"]),
            Fact(
                "| {1024} small operations unconfirmed, in {256} datagrams",
                &["MAX_UNCONFIRMED", "MAX_UNCONFIRMED_DATAGRAMS"],
            ),
            Fact(
                "A number below {2^24} (`export_numbered`)",
                &["request::END"],
            ),
            Fact("| {4096} requests queued", &["MAX_POSTED"]),
        ],
        checked: Some(("", "")),
        without: &[
            "an aligned 64-bit word",
            "an aligned 32-bit word",
            "a word of 32 bits",
            "64-bit word",
        ],
    },
    Document {
        name: "docs/reference/lanes.md",
        text: include_str!("../../../../docs/reference/lanes.md"),
        facts: &[
            Fact("may have up to {8} paths", &["wire::MAX_PATHS"]),
            Fact(
                "A listener serves {128} callers at a time",
                &["MAX_VISITORS"],
            ),
            Fact("caller that is silent for {10 s}", &["visitors::PATIENCE"]),
            Fact("it is shorter than {8 KiB}", &["link::SHORT"]),
            Fact("waits at most {20 ms}", &["lend::PATIENCE"]),
            Fact("or {1 TiB} on a connection", &["shm::access::MAX_MAPPED"]),
        ],
        checked: None,
        without: &[],
    },
    Document {
        name: "docs/guide/remote-memory.md",
        text: include_str!("../../../../docs/guide/remote-memory.md"),
        facts: &[
            Fact("if it is not {9182}; IPv6", &["mem::DEFAULT_PORT"]),
            Fact("in pieces of {1 MiB}, and", &["remote::PIECE"]),
        ],
        checked: Some(("", "")),
        without: &[
            "the unsigned 64-bit number at OFFSET and",
            "OFFSET is a multiple of 8. A",
        ],
    },
    Document {
        name: "docs/guide/copy.md",
        text: include_str!("../../../../docs/guide/copy.md"),
        facts: &[
            Fact("up to {300 s} without progress", &["PATIENCE_SECONDS"]),
            Fact("repeat the option up to {20} times.", &["LINK_DIRECTORIES"]),
            Fact("(`cp`, 1 to {16};", &["files::limits::MAX_CONNECTIONS"]),
        ],
        checked: None,
        without: &[],
    },
    Document {
        name: "docs/guide/send.md",
        text: include_str!("../../../../docs/guide/send.md"),
        facts: &[
            Fact(
                "UDP port {9182}, for {15 s}",
                &["DISCOVERY_PORT", "SEARCH_SECONDS"],
            ),
            Fact("After {three} wrong codes", &["CODE_GUESSES"]),
        ],
        checked: None,
        without: &[],
    },
    Document {
        name: "docs/guide/serve.md",
        text: include_str!("../../../../docs/guide/serve.md"),
        facts: &[
            Fact("default port is {9181}", &["limits::DEFAULT_PORT"]),
            Fact(
                "takes {32} connections, {24} of them from one address",
                &["SERVER_CONNECTIONS", "SERVER_CONNECTIONS_OF_ORIGIN"],
            ),
            Fact(
                "sends no request for {10 s}, or that takes no data for {120 s}",
                &["REQUEST_SECONDS", "STALL_SECONDS"],
            ),
        ],
        checked: Some(("## Limits", "")),
        without: &["come back later (exit code 8)"],
    },
    Document {
        name: "docs/measurements/results.md",
        text: include_str!("../../../../docs/measurements/results.md"),
        facts: &[Fact(
            "up to {1,048,576} files and {64 MiB} of paths",
            &["LINKED_FILES", "LINKED_PATHS_BYTES"],
        )],
        checked: None,
        without: &[],
    },
    Document {
        name: "docs/reference/files.md",
        text: include_str!("../../../../docs/reference/files.md"),
        facts: &[
            Fact(
                "Files up to {256 KiB} are written at once",
                &["INLINE_BYTES"],
            ),
            Fact("in units of {1 MiB}; the sender", &["UNIT_BYTES"]),
            Fact("Files up to {256 KiB} are sent again", &["INLINE_BYTES"]),
            Fact(
                "a file above {256 KiB} that becomes shorter",
                &["INLINE_BYTES"],
            ),
            Fact("to its end (up to {32 MiB}) and copied", &["UNSIZED_BYTES"]),
            Fact(
                "look at {1,048,576} names and match {8 MiB} of paths",
                &["PATTERN_NAMES", "PATTERN_HELD_BYTES"],
            ),
            Fact(
                "is at least {16 KiB}/s of content",
                &["files::limits::LEAST_RATE"],
            ),
            Fact(
                "receiver tries up to {16} places, {4} of one address",
                &["SENDER_PLACES", "SENDER_PLACES_OF_HOST"],
            ),
            Fact("directories, at most {96 MiB} (", &["LISTING_HELD_BYTES"]),
            Fact("the plan, from {8 MiB} on in", &["PLAN_HELD_BYTES"]),
            Fact(
                "more than {128} levels, more than {67,108,864} entries",
                &["TREE_DEPTH", "LISTING_ENTRIES"],
            ),
            Fact("longer than {64 KiB} or wrong", &["FILTER_FILE_BYTES"]),
            Fact(
                "have up to {256 KiB}, and there may be {8} names",
                &["FILTER_TEXT_BYTES", "FILTER_FILES"],
            ),
            Fact("may be given {20} times", &["LINK_DIRECTORIES"]),
            Fact("beyond {512 GiB} is sent", &["RESUME_UNITS * UNIT_BYTES"]),
            Fact("so are files below {2 MiB}", &["DELTA_BYTES"]),
            Fact(
                "may have {256} attributes and {128 KiB} of names",
                &["ATTRIBUTES_OF_FILE", "ATTRIBUTES_BYTES"],
            ),
            Fact("is {1 MiB} of one file", &["UNIT_BYTES"]),
            Fact("up to {1024} unit digests", &["HAVE_DIGESTS"]),
            Fact(
                "the first {512 GiB} of a file",
                &["RESUME_UNITS * UNIT_BYTES"],
            ),
            Fact("tries for {300 s} without progress", &["PATIENCE_SECONDS"]),
            Fact(
                "A file up to {256 KiB} is written without",
                &["INLINE_BYTES"],
            ),
            Fact("in the last {32} bytes where", &["mark::BYTES"]),
            Fact(
                "of {8} names is taken. With all {8} taken",
                &["TEMPORARY_NAMES", "TEMPORARY_NAMES"],
            ),
        ],
        checked: Some(("## Guarantees", "")),
        without: &[
            "permission bits 0777",
            "after 60 s without a client.",
            "at least 10 s)",
            "cut to a second, 10 ms, 1 ms, 1 us or 100 ns",
            "run exits with 5 and names",
            "takes up to 16 MiB of memory",
            "less at its end",
        ],
    },
    Document {
        name: "docs/guide/lab.md",
        text: include_str!("../../../../docs/guide/lab.md"),
        facts: &[
            Fact("Packets ({1000} unless said)", &["DEFAULT_QUEUE_PACKETS"]),
            Fact(
                "falls due within {50 us} and follows",
                &["forwarder::SHORTEST_SLEEP"],
            ),
            Fact(
                "sleeps at least {50 us} between",
                &["forwarder::SHORTEST_SLEEP"],
            ),
        ],
        checked: None,
        without: &[],
    },
    Document {
        name: "docs/guide/trace.md",
        text: include_str!("../../../../docs/guide/trace.md"),
        facts: &[
            Fact("with {1024} bytes or more behind", &["limits::LARGE_BYTES"]),
            Fact(
                "at a time ({16384}); flows that",
                &["trace::limits::MAX_FLOWS"],
            ),
            Fact("between two packets ({50 us})", &["limits::POLL_PAUSE"]),
            Fact(
                "that fewer than {three} had passed",
                &["limits::REORDERING_PACKETS"],
            ),
        ],
        checked: None,
        without: &[],
    },
    Document {
        name: "docs/guide/c.md",
        text: include_str!("../../../../docs/guide/c.md"),
        facts: &[
            Fact("messages of up to {128} bytes", &["ZL_CONTROL_LENGTH"]),
            Fact("While it is {0}, every release", &["ZL_ABI_VERSION"]),
        ],
        checked: None,
        without: &[],
    },
    Document {
        name: "docs/guide/python.md",
        text: include_str!("../../../../docs/guide/python.md"),
        facts: &[
            Fact("exchange up to {128} bytes", &["limits::MAX_CONTROL"]),
            Fact("at {1024} unread completions the peer", &["MAX_UNREAD"]),
            Fact("ends a wait within {50 ms}", &["patience::SLICE"]),
        ],
        checked: None,
        without: &[],
    },
];

const UNITS: [(&str, f64); 9] = [
    (" KiB", 1024.0),
    (" MiB", 1_048_576.0),
    (" GiB", 1_073_741_824.0),
    (" TiB", 1_099_511_627_776.0),
    (" million", 1e6),
    (" us", 1e-6),
    (" ms", 1e-3),
    (" s", 1.0),
    (" %", 0.01),
];

const WORDS: [(&str, f64); 18] = [
    ("two", 2.0),
    ("three", 3.0),
    ("four", 4.0),
    ("eight", 8.0),
    ("ten", 10.0),
    ("sixteen", 16.0),
    ("half", 0.5),
    ("a third", 1.0 / 3.0),
    ("a quarter", 0.25),
    ("an eighth", 0.125),
    ("a twentieth", 0.05),
    ("seven tenths", 0.7),
    ("a millisecond", 1e-3),
    ("once a second", 1.0),
    ("a second", 1.0),
    ("two seconds", 2.0),
    ("once", 1.0),
    ("twice", 2.0),
];

/// The value of a number and its unit.
fn quantity(sources: &Sources, words: &str) -> Result<f64, Trouble> {
    let lower = words.to_lowercase();
    if let Some((_, value)) = WORDS.iter().find(|(word, _)| *word == lower) {
        return Ok(*value);
    }
    let digits = words.replace(',', "");
    let unit = UNITS.iter().find(|(unit, _)| digits.ends_with(unit));
    let (name, scale) = unit.copied().unwrap_or(("", 1.0));
    let number = sources.value(digits.trim_end_matches(name))?;
    Ok(number * scale)
}

/// The text on one line, without blocks of code.
fn flattened(text: &str) -> String {
    let prose = text.split("\n```").step_by(2).collect::<Vec<_>>().join(" ");
    prose.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `fact` without braces, and the contents of the braces.
fn taken_apart(fact: &Fact) -> (String, Vec<&'static str>) {
    let inside = fact.0.split(['{', '}']).skip(1).step_by(2);
    let plain = fact.0.replace("{~", "{").replace(['{', '}'], "");
    (plain, inside.collect())
}

/// Checks that `text` contains `fact`, and that its numbers are right.
fn check(sources: &Sources, text: &str, fact: &Fact) -> Result<(), Trouble> {
    let (plain, numbers) = taken_apart(fact);
    if !text.contains(&plain) {
        return Err(format!("it does not say {plain:?}"));
    }
    assert_eq!(
        numbers.len(),
        fact.1.len(),
        "{plain}: numbers and constants"
    );
    for (number, constants) in numbers.into_iter().zip(fact.1) {
        let said = quantity(sources, number.trim_start_matches('~'))?;
        let is = sources.value(constants)?;
        let rounding = if number.starts_with('~') { 1e-2 } else { 1e-9 };
        if (said - is).abs() > rounding * is.abs() {
            return Err(format!(
                "{plain:?}: {number} is said, and {constants} is {is}"
            ));
        }
    }
    Ok(())
}

/// The wrong facts of `document`.
fn wrong_facts(sources: &Sources, document: &Document) -> String {
    let text = flattened(document.text);
    let wrong = document.facts.iter().filter_map(|fact| {
        let wrong = check(sources, &text, fact).err()?;
        Some(format!("{}: {wrong}\n", document.name))
    });
    wrong.collect()
}

/// The places of `words` in `text`.
fn places<'a>(text: &'a str, words: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
    let found = text.match_indices(words);
    found.map(|(start, it)| start..start + it.len())
}

/// Blanks code and the targets of links.
fn without_code(text: &mut [u8]) {
    let (mut code, mut link) = (false, false);
    for at in 0..text.len() {
        match text[at] {
            b'`' => code = !code,
            b'(' if at > 0 && text[at - 1] == b']' => link = true,
            b')' => link = false,
            _ if code || link => text[at] = b' ',
            _ => {}
        }
    }
}

/// The part of `document` in which each number needs a reason.
fn checked(document: &Document) -> Option<String> {
    let (first, last) = document.checked?;
    let (_, from) = document.text.split_once(first).expect(first);
    let part = match last {
        "" => from,
        last => from.split_once(last).expect(last).0,
    };
    Some(flattened(part))
}

/// Numbers of `document` that are in no fact and not listed as without a constant.
fn stray_numbers(document: &Document) -> String {
    let mut strays = String::new();
    let Some(text) = checked(document) else {
        return strays;
    };
    let mut rest = text.clone().into_bytes();
    // Done first, because a fact may contain one backtick of a pair, and the text after it would count as code.
    without_code(&mut rest);
    let facts = document.facts.iter().map(|fact| taken_apart(fact).0);
    let known = facts.chain(document.without.iter().map(|it| (*it).to_owned()));
    for words in known {
        places(&text, &words).for_each(|place| rest[place].fill(b' '));
    }
    let rest = String::from_utf8_lossy(&rest);
    for (at, word) in rest.split(' ').scan(0, |at, word| {
        let start = *at;
        *at += word.len() + 1;
        Some((start, word))
    }) {
        // Names contain digits, too: IPv4, BLAKE3, P2.1; and so do numbered lists.
        let number = word.trim_start_matches(|it: char| it.is_ascii_punctuation());
        let item = number.strip_suffix('.').is_some_and(|it| it.len() == 1);
        if number.starts_with(|it: char| it.is_ascii_digit()) && !item {
            let from = rest[..at]
                .rfind(". ")
                .map_or(0, |it| it + 2)
                .max(at.saturating_sub(60));
            let around = text.get(from..(at + 40).min(text.len())).unwrap_or(word);
            writeln!(strays, "{}: {word} in \"{around}\"", document.name).unwrap();
        }
    }
    strays
}

#[test]
fn numbers__are_those_of_the_constants() {
    let sources = Sources::read();
    let wrong = DOCUMENTS.iter().map(|it| wrong_facts(&sources, it));
    let wrong: String = wrong.collect();
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn numbers__without_a_constant_are_known() {
    let strays: String = DOCUMENTS.iter().map(stray_numbers).collect();
    assert!(
        strays.is_empty(),
        "name their constants, or that they have none:\n{strays}"
    );
}

/// Each number listed as without a constant is in its document.
#[test]
fn numbers__lists_have_nothing_that_is_gone() {
    for document in DOCUMENTS {
        let Some(text) = checked(document) else {
            continue;
        };
        for words in document.without {
            assert!(text.contains(words), "{}: {words:?} is gone", document.name);
        }
    }
}
