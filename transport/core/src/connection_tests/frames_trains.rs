//! Tests that small operations share trains, once the peer says so, and that each miss costs little.

use super::bare_messages;
use super::memory::{S, at, export, fetch, put, until_over};
use super::seeds::{Dice, each};
use super::sim::{Sim, bytes_of};
use super::sim_trains::{Merge, has_header, merged, merged_at_random, unmerged};
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, Loss};
use std::time::Duration;
use zerolane_wire::{FetchOpKind, Flags, Header, Rights, Word};

fn lan() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(100),
        ..LinkConfig::default()
    }
}

/// A path that loses up to 5 %, or nothing, by `seed`, and may reorder and copy.
fn bad(seed: u64) -> LinkConfig {
    let mut link = lan();
    link.loss = Loss::Random([0.0, 0.0005, 0.005, 0.05][seed as usize % 4]);
    if seed.is_multiple_of(3) {
        link.reorder.probability = 0.01;
        link.reorder.by = Duration::from_micros(300);
        link.duplicate = 0.01;
    }
    link
}

fn over(link: LinkConfig, seed: u64, merging: Merge) -> Sim {
    Sim::with_trains(link, seed, Config::default(), merging)
}

/// Puts of `lengths` bytes, back to back, all posted at once. Checks that all arrive.
fn stream(sim: &mut Sim, lengths: &[u64], seed: u64) {
    let all = lengths.iter().sum();
    let target = sim.b.empty(all);
    let place = export(sim, target, Rights::WRITE);
    let (mut ids, mut start) = (vec![], 0);
    for (n, &len) in (0..).zip(lengths) {
        let id = put(sim, at(place, start), seed + n, len, None);
        ids.push((id, start, len));
        start += len;
    }
    sim.run_until(20 * S, |sim| ids.iter().all(|it| sim.a.sent(it.0)));
    for (n, &(_, start, len)) in (0..).zip(&ids) {
        assert!(
            sim.b.holds(target.part(start, len), seed + n, len),
            "put {n}"
        );
    }
    sim.b.assert_guards();
    sim.a.c().assert_bounded();
    sim.b.c().assert_bounded();
}

/// The trains of frames that left A.
fn trains(sim: &Sim) -> Vec<Header> {
    let sent = sim.a.trains.as_ref().unwrap().left.iter();
    let frames = sent.filter(|it| it.flags.contains(Flags::FRAMES));
    frames.copied().collect()
}

#[test]
fn puts__share_trains_once_the_peer_says_so() {
    for merging in [unmerged as Merge, merged, merged_at_random] {
        for len in [64, 300, 1_000, 4_096, 16_000] {
            let mut sim = over(lan(), 1, merging);
            stream(&mut sim, &vec![len; 128], 0);
            sim.trace = Some(vec![]);
            stream(&mut sim, &vec![len; 256], 1_000);
            let all = 256 * len;
            let in_trains: u64 = trains(&sim).iter().map(|it| u64::from(it.s_id)).sum();
            let least = if len < 300 { all / 4 } else { all / 2 };
            assert!(in_trains > least, "{in_trains} of {all} in puts of {len}");
            assert_eq!(sim.b.trains.as_ref().unwrap().spoiled, 0);
            assert_eq!(sim.b.c().counters().dropped_total(), 0);
        }
    }
}

#[test]
fn puts__that_come_singly_are_never_trains() {
    let mut sim = over(lan(), 1, merged);
    for n in 0..200 {
        stream(&mut sim, &[300], n);
    }
    assert!(trains(&sim).is_empty() && !sim.b.c().expects_trains());
}

/// Puts of all lengths, atomic operations among them, over paths that lose, reorder and copy.
#[test]
fn puts__arrive_once_in_order_whatever_the_path_does() {
    each(24, |seed| {
        let mut sim = over(bad(seed), seed, merged_at_random);
        let mut dice = Dice::new(seed);
        let words = sim.b.words(&[0]);
        let word = export(&mut sim, words, Rights::ALL);
        for round in 0..6 {
            let lengths: Vec<u64> = (0..120).map(|_| 1 + dice.below(6_000)).collect();
            stream(&mut sim, &lengths, round * 1_000);
            let add = Atomic {
                kind: FetchOpKind::Add,
                word: Word::U64,
                operand: 1,
                comparand: 0,
            };
            let id = fetch(&mut sim, word, add);
            until_over(&mut sim, id);
            assert_eq!(sim.a.fetched(id), Some(round), "seed {seed}");
        }
        let opened = sim.b.trains.as_ref().unwrap().opened;
        assert!(opened > 0 || seed % 4 == 3, "seed {seed}: no train");
    });
}

/// A path that loses a part of every train: what is repeated has headers, and soon no trains leave.
#[test]
fn trains__that_never_arrive_stop() {
    let mut sim = over(lan(), 1, merged);
    stream(&mut sim, &[1_000; 100], 0);
    let mut count = 0;
    sim.copies = Some(Box::new(move |_, bytes| {
        if has_header(bytes) {
            return 1;
        }
        count += 1;
        usize::from(count % 7 != 0)
    }));
    stream(&mut sim, &[1_000; 300], 1_000);
    let lost = trains(&sim).len();
    assert!(lost < 30, "{lost} trains");
    sim.copies = None;
    sim.run_for(S);
    for round in 0..40 {
        stream(&mut sim, &[1_000; 300], 2_000 + 1_000 * round);
    }
    assert!(trains(&sim).len() > lost + 20, "trains again");
}

#[test]
fn immediates__of_a_train_are_shown_in_order() {
    let mut sim = over(lan(), 1, merged);
    stream(&mut sim, &[1_000; 100], 0);
    let target = sim.b.empty(100_000);
    let place = export(&mut sim, target, Rights::WRITE);
    let mut last = None;
    for n in 0..100 {
        let to = at(place, 1_000 * n);
        last = Some(put(&mut sim, to, n, 1_000, Some(n as u32)));
    }
    until_over(&mut sim, last.unwrap());
    let shown: Vec<_> = sim.b.immediates().map(|it| it.0).collect();
    assert_eq!(shown, (0..100).collect::<Vec<_>>());
    let held = |n| sim.b.bytes(target.part(1_000 * n, 1_000)) == bytes_of(n, 1_000);
    assert!((0..100).all(held) && !trains(&sim).is_empty());
}

/// Messages of `lengths` bytes, and their receives. Returns the identifiers at both ends, and the places.
fn messages(sim: &mut Sim, lengths: &[u64], seed: u64) -> Vec<(TransferId, TransferId, Span)> {
    let each = (seed..).zip(lengths);
    let posted = each.map(|(seed, &len)| {
        let (to, target) = bare_messages::receive(sim, Side::B, len);
        let now = sim.now();
        let payload = sim.a.filled(seed, len);
        let control = bytes_of(seed, seed % 3 * 20);
        let flags = WorkFlags::default();
        let posted = sim.a.c().post_message(now, &control, Some(payload), flags);
        (posted.expect("posted"), to, target)
    });
    posted.collect()
}

/// Waits until all of [`messages`] are over at both ends, and checks them.
fn arrive(sim: &mut Sim, lengths: &[u64], seed: u64) {
    let all = messages(sim, lengths, seed);
    let mut done = 0;
    sim.run_until(60 * S, |sim| {
        let is_over = |(source, target, _): &(TransferId, TransferId, Span)| {
            sim.a.sent(*source) && sim.b.outcomes(*target) > 0
        };
        // What is over stays so, and each look costs all events.
        done += all[done..].iter().take_while(|it| is_over(it)).count();
        done == all.len()
    });
    for (n, (&(_, id, target), &payload)) in (seed..).zip(all.iter().zip(lengths)) {
        let control = (n % 3 * 20) as u32;
        let event = Event::Message {
            id,
            control,
            payload,
        };
        assert!(sim.b.events.contains(&event), "message {n}");
        assert_eq!(sim.b.outcomes(id), 1);
        assert!(sim.b.holds(target, n, payload), "message {n}");
    }
    sim.b.assert_guards();
    sim.a.c().assert_bounded();
    sim.b.c().assert_bounded();
}

#[test]
fn messages__share_trains_with_their_payload() {
    for merging in [unmerged as Merge, merged, merged_at_random] {
        for len in [300, 1_500, 4_096, 16_000] {
            let mut sim = over(lan(), 1, merging);
            arrive(&mut sim, &[len; 64], 0);
            arrive(&mut sim, &[len; 200], 1_000);
            let in_trains: u64 = trains(&sim).iter().map(|it| u64::from(it.s_id)).sum();
            assert!(in_trains > 100 * len, "{in_trains} in messages of {len}");
            assert_eq!(sim.b.c().counters().dropped_total(), 0);
        }
    }
}

#[test]
fn messages__arrive_once_in_order_whatever_the_path_does() {
    each(24, |seed| {
        let mut sim = over(bad(seed), seed, merged_at_random);
        let mut dice = Dice::new(seed);
        for round in 0..6 {
            let lengths: Vec<u64> = (0..60).map(|_| 1 + dice.below(17_000)).collect();
            arrive(&mut sim, &lengths, round * 1_000);
            stream(&mut sim, &[500; 30], 77);
        }
    });
}

/// A receive that comes late costs no more than one in a second: meanwhile payload is kept, as Transfers.
#[test]
fn message__without_a_receive_is_delivered_once_there_is_one() {
    let mut sim = over(lan(), 1, merged);
    arrive(&mut sim, &[4_000; 64], 0);
    sim.trace = Some(vec![]);
    for n in 0..20 {
        let now = sim.now();
        let payload = sim.a.filled(n, 4_000);
        let flags = WorkFlags::default();
        let from = sim.a.c().post_message(now, &[], Some(payload), flags);
        sim.run_for(Duration::from_millis(2));
        let (to, target) = bare_messages::receive(&mut sim, Side::B, 4_000);
        sim.run_until(S, |sim| sim.b.outcomes(to) > 0 && sim.a.sent(from.unwrap()));
        assert!(sim.b.holds(target, n, 4_000));
    }
    let sent = sim.trace.take().unwrap();
    let from_a = sent.iter().filter(|(side, _)| *side == Side::A);
    let bytes: usize = from_a.map(|(_, bytes)| bytes.len()).sum();
    assert!(bytes < 20 * 4_000 * 4 / 3, "{bytes} bytes");
}

/// A message too large, and a receive that is cancelled: the others arrive.
#[test]
fn messages__that_fail_stop_none_behind_them() {
    let mut sim = over(lan(), 1, merged);
    arrive(&mut sim, &[4_000; 64], 0);
    let before = messages(&mut sim, &[9_000; 12], 100);
    // Too large for its receive.
    let (small, _) = bare_messages::receive(&mut sim, Side::B, 100);
    let large = bare_messages::send(&mut sim, Side::A, 1, 9_000, false);
    let behind = messages(&mut sim, &[9_000; 12], 112);
    sim.run_for(Duration::from_micros(150));
    let now = sim.now();
    let cancelled = sim.b.c().cancel(now, behind[11].1);
    assert!(cancelled, "not arrived yet");
    sim.run_for(5 * S);
    let error = TransferError::MessageTooLarge {
        length: 9_000,
        room: 100,
    };
    for (events, id) in [(&sim.a.events, large), (&sim.b.events, small)] {
        assert!(events.contains(&Event::Failed { id, error }), "{events:?}");
    }
    for (seed, &(from, _, target)) in (100..123).zip(before.iter().chain(&behind)) {
        assert!(sim.a.sent(from), "message {seed}");
        assert!(sim.b.holds(target, seed, 9_000), "message {seed}");
    }
    assert!(!trains(&sim).is_empty());
    sim.b.assert_guards();
}

/// Both ends give up a message whose source cancels it amid its payload, and no other.
#[test]
fn message__cancelled_amid_its_payload_ends_its_receive() {
    let mut sim = over(lan(), 1, merged);
    arrive(&mut sim, &[4_000; 64], 0);
    let now = sim.now();
    // The train is lost, and what is repeated, but for its first datagrams.
    let mut left = 3;
    sim.copies = Some(Box::new(move |side, bytes| {
        if side == Side::B {
            return 1;
        }
        left -= i32::from(has_header(bytes));
        usize::from(has_header(bytes) && left >= 0)
    }));
    let all = messages(&mut sim, &[9_000; 4], 3);
    sim.run_for(Duration::from_millis(200));
    assert!(sim.a.c().cancel(now, all[0].0));
    sim.copies = None;
    sim.run_for(5 * S);
    let id = all[0].1;
    let error = TransferError::Refused(zerolane_wire::Reason::Cancelled);
    assert!(sim.b.events.contains(&Event::Failed { id, error }));
    for (seed, &(from, _, target)) in (4..).zip(&all[1..]) {
        assert!(
            sim.a.sent(from) && sim.b.holds(target, seed, 9_000),
            "{seed}"
        );
    }
}

/// Where the bottleneck holds less than the window of operations, losses end the trains, and little is sent in vain. It is
/// filled as without trains.
#[test]
fn messages__do_not_flood_a_narrow_link() {
    for seed in 0..4 {
        let link = LinkConfig {
            delay: Duration::from_millis(1),
            rate_bits_per_s: Some(100_000_000),
            queue_packets: 40,
            ..LinkConfig::default()
        };
        let mut sim = over(link, seed, merged);
        arrive(&mut sim, &[4_000; 64], 0);
        sim.trace = Some(vec![]);
        let begun = sim.net.now();
        arrive(&mut sim, &[4_000; 1_000], 1_000);
        let took = (sim.net.now() - begun).as_secs_f64();
        let sent = sim.trace.take().unwrap();
        let from_a = sent.iter().filter(|(side, _)| *side == Side::A);
        let bytes: usize = from_a.map(|(_, bytes)| bytes.len()).sum();
        let (filled, wasted) = (4e6 * 8.0 / 1e8 / took, bytes as f64 / 4e6);
        assert!(
            wasted < 1.5 && filled > 0.25,
            "{filled:.2} of the rate, {wasted:.2} sent"
        );
    }
}
