//! Tests that ECN marks replace drops, and that paths that clear the marks are detected.

use super::sim::Sim;
use super::sim_trains::merged;
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, LinkStats};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const LENGTH: u64 = 32 << 20;

/// A link whose queue would hold ten round trips without marks.
fn deep(mark_packets: Option<usize>) -> LinkConfig {
    LinkConfig {
        delay: 10 * MS,
        rate_bits_per_s: Some(100_000_000),
        queue_packets: 1_700,
        mark_packets,
        ..LinkConfig::default()
    }
}

/// A Transfer from A to B. Returns its goodput in Mb/s, and the link's statistics.
fn transfer(sim: &mut Sim) -> (f64, LinkStats) {
    let (start, now) = (sim.net.now(), sim.now());
    let source = sim.a.filled(7, LENGTH);
    let target = sim.b.empty(LENGTH);
    sim.b.c().post_receive(now, target).expect("posted");
    let sent = sim.a.c().post_send(now, source, Delivery::Polled);
    let sent = sent.expect("posted");
    sim.run_until(Duration::from_secs(100), |sim| sim.a.sent(sent));
    assert!(sim.b.holds(target, 7, LENGTH));
    let seconds = (sim.net.now() - start).as_secs_f64();
    let stats = sim.net.link(Side::A).stats();
    (LENGTH as f64 * 8.0 / seconds / 1e6, stats)
}

fn sim(link: LinkConfig) -> Sim {
    Sim::new(link, 1, Config::default(), Config::default())
}

#[test]
fn marks__on_trains_are_answered_as_well() {
    let mut sim = Sim::with_trains(deep(Some(40)), 1, Config::default(), merged);
    let (goodput, link) = transfer(&mut sim);
    assert!(sim.a.c().wants_marks(), "the path carries them");
    let counters = *sim.b.c().counters();
    assert!(counters.trains_received > 0);
    assert_eq!(counters.ecn_marked, link.marked);
    assert!(counters.ecn_marked > 0);
    assert_eq!(link.queue_dropped, 0);
    assert!(goodput > 80.0, "{goodput} Mb/s");
}

#[test]
fn marks__are_answered_before_anything_is_dropped() {
    let mut sim = sim(deep(Some(40)));
    sim.connect();
    let (goodput, link) = transfer(&mut sim);
    assert!(sim.a.c().wants_marks(), "the path carries them");
    let counters = *sim.b.c().counters();
    assert_eq!(counters.ecn_marked, link.marked);
    assert!(counters.ecn_marked > 0);
    assert_eq!(link.queue_dropped, 0);
    assert!(goodput > 80.0, "{goodput} Mb/s");
    // Marks limit the queue to the marking threshold: 40 packets, 5 ms.
    let part = counters.ecn_marked as f64 / counters.ecn_capable as f64;
    assert!(part < 0.05, "{part} of all were marked");
}

#[test]
fn marks__that_the_path_clears_are_given_up() {
    let mut sim = sim(deep(Some(40)));
    sim.clears_marks = true;
    sim.connect();
    let (goodput, _) = transfer(&mut sim);
    assert!(!sim.a.c().wants_marks());
    assert_eq!(sim.b.c().counters().ecn_capable, 0);
    assert!(goodput > 80.0, "{goodput} Mb/s");
}

#[test]
fn marks__are_not_asked_for_on_a_lan() {
    let lan = LinkConfig {
        delay: Duration::from_micros(25),
        ..LinkConfig::default()
    };
    let mut sim = sim(lan);
    sim.connect();
    transfer(&mut sim);
    assert!(!sim.a.c().wants_marks());
}
