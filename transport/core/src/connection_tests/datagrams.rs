//! Tests that datagrams arrive whole and at most once, whatever the path does, and that losing them stops nothing.

use super::memory::quiet;
use super::sim::{Sim, bytes_of};
use super::sim_trains::merged;
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, Loss};
use std::collections::HashSet;
use std::time::Duration;
use zerolane_wire::{Flags, Header};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const LIFE: Duration = Duration::from_millis(100);

fn post(sim: &mut Sim, seed: u64, len: u64) -> Result<TransferId, PostError> {
    let now = sim.now();
    let span = sim.a.filled(seed, len);
    let request = WorkRequest::Datagram {
        lifetime: LIFE,
        dscp: 0,
    };
    sim.a.c().post(now, request, span)
}

/// Sends `count` datagrams, one every `pause`; every third is long. Returns the seeds of those that arrived.
fn stream(sim: &mut Sim, count: u64, pause: Duration) -> Vec<u64> {
    let len = |seed: u64| {
        if seed.is_multiple_of(3) {
            60 << 10
        } else {
            100 + seed
        }
    };
    for seed in 0..count {
        post(sim, seed, len(seed)).unwrap();
        sim.run_for(pause);
    }
    sim.run_for(S);
    let come = std::mem::take(&mut sim.b.datagrams);
    let seeds = come.iter().map(|it| {
        let all = 0..count;
        let fits = |&seed: &u64| it[..] == bytes_of(seed, len(seed));
        all.into_iter().find(fits).expect("of one datagram alone")
    });
    let seeds: Vec<_> = seeds.collect();
    let distinct: HashSet<_> = seeds.iter().collect();
    assert_eq!(distinct.len(), seeds.len(), "came twice");
    let sent = sim.a.c().counters().unreliable_sent + sim.a.c().counters().unreliable_expired;
    assert_eq!(sent, count);
    assert_eq!(sim.b.c().counters().unreliable_received, seeds.len() as u64);
    sim.a.c().assert_bounded();
    sim.b.c().assert_bounded();
    seeds
}

fn link(change: impl FnOnce(&mut LinkConfig)) -> LinkConfig {
    let mut link = LinkConfig {
        delay: 5 * MS,
        rate_bits_per_s: Some(1_000_000_000),
        ..LinkConfig::default()
    };
    change(&mut link);
    link
}

fn over(link: LinkConfig, seed: u64) -> Sim {
    let mut sim = Sim::new(link, seed, Config::default(), Config::default());
    sim.connect();
    sim
}

#[test]
fn datagrams__all_arrive_over_a_clean_path_in_order() {
    let mut sim = over(link(|_| {}), 1);
    let come = stream(&mut sim, 60, 2 * MS);
    assert_eq!(come, (0..60).collect::<Vec<_>>());
}

#[test]
fn datagrams__most_short_ones_survive_loss_reordering_and_copies() {
    for seed in 0..10 {
        let bad = link(|it| {
            it.loss = Loss::Random(0.02);
            it.reorder.probability = 0.05;
            it.reorder.by = MS;
            it.duplicate = 0.05;
        });
        let mut sim = over(bad, seed);
        let come = stream(&mut sim, 150, 2 * MS);
        let short = come.iter().filter(|&&it| !it.is_multiple_of(3)).count();
        assert!(short > 85, "{short} of 100");
    }
}

#[test]
fn datagrams__are_trains_once_the_peer_says_so() {
    let mut sim = Sim::with_trains(link(|_| {}), 1, Config::default(), merged);
    sim.trace = Some(vec![]);
    let come = stream(&mut sim, 60, 2 * MS);
    assert_eq!(come, (0..60).collect::<Vec<_>>());
    let trains = sim.b.trains.as_ref().unwrap();
    assert!(trains.opened >= 10, "{} trains", trains.opened);
    let lossy = link(|it| it.loss = Loss::Random(0.002));
    let mut sim = Sim::with_trains(lossy, 2, Config::default(), merged);
    let come = stream(&mut sim, 150, 2 * MS);
    assert!(come.len() > 110 && come.len() < 150, "{}", come.len());
}

/// Nothing is ever sent again, and loss of all of them ends neither the next ones nor Transfers.
#[test]
fn datagrams__a_black_hole_stops_nothing() {
    let mut sim = over(link(|_| {}), 3);
    let is_datagram = |bytes: &[u8]| {
        Header::parse(bytes)
            .is_ok_and(|it| it.op == zerolane_wire::Op::Data && it.flags.contains(Flags::DATAGRAM))
    };
    sim.copies = Some(Box::new(move |side, bytes| {
        usize::from(side == Side::B || !is_datagram(bytes))
    }));
    let come = stream(&mut sim, 300, 3 * MS);
    assert!(come.is_empty());
    sim.copies = None;
    let now = sim.now();
    let (source, target) = (sim.a.filled(7, 1 << 20), sim.b.empty(1 << 20));
    let receive = sim.b.c().post_receive(now, target).unwrap();
    sim.a.c().post_send(now, source, Delivery::Polled).unwrap();
    sim.run_until(20 * S, |sim| sim.b.received(receive) == Some(1 << 20));
    assert!(stream_after(&mut sim) > 0);
}

fn stream_after(sim: &mut Sim) -> usize {
    post(sim, 1, 500).unwrap();
    sim.run_for(S);
    sim.b.datagrams.len()
}

#[test]
fn datagrams__share_the_path_with_a_transfer() {
    let mut sim = over(link(|it| it.rate_bits_per_s = Some(100_000_000)), 4);
    let now = sim.now();
    let (source, target) = (sim.a.filled(7, 8 << 20), sim.b.empty(8 << 20));
    let receive = sim.b.c().post_receive(now, target).unwrap();
    sim.a.c().post_send(now, source, Delivery::Polled).unwrap();
    let mut posted = 0;
    while sim.b.received(receive).is_none() {
        posted += u64::from(post(&mut sim, posted, 1000).is_ok());
        sim.run_for(5 * MS);
        assert!(posted < 10_000, "the Transfer starves");
    }
    sim.run_for(S);
    let come = sim.b.datagrams.len() as u64;
    assert!(come * 10 > posted * 8, "{come} of {posted}");
}

#[test]
fn datagrams__wait_no_longer_than_they_live() {
    let slow = Config {
        max_rate: Some(1_000_000),
        ..Config::default()
    };
    let mut sim = quiet(slow);
    for seed in 0..40 {
        post(&mut sim, seed, 60 << 10).unwrap();
    }
    sim.run_for(2 * S);
    let counters = *sim.a.c().counters();
    assert!(counters.unreliable_expired > 30, "{counters:?}");
    assert_eq!(counters.unreliable_expired + counters.unreliable_sent, 40);
    assert_eq!(sim.a.c().datagram_bytes(), 0);
}

#[test]
fn datagrams__refused_where_the_peer_takes_none() {
    let none = Config {
        datagrams: false,
        ..Config::default()
    };
    let mut sim = Sim::new(link(|_| {}), 1, Config::default(), none);
    sim.connect();
    assert_eq!(sim.a.c().max_datagram(), 0);
    assert_eq!(post(&mut sim, 1, 100), Err(PostError::NoDatagrams));
    let mut sim = over(link(|_| {}), 1);
    for len in [0, (60 << 10) + 1] {
        assert_eq!(post(&mut sim, 1, len), Err(PostError::DatagramLength));
    }
    let full = (0..100).find_map(|seed| post(&mut sim, seed, 60 << 10).err());
    assert_eq!(full, Some(PostError::Full));
}
