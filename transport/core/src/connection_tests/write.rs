//! Tests that Write sequences (Figure 10) are correct on clean and bad links, in both profiles.

use super::sim::Sim;
use crate::*;
use netsim::link::{LinkConfig, Loss, Reorder};
use std::time::Duration;
use zerolane_wire::{Profile, Profiles};

const MS: Duration = Duration::from_millis(1);

fn clean() -> LinkConfig {
    LinkConfig {
        delay: MS,
        rate_bits_per_s: Some(1_000_000_000),
        queue_packets: 100_000,
        ..LinkConfig::default()
    }
}

fn only(profile: Profile) -> Config {
    Config {
        profiles: Profiles::only(profile),
        ..Config::default()
    }
}

/// Sends `lengths` from A to B and checks every byte. Returns the simulation.
fn transfer(link: LinkConfig, seed: u64, config: Config, lengths: &[u64]) -> Sim {
    let mut sim = Sim::new(link, seed, config.clone(), config);
    sim.connect();
    let now = sim.now();
    let mut pairs = vec![];
    for (n, &length) in lengths.iter().enumerate() {
        let source = sim.a.filled(n as u64, length);
        let target = sim.b.empty(length + 13);
        let to = sim.b.c().post_receive(now, target).unwrap();
        let from = sim
            .a
            .c()
            .post_send(now, source, Delivery::Interrupt)
            .unwrap();
        pairs.push((from, to, target, length));
    }
    let all = pairs.clone();
    sim.run_until(Duration::from_secs(600), |sim| {
        all.iter()
            .all(|&(from, to, _, length)| sim.a.sent(from) && sim.b.received(to) == Some(length))
    });
    for (n, &(_, _, target, length)) in pairs.iter().enumerate() {
        assert!(
            sim.b.holds(target, n as u64, length),
            "seed {seed}: transfer {n} is corrupt"
        );
        let rest = &sim.b.bytes(target)[length as usize..];
        assert!(rest.iter().all(|&b| b == 0xee), "wrote past the end");
    }
    sim.b.assert_guards();
    sim
}

#[test]
fn write__clean_link_places_everything_at_once() {
    let announced = Config {
        eager_limit: 0,
        ..Config::default()
    };
    let sim = transfer(clean(), 1, announced, &[0, 1, 4096, 3_000_000, 77]);
    assert_eq!(sim.b.moved, 0, "nothing had to be moved");
    assert_eq!(
        sim.a.connection.as_ref().unwrap().counters().bytes_resent,
        0
    );
    assert_eq!(
        sim.b
            .connection
            .as_ref()
            .unwrap()
            .counters()
            .dropped_total(),
        0
    );
}

#[test]
fn write__classic_clean_link() {
    let sim = transfer(clean(), 1, only(Profile::Classic), &[5632, 300_000]);
    assert_eq!(sim.b.moved, 0);
}

#[test]
fn write__bad_links_both_profiles() {
    for (seed, loss) in [(1, 0.01), (2, 0.05), (3, 0.2), (4, 0.2), (5, 0.3)] {
        let link = LinkConfig {
            loss: Loss::Random(loss),
            duplicate: 0.05,
            reorder: Reorder {
                probability: 0.05,
                by: 3 * MS,
            },
            ..clean()
        };
        transfer(
            link,
            seed,
            Config::default(),
            &[2_500_000, 1, 100_000, 0, 1500],
        );
        let classic = Config {
            classic_block_log2: 13,
            ..only(Profile::Classic)
        };
        transfer(link, seed, classic, &[100_000, 5]);
    }
}
