//! Goodput over loss and profile, in virtual time: a number that changes is seen in review.

use super::sim::Sim;
use crate::*;
use netlab::link::{LinkConfig, Loss};
use std::fmt::Write;
use std::time::Duration;
use zerolane_wire::{Profile, Profiles};

const LENGTH: u64 = 4 << 20;

/// Mb/s of one Transfer over 1 Gb/s with a round trip of 1 ms.
fn goodput(profile: Profile, loss: f64) -> f64 {
    let link = LinkConfig {
        delay: Duration::from_micros(500),
        rate_bits_per_s: Some(1_000_000_000),
        queue_packets: 100_000,
        loss: Loss::Random(loss),
        ..LinkConfig::default()
    };
    let config = Config {
        profiles: Profiles::only(profile),
        ..Config::default()
    };
    let mut sim = Sim::new(link, 1, config.clone(), config);
    sim.connect();
    sim.run_for(Duration::from_secs(1));
    let (start, now) = (sim.net.now(), sim.now());
    let source = sim.a.filled(7, LENGTH);
    let target = sim.b.empty(LENGTH);
    sim.b.c().post_receive(now, target).unwrap();
    let from = sim.a.c().post_send(now, source, Delivery::Polled).unwrap();
    sim.run_until(Duration::from_secs(3600), |sim| sim.a.sent(from));
    assert!(sim.b.holds(target, 7, LENGTH));
    let seconds = (sim.net.now() - start).as_secs_f64();
    LENGTH as f64 * 8.0 / seconds / 1e6
}

#[test]
fn goodput__over_loss_and_profile() {
    let mut table = String::from("loss     classic   extended   (Mb/s, 1 Gb/s, RTT 1 ms, 4 MiB)\n");
    for percent in [0.0, 0.1, 1.0, 5.0] {
        let [classic, extended] =
            [Profile::Classic, Profile::Extended].map(|profile| goodput(profile, percent / 100.0));
        writeln!(table, "{percent:3} % {classic:10.1} {extended:10.1}").unwrap();
    }
    insta::assert_snapshot!(table);
}
