//! Tests that small operations share a datagram.

use super::memory::{S, at, export, fetch, put, quiet, until_over};
use super::memory_faults::assert_fail_with_a_dead_peer;
use super::seeds::{Dice, each};
use super::sim::{Sim, bytes_of};
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, Loss};
use std::time::Duration;
use zerolane_wire::{FetchOpKind, Flags, Frames, HEADER_LEN, Header, Op, Reason, Rights};

/// The datagrams that leave A now, and the number of operations in each.
fn leaving(sim: &mut Sim) -> Vec<(Vec<u8>, usize)> {
    let now = sim.now();
    let outgoing = sim.a.outgoing(now).into_iter();
    outgoing
        .map(|(bytes, _)| {
            let header = Header::parse(&bytes).unwrap();
            let frames = header.op == Op::Data && header.flags.contains(Flags::FRAMES);
            let count = match frames {
                true => Frames::parse(&header, &bytes[HEADER_LEN..]).unwrap().len(),
                false => 1,
            };
            (bytes, count)
        })
        .collect()
}

fn counts(sim: &mut Sim) -> Vec<usize> {
    leaving(sim).into_iter().map(|it| it.1).collect()
}

fn message(sim: &mut Sim, seed: u64, len: u64) -> TransferId {
    let now = sim.now();
    let control = bytes_of(seed, len);
    let flags = WorkFlags::default();
    sim.a.c().post_message(now, &control, None, flags).unwrap()
}

fn add(sim: &mut Sim, place: RemotePlace) -> TransferId {
    let atomic = Atomic {
        kind: FetchOpKind::Add,
        word: zerolane_wire::Word::U64,
        operand: 1,
        comparand: 0,
    };
    fetch(sim, place, atomic)
}

#[test]
fn frames__a_thousand_short_puts_are_in_sixty_three_datagrams() {
    let mut sim = quiet(Config::default());
    let target = sim.b.empty(64_000);
    let place = export(&mut sim, target, Rights::WRITE);
    let ids: Vec<_> = (0..1000)
        .map(|n| put(&mut sim, at(place, 64 * n), n, 64, None))
        .collect();
    sim.trace = Some(vec![]);
    until_over(&mut sim, ids[999]);
    let trace = sim.trace.take().unwrap();
    let is_data = |it: &&(Side, Vec<u8>)| Header::parse(&it.1).unwrap().op == Op::Data;
    assert_eq!(trace.iter().filter(is_data).count(), 1000usize.div_ceil(16));
    assert!((0..1000).all(|n| sim.b.holds(target.part(64 * n, 64), n, 64)));
    assert!(ids.iter().all(|&id| sim.a.sent(id)));
}

#[test]
fn frames__what_is_posted_alone_leaves_alone_and_at_once() {
    let mut sim = quiet(Config::default());
    let target = sim.b.empty(300);
    let place = export(&mut sim, target, Rights::WRITE);
    for n in 0..3 {
        put(&mut sim, at(place, 100 * n), n, 100, None);
        let [(bytes, 1)] = &leaving(&mut sim)[..] else {
            panic!("one datagram of one");
        };
        assert_eq!(bytes.len(), HEADER_LEN + 100);
        let flags = Header::parse(bytes).unwrap().flags;
        assert!(!flags.contains(Flags::FRAMES));
    }
}

#[test]
fn frames__only_to_a_peer_that_takes_them() {
    let without = Config {
        frames: false,
        ..Config::default()
    };
    for (a, b) in [
        (without.clone(), Config::default()),
        (Config::default(), without),
    ] {
        let link = LinkConfig::default();
        let mut sim = Sim::new(link, 1, a, b);
        sim.connect();
        sim.run_for(S);
        let target = sim.b.empty(640);
        let place = export(&mut sim, target, Rights::WRITE);
        for n in 0..10 {
            put(&mut sim, at(place, 64 * n), n, 64, None);
        }
        assert_eq!(counts(&mut sim), [1; 10]);
    }
}

#[test]
fn frames__end_where_an_operation_needs_a_datagram_of_its_own() {
    let mut sim = quiet(Config::default());
    let (words, target) = (sim.b.words(&[0]), sim.b.empty(9_000));
    let word = export(&mut sim, words, Rights::ALL);
    let place = export(&mut sim, target, Rights::WRITE);
    let mut posted = vec![];
    let mut at_offset = 0;
    let mut post = |sim: &mut Sim, len: u64| {
        let id = put(sim, at(place, at_offset), at_offset, len, None);
        posted.push((id, at_offset, len));
        at_offset += len;
    };
    // A FetchOp has options; a long put fills its datagram.
    (0..3).for_each(|_| post(&mut sim, 100));
    let fetch = add(&mut sim, word);
    (0..2).for_each(|_| post(&mut sim, 100));
    post(&mut sim, 1_190);
    post(&mut sim, 100);
    let left = leaving(&mut sim);
    assert_eq!(
        left.iter().map(|it| it.1).collect::<Vec<_>>(),
        [3, 1, 2, 1, 1]
    );
    left.iter().for_each(|it| sim.inject(Side::B, &it.0));
    until_over(&mut sim, fetch);
    until_over(&mut sim, posted[6].0);
    assert_eq!(sim.b.word(words), 1);
    for (_, offset, len) in posted {
        assert!(sim.b.holds(target.part(offset, len), offset, len));
    }
}

#[test]
fn frames__of_unequal_length_leave_in_one_burst() {
    let mut sim = quiet(Config::default());
    let target = sim.b.empty(64_000);
    let place = export(&mut sim, target, Rights::WRITE);
    for n in 0..60 {
        put(&mut sim, at(place, 400 * n), n, 40 + n * 37 % 100, Some(1));
    }
    let now = sim.now();
    let burst = sim.a.c().poll_transmit(now, BurstLimit::default());
    let Some(Transmit::Operations(burst)) = burst else {
        panic!("{burst:?}");
    };
    let operations = burst.datagrams().flat_map(|it| it.operations());
    assert_eq!(operations.clone().count(), 60);
    let padded = operations.filter(|it| it.padding > 0).count();
    assert!(padded > 0 && padded < burst.segments as usize);
}

#[test]
fn frames__refused_one_stops_those_behind_it_until_that_is_known() {
    let mut sim = quiet(Config::default());
    let target = sim.b.empty(640);
    let place = export(&mut sim, target, Rights::WRITE);
    let ids: Vec<_> = (0..10)
        .map(|n| match n {
            4 => put(&mut sim, at(place, 640), n, 64, None),
            _ => put(&mut sim, at(place, 64 * n), n, 64, None),
        })
        .collect();
    assert_eq!(counts(&mut sim), [10]);
    let later = sim.now();
    sim.a.c().on_timeout(later + S);
    until_over(&mut sim, ids[9]);
    for (n, &id) in (0..).zip(&ids) {
        let error = TransferError::Refused(Reason::OutOfBounds);
        let failed = (n == 4).then_some(error);
        assert_eq!((sim.a.outcomes(id), sim.a.failed(id)), (1, failed), "{n}");
        assert_eq!(sim.b.holds(target.part(64 * n, 64), n, 64), n != 4, "{n}");
    }
    assert!(sim.b.c().counters().dropped(DropReason::Early) > 0);
}

#[test]
fn frames__fail_once_each_when_the_peer_dies() {
    let mut sim = quiet(Config::default());
    let target = sim.b.empty(6_400);
    let place = export(&mut sim, target, Rights::WRITE);
    let ids: Vec<_> = (0..100)
        .map(|n| put(&mut sim, at(place, 64 * n), n, 64, None))
        .collect();
    assert_fail_with_a_dead_peer(&mut sim, &ids);
}

/// Requests posted by a seed.
enum Posted {
    Put {
        id: TransferId,
        target: Span,
        seed: u32,
        immediate: bool,
        cancelled: bool,
    },
    Message {
        id: TransferId,
        seed: u32,
        len: u64,
    },
    Add {
        id: TransferId,
    },
}

impl Posted {
    fn id(&self) -> TransferId {
        match *self {
            Posted::Put { id, .. } | Posted::Message { id, .. } | Posted::Add { id } => id,
        }
    }
}

/// Many operations queued together, in datagrams that are lost, doubled and reordered: each is executed once, in order,
/// on the right bytes.
#[test]
fn model__frames_over_links_that_lose_double_and_overtake() {
    each(60, |seed| {
        let mut dice = Dice::new(seed ^ 0xf4a);
        let delay = dice.pick(&[20, 300, 5_000]);
        let link = LinkConfig {
            delay: Duration::from_micros(delay),
            loss: Loss::Random(dice.pick(&[0.0, 0.02, 0.1, 0.3])),
            duplicate: dice.pick(&[0.0, 0.1, 0.3]),
            jitter: Duration::from_micros(dice.pick(&[0, delay / 2, 2 * delay])),
            ..LinkConfig::default()
        };
        let config = |dice: &mut Dice| Config {
            buffer_log2: dice.pick(&[10, 12, 30]),
            checksum: dice.chance(20),
            frames: dice.chance(90),
            ..Config::default()
        };
        let (a, b) = (config(&mut dice), config(&mut dice));
        let mut sim = Sim::new(link, seed, a, b);
        sim.connect();
        if seed.is_multiple_of(3) {
            sim.a.c().age_operations(u32::MAX - 200);
            sim.b.c().age_operations(u32::MAX - 200);
        }
        let words = sim.b.words(&[0]);
        let word = export(&mut sim, words, Rights::ALL);
        let (mut posted, mut received, mut adds) = (vec![], vec![], 0);
        for seed in 0..300u32 {
            match dice.below(20) {
                0 => {
                    adds += 1;
                    let id = add(&mut sim, word);
                    posted.push(Posted::Add { id });
                }
                1 | 2 => {
                    let len = dice.below(u64::from(limits::MAX_CONTROL) + 1);
                    let control = sim.b.empty(limits::MAX_CONTROL.into());
                    received.push((
                        sim.b.c().post_message_receive(control, None).unwrap(),
                        control,
                    ));
                    let id = message(&mut sim, seed.into(), len);
                    posted.push(Posted::Message { id, seed, len });
                }
                _ => {
                    let len = dice.pick(&[0, 1, 8, 64, 64, 64, 64, 200, 500, 1_300]);
                    let target = sim.b.empty(len);
                    let place = export(&mut sim, target, Rights::WRITE);
                    let immediate = dice.chance(20);
                    let shown = immediate.then_some(seed);
                    let id = put(&mut sim, place, seed.into(), len, shown);
                    posted.push(Posted::Put {
                        id,
                        target,
                        seed,
                        immediate,
                        cancelled: false,
                    });
                }
            }
            if dice.chance(3) {
                let index = dice.below(posted.len() as u64) as usize;
                let now = sim.now();
                if let Posted::Put { id, cancelled, .. } = &mut posted[index] {
                    *cancelled |= sim.a.c().cancel(now, *id);
                }
            }
            if dice.chance(10) {
                sim.run_for(Duration::from_micros(dice.below(2 * delay)));
            }
        }
        sim.run_until(200 * S, |sim| {
            posted.iter().all(|it| sim.a.outcomes(it.id()) == 1)
        });
        sim.run_for(S);
        assert_eq!(sim.b.word(words), adds, "each is added once");
        let shown: Vec<u32> = sim.b.immediates().map(|it| it.0).collect();
        assert!(shown.is_sorted_by(|a, b| a < b), "{shown:?}");
        let mut received = received.into_iter();
        for it in posted {
            assert_eq!(sim.a.outcomes(it.id()), 1);
            match it {
                Posted::Put {
                    id,
                    target,
                    seed,
                    immediate,
                    cancelled,
                } => {
                    let there = sim.b.holds(target, seed.into(), target.len);
                    let told = shown.contains(&seed);
                    assert!(cancelled || sim.a.sent(id) && there && told == immediate);
                    assert!(there || !told, "{seed} was shown without its bytes");
                }
                Posted::Message { id, seed, len } => {
                    let (receive, control) = received.next().unwrap();
                    assert!(sim.a.sent(id) && sim.b.outcomes(receive) == 1);
                    assert!(sim.b.holds(control, seed.into(), len));
                }
                Posted::Add { .. } => {}
            }
        }
        sim.b.assert_guards();
        sim.a.c().assert_bounded();
        sim.b.c().assert_bounded();
    });
}

/// Puts with a send between them, all posted now, except some puts that are posted with a time `stale` ago. Returns the
/// transmissions with their times, and how long the peer may be silent at the end.
fn spoken_by_stale_puts(seed: u64, stale: Duration) -> (Vec<(Side, Vec<u8>)>, Duration) {
    let link = LinkConfig {
        delay: Duration::from_millis(3),
        loss: Loss::Random(0.05),
        ..LinkConfig::default()
    };
    let mut sim = Sim::new(link, seed, Config::default(), Config::default());
    sim.connect();
    sim.run_for(S);
    let target = sim.b.empty(64_000);
    let place = export(&mut sim, target, Rights::WRITE);
    sim.trace = Some(vec![]);
    for round in 0..20 {
        let now = sim.now();
        let earlier = Instant::ZERO + (now - Instant::ZERO).saturating_sub(stale);
        let payload = sim.a.filled(round, 40_000);
        let into = sim.b.empty(40_000);
        sim.b.c().post_receive(now, into).unwrap();
        let mut last = 0;
        for n in 0..6 {
            let span = sim.a.filled(n, 64);
            let place = at(place, 64 * n);
            let flags = WorkFlags::default();
            let posted = sim.a.c().post_put(earlier, place, span, None, flags);
            last = posted.unwrap();
            if n == 2 {
                let sent = sim.a.c().post_send(now, payload, Delivery::Interrupt);
                sent.unwrap();
            }
        }
        until_over(&mut sim, last);
        sim.run_for(Duration::from_millis(5 * round));
    }
    sim.run_for(S);
    let patience = sim.a.c().cx.recovery.patience();
    (sim.trace.take().unwrap(), patience)
}

/// The lane reads the clock once for inline puts that leave together: they are posted with the time of the first of
/// them. Timers of these puts start when they leave.
#[test]
fn put__posted_by_an_earlier_time_repeats_nothing_early() {
    each(10, |seed| {
        let right = spoken_by_stale_puts(seed, Duration::ZERO);
        for stale in [Duration::from_millis(1), Duration::from_millis(500), S] {
            let told = spoken_by_stale_puts(seed, stale);
            assert!(told == right, "{stale:?} ago");
        }
    });
}
