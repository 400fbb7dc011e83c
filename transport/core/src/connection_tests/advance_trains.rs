//! Tests that a Transfer's first train can announce it, if it was granted in advance as one Block.

use super::eager::{receive, send};
use super::seeds::each;
use super::sim::Sim;
use super::sim_trains::{Follower, Merge, has_header, merged, merged_at_random, unmerged};
use crate::*;
use netsim::Side;
use netsim::link::LinkConfig;
use std::collections::VecDeque;
use std::time::Duration;
use zerolane_wire::{Flags, Header, Op, Train};

const S: Duration = Duration::from_secs(1);
const LENGTH: u64 = 200_000;

const MERGINGS: [Merge; 3] = [unmerged, merged, merged_at_random];

fn connected(seed: u64, merging: Merge) -> Sim {
    let link = LinkConfig {
        delay: Duration::from_micros(100),
        ..LinkConfig::default()
    };
    let mut sim = Sim::with_trains(link, seed, Config::default(), merging);
    sim.trace = Some(vec![]);
    sim
}

/// Sends a Transfer of each of `lengths` with two posted at either end, and checks their content.
fn stream(sim: &mut Sim, lengths: &[u64]) {
    let deadline = sim.net.now() + 60 * S;
    let (mut sending, mut receiving) = (VecDeque::new(), VecDeque::new());
    let (mut posted, mut taken) = (0, 0);
    while taken < lengths.len() || !sending.is_empty() {
        while receiving.len() < 2 && taken + receiving.len() < lengths.len() {
            receiving.push_back(receive(sim, LENGTH));
        }
        while sending.len() < 2 && posted < lengths.len() {
            sending.push_back(send(sim, posted as u64, lengths[posted]));
            posted += 1;
        }
        assert!(sim.step(deadline), "over in time");
        sending.retain(|&id| !sim.a.sent(id));
        while let Some(&(id, target)) = receiving.front()
            && sim.b.received(id).is_some()
        {
            assert_eq!(sim.b.received(id), Some(lengths[taken]));
            assert!(sim.b.holds(target, taken as u64, lengths[taken]));
            receiving.pop_front();
            taken += 1;
        }
    }
    sim.b.assert_guards();
    sim.a.c().assert_bounded();
    sim.b.c().assert_bounded();
}

/// Announcements that A sent separately.
fn announcements(sim: &Sim) -> usize {
    let sent = sim.trace.iter().flatten();
    let headers = sent
        .filter(|(side, bytes)| *side == Side::A && has_header(bytes))
        .filter_map(|(_, bytes)| Header::parse(bytes).ok());
    headers.filter(|it| it.op == Op::RequestToSend).count()
}

/// Trains of A that announce a Transfer.
fn announcing(sim: &mut Sim) -> usize {
    let trains = sim.a.trains.as_ref().expect("trains");
    let announced = trains.left.iter().filter_map(Train::announced);
    announced.count()
}

/// Loses datagrams of trains to B, selected by `lost` from the number of the train and of the datagram in it.
fn tamper(sim: &mut Sim, mut lost: impl FnMut(usize, usize) -> bool + 'static) {
    let mut follower = Follower::default();
    let trains = sim.b.trains.as_mut().expect("trains");
    trains.tamper = Some(Box::new(move |bytes| match follower.follow(bytes) {
        Some(at) if lost(at.train, at.index) => vec![],
        _ => vec![bytes.to_vec()],
    }));
}

#[test]
fn stream__is_announced_by_its_trains() {
    const TRANSFERS: usize = 40;
    for merging in MERGINGS {
        let mut sim = connected(1, merging);
        stream(&mut sim, &[LENGTH; TRANSFERS]);
        let (alone, by_train) = (announcements(&sim), announcing(&mut sim));
        assert!(alone <= 4, "{alone} announcements on their own");
        assert_eq!(alone + by_train, TRANSFERS, "each is announced once");
        for counters in [*sim.a.c().counters(), *sim.b.c().counters()] {
            assert_eq!((counters.dropped_total(), counters.bytes_resent), (0, 0));
            assert_eq!((counters.timeouts, counters.reports_sent), (0, 0));
        }
    }
}

#[test]
fn stream__is_confirmed_with_the_grants_of_the_next_receives() {
    const TRANSFERS: usize = 40;
    let mut sim = connected(1, merged);
    stream(&mut sim, &[LENGTH; TRANSFERS]);
    let said = sim
        .trace
        .iter()
        .flatten()
        .filter(|(side, _)| *side == Side::B);
    let said: Vec<_> = said
        .filter_map(|(_, bytes)| Header::parse(bytes).ok())
        .collect();
    let complete = |it: &Header| it.op == Op::State && it.flags.contains(Flags::COMPLETE);
    let confirmed = said.iter().filter(|it| complete(it)).count();
    let pairs = said.windows(2);
    let behind = pairs.filter(|it| it[0].op == Op::ClearToSend && complete(&it[1]));
    let behind = behind.count();
    assert_eq!(confirmed, TRANSFERS);
    assert!(behind >= TRANSFERS - 8, "{behind} behind a grant");
}

#[test]
fn stream__of_other_lengths_than_granted_is_announced_on_its_own() {
    let lengths: Vec<_> = (0..20).map(|n| LENGTH - n * 7001).collect();
    let mut sim = connected(1, merged);
    stream(&mut sim, &lengths);
    assert_eq!(announcing(&mut sim), 0);
    // The first ones are as long as the very first, which was granted when it was announced.
    assert_eq!(announcements(&sim), lengths.len());
    assert_eq!(sim.a.c().counters().bytes_resent, 0);
}

#[test]
fn lost__train_that_announces() {
    for nth in 0..12 {
        let mut sim = connected(1, merged);
        tamper(&mut sim, move |train, index| train == nth && index == 3);
        stream(&mut sim, &[LENGTH; 6]);
        assert!(announcing(&mut sim) > 0);
        assert!(sim.b.trains.as_ref().unwrap().spoiled <= 1);
    }
}

#[test]
fn lost__any_datagrams_of_any_trains() {
    each(20, |seed| {
        let mut sim = connected(seed, merged_at_random);
        let mut dice = super::seeds::Dice::new(seed);
        tamper(&mut sim, move |_, _| dice.chance(1));
        stream(&mut sim, &[LENGTH; 30]);
    });
}

#[test]
fn cancel__of_a_receive_that_a_train_announces_writes_nothing_into_it() {
    let mut sim = connected(1, merged);
    stream(&mut sim, &[LENGTH; 4]);
    let receives: Vec<_> = (0..3).map(|_| receive(&mut sim, LENGTH)).collect();
    sim.run_for(S);
    let now = sim.now();
    sim.b.c().cancel(now, receives[0].0);
    sim.b.freeze(receives[0].1);
    // It leaves under the grant of the cancelled receive, which A does not yet know.
    let sent = send(&mut sim, 9, LENGTH);
    sim.run_until(10 * S, |sim| sim.a.sent(sent));
    assert_eq!(sim.b.received(receives[1].0), Some(LENGTH));
    assert!(sim.b.holds(receives[1].1, 9, LENGTH));
    sim.b.assert_frozen();
}

#[test]
fn cancel__of_a_transfer_that_is_not_announced_leaves_its_receive_to_the_next() {
    let mut sim = connected(1, merged);
    stream(&mut sim, &[LENGTH; 4]);
    let receives: Vec<_> = (0..3).map(|_| receive(&mut sim, LENGTH)).collect();
    sim.run_for(S);
    let first = send(&mut sim, 8, LENGTH);
    let now = sim.now();
    sim.a.c().cancel(now, first);
    let second = send(&mut sim, 9, LENGTH);
    sim.run_until(10 * S, |sim| sim.a.sent(second));
    // The first one ends with the cancelled receive, if it matched that.
    let met: Vec<_> = receives
        .iter()
        .filter(|it| sim.b.received(it.0).is_some())
        .collect();
    assert_eq!(met.len(), 1);
    assert_ne!(met[0].0, receives[2].0);
    assert!(sim.b.holds(met[0].1, 9, LENGTH));
}
