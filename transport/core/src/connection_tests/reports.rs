//! Tests that a receiver's false reports cause no payload beyond the grants, and no needless retransmission.
//!
//! The reports name unsent STUs, repeat, contradict each other, come from the past, or claim progress that was not
//! made.

use super::seeds::{Dice, each};
use super::sim::Sim;
use crate::*;
use netsim::Side;
use netsim::link::LinkConfig;
use std::time::Duration;
use zerolane_wire::{Header, Occasion, Op, Operation, Progress, Range, Ranges, Report, State};

const MS: Duration = Duration::from_millis(1);
const LENGTH: u64 = 3_000_000;

fn link() -> LinkConfig {
    LinkConfig {
        delay: 5 * MS,
        rate_bits_per_s: Some(1_000_000_000),
        queue_packets: 100_000,
        ..LinkConfig::default()
    }
}

/// A Transfer in progress.
fn under_way(seed: u64) -> (Sim, TransferId) {
    let mut sim = Sim::new(link(), seed, Config::default(), Config::default());
    sim.connect();
    let now = sim.now();
    let source = sim.a.filled(7, LENGTH);
    let target = sim.b.empty(LENGTH);
    sim.b.c().post_receive(now, target).unwrap();
    let from = sim.a.c().post_send(now, source, Delivery::Polled).unwrap();
    sim.run_for(60 * MS);
    assert!(sim.a.c().counters().bytes_sent > 500_000);
    (sim, from)
}

fn state(from: TransferId, occasion: Occasion, report: Report) -> State {
    State {
        occasion,
        complete: false,
        unknown: false,
        blocks_complete: 0,
        b_num: 0,
        reached: 0,
        d_id: from,
        s_id: 1,
        report,
    }
}

fn missing(start: u32, len: u32) -> Report {
    let mut ranges = Ranges::EMPTY;
    ranges.push(Range { start, len });
    Report::Missing(ranges)
}

fn resent(sim: &mut Sim) -> u64 {
    sim.a.c().counters().bytes_resent
}

fn finish(mut sim: Sim, from: TransferId) {
    sim.run_until(Duration::from_secs(30), |sim| sim.a.sent(from));
    sim.b.assert_guards();
}

#[test]
fn report__of_what_was_never_sent_sends_nothing() {
    let (mut sim, from) = under_way(1);
    let newest = sim.a.c().sending.sent_log(0).next_number();
    let drops = sim.a.c().counters().dropped(DropReason::Unexpected);
    // A burst that does not exist yet.
    sim.say(
        sim.now(),
        Side::B,
        Operation::State(state(from, Occasion::Seen(newest + 5), missing(0, 10_000))),
    );
    assert_eq!(
        sim.a.c().counters().dropped(DropReason::Unexpected),
        drops + 1
    );
    // Bytes of a Block that was not granted, and beyond the end of one that was.
    for b_num in [0, 77, u32::MAX] {
        let far = State {
            b_num,
            ..state(from, Occasion::Seen(0), missing(2_000_000, 1_000_000))
        };
        sim.say(sim.now(), Side::B, Operation::State(far));
    }
    assert_eq!(resent(&mut sim), 0);
    finish(sim, from);
}

#[test]
fn report__of_what_is_in_flight_repeated_a_thousand_times_sends_it_at_most_once() {
    let (mut sim, from) = under_way(2);
    let sent = sim.a.c().counters().bytes_sent;
    for _ in 0..1000 {
        sim.say(
            sim.now(),
            Side::B,
            Operation::State(state(from, Occasion::Seen(0), missing(0, 900_000))),
        );
    }
    sim.run_for(MS);
    assert!(resent(&mut sim) <= sent, "{}", resent(&mut sim));
    assert!(sim.a.c().sending.has_data());
    sim.a.c().assert_bounded();
    finish(sim, from);
}

#[test]
fn report__from_the_past_does_not_unsee() {
    let (mut sim, from) = under_way(3);
    let seen = sim.a.c().sending.sent_log(0).seen();
    assert!(seen > 2);
    sim.say(
        sim.now(),
        Side::B,
        Operation::State(state(from, Occasion::Seen(1), Report::NOTHING)),
    );
    assert_eq!(sim.a.c().sending.sent_log(0).seen(), seen);
    finish(sim, from);
}

#[test]
fn progress__made_up_does_not_open_the_window_beyond_what_was_sent() {
    each(20, |seed| {
        let (mut sim, from) = under_way(seed);
        let mut dice = Dice::new(seed);
        for _ in 0..200 {
            let newest = sim.a.c().sending.sent_log(0).next_number().wrapping_sub(1);
            let progress = Progress {
                received: dice.pick(&[0, 1, LENGTH, u64::MAX, 700_000]),
                delay_us: dice.pick(&[0, 1, u32::MAX]),
                marked: dice.next() as u32,
                capable: 0,
                trains: false,
            };
            let number = dice.pick(&[newest, newest.wrapping_sub(1), 0, 1]);
            let occasion = dice.pick(&[Occasion::Seen(number), Occasion::Reply(number)]);
            sim.say(
                sim.now(),
                Side::B,
                Operation::State(state(from, occasion, Report::Progress(progress))),
            );
            sim.run_for(MS / 10);
            sim.a.c().assert_bounded();
            // Grants limit what leaves, whatever is claimed.
            let now = sim.now();
            let path = sim.a.c().path_state(now);
            assert!(path.in_flight <= LENGTH);
            assert!(path.min_rtt >= Some(link().delay), "half of what it is");
            assert!(sim.a.c().counters().bytes_sent <= LENGTH + resent(&mut sim));
        }
        sim.run_for(Duration::from_secs(20));
        sim.b.assert_guards();
    });
}

#[test]
fn receiver__that_grants_and_never_reports_is_asked_until_it_is_dead() {
    let mut sim = Sim::new(link(), 4, Config::default(), Config::default());
    sim.connect();
    let now = sim.now();
    let source = sim.a.filled(7, LENGTH);
    let target = sim.b.empty(LENGTH);
    sim.b.c().post_receive(now, target).unwrap();
    let from = sim.a.c().post_send(now, source, Delivery::Polled).unwrap();
    sim.run_for(30 * MS);
    // All its datagrams are lost from now on.
    sim.net.link_mut(Side::B).set_up(false);
    sim.run_for(Duration::from_secs(14));
    let a = sim.a.c();
    assert_eq!(a.life(), Life::Established, "not before its time");
    // Asked again and again, but patiently: no payload is sent into a silent path.
    assert!(
        a.counters().bytes_sent < LENGTH,
        "{}",
        a.counters().bytes_sent
    );
    sim.run_for(Duration::from_secs(10));
    assert_eq!(sim.a.closed(), Some(CloseReason::PeerDead));
    let error = TransferError::Closed(CloseReason::PeerDead);
    assert_eq!(sim.a.failed(from), Some(error));
}

#[test]
fn sender__silent_inside_a_grant_gives_the_memory_back_and_a_late_packet_is_refused() {
    let (mut sim, _) = under_way(5);
    sim.trace = Some(vec![]);
    sim.run_for(2 * MS);
    let trace = sim.trace.take().unwrap_or_default();
    let is_data = |bytes: &[u8]| Header::parse(bytes).is_ok_and(|header| header.op == Op::Data);
    let late = trace
        .into_iter()
        .rev()
        .find(|(side, bytes)| *side == Side::A && is_data(bytes));
    let (_, late) = late.expect("Data in flight");
    sim.net.link_mut(Side::A).set_up(false);
    let waiting = sim.b.c().transfers();
    let now = sim.now();
    for id in waiting {
        assert!(sim.b.c().cancel(now, id));
    }
    assert_eq!(
        sim.b.c().expected_payload(),
        0,
        "nothing is granted any more"
    );
    // Datagrams waiting in its socket are late as well.
    sim.run_for(MS);
    let before = sim.b.c().counters().dropped(DropReason::NoGrant);
    sim.inject(Side::B, &late);
    sim.run_for(MS);
    assert_eq!(
        sim.b.c().counters().dropped(DropReason::NoGrant),
        before + 1
    );
    sim.b.assert_guards();
}

#[test]
fn clock__jumps_at_random_lose_nothing() {
    each(20, |seed| {
        let (mut sim, from) = under_way(seed);
        let mut dice = Dice::new(seed);
        for _ in 0..10 {
            let jump = MS * dice.pick(&[1, 50, 5_000, 3_600_000]);
            match dice.chance(50) {
                true => sim.a.skew += jump,
                false => sim.b.skew += jump,
            }
            sim.run_for(MS * dice.pick(&[1, 3]));
        }
        finish(sim, from);
    });
}
