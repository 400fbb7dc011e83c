//! Tests that receives granted in advance save round trips, and that void grants lose nothing.
//!
//! Covers lost datagrams, cancels at either end, and a lying peer.

use super::eager::{receive, send};
use super::liars::grant;
use super::seeds::{Dice, each};
use super::sim::Sim;
use crate::limits::MAX_REMEMBERED_BLOCKS;
use crate::*;
use netsim::Side;
use netsim::link::LinkConfig;
use std::collections::VecDeque;
use std::time::Duration;
use zerolane_wire::{Advance, ClearToSend, Flags, Grant, Header, Op, Operation};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
pub(super) const LENGTH: u64 = 100_000;

pub(super) fn sim_with(a: Config, b: Config) -> Sim {
    let link = LinkConfig {
        delay: 5 * MS,
        ..LinkConfig::default()
    };
    let mut sim = Sim::new(link, 1, a, b);
    sim.connect();
    sim.run_for(S);
    sim.trace = Some(vec![]);
    sim
}

/// Loses all advance grants from now on.
pub(super) fn lose_grants_in_advance(sim: &mut Sim) {
    sim.copies = Some(Box::new(|_, bytes| {
        let flags = Header::parse(bytes).map(|it| (it.op, it.flags));
        let in_advance =
            |(op, flags): (Op, Flags)| op == Op::ClearToSend && flags.contains(Flags::ADVANCE);
        usize::from(!flags.is_ok_and(in_advance))
    }));
}

/// Connected, where one end, and then the other, accepts no advance grants.
pub(super) fn where_an_end_takes_none() -> [Sim; 2] {
    let off = Config {
        advance_grants: false,
        ..Config::default()
    };
    [(off.clone(), Config::default()), (Config::default(), off)].map(|(a, b)| sim_with(a, b))
}

/// A Read that matches an offer, of seed 3.
fn read(sim: &mut Sim, length: u64) -> (TransferId, Span) {
    let now = sim.now();
    let (source, target) = (sim.a.filled(3, length), sim.b.empty(length));
    let offered = sim.a.c().post_offer(now, source, Delivery::Polled);
    let read = sim.b.c().post_read(now, target).expect("posted");
    offered.expect("posted");
    (read, target)
}

pub(super) fn granted_in_advance(sim: &mut Sim) -> u64 {
    sim.b.c().counters().granted_in_advance
}

/// Connected over a round trip of 10 ms. A Transfer of [`LENGTH`] bytes came, and receives of the same length are
/// posted and granted in advance, which A has heard.
fn granted(receives: usize) -> (Sim, Vec<(TransferId, Span)>) {
    let mut sim = sim_with(Config::default(), Config::default());
    let first = receive(&mut sim, LENGTH);
    let receives: Vec<_> = (0..receives).map(|_| receive(&mut sim, LENGTH)).collect();
    send(&mut sim, 1, LENGTH);
    sim.run_until(S, |sim| sim.b.received(first.0).is_some());
    sim.run_for(100 * MS);
    assert_eq!(granted_in_advance(&mut sim) > 0, !receives.is_empty());
    assert_eq!(
        sim.b.c().expected_payload(),
        0,
        "nothing is expected of what is not announced"
    );
    sim.trace = Some(vec![]);
    (sim, receives)
}

/// Sends `lengths`, each with its own seed, into `receives`, and checks their content.
fn transfer(sim: &mut Sim, receives: &[(TransferId, Span)], lengths: &[u64]) {
    let sent: Vec<_> = (10..)
        .zip(lengths)
        .map(|(seed, &length)| send(sim, seed, length))
        .collect();
    sim.run_until(60 * S, |sim| sent.iter().all(|&id| sim.a.sent(id)));
    for ((&(to, target), seed), &length) in receives.iter().zip(10..).zip(lengths) {
        assert_eq!(sim.b.received(to), Some(length));
        assert!(sim.b.holds(target, seed, length));
    }
    sim.b.assert_guards();
}

/// The datagrams of `op` that `side` sent.
pub(super) fn count(sim: &Sim, side: Side, op: Op) -> usize {
    let sent = sim.trace.iter().flatten();
    let headers = sent
        .filter(|it| it.0 == side)
        .filter_map(|it| Header::parse(&it.1).ok());
    headers.filter(|header| header.op == op).count()
}

/// Sends `transfers` of [`LENGTH`] bytes with `ahead` posted at either end. Returns the time it took.
fn stream(sim: &mut Sim, transfers: usize, ahead: usize) -> Duration {
    let start = sim.net.now();
    let mut sending = VecDeque::new();
    let mut receiving = VecDeque::new();
    let (mut posted, mut taken) = (0, 0);
    while taken < transfers {
        while receiving.len() < ahead && taken + receiving.len() < transfers {
            receiving.push_back(receive(sim, LENGTH));
        }
        while sending.len() < ahead && posted < transfers {
            posted += 1;
            sending.push_back(send(sim, posted as u64, LENGTH));
        }
        assert!(sim.step(start + 60 * S), "over in time");
        sending.retain(|&id| !sim.a.sent(id));
        while let Some(&(id, target)) = receiving.front()
            && sim.b.received(id).is_some()
        {
            taken += 1;
            assert!(sim.b.holds(target, taken as u64, LENGTH));
            receiving.pop_front();
        }
    }
    sim.net.now() - start
}

#[test]
fn stream__of_short_transfers_takes_a_round_trip_each_not_two() {
    const TRANSFERS: usize = 40;
    let off = Config {
        advance_grants: false,
        ..Config::default()
    };
    let announced_first = stream(&mut sim_with(off.clone(), off), TRANSFERS, 2);
    let mut sim = sim_with(Config::default(), Config::default());
    let granted_first = stream(&mut sim, TRANSFERS, 2);
    let round_trips = |time: Duration| time.as_secs_f64() * 100.0 / (TRANSFERS as f64 / 2.0);
    assert!(round_trips(announced_first) >= 2.0, "{announced_first:?}");
    assert!(round_trips(granted_first) <= 1.25, "{granted_first:?}");
    for counters in [*sim.a.c().counters(), *sim.b.c().counters()] {
        assert_eq!(
            (counters.dropped_total(), counters.bytes_resent),
            (0, 0),
            "{counters:?}"
        );
        assert_eq!((counters.timeouts, counters.reports_sent), (0, 0));
    }
}

#[test]
fn transfer__that_was_granted_leaves_behind_its_announcement() {
    let (mut sim, receives) = granted(2);
    let from = send(&mut sim, 10, LENGTH);
    let start = sim.net.now();
    sim.run_until(S, |sim| sim.b.received(receives[0].0).is_some());
    // Half a round trip, and the opening of the window.
    let there = sim.net.now() - start;
    assert!(there <= 8 * MS, "{there:?}");
    sim.run_until(S, |sim| sim.a.sent(from));
    assert!(sim.b.holds(receives[0].1, 10, LENGTH));
    assert_eq!(count(&sim, Side::A, Op::RequestToSend), 1);
    assert_eq!(count(&sim, Side::B, Op::ClearToSend), 0);
}

#[test]
fn transfer__shorter_or_longer_than_what_was_granted() {
    for lengths in [[20_000, LENGTH], [LENGTH - 1, 50_001], [LENGTH, 17_000]] {
        let (mut sim, receives) = granted(2);
        transfer(&mut sim, &receives, &lengths);
        let counters = *sim.a.c().counters();
        assert_eq!((counters.bytes_resent, counters.timeouts), (0, 0));
    }
    // The grant is as long as the previous Transfer: this one is longer, and has room.
    let mut sim = sim_with(Config::default(), Config::default());
    let receives = [LENGTH, 5 * LENGTH].map(|length| receive(&mut sim, length));
    transfer(&mut sim, &receives[..1], &[LENGTH]);
    sim.run_for(100 * MS);
    transfer(&mut sim, &receives[1..], &[5 * LENGTH]);
}

#[test]
fn transfer__larger_than_its_receive_fails_it_and_the_next_is_met() {
    let (mut sim, receives) = granted(2);
    let large = send(&mut sim, 9, LENGTH + 1);
    sim.run_until(S, |sim| sim.a.failed(large).is_some());
    let error = TransferError::MessageTooLarge {
        length: LENGTH + 1,
        room: LENGTH,
    };
    assert_eq!(sim.a.failed(large), Some(error));
    assert_eq!(sim.b.failed(receives[0].0), Some(error));
    transfer(&mut sim, &receives[1..], &[LENGTH]);
}

#[test]
fn transfer__short_enough_to_be_eager_meets_the_receive_that_was_granted() {
    let (mut sim, receives) = granted(2);
    transfer(&mut sim, &receives, &[100, LENGTH]);
}

#[test]
fn detour__what_meets_no_receive_voids_what_was_granted_and_nothing_is_lost() {
    let (mut sim, receives) = granted(2);
    // A Transfer requested by a Read takes the number to which the first receive was granted.
    let (read, target) = read(&mut sim, LENGTH);
    sim.run_until(S, |sim| sim.b.received(read).is_some());
    assert!(sim.b.holds(target, 3, LENGTH));
    transfer(&mut sim, &receives, &[LENGTH, LENGTH]);
    for counters in [*sim.a.c().counters(), *sim.b.c().counters()] {
        assert_eq!((counters.dropped_total(), counters.bytes_resent), (0, 0));
        assert_eq!(counters.timeouts, 0);
    }
}

#[test]
fn detour__a_grant_that_crosses_it_is_void() {
    let (mut sim, _) = granted(0);
    // The receive is posted and granted while the answer to a Read is announced.
    let (read, target) = read(&mut sim, LENGTH);
    sim.run_until(S, |sim| count(sim, Side::A, Op::RequestToSend) > 0);
    let receives = [receive(&mut sim, LENGTH)];
    sim.run_until(S, |sim| sim.b.received(read).is_some());
    assert!(sim.b.holds(target, 3, LENGTH));
    transfer(&mut sim, &receives, &[LENGTH]);
    assert_eq!(sim.b.c().counters().dropped_total(), 0);
}

#[test]
fn cancel__of_a_receive_that_was_granted_writes_nothing_into_it_and_the_next_is_met() {
    let (mut sim, receives) = granted(3);
    let now = sim.now();
    // A has the grants, and uses them before it hears anything else.
    sim.b.c().cancel(now, receives[0].0);
    sim.b.freeze(receives[0].1);
    transfer(&mut sim, &receives[1..], &[LENGTH, LENGTH]);
    sim.b.assert_frozen();
    assert!(sim.b.c().counters().dropped(DropReason::NoGrant) > 0);
}

#[test]
fn cancel__of_a_transfer_that_was_granted_leaves_the_receives_to_the_next_ones() {
    for heard in [true, false] {
        let (mut sim, receives) = granted(3);
        let from = send(&mut sim, 3, LENGTH);
        sim.run_for(if heard { 6 * MS } else { Duration::ZERO });
        let now = sim.now();
        sim.a.c().cancel(now, from);
        sim.run_until(S, |sim| sim.a.outcomes(from) == 1);
        sim.run_for(100 * MS);
        // The matched receive, if any, is over as well.
        let met = sim.b.outcomes(receives[0].0);
        transfer(&mut sim, &receives[met..], &[LENGTH, LENGTH]);
    }
}

#[test]
fn lost__announcement_payload_is_placed_and_counts_when_it_is_heard() {
    let (mut sim, receives) = granted(1);
    let mut lost = 0;
    sim.copies = Some(Box::new(move |_, bytes| {
        let announces = Header::parse(bytes).is_ok_and(|header| header.op == Op::RequestToSend);
        lost += usize::from(announces);
        usize::from(!announces || lost > 1)
    }));
    transfer(&mut sim, &receives, &[LENGTH]);
    assert_eq!(sim.a.c().counters().bytes_resent, 0, "it was there");
}

#[test]
fn lost__grants_in_advance_are_given_again() {
    let mut sim = sim_with(Config::default(), Config::default());
    let receives: Vec<_> = (0..3).map(|_| receive(&mut sim, LENGTH)).collect();
    lose_grants_in_advance(&mut sim);
    transfer(&mut sim, &receives, &[LENGTH; 3]);
}

#[test]
fn never__where_an_end_does_not_take_them() {
    for mut sim in where_an_end_takes_none() {
        let receives: Vec<_> = (0..3).map(|_| receive(&mut sim, LENGTH)).collect();
        transfer(&mut sim, &receives, &[LENGTH; 3]);
        assert_eq!(granted_in_advance(&mut sim), 0);
    }
}

#[test]
fn idle__grants_hold_up_nothing_else() {
    let (mut sim, receives) = granted(20);
    // More Blocks than are remembered come while the receives wait.
    while sim.b.c().counters().grants_sent < 2 * MAX_REMEMBERED_BLOCKS as u64 {
        let (read, _) = read(&mut sim, 20 << 20);
        sim.run_until(60 * S, |sim| sim.b.received(read).is_some());
    }
    sim.b.c().assert_bounded();
    transfer(&mut sim, &receives, &[LENGTH; 20]);
}

#[test]
fn finish__fails_the_receives_that_were_granted() {
    let (mut sim, receives) = granted(2);
    let now = sim.now();
    sim.a.c().finish(now).expect("open");
    sim.run_for(100 * MS);
    for (id, _) in receives {
        assert_eq!(sim.b.failed(id), Some(TransferError::Finished));
    }
}

fn advance(number: u32, b_num: u32, offset: u64, length: u32) -> Operation {
    let cts = grant(number, b_num, offset, length);
    let in_advance = |grant| Grant {
        advance: Some(Advance::Announcement(0)),
        ..grant
    };
    Operation::ClearToSend(ClearToSend {
        grant: cts.grant.map(in_advance),
        ..cts
    })
}

#[test]
fn hostile__grants_in_advance_are_bounded_and_send_no_more_than_there_is() {
    each(20, |seed| {
        let mut dice = Dice::new(seed);
        let mut sim = sim_with(Config::default(), Config::default());
        for _ in 0..2000 {
            let (number, b_num) = (dice.below(8) as u32, dice.below(1000) as u32);
            let offset = match dice.chance(10) {
                true => u64::MAX / 2,
                false => dice.below(2 * LENGTH),
            };
            let length = 1 + dice.below(3 * LENGTH) as u32;
            let said = advance(number, b_num, offset, length);
            sim.say(sim.now(), Side::B, said);
        }
        sim.a.c().assert_bounded();
        assert!(sim.a.c().counters().dropped(DropReason::Limit) > 0);
        let from = send(&mut sim, 1, LENGTH);
        sim.run_for(S);
        sim.a.c().assert_bounded();
        // Into the same bytes, as often as it was granted: each Block once.
        let most = limits::MAX_ADVANCE_GRANTS as u64 * LENGTH;
        assert!(sim.a.c().counters().bytes_sent <= most);
        assert_eq!(sim.a.failed(from), None);
    });
}
