//! Tests that hits and misses of small captures match counts made by hand.

use crate::support::{Capture, Ends, MSS, assert_tally, ends, traced, traced_with};
use std::time::Duration;
use zerolane_trace::{Cause, Options, Report};

const A: Ends = ends(1, 9);
const B: Ends = ends(2, 9);

/// Segments of one flow, by their places in the stream.
fn segments(capture: &mut Capture, order: impl IntoIterator<Item = u32>) {
    for index in order {
        capture.tcp(A, 5000 + index * MSS, MSS);
    }
}

fn of(make: impl FnOnce(&mut Capture)) -> Report {
    let mut capture = Capture::default();
    make(&mut capture);
    traced(&capture.pcap())
}

/// What each rule is expected to count: predictions, hits, and misses with their causes.
struct Expected<'a> {
    pages: (u64, u64, &'a [(Cause, u64)]),
    per_stream: (u64, u64, &'a [(Cause, u64)]),
    pairs: (u64, u64, &'a [(Cause, u64)]),
    trains: (u64, u64, &'a [(Cause, u64)]),
}

fn assert_counts(report: &Report, expected: &Expected<'_>) {
    let rules = &report.sum.rules;
    for (name, tally, it) in [
        ("pages", &rules.pages, expected.pages),
        ("per stream", &rules.pages_per_stream, expected.per_stream),
        ("pairs", &rules.pairs, expected.pairs),
        ("trains", &rules.trains, expected.trains),
    ] {
        assert_tally(name, tally, it.0, it.1, it.2);
    }
}

#[test]
fn one_flow__in_order_hits_but_for_its_first_packet() {
    let report = of(|it| segments(it, 0..12));
    assert_counts(
        &report,
        &Expected {
            pages: (4, 4, &[]),
            per_stream: (4, 4, &[]),
            pairs: (12, 11, &[(Cause::First, 1)]),
            trains: (1, 1, &[]),
        },
    );
    let sum = &report.sum;
    assert_eq!((sum.packets, sum.data_packets, sum.rules.runs), (12, 12, 2));
    assert_eq!(sum.payload_bytes, 12 * u64::from(MSS));
    assert_eq!(sum.rules.pairs.hit_bytes, 11 * u64::from(MSS));
    assert_eq!(
        report.flows[0].flow.to_string(),
        "tcp 10.0.0.1:4001 > 10.0.0.9:80"
    );
}

#[test]
fn two_flows__to_one_host_spoil_each_other_in_one_list_alone() {
    let report = of(|it| {
        for index in 0..12 {
            it.tcp(A, 5000 + index * MSS, MSS);
            it.tcp(B, 77 + index * MSS, MSS);
        }
    });
    assert_counts(
        &report,
        &Expected {
            pages: (8, 0, &[(Cause::Interleaved, 8)]),
            per_stream: (8, 8, &[]),
            pairs: (24, 22, &[(Cause::First, 2)]),
            trains: (2, 2, &[]),
        },
    );
    assert_eq!(report.sum.interleaved, 22);
    let host = &report.hosts[0];
    assert_eq!((host.frames, host.large, host.small), (24, 24, 0));
    assert_eq!((host.pages.potential, host.pages.hits), (8, 0));
    assert_eq!(report.hosts.len(), 1);
}

#[test]
fn two_flows__in_bursts_of_a_page_do_not() {
    let report = of(|it| {
        for page in 0..4 {
            for index in 3 * page..3 * page + 3 {
                it.tcp(A, index * MSS, MSS);
            }
            for index in 3 * page..3 * page + 3 {
                it.tcp(B, index * MSS, MSS);
            }
        }
    });
    assert_tally("pages", &report.sum.rules.pages, 8, 8, &[]);
    assert_eq!(report.sum.interleaved, 6, "at the pages' begins");
}

#[test]
fn two_flows__to_different_hosts_are_in_nobodys_way() {
    let report = of(|it| {
        for index in 0..12 {
            it.tcp(A, index * MSS, MSS);
            it.tcp(ends(2, 8), index * MSS, MSS);
        }
    });
    assert_tally("pages", &report.sum.rules.pages, 8, 8, &[]);
    assert_eq!((report.sum.interleaved, report.hosts.len()), (0, 2));
}

/// The paper's Table 1, in shares: none, one page in a thousand, one in ten.
#[test]
fn interference__costs_the_pages_that_it_falls_into() {
    const PAGES: u32 = 2_000;
    for (interfering, failed) in [(0_u32, 0), (2, 2), (200, 134)] {
        let mut capture = Capture::default();
        let mut sent = 0;
        for frame in 0..3 * PAGES {
            capture.tcp(A, frame.wrapping_mul(MSS), MSS);
            // Behind the first frame of a page, the second, and the last, in turn.
            if sent < interfering && frame == sent * 3 * PAGES / interfering + sent % 3 {
                capture.udp(B, 10);
                sent += 1;
            }
        }
        assert_eq!(sent, interfering);
        let report = traced(&capture.snapped(66).pcap());
        let (pages, hits) = (u64::from(PAGES), u64::from(PAGES) - failed);
        let rules = &report.sum.rules;
        assert_tally(
            "pages",
            &rules.pages,
            pages,
            hits,
            &[(Cause::Control, failed)],
        );
        assert_tally("per stream", &rules.pages_per_stream, pages, pages, &[]);
        assert_eq!(report.sum.control_between, u64::from(interfering));
    }
}

#[test]
fn control__in_a_page_spoils_it() {
    let report = of(|it| {
        segments(it, 0..4);
        // An answer of the receiver's peer in another connection, and one of this one.
        it.tcp(B, 1, 0);
        segments(it, 4..7);
        it.tcp(A, 5000 + 7 * MSS, 0);
        segments(it, 7..9);
    });
    assert_counts(
        &report,
        &Expected {
            pages: (3, 1, &[(Cause::Control, 2)]),
            per_stream: (3, 3, &[]),
            pairs: (9, 8, &[(Cause::First, 1)]),
            trains: (1, 1, &[]),
        },
    );
    assert_eq!((report.sum.control_between, report.sum.packets), (2, 11));
    // The first packet, what came up to its own control, and the rest.
    assert_eq!(report.sum.rules.runs, 3);
}

#[test]
fn reordering__spoils_its_page_and_its_train_and_moves_two_packets() {
    let report = of(|it| segments(it, [0, 1, 2, 3, 5, 4, 6, 7, 8, 9, 10, 11]));
    assert_counts(
        &report,
        &Expected {
            pages: (4, 3, &[(Cause::Reordered, 1)]),
            per_stream: (4, 3, &[(Cause::Reordered, 1)]),
            pairs: (12, 9, &[(Cause::First, 1), (Cause::Reordered, 2)]),
            trains: (1, 0, &[(Cause::Reordered, 1)]),
        },
    );
}

#[test]
fn reordering__is_told_from_loss_by_how_late_it_is() {
    // Two packets pass it, and it is late; three do, and it was sent again.
    for (order, cause, missed) in [
        ([0, 1, 3, 4, 2, 5, 6, 7], Cause::Reordered, 3),
        ([0, 1, 3, 4, 5, 2, 6, 7], Cause::Lost, 4),
    ] {
        let report = of(|it| segments(it, order));
        let pairs = &report.sum.rules.pairs;
        assert_tally(
            "pairs",
            pairs,
            8,
            7 - missed,
            &[(Cause::First, 1), (cause, missed)],
        );
    }
}

#[test]
fn reordering__of_a_page_s_first_frame_spoils_that_too() {
    let report = of(|it| segments(it, [0, 1, 2, 3, 4, 6, 5, 7, 8]));
    // 3-4-6, and 5-7-8.
    assert_tally(
        "pages",
        &report.sum.rules.pages,
        3,
        1,
        &[(Cause::Reordered, 2)],
    );
}

#[test]
fn reordering__of_a_train_s_end_is_in_no_way_of_the_next() {
    let report = of(|it| {
        segments(it, 0..9);
        it.tcp(A, 5000 + 10 * MSS, 100);
        segments(it, [9]);
        (0..6).for_each(|index| it.tcp(A, 5100 + (10 + index) * MSS, MSS));
    });
    assert_tally(
        "trains",
        &report.sum.rules.trains,
        2,
        1,
        &[(Cause::Reordered, 1)],
    );
}

#[test]
fn trains__are_of_64_KiB_and_of_one_length() {
    let report = of(|it| segments(it, 0..100));
    assert_tally("45, 45 and 10", &report.sum.rules.trains, 3, 3, &[]);
    let report = of(|it| {
        (0..6).for_each(|index| it.tcp(A, index * 1000, 1000));
        (0..6).for_each(|index| it.tcp(A, 6000 + index * MSS, MSS));
    });
    assert_tally("two lengths", &report.sum.rules.trains, 2, 2, &[]);
    let report = of(|it| segments(it, 0..4));
    assert_tally("too short", &report.sum.rules.trains, 0, 0, &[]);
}

#[test]
fn loss__spoils_what_is_behind_it_in_its_message() {
    let report = of(|it| {
        segments(it, [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11]);
        it.pause(500);
        segments(it, [4]);
        it.pause(500);
        segments(it, 12..15);
    });
    assert_counts(
        &report,
        &Expected {
            // 3-5-6 and 10-11-4.
            pages: (5, 3, &[(Cause::Lost, 2)]),
            per_stream: (5, 3, &[(Cause::Lost, 2)]),
            // 5 to 11, and 4.
            pairs: (15, 6, &[(Cause::First, 1), (Cause::Lost, 8)]),
            trains: (1, 0, &[(Cause::Lost, 1)]),
        },
    );
}

#[test]
fn retransmission__of_what_was_there_is_a_miss() {
    let report = of(|it| {
        segments(it, 0..6);
        it.pause(500);
        segments(it, [5]);
        it.pause(500);
        segments(it, 6..9);
    });
    assert_counts(
        &report,
        &Expected {
            // Once more 5, with 6 and 7: they continue each other, and more is not looked at.
            pages: (3, 3, &[]),
            per_stream: (3, 3, &[]),
            pairs: (10, 8, &[(Cause::First, 1), (Cause::Lost, 1)]),
            trains: (1, 1, &[]),
        },
    );
}

#[test]
fn retransmission__of_what_was_sent_before_the_capture_is_a_miss_alone() {
    let report = of(|it| {
        segments(it, 3..6);
        it.pause(500);
        segments(it, [0]);
        it.pause(500);
        segments(it, 6..9);
    });
    let pairs = &report.sum.rules.pairs;
    assert_tally("pairs", pairs, 7, 5, &[(Cause::First, 1), (Cause::Lost, 1)]);
}

#[test]
fn step__too_far_for_a_gap_begins_another_stream() {
    let report = of(|it| {
        segments(it, 0..3);
        (0..3).for_each(|index| it.tcp(A, (1 << 31) + index * MSS, MSS));
    });
    let pairs = &report.sum.rules.pairs;
    assert_tally("pairs", pairs, 6, 4, &[(Cause::First, 2)]);
    // Within reach, it is a loss, however large: and the forecast goes on behind it.
    let report = of(|it| {
        segments(it, 0..3);
        it.pause(500);
        (0..3).for_each(|index| it.tcp(A, (1 << 30) - 1 + index * MSS, MSS));
    });
    let pairs = &report.sum.rules.pairs;
    assert_tally("pairs", pairs, 6, 2, &[(Cause::First, 1), (Cause::Lost, 3)]);
}

#[test]
fn size__that_shrinks_in_a_page_spoils_it() {
    let report = of(|it| {
        let mut number = 0;
        for len in [MSS, MSS, MSS, MSS, 1000, MSS, MSS] {
            it.tcp(A, number, len);
            number += len;
        }
    });
    assert_counts(
        &report,
        &Expected {
            pages: (2, 1, &[(Cause::Size, 1)]),
            per_stream: (2, 1, &[(Cause::Size, 1)]),
            // A short one ends a message, and is where it was expected.
            pairs: (7, 6, &[(Cause::First, 1)]),
            trains: (1, 1, &[]),
        },
    );
}

#[test]
fn size__that_grows_spoils_the_message_that_shows_it() {
    let report = of(|it| {
        let mut number = 0;
        for len in [1000, MSS, MSS, MSS, MSS, MSS, MSS] {
            it.tcp(A, number, len);
            number += len;
            if number == 1000 + 3 * MSS {
                it.pause(100);
            }
        }
    });
    let pairs = &report.sum.rules.pairs;
    assert_tally("pairs", pairs, 7, 3, &[(Cause::First, 1), (Cause::Size, 3)]);
}

#[test]
fn size__of_the_header_is_one_too() {
    let sack = [
        1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2,
    ];
    let report = of(|it| {
        it.tcp(A, 0, MSS);
        it.segment(A, MSS, MSS - 12, &sack, false);
        it.tcp(A, 2 * MSS - 12, MSS);
    });
    assert_tally("pages", &report.sum.rules.pages, 1, 0, &[(Cause::Size, 1)]);
}

#[test]
fn udp__in_runs() {
    let report = of(|it| {
        for len in [[1400; 10].as_slice(), &[300], &[1400; 10]].concat() {
            it.udp(A, len);
        }
    });
    assert_counts(
        &report,
        &Expected {
            pages: (6, 6, &[]),
            per_stream: (6, 6, &[]),
            pairs: (21, 20, &[(Cause::First, 1)]),
            trains: (2, 2, &[]),
        },
    );
    assert_eq!(report.sum.rules.runs, 3);
}

#[test]
fn udp__a_message_has_what_one_poll_brings() {
    let report = |pause: u64, gap: u64| {
        let mut capture = Capture::default();
        for _ in 0..10 {
            capture.udp(A, 1000);
            capture.pause(gap);
        }
        let pause = Duration::from_micros(pause);
        let options = Options {
            pause,
            ..Options::default()
        };
        traced_with(&capture.pcap(), &options).sum.rules.runs
    };
    assert_eq!(report(50, 0), 2);
    assert_eq!(report(50, 49), 2);
    assert_eq!(report(50, 50), 10);
    assert_eq!(report(100, 50), 2);
    // A longer one is no part of a message, nor what comes 64 packets of the host later.
    let longer = of(|it| {
        for len in [1400, 1000, 1400, 1400] {
            it.udp(A, len);
        }
    });
    assert_tally("pairs", &longer.sum.rules.pairs, 4, 3, &[(Cause::First, 1)]);
    assert_eq!(longer.sum.rules.runs, 3);
    let two = of(|it| {
        for _ in 0..1 + 64 {
            it.udp(A, 100);
            it.udp(B, 100);
        }
    });
    assert_eq!(two.sum.rules.runs, 2 * (1 + 2));
    let many = of(|it| (0..1 + 64 + 63).for_each(|_| it.udp(A, 100)));
    assert_eq!(many.sum.rules.runs, 3, "64 are merged at most");
    let large = of(|it| (0..1 + 7 + 7).for_each(|_| it.udp(A, 9000)));
    assert_eq!(large.sum.rules.runs, 3, "and 64 KiB");
}

#[test]
fn fragments__are_the_pages_of_the_paper() {
    let report = of(|it| {
        for id in 0..5 {
            for (index, piece) in Capture::fragments(A, id, 4096).into_iter().enumerate() {
                it.push(piece);
                if (id, index) == (2, 0) {
                    it.udp(B, 10);
                }
            }
        }
    });
    assert_counts(
        &report,
        &Expected {
            pages: (5, 4, &[(Cause::Control, 1)]),
            per_stream: (5, 5, &[]),
            // Whole datagrams, as the socket gets them; and the one of B.
            pairs: (6, 4, &[(Cause::First, 2)]),
            trains: (1, 1, &[]),
        },
    );
    assert_eq!(report.flows.len(), 2);
    assert_eq!(report.flows[0].counts.data_packets, 15);
    assert_eq!(report.flows[0].counts.payload_bytes, 5 * 4096);
}

#[test]
fn fragments__in_another_order_or_with_one_lost() {
    let datagram = |id| Capture::fragments(A, id, 4096);
    let swapped = of(|it| {
        let [first, second, third] = datagram(1).try_into().unwrap();
        for piece in [first, third, second] {
            it.push(piece);
        }
        datagram(2).into_iter().for_each(|piece| it.push(piece));
    });
    let pages = &swapped.sum.rules.pages;
    assert_eq!(
        (pages.hits, pages.misses(Cause::Reordered)),
        (1, 1),
        "{pages:?}"
    );
    let lost = of(|it| {
        datagram(1).into_iter().for_each(|piece| it.push(piece));
        datagram(2)
            .into_iter()
            .take(2)
            .for_each(|piece| it.push(piece));
        datagram(3).into_iter().for_each(|piece| it.push(piece));
        let mut alone = datagram(4);
        it.push(alone.remove(2));
    });
    assert_eq!(lost.seen.lone_fragments, 1);
    let pairs = &lost.sum.rules.pairs;
    assert_eq!(
        (pairs.potential, pairs.misses(Cause::Lost)),
        (2, 1),
        "{pairs:?}"
    );
}

#[test]
fn fragments__of_more_datagrams_than_are_remembered() {
    let lone = |datagrams: u16| {
        let report = of(|it| {
            for id in 0..datagrams {
                it.push(Capture::fragments(A, id, 2000).remove(0));
            }
            it.push(Capture::fragments(A, 0, 2000).remove(1));
        });
        report.seen.lone_fragments
    };
    assert_eq!((lone(1024), lone(1025)), (0, 1));
}

#[test]
fn connection__that_begins_anew_on_the_same_ports_is_another_stream() {
    let report = of(|it| {
        it.syn(A, 4999);
        segments(it, 0..6);
        it.syn(A, 900_000);
        (0..6).for_each(|index| it.tcp(A, 900_001 + index * MSS, MSS));
    });
    assert_counts(
        &report,
        &Expected {
            pages: (4, 4, &[]),
            per_stream: (4, 4, &[]),
            pairs: (12, 10, &[(Cause::First, 2)]),
            trains: (2, 2, &[]),
        },
    );
}

#[test]
fn connection__that_begins_anew_goes_on_with_no_page() {
    let report = of(|it| {
        segments(it, 0..4);
        it.syn(A, 900_000);
        (0..5).for_each(|index| it.tcp(A, 900_001 + index * MSS, MSS));
    });
    assert_tally("pages", &report.sum.rules.pages, 2, 2, &[]);
    assert_tally("trains", &report.sum.rules.trains, 1, 1, &[]);
}

#[test]
fn connection__whose_first_packet_has_payload() {
    let report = of(|it| {
        it.segment(A, 4999, MSS, &[], true);
        segments(it, 1..4);
    });
    let pairs = &report.sum.rules.pairs;
    assert_tally("pairs", pairs, 4, 3, &[(Cause::First, 1)]);
}

#[test]
fn numbers__go_on_from_their_end() {
    let report = of(|it| {
        let start = 0_u32.wrapping_sub(4 * MSS + 7);
        it.syn(A, start.wrapping_sub(1));
        (0..12).for_each(|index| it.tcp(A, start.wrapping_add(index * MSS), MSS));
    });
    assert_tally("pages", &report.sum.rules.pages, 4, 4, &[]);
    assert_tally(
        "pairs",
        &report.sum.rules.pairs,
        12,
        11,
        &[(Cause::First, 1)],
    );
}

#[test]
fn flows__beyond_what_is_followed_are_folded_and_lose_nothing() {
    let mut capture = Capture::default();
    for index in 0..6 {
        for host in 1..=100 {
            capture.tcp(ends(host, 200), index * MSS, MSS);
        }
    }
    for host in 1..=100 {
        (6..12).for_each(|index| capture.tcp(ends(host, host + 100), index * MSS, MSS));
    }
    let options = Options {
        max_flows: 16,
        ..Options::default()
    };
    let report = traced_with(&capture.pcap(), &options);
    assert_eq!((report.sum.packets, report.sum.data_packets), (1200, 1200));
    let folded = report.folded.expect("too many for 16");
    assert!(report.flows.len() <= 16, "{}", report.flows.len());
    let shown: u64 = report.flows.iter().map(|it| it.counts.packets).sum();
    assert_eq!(shown + folded.counts.packets, 1200);
    assert!(report.hosts.len() <= 16 && report.hosts_folded > 0);
    // Those that came packet by packet were forgotten each time.
    let pairs = &report.sum.rules.pairs;
    assert_tally("pairs", pairs, 1200, 500, &[(Cause::First, 700)]);
}

#[test]
fn flows__are_told_by_their_bytes() {
    let report = of(|it| {
        it.udp(A, 10);
        it.udp(B, 1000);
        it.udp(ends(3, 9), 100);
    });
    let from: Vec<_> = report.flows.iter().map(|it| it.flow.source_port).collect();
    assert_eq!(from, [4002, 4003, 4001]);
}
