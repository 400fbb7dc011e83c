//! Tests that trains leave whole, that each miss costs little, and that losses stop them.

use super::memory::{export, get, put, until_over};
use super::sim::Sim;
use super::sim_trains::{
    Carriage, Follower, Merge, SEAL, Tamper, has_header, merged, merged_at_random, unmerged,
};
use crate::*;
use netsim::Side;
use netsim::link::LinkConfig;
use std::time::Duration;
use zerolane_wire::{HEADER_LEN, Header, Op, Operation, Packet, Profile, Profiles, Rights, Train};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

const MERGINGS: [Merge; 3] = [unmerged, merged, merged_at_random];

/// Bytes of a full datagram, and of the payload of a full train, over a path of 1500 bytes.
const DATAGRAM: u64 = 1472;
const TRAIN: u64 = (44 * DATAGRAM - (HEADER_LEN + SEAL) as u64 - 1) / 64 * 64;

/// A path without other traffic: everything granted leaves at once.
fn lan() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(100),
        ..LinkConfig::default()
    }
}

fn connected(merging: Merge) -> Sim {
    let mut sim = Sim::with_trains(lan(), 1, Config::default(), merging);
    assert_eq!(u64::from(sim.a.c().stu()), DATAGRAM - 48);
    sim.trace = Some(vec![]);
    sim
}

/// A Transfer of `length` bytes from `from`. Returns its identifiers at both ends, and its destination.
fn post(sim: &mut Sim, from: Side, seed: u64, length: u64) -> (TransferId, TransferId, Span) {
    let now = sim.now();
    let source = sim.host(from).filled(seed, length);
    let there = sim.host(from.other());
    let target = there.empty(length);
    let receive = there.c().post_receive(now, target).unwrap();
    let send = sim.host(from).c();
    let send = send.post_send(now, source, Delivery::Polled).unwrap();
    (send, receive, target)
}

/// Sends `length` bytes from `from` until both ends know that they arrived.
fn transfer(sim: &mut Sim, from: Side, seed: u64, length: u64) {
    let (send, receive, target) = post(sim, from, seed, length);
    sim.run_until(60 * S, |sim| {
        let (here, there) = match from {
            Side::A => (&sim.a, &sim.b),
            Side::B => (&sim.b, &sim.a),
        };
        here.sent(send) && there.received(receive) == Some(length)
    });
    let there = sim.host(from.other());
    assert!(there.holds(target, seed, length), "what arrived");
    there.assert_guards();
    there.c().assert_bounded();
}

/// The payload lengths of the trains that `side` sent.
fn left(sim: &mut Sim, side: Side) -> Vec<u64> {
    let trains = sim.host(side).trains.as_ref().expect("trains");
    trains.left.iter().map(|it| it.s_id.into()).collect()
}

/// Payload bytes that `side` sent with a header in front.
fn with_headers(sim: &Sim, side: Side) -> u64 {
    let sent = sim.trace.iter().flatten();
    let data = sent.filter(|(from, bytes)| {
        let header = || Header::parse(bytes).expect("a header");
        *from == side && has_header(bytes) && header().op == Op::Data
    });
    data.map(|(_, bytes)| (bytes.len() - HEADER_LEN - SEAL) as u64)
        .sum()
}

/// Changes the trains that arrive at `side`.
fn tamper(
    sim: &mut Sim,
    side: Side,
    mut change: impl FnMut(Carriage, &[u8]) -> Vec<Vec<u8>> + 'static,
) {
    let mut follower = Follower::default();
    let tamper: Tamper = Box::new(move |bytes| match follower.follow(bytes) {
        Some(at) => change(at, bytes),
        None => vec![bytes.to_vec()],
    });
    sim.host(side).trains.as_mut().expect("trains").tamper = Some(tamper);
}

/// Loses datagrams of trains to `side`, selected by `lost`.
fn lose(sim: &mut Sim, side: Side, lost: impl Fn(Carriage) -> bool + 'static) {
    tamper(sim, side, move |at, bytes| match lost(at) {
        true => vec![],
        false => vec![bytes.to_vec()],
    });
}

fn resent(sim: &mut Sim, side: Side) -> u64 {
    sim.host(side).c().counters().bytes_resent
}

fn received(sim: &mut Sim, side: Side) -> usize {
    sim.host(side).c().counters().trains_received as usize
}

#[test]
fn transfer__leaves_as_trains() {
    for merging in MERGINGS {
        let mut sim = connected(merging);
        let length = 5_000_000;
        transfer(&mut sim, Side::A, 7, length);
        let trains = left(&mut sim, Side::A);
        assert_eq!(trains.iter().sum::<u64>(), length);
        // One header per train, and the fewest trains: no short one is left over.
        assert_eq!(with_headers(&sim, Side::A), 0);
        assert_eq!(trains.len() as u64, length.div_ceil(TRAIN));
        assert!(trains.iter().all(|it| (TRAIN / 2..=TRAIN).contains(it)));
        let sent = sim.trace.take().unwrap();
        let headless = sent.iter().filter(|(_, bytes)| !has_header(bytes)).count() as u64;
        // The last datagram of a train is never full.
        let datagrams = trains.iter().map(|it| (it + 48) / DATAGRAM + 1);
        assert_eq!(headless, datagrams.sum::<u64>());
        assert_eq!(resent(&mut sim, Side::A), 0);
        assert_eq!(received(&mut sim, Side::B), trains.len());
        let counters = *sim.b.c().counters();
        assert_eq!((counters.dropped_total(), counters.reports_sent), (0, 0));
        assert_eq!((sim.b.placed, sim.b.moved), (length, 0));
        assert!(!sim.b.c().expects_trains(), "nothing is granted");
    }
}

#[test]
fn block__is_a_number_of_whole_trains() {
    let mut sim = connected(merged);
    transfer(&mut sim, Side::A, 7, 5_000_000);
    let sent = sim.trace.take().unwrap();
    let grants: Vec<_> = sent
        .iter()
        .filter(|(side, bytes)| *side == Side::B && has_header(bytes))
        .filter_map(
            |(_, bytes)| match Packet::parse(&bytes[..bytes.len() - SEAL]) {
                Ok(Packet {
                    operation: Operation::ClearToSend(it),
                    ..
                }) => it.grant,
                _ => None,
            },
        )
        .collect();
    let (_, full) = grants.split_last().expect("grants");
    assert!(full.len() > 2 && grants.iter().all(|it| it.trains));
    for grant in full {
        assert_eq!(u64::from(grant.length) % TRAIN, 0);
    }
}

/// Loses datagrams of train 3, selected by `lost`; only that train is repaired, with headers.
fn lose_of_third(merging: Merge, lost: impl Fn(Carriage) -> bool + 'static) {
    let mut sim = connected(merging);
    lose(&mut sim, Side::B, move |at| at.train == 3 && lost(at));
    transfer(&mut sim, Side::A, 9, 2_000_000);
    let trains = left(&mut sim, Side::A);
    assert_eq!(resent(&mut sim, Side::A), trains[3]);
    assert_eq!(with_headers(&sim, Side::A), trains[3]);
    assert_eq!(received(&mut sim, Side::B), trains.len() - 1);
    let counters = *sim.b.c().counters();
    assert_eq!((counters.reports_sent, counters.timeouts), (1, 0));
}

#[test]
fn lost__one_datagram_costs_its_train_alone() {
    for merging in MERGINGS {
        for index in [0, 1, 20, 42] {
            lose_of_third(merging, move |at| at.index == index);
        }
        // It holds the header.
        lose_of_third(merging, |at| at.last);
        lose_of_third(merging, |at| at.index >= 42);
        lose_of_third(merging, |_| true);
    }
}

#[test]
fn lost__the_last_train_is_found_by_silence() {
    for merging in MERGINGS {
        for index in [0, 5] {
            let mut sim = connected(merging);
            lose(&mut sim, Side::B, move |at| {
                at.train == 10 && at.index == index
            });
            transfer(&mut sim, Side::A, 9, 10 * TRAIN);
            transfer(&mut sim, Side::A, 8, 20_000);
            assert_eq!(left(&mut sim, Side::A).len(), 11);
            assert_eq!(resent(&mut sim, Side::A), 20_000);
            assert_eq!(sim.b.c().counters().timeouts, 1);
        }
    }
}

/// A Transfer of ten trains, and another of one of `len` bytes, whose datagrams selected by `lost` are lost.
fn lose_of_last(merging: Merge, len: u64, lost: fn(Carriage) -> bool) {
    let mut sim = connected(merging);
    lose(&mut sim, Side::B, move |at| at.train == 10 && lost(at));
    transfer(&mut sim, Side::A, 9, 10 * TRAIN);
    transfer(&mut sim, Side::A, 8, len);
    assert_eq!(left(&mut sim, Side::A).len(), 11);
    assert_eq!(resent(&mut sim, Side::A), len);
}

#[test]
fn lost__of_a_header_that_lies_in_two_datagrams() {
    for merging in MERGINGS {
        // The last datagram holds 47, 24 or 1 byte of header and seal, or all of them.
        for behind in [47, 24, 1, 48] {
            let len = 14 * DATAGRAM + behind - (HEADER_LEN + SEAL) as u64;
            lose_of_last(merging, len, |at| at.last);
            lose_of_last(merging, len, |at| at.index == 13);
            let mut sim = connected(merging);
            transfer(&mut sim, Side::A, 9, 10 * TRAIN);
            transfer(&mut sim, Side::A, 8, len);
            assert_eq!(resent(&mut sim, Side::A), 0);
            assert_eq!(received(&mut sim, Side::B), 11);
        }
    }
}

/// Retransmitted bytes, in trains, if `change` is applied to the third train.
fn disturbed(
    merging: Merge,
    mut change: impl FnMut(Carriage, &[u8]) -> Vec<Vec<u8>> + 'static,
) -> u64 {
    let mut sim = connected(merging);
    tamper(&mut sim, Side::B, move |at, bytes| match at.train {
        3 => change(at, bytes),
        _ => vec![bytes.to_vec()],
    });
    transfer(&mut sim, Side::A, 9, 2_000_000);
    let part = resent(&mut sim, Side::A);
    assert_eq!(part, with_headers(&sim, Side::A));
    let trains = sim.b.trains.as_ref().expect("trains");
    assert_eq!(trains.unplaced, 0);
    assert_eq!(part % TRAIN, 0);
    part / TRAIN
}

#[test]
fn doubled__within_a_train_costs_it_and_around_it_nothing() {
    let double = |index: usize, last: bool| {
        move |at: Carriage, bytes: &[u8]| match at.index == index || last && at.last {
            true => vec![bytes.to_vec(), bytes.to_vec()],
            false => vec![bytes.to_vec()],
        }
    };
    for merging in MERGINGS {
        assert_eq!(disturbed(merging, double(0, false)), 0);
        assert_eq!(disturbed(merging, double(20, false)), 1);
        assert_eq!(disturbed(merging, double(42, false)), 1);
        assert_eq!(disturbed(merging, double(99, true)), 0);
    }
}

#[test]
fn swapped__costs_the_train() {
    for merging in MERGINGS {
        for first in [0, 20, 42] {
            let mut held = vec![];
            let swap = move |at: Carriage, bytes: &[u8]| match at.index {
                it if it == first => {
                    held = bytes.to_vec();
                    vec![]
                }
                it if it == first + 1 => vec![bytes.to_vec(), std::mem::take(&mut held)],
                _ => vec![bytes.to_vec()],
            };
            assert_eq!(disturbed(merging, swap), 1, "{first}");
        }
    }
}

#[test]
fn foreign__of_another_size_costs_nothing() {
    let foreign = |index: usize, len: usize| {
        move |at: Carriage, bytes: &[u8]| match at.index == index {
            true => vec![vec![0x55; len], bytes.to_vec()],
            false => vec![bytes.to_vec()],
        }
    };
    let len = DATAGRAM as usize;
    for merging in MERGINGS {
        // In front of it as well.
        assert_eq!(disturbed(merging, foreign(0, len)), 0);
        assert_eq!(disturbed(merging, foreign(20, len)), 1);
        assert_eq!(disturbed(merging, foreign(43, len)), 1);
        for index in [0, 1, 20, 43] {
            for shorter in [1, 60, 700, len - 1] {
                assert_eq!(disturbed(merging, foreign(index, shorter)), 0, "{shorter}");
            }
            // A longer one is taken for the first datagram of another train.
            assert!(disturbed(merging, foreign(index, len + 1)) <= 1);
        }
    }
}

#[test]
fn payload__that_looks_like_operations_of_its_own_connection() {
    // Whatever part of it is sent starts a datagram somewhere.
    let mut sim = connected(merged);
    let length = 3 * TRAIN;
    transfer(&mut sim, Side::A, 7, length);
    let header = sim.a.trains.as_ref().expect("trains").left[0];
    let look = [Train::data(&header), header].map(|it| it.emit());
    let now = sim.now();
    let mut bytes = vec![0; length as usize];
    for (index, chunk) in bytes.chunks_mut(HEADER_LEN + SEAL).enumerate() {
        let header = look[index / 40 % 2];
        let len = chunk.len().min(HEADER_LEN);
        chunk[..len].copy_from_slice(&header[..len]);
    }
    let source = sim.a.region(bytes.clone());
    let target = sim.b.empty(length);
    let receive = sim.b.c().post_receive(now, target).unwrap();
    sim.a.c().post_send(now, source, Delivery::Polled).unwrap();
    sim.run_until(60 * S, |sim| sim.b.received(receive).is_some());
    assert!(sim.b.bytes(target) == bytes);
    sim.b.assert_guards();
}

/// Transfers of 1 MiB in both directions at once, one after the other.
fn round_of_transfers(sim: &mut Sim, number: u64) {
    let length = 1 << 20;
    let forth = post(sim, Side::A, 2 * number, length);
    let back = post(sim, Side::B, 2 * number + 1, length);
    sim.run_until(60 * S, |sim| {
        sim.a.sent(forth.0) && sim.b.sent(back.0) && sim.a.received(back.1).is_some()
    });
    assert!(sim.b.holds(forth.2, 2 * number, length));
    assert!(sim.a.holds(back.2, 2 * number + 1, length));
    sim.run_for(10 * MS);
}

#[test]
fn losses__switch_trains_off_for_a_while_in_their_direction() {
    let mut sim = connected(merged);
    for number in 0..3 {
        round_of_transfers(&mut sim, number);
    }
    let before = left(&mut sim, Side::A).len();
    assert_eq!(before, 3 * (1u64 << 20).div_ceil(TRAIN) as usize);
    lose(&mut sim, Side::B, |at| at.index == 3 && at.train % 3 == 1);
    round_of_transfers(&mut sim, 3);
    round_of_transfers(&mut sim, 4);
    // Payload granted by then left as trains.
    let (off, since) = (left(&mut sim, Side::A).len(), sim.now());
    sim.b.trains.as_mut().expect("trains").tamper = None;
    let mut number = 5;
    while left(&mut sim, Side::A).len() == off {
        assert!(number < 60, "never again");
        round_of_transfers(&mut sim, number);
        number += 1;
    }
    let pause = sim.now() - since;
    assert!(pause >= 60 * MS && pause < S, "{pause:?}");
    // At most 12,288 datagrams arrived in that time.
    assert!((16..26).contains(&number), "{number}");
    let back = left(&mut sim, Side::B).len();
    let rounds = number as usize;
    assert_eq!(back, rounds * (1usize << 20).div_ceil(TRAIN as usize));
}

/// On a path that spoils every train, only one Block, not a window, is granted for trains after a pause.
#[test]
fn losses__that_go_on_cost_a_block_after_each_pause() {
    let mut sim = connected(merged);
    lose(&mut sim, Side::B, |at| at.index == 3);
    let length = 8 << 20;
    let mut tries = vec![];
    for number in 0..120 {
        let before = left(&mut sim, Side::A).len();
        transfer(&mut sim, Side::A, number, length);
        sim.run_for(10 * MS);
        let tried = left(&mut sim, Side::A).len() - before;
        tries.extend((tried > 0).then_some(tried));
    }
    let (first, others) = tries.split_first().expect("trains");
    let block = (u64::from(Config::default().block) / TRAIN) as usize;
    assert!(*first > 2 * block && others.len() > 1, "{tries:?}");
    assert!(others.iter().all(|it| *it <= block), "{tries:?}");
}

#[test]
fn lane__stops_taking_trains_in_the_middle() {
    for merging in MERGINGS {
        let mut sim = connected(merging);
        let length = 12 << 20;
        let (send, receive, target) = post(&mut sim, Side::A, 5, length);
        sim.run_until(S, |sim| sim.b.placed > 2 << 20);
        sim.b.c().set_takes_trains(false);
        let (placed, ahead) = (sim.b.placed, sim.b.c().expected_payload());
        sim.run_until(S, |sim| {
            sim.b.received(receive).is_some() && sim.a.sent(send)
        });
        assert!(sim.b.holds(target, 5, length));
        let trains: u64 = left(&mut sim, Side::A).iter().sum();
        assert!(trains >= placed && trains <= placed + ahead);
        assert_eq!(with_headers(&sim, Side::A), length - trains);
        assert_eq!(resent(&mut sim, Side::A), 0);
        assert!(!sim.b.c().expects_trains());
        sim.b.c().set_takes_trains(true);
        transfer(&mut sim, Side::A, 6, 3 * TRAIN);
        let after: u64 = left(&mut sim, Side::A).iter().sum();
        assert_eq!(after, trains + 3 * TRAIN);
    }
}

#[test]
fn lane__stops_sending_trains_in_the_middle() {
    let mut sim = connected(merged);
    let length = 6 << 20;
    let (_, receive, target) = post(&mut sim, Side::A, 5, length);
    sim.run_until(S, |sim| sim.b.placed > 2 << 20);
    sim.a.trains.as_mut().expect("trains").sends = false;
    sim.run_until(S, |sim| sim.b.received(receive).is_some());
    assert!(sim.b.holds(target, 5, length));
    assert!(with_headers(&sim, Side::A) > 1 << 20);
    assert_eq!(resent(&mut sim, Side::A), 0);
}

#[test]
fn never__where_an_end_does_not_know_them() {
    let mut sim = connected(merged);
    sim.a.trains.as_mut().expect("trains").sends = false;
    transfer(&mut sim, Side::A, 5, 2 << 20);
    assert_eq!(
        (left(&mut sim, Side::A).len(), resent(&mut sim, Side::A)),
        (0, 0)
    );
    assert_eq!(with_headers(&sim, Side::A), 2 << 20);
    // They were offered.
    transfer(&mut sim, Side::B, 6, 2 << 20);
    assert_eq!(with_headers(&sim, Side::B), 0);

    let classic = Config {
        profiles: Profiles::only(Profile::Classic),
        ..Config::default()
    };
    let mut sim = Sim::with_trains(lan(), 1, classic, merged);
    let (_, receive, target) = post(&mut sim, Side::A, 5, 1 << 20);
    sim.run_until(60 * S, |sim| {
        let b = sim.b.connection.as_ref().expect("connection");
        assert!(!b.expects_trains());
        sim.b.received(receive).is_some()
    });
    assert!(sim.b.holds(target, 5, 1 << 20));
    assert_eq!(left(&mut sim, Side::A).len(), 0);
}

#[test]
fn get__comes_as_trains() {
    for lost in [false, true] {
        let mut sim = connected(merged);
        let length = 3_000_000;
        let source = sim.b.filled(9, length);
        let place = export(&mut sim, source, Rights::READ);
        if lost {
            lose(&mut sim, Side::A, |at| at.train == 7 && at.index == 20);
        }
        let (id, span) = get(&mut sim, place, length);
        until_over(&mut sim, id);
        assert!(sim.a.holds(span, 9, length));
        sim.a.assert_guards();
        let trains = left(&mut sim, Side::B);
        assert_eq!(trains.iter().sum::<u64>(), length);
        let again = if lost { TRAIN } else { 0 };
        assert_eq!(with_headers(&sim, Side::B), again);
        assert_eq!(
            received(&mut sim, Side::A),
            trains.len() - usize::from(lost)
        );
    }
}

#[test]
fn put__comes_as_trains_and_its_immediate_behind_them() {
    for lost in [false, true] {
        let mut sim = connected(merged);
        let length = 3_000_000;
        let target = sim.b.empty(length);
        let place = export(&mut sim, target, Rights::WRITE);
        if lost {
            // Of the last as well.
            lose(&mut sim, Side::B, |at| {
                (at.train == 7 || at.train == 46) && at.index == 2
            });
        }
        let id = put(&mut sim, place, 9, length, Some(5));
        // A short one behind it waits for it.
        let short = sim.b.empty(100);
        let short = export(&mut sim, short, Rights::WRITE);
        put(&mut sim, short, 3, 100, Some(6));
        sim.run_until(20 * S, |sim| {
            let seen = sim.b.is_shown(5);
            assert!(!seen || sim.b.holds(target, 9, length), "too early");
            sim.a.outcomes(id) > 0 && seen
        });
        sim.run_for(MS);
        let immediates = sim.b.immediates().map(|it| (it.0, it.2));
        assert_eq!(immediates.collect::<Vec<_>>(), [(5, length), (6, 100)]);
        sim.b.assert_guards();
        let trains = left(&mut sim, Side::A);
        assert_eq!(trains.iter().sum::<u64>(), length);
        let again = if lost { trains[7] + trains[46] } else { 0 };
        // The short one and the immediates are beside it.
        let beside = with_headers(&sim, Side::A) - again;
        assert!((100..200).contains(&beside), "{beside}");
        assert_eq!(resent(&mut sim, Side::A), again);
    }
}

#[test]
fn buffers__no_train_crosses_a_boundary() {
    for (log2, expected) in [(20, true), (16, true), (14, true), (13, true), (12, false)] {
        let config = Config {
            buffer_log2: log2,
            ..Config::default()
        };
        let mut sim = Sim::with_trains(lan(), 1, config, merged);
        for offset in [40, 4_000, 100_001] {
            let (now, length) = (sim.now(), 1_500_000);
            let source = sim.a.filled(offset, length);
            let target = sim.b.empty_at(offset, length);
            let receive = sim.b.c().post_receive(now, target).unwrap();
            sim.a.c().post_send(now, source, Delivery::Polled).unwrap();
            sim.run_until(20 * S, |sim| sim.b.received(receive).is_some());
            assert!(sim.b.holds(target, offset, length));
            sim.b.assert_guards();
        }
        let trains = &sim.a.trains.as_ref().expect("trains").left;
        assert_eq!(!trains.is_empty(), expected, "{log2}");
        let within = |it: &Header| u64::from(it.offset) + u64::from(it.s_id) <= 1 << log2;
        assert!(trains.iter().all(within), "{log2}");
        assert_eq!(resent(&mut sim, Side::A), 0);
    }
}

#[test]
fn path__changes_in_the_middle() {
    for merging in MERGINGS {
        for sizes in [[1_300, 1_472], [1_100, 8_972], [8_972, 1_280]] {
            let mut sim = connected(merging);
            let length = 16 << 20;
            let (_, receive, target) = post(&mut sim, Side::A, 5, length);
            for (part, size) in (1..).zip(sizes) {
                sim.run_until(S, |sim| sim.b.placed > part * (4 << 20));
                let now = sim.now();
                sim.a.c().set_path_datagram(now, size);
            }
            sim.run_until(10 * S, |sim| sim.b.received(receive).is_some());
            assert!(sim.b.holds(target, 5, length));
            sim.b.assert_guards();
            assert_eq!(resent(&mut sim, Side::A), 0);
            let kinds = sim.trace.take().unwrap();
            let longest = kinds.iter().filter(|(_, it)| !has_header(it));
            let longest = longest.map(|(_, it)| it.len()).max().unwrap_or(0);
            assert!(longest >= 1_472 && (longest > 8_000) == sizes.contains(&8_972));
        }
    }
}
