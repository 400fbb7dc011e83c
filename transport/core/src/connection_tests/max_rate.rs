//! Tests that goodput stays below a maximum rate, and close to it, in virtual time.

use super::sim::Sim;
use crate::*;
use netsim::link::{LinkConfig, Loss};
use std::time::Duration;
use zerolane_wire::{Profile, Profiles};

const MS: Duration = Duration::from_millis(1);
const MIB: u64 = 1 << 20;

/// 1 Gb/s.
fn link(rtt: Duration, loss: Loss) -> LinkConfig {
    LinkConfig {
        delay: rtt / 2,
        rate_bits_per_s: Some(1_000_000_000),
        queue_packets: 3_000,
        loss,
        ..LinkConfig::default()
    }
}

/// Payload bytes per second of a Transfer of `length` bytes from an end with this limit, and bytes sent per second.
fn rates(config: Config, link: LinkConfig, length: u64) -> (f64, f64, Sim) {
    let mut sim = Sim::new(link, 1, config.clone(), config);
    sim.connect();
    sim.run_for(Duration::from_secs(1));
    let seconds = sim.timed_send(length).as_secs_f64();
    let sent = sim.a.c().counters().bytes_sent as f64;
    (length as f64 / seconds, sent / seconds, sim)
}

fn limited(max_rate: u64) -> Config {
    Config {
        max_rate: Some(max_rate),
        ..Config::default()
    }
}

/// The limit for a Transfer of `seconds`, including the bytes that may leave at once after a pause of the sender.
fn most(max_rate: u64, seconds: f64) -> f64 {
    let at_once = 0.02 * max_rate as f64 + 12_000.0;
    max_rate as f64 + at_once / seconds
}

#[test]
fn max_rate__goodput_is_within_it_and_near_it() {
    for (rtt, loss, least) in [
        (MS / 10, Loss::None, 0.98),
        (20 * MS, Loss::None, 0.97),
        (MS / 10, Loss::Random(0.01), 0.95),
        (20 * MS, Loss::Random(0.01), 0.9),
    ] {
        for max_rate in [MIB / 4, 10 * MIB, 25 * MIB] {
            let length = 8 * max_rate;
            let (goodput, sent, mut sim) = rates(limited(max_rate), link(rtt, loss), length);
            let what = format!("{max_rate} B/s, {rtt:?}, {loss:?}: {goodput} B/s, {sent} sent");
            assert!(sent <= most(max_rate, 8.0), "{what}");
            assert!(goodput >= least * max_rate as f64, "{what}");
            let resent = sim.a.c().counters().bytes_resent;
            let part = resent as f64 / length as f64;
            let expected = if loss == Loss::None { 0.0 } else { 0.02 };
            assert!(part <= expected, "{what}: {part} sent again");
        }
    }
}

#[test]
fn max_rate__more_than_the_path_carries_changes_nothing() {
    let link = link(20 * MS, Loss::None);
    let (free, ..) = rates(Config::default(), link, 64 * MIB);
    let (goodput, ..) = rates(limited(1 << 40), link, 64 * MIB);
    let ratio = goodput / free;
    assert!((0.95..1.05).contains(&ratio), "{goodput} and {free}");
}

#[test]
fn max_rate__holds_for_classic_and_for_answers_to_gets() {
    let max_rate = 10 * MIB;
    let classic = Config {
        profiles: Profiles::only(Profile::Classic),
        ..limited(max_rate)
    };
    let (goodput, sent, _) = rates(classic, link(MS / 10, Loss::None), 4 * max_rate);
    assert!(sent <= most(max_rate, 4.0), "{sent}");
    assert!(goodput >= 0.9 * max_rate as f64, "{goodput}");

    let mut sim = Sim::new(
        link(MS, Loss::None),
        1,
        limited(max_rate),
        limited(max_rate),
    );
    sim.connect();
    let length = 4 * max_rate;
    let goodput = length as f64 / sim.timed_get(length).as_secs_f64();
    assert!(goodput <= most(max_rate, 4.0), "{goodput}");
    assert!(goodput >= 0.95 * max_rate as f64, "{goodput}");
}

#[test]
fn set_max_rate__counts_from_then_on() {
    let max_rate = 10 * MIB;
    let mut sim = Sim::new(
        link(MS / 10, Loss::None),
        1,
        Config::default(),
        Config::default(),
    );
    sim.connect();
    let mut goodput = |limit: Option<u64>| {
        sim.a.c().set_max_rate(limit);
        let length = 20 * MIB;
        length as f64 / sim.timed_send(length).as_secs_f64()
    };
    let limit = max_rate as f64;
    assert!(goodput(None) > 5.0 * limit);
    let limited = goodput(Some(max_rate));
    assert!((0.95 * limit..1.03 * limit).contains(&limited), "{limited}");
    assert!(goodput(None) > 5.0 * limit);
}
