//! Tests that busy hosts fill a link: each end is descheduled for milliseconds, again and again.
//!
//! Each end's kernel reports how long datagrams waited.

use super::eager::{receive, send};
use super::seeds::{Dice, each};
use super::sim::Sim;
use crate::*;
use netsim::Side;
use netsim::link::LinkConfig;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// 1 Gb/s, a queue of 1,000 packets.
fn link() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(300),
        rate_bits_per_s: Some(1_000_000_000),
        queue_packets: 1_000,
        ..LinkConfig::default()
    }
}

/// Runs until `done`. The `busy` ends alternate between 3 to 8 ms descheduled and 50 to 1,000 us running.
fn run_busy(sim: &mut Sim, dice: &mut Dice, busy: &[Side], done: impl Fn(&Sim) -> bool) {
    let mut next = [Duration::ZERO; 2];
    let end = sim.net.now() + 3_000 * MS;
    while !done(sim) {
        assert!(sim.net.now() < end, "not done: {:?}", sim.a.connection);
        let now = sim.net.now();
        for (side, next) in busy.iter().zip(&mut next) {
            if *next <= now {
                let until = now + Duration::from_micros(3_000 + dice.below(5_000));
                sim.host(*side).stalled_until = until;
                *next = until + Duration::from_micros(50 + dice.below(950));
            }
        }
        let wait = next[..busy.len()].iter().min().map_or(MS, |it| *it - now);
        sim.run_for(wait);
    }
}

/// The second half of a Transfer of 128 MiB, as a part of the link's payload capacity in that time. Excludes the start,
/// in which the ends measure their lateness.
fn payload_part(seed: u64, busy: &[Side]) -> f64 {
    let mut dice = Dice::new(seed);
    let mut sim = Sim::new(link(), seed, Config::default(), Config::default());
    sim.connect();
    for side in Side::BOTH {
        sim.host(side).tell_arrival_times();
    }
    let length = 128 << 20;
    let (to, target) = receive(&mut sim, length);
    send(&mut sim, 7, length);
    let received = |sim: &Sim| {
        let connection = sim.b.connection.as_ref();
        connection.map_or(0, |it| it.counters().bytes_received)
    };
    run_busy(&mut sim, &mut dice, busy, |sim| received(sim) >= length / 2);
    let (began, before) = (sim.net.now(), received(&sim));
    run_busy(&mut sim, &mut dice, busy, |sim| {
        sim.b.received(to).is_some()
    });
    assert!(sim.b.holds(target, 7, length));
    let time = (sim.net.now() - began).as_secs_f64();
    // An STU of 1432 bytes in each packet of 1500.
    (length - before) as f64 / time / (125e6 * 1432.0 / 1500.0)
}

#[test]
fn busy__ends_fill_the_link() {
    for busy in [&[][..], &[Side::A], &[Side::B], &Side::BOTH] {
        let mut parts = vec![];
        each(3, |seed| {
            let part = payload_part(seed, busy);
            // Where both are late, a burst beyond the queue's capacity has consequences for half a second.
            let least = if busy.len() == 2 { 0.8 } else { 0.95 };
            assert!(part >= least, "{busy:?}: {part}");
            parts.push(part);
        });
        let mean = parts.iter().sum::<f64>() / parts.len() as f64;
        println!("{busy:?}: {mean:.3} of the link, {parts:.3?}");
        assert!(mean >= 0.9, "{busy:?}: {parts:?}");
    }
}
