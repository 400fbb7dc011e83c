//! Tests that a LAN with busy hosts is still recognized as a LAN.

use super::eager::{receive, send};
use super::seeds::{Dice, each};
use super::sim::Sim;
use super::sim_trains::merged;
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, Loss};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn lan() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(25),
        rate_bits_per_s: Some(1_000_000_000),
        queue_packets: 3_000,
        ..LinkConfig::default()
    }
}

/// Runs for `time` with stalls of up to 60 ms at either end, or at both. Returns the number of checks, and in how many
/// of them the path was taken for a LAN.
fn stall_for(sim: &mut Sim, dice: &mut Dice, time: Duration) -> (u32, u32) {
    let (end, mut looks, mut as_lan) = (sim.net.now() + time, 0, 0);
    while sim.net.now() < end {
        let now = sim.net.now();
        for side in Side::BOTH {
            if dice.chance(40) {
                sim.host(side).stalled_until = now + Duration::from_micros(dice.below(60_000));
            }
        }
        sim.run_for(Duration::from_micros(dice.below(80_000)));
        let now = sim.now();
        looks += 1;
        as_lan += u32::from(sim.a.c().path_state(now).controller == "auto: lan");
    }
    (looks, as_lan)
}

#[test]
fn auto__stalls_of_the_hosts_are_no_queue() {
    each(6, |seed| {
        let mut dice = Dice::new(seed);
        let mut sim = Sim::new(lan(), seed, Config::default(), Config::default());
        sim.connect();
        let length = 96 << 20;
        let (to, target) = receive(&mut sim, length);
        send(&mut sim, 7, length);
        sim.run_for(20 * MS);
        let now = sim.now();
        assert_eq!(sim.a.c().path_state(now).controller, "auto: lan");
        let (looks, as_lan) = stall_for(&mut sim, &mut dice, 800 * MS);
        assert_eq!(looks, as_lan);
        assert!(sim.b.received(to).is_none(), "the stalls came too late");
        let resent = sim.a.c().counters().bytes_resent;
        assert_eq!(resent, 0, "nothing was lost");
        sim.run_until(3_000 * MS, |sim| sim.b.received(to).is_some());
        assert!(sim.b.holds(target, 7, length));
    });
}

/// A standing queue is detected all the same.
#[test]
fn auto__a_queue_that_stands_is_no_lan() {
    let slow = LinkConfig {
        rate_bits_per_s: Some(100_000_000),
        ..lan()
    };
    let mut sim = Sim::new(slow, 1, Config::default(), Config::default());
    sim.connect();
    let length = 32 << 20;
    receive(&mut sim, length);
    send(&mut sim, 7, length);
    sim.run_for(20 * MS);
    let now = sim.now();
    assert_eq!(sim.a.c().path_state(now).controller, "auto: lan");
    sim.run_for(1_800 * MS);
    let now = sim.now();
    assert_eq!(sim.a.c().path_state(now).controller, "auto: model");
}

/// A lost datagram spoils its train, but the path dropped only that datagram.
#[test]
fn auto__rare_loss_that_spoils_trains_is_no_congestion() {
    each(6, |seed| {
        let lossy = LinkConfig {
            loss: Loss::Random(0.001),
            ..lan()
        };
        let mut sim = Sim::with_trains(lossy, seed, Config::default(), merged);
        let length = 32 << 20;
        let (to, target) = receive(&mut sim, length);
        send(&mut sim, 7, length);
        let end = sim.net.now() + 3_000 * MS;
        while sim.b.received(to).is_none() {
            assert!(sim.step(end), "over in time");
            let now = sim.now();
            assert_eq!(sim.a.c().path_state(now).controller, "auto: lan");
        }
        assert!(sim.b.holds(target, 7, length));
        assert!(sim.b.trains.as_ref().expect("trains").incomplete > 2);
    });
}

/// The first answers were slow: an end was descheduled, or the path became shorter. Payload sent meanwhile is enough to
/// learn that: a claim below those answers is not believed, but causes a question.
#[test]
fn path__shorter_than_its_first_answers_is_filled_all_the_same() {
    let long = LinkConfig {
        delay: 35 * MS,
        ..lan()
    };
    let mut sim = Sim::new(long, 1, Config::default(), Config::default());
    sim.connect();
    sim.run_for(Duration::from_secs(1));
    let length = 96 << 20;
    let (to, target) = receive(&mut sim, length);
    send(&mut sim, 7, length);
    // From now on no answer to an announcement measures the path.
    sim.run_for(100 * MS);
    for side in Side::BOTH {
        sim.net.link_mut(side).set_config(lan());
    }
    sim.run_for(2 * Duration::from_secs(1));
    let now = sim.now();
    let path = sim.a.c().path_state(now);
    assert!(sim.b.received(to).is_some(), "{path:?}");
    assert!(sim.b.holds(target, 7, length));
}
