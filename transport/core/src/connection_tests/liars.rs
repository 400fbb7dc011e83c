//! Tests that a receiver that grants too much or contradicts itself does no harm, and that suspended machines recover.

use super::seeds::{Dice, each};
use super::sim::Sim;
use crate::*;
use netsim::Side;
use netsim::link::LinkConfig;
use std::time::Duration;
use zerolane_wire::{ClearToSend, Grant, Occasion, Operation, Range, Ranges, Report, State};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const LENGTH: u64 = 200_000;

fn link() -> LinkConfig {
    LinkConfig {
        delay: MS,
        rate_bits_per_s: Some(100_000_000),
        ..LinkConfig::default()
    }
}

/// A has announced a Transfer for which B posted no receive.
fn announced() -> (Sim, TransferId) {
    let mut sim = Sim::new(link(), 1, Config::default(), Config::default());
    sim.connect();
    sim.run_for(S);
    let now = sim.now();
    let source = sim.a.filled(7, LENGTH);
    let from = sim.a.c().post_send(now, source, Delivery::Polled);
    sim.run_for(20 * MS);
    (sim, from.expect("posted"))
}

pub(super) fn grant(
    d_id: TransferId,
    b_num: u32,
    transfer_offset: u64,
    length: u32,
) -> ClearToSend {
    ClearToSend {
        block_log2: 0,
        mx: 5,
        bufx: 0,
        offset: 0,
        sequence: b_num,
        b_num,
        d_id,
        s_id: 9,
        grant: Some(Grant {
            transfer_offset,
            length,
            trains: false,
            blocks_complete: 0,
            advance: None,
        }),
    }
}

#[test]
fn grant__of_what_was_not_asked_for_sends_nothing() {
    let (mut sim, from) = announced();
    let whole = grant(from, 0, 0, 1000);
    let beyond = LENGTH as u32;
    let made_up = [
        grant(from + 1, 0, 0, 1000),
        grant(from, 0, 0, beyond + 1),
        grant(from, 0, LENGTH, 1),
        grant(from, 0, LENGTH - 1, 2),
        grant(from, 0, u64::MAX - 10, 10),
        grant(from, u32::MAX, 1 << 40, u32::MAX),
        // The other profile's.
        ClearToSend {
            block_log2: 16,
            grant: None,
            ..whole
        },
        // An end beyond the address space.
        ClearToSend {
            bufx: u32::MAX,
            offset: u32::MAX,
            ..grant(from, 0, 0, beyond)
        },
    ];
    for it in made_up {
        sim.say(sim.now(), Side::B, Operation::ClearToSend(it));
        sim.run_for(MS);
        assert!(!sim.a.c().has_data(), "{it:?}");
    }
    let counters = *sim.a.c().counters();
    assert_eq!(counters.bytes_sent, 0);
    assert_eq!(counters.dropped_total(), made_up.len() as u64);
}

#[test]
fn grant__over_and_over_holds_no_more_than_the_limit() {
    let (mut sim, from) = announced();
    // The same 1000 bytes, as many Blocks.
    for n in 0..3000 {
        sim.say(
            sim.now(),
            Side::B,
            Operation::ClearToSend(grant(from, n, 0, 1000)),
        );
    }
    let dropped = sim.a.c().counters().dropped(DropReason::Limit);
    assert_eq!(dropped, 3000 - limits::MAX_HELD_GRANTS as u64);
    sim.run_for(S);
    // It sends the granted bytes once each, and not a byte more.
    let sent = sim.a.c().counters().bytes_sent;
    assert_eq!(sent, 1000 * limits::MAX_HELD_GRANTS as u64);
    // Granted anew: once for each grant, and only if the grant is new.
    sim.say(
        sim.now(),
        Side::B,
        Operation::ClearToSend(grant(from, 3, 0, 1000)),
    );
    sim.run_for(S);
    assert_eq!(sim.a.c().counters().bytes_sent, sent);
}

#[test]
fn report__that_contradicts_the_last_one_ends_nothing_and_loses_nothing() {
    each(30, |seed| {
        let mut dice = Dice::new(seed);
        let mut sim = Sim::new(link(), seed, Config::default(), Config::default());
        sim.connect();
        let now = sim.now();
        let length = 1_500_000;
        let source = sim.a.filled(7, length);
        let target = sim.b.empty(length);
        let to = sim.b.c().post_receive(now, target).expect("posted");
        let from = sim.a.c().post_send(now, source, Delivery::Polled);
        let from = from.expect("posted");
        for _ in 0..100 {
            sim.run_for(Duration::from_micros(dice.below(900)));
            let mut ranges = Ranges::EMPTY;
            for _ in 0..dice.below(4) {
                let (start, len) = (dice.below(200_000) as u32, 1 + dice.below(9_000) as u32);
                ranges.push(Range { start, len });
            }
            // Swaps missing and present bytes; never reports completion.
            sim.say(
                sim.now(),
                Side::B,
                Operation::State(State {
                    occasion: Occasion::Seen(0),
                    complete: false,
                    unknown: false,
                    blocks_complete: 0,
                    b_num: dice.below(12) as u32,
                    reached: dice.next() as u32,
                    d_id: from,
                    s_id: to,
                    report: Report::Missing(ranges),
                }),
            );
        }
        sim.run_until(20 * S, |sim| {
            sim.a.sent(from) && sim.b.received(to).is_some()
        });
        assert!(sim.b.holds(target, 7, length));
        assert_eq!((sim.a.outcomes(from), sim.b.outcomes(to)), (1, 1));
    });
}

/// A suspended machine receives nothing and its time stands still; it wakes with its clock ahead.
#[test]
fn suspend__of_either_end_is_survived_below_the_idle_timeout() {
    each(20, |seed| {
        let mut dice = Dice::new(seed);
        let mut sim = Sim::new(link(), seed, Config::default(), Config::default());
        sim.connect();
        let now = sim.now();
        let length = 3_000_000;
        let source = sim.a.filled(7, length);
        let target = sim.b.empty(length);
        let to = sim.b.c().post_receive(now, target).expect("posted");
        let from = sim.a.c().post_send(now, source, Delivery::Polled);
        let from = from.expect("posted");
        for _ in 0..3 {
            sim.run_for(Duration::from_micros(dice.below(50_000)));
            let until = sim.net.now() + MS * (1_000 + dice.below(9_000) as u32);
            match dice.chance(50) {
                true => sim.a.stalled_until = until,
                false => sim.b.stalled_until = until,
            }
            sim.run_for(until.saturating_sub(sim.net.now()) + MS);
        }
        sim.run_until(20 * S, |sim| {
            sim.a.sent(from) && sim.b.received(to).is_some()
        });
        assert!(sim.b.holds(target, 7, length));
        sim.b.assert_guards();
    });
}

/// Longer than that, the end that stayed awake gives up; the other one learns that when it wakes.
#[test]
fn suspend__beyond_the_idle_timeout_ends_both() {
    for sender in [true, false] {
        let mut sim = Sim::new(link(), 1, Config::default(), Config::default());
        sim.connect();
        let now = sim.now();
        let source = sim.a.filled(7, 3_000_000);
        let target = sim.b.empty(3_000_000);
        let to = sim.b.c().post_receive(now, target).expect("posted");
        let from = sim.a.c().post_send(now, source, Delivery::Polled);
        let from = from.expect("posted");
        sim.run_for(20 * MS);
        let until = sim.net.now() + 100 * S;
        match sender {
            true => sim.a.stalled_until = until,
            false => sim.b.stalled_until = until,
        }
        sim.run_for(99 * S);
        let awake = if sender { &sim.b } else { &sim.a };
        assert_eq!(awake.closed(), Some(CloseReason::PeerDead));
        sim.run_for(60 * S);
        assert!(sim.a.closed().is_some() && sim.b.closed().is_some());
        assert!(sim.a.outcomes(from) == 1 && sim.b.outcomes(to) == 1);
        sim.b.assert_guards();
    }
}
