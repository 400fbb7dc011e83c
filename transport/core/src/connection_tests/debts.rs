//! Tests that the consequences of an entry are settled once, at its end.

use super::limits::held_back;
use super::sim::Sim;
use crate::*;
use netsim::link::LinkConfig;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use zerolane_wire::{HEADER_LEN, encapsulation::Encapsulation};

/// Counts how often the connection asks for its share: in the lane, each request takes one lock.
#[derive(Debug, Default)]
struct Counting(Arc<AtomicU32>);

impl Admission for Counting {
    fn set_weight(&mut self, _weight: u32) {}

    fn request_fast(&mut self, _now: Instant) -> FastAnswer {
        FastAnswer::Granted
    }

    fn review(&mut self, _now: Instant, _demand: &Demand) -> Allowance {
        self.0.fetch_add(1, Ordering::Relaxed);
        Allowance::UNLIMITED
    }
}

/// There is no link to share, and arrivals through memory tell nothing about one.
#[test]
fn set_admission__asks_no_scheduler_in_shared_memory() {
    let in_memory = Config {
        encapsulation: Encapsulation::Memory,
        path_datagram: 65_536 + HEADER_LEN,
        ..Config::default()
    };
    for (config, is_asked) in [(Config::default(), true), (in_memory, false)] {
        let mut sim = Sim::new(LinkConfig::default(), 1, config.clone(), config);
        let reviews = Arc::new(AtomicU32::new(0));
        // Once before the peer's capabilities are known, and once after.
        sim.a.c().set_admission(Counting(reviews.clone()));
        sim.connect();
        sim.b.c().set_admission(Counting(reviews.clone()));
        let now = sim.now();
        let (from_a, from_b) = (sim.a.filled(1, 300_000), sim.b.filled(2, 300_000));
        let (at_a, at_b) = (sim.a.empty(300_000), sim.b.empty(300_000));
        for (host, from, at) in [(&mut sim.a, from_a, at_a), (&mut sim.b, from_b, at_b)] {
            host.c().post_send(now, from, Delivery::Polled).unwrap();
            host.c().post_receive(now, at).unwrap();
        }
        sim.run_for(Duration::from_secs(1));
        assert!(sim.a.holds(at_a, 2, 300_000) && sim.b.holds(at_b, 1, 300_000));
        assert_eq!(reviews.load(Ordering::Relaxed) > 0, is_asked);
    }
}

#[test]
fn on_data__locks_the_scheduler_once_for_the_end_of_a_block() {
    let config = Config {
        block: 20_000,
        ..Config::default()
    };
    let mut sim = Sim::new(LinkConfig::default(), 1, config.clone(), config);
    sim.connect();
    sim.run_for(Duration::from_secs(1));
    let reviews = Arc::new(AtomicU32::new(0));
    sim.b.c().set_admission(Counting(reviews.clone()));
    // More than the window grants at once, so that the end of a Block grants the next.
    let headers = held_back(&mut sim, 8 << 20);
    let (now, stu) = (sim.now(), sim.b.c().stu());
    let (mut ends, mut most) = (0, 0);
    for (index, header) in headers.iter().enumerate() {
        let before = reviews.swap(0, Ordering::Relaxed);
        assert!(index == 0 || before <= 1, "{before} locks for one entry");
        let placement = sim.b.c().on_data(now, header, stu, stu, None);
        assert!(matches!(placement, Placement::Move(_)), "{placement:?}");
        let is_end = headers
            .get(index + 1)
            .is_none_or(|next| next.b_num != header.b_num);
        let locks = reviews.load(Ordering::Relaxed);
        most = most.max(locks);
        ends += u32::from(is_end && locks == 1);
    }
    assert_eq!(most, 1);
    assert!(ends > 2, "{ends} Blocks ended");
}

#[test]
fn on_data__locks_the_scheduler_once_for_the_end_of_a_transfer() {
    let announced = Config {
        eager_limit: 0,
        ..Config::default()
    };
    let mut sim = Sim::new(LinkConfig::default(), 1, announced.clone(), announced);
    sim.connect();
    sim.run_for(Duration::from_secs(1));
    let length = 10 * u64::from(sim.b.c().stu());
    let headers = held_back(&mut sim, length);
    let reviews = Arc::new(AtomicU32::new(0));
    sim.b.c().set_admission(Counting(reviews.clone()));
    let (now, stu) = (sim.now(), sim.b.c().stu());
    for (index, header) in headers.iter().enumerate() {
        sim.b.c().on_data(now, header, stu, stu, None);
        let ended = index + 1 == headers.len();
        assert_eq!(reviews.load(Ordering::Relaxed), u32::from(ended));
    }
    let received =
        |event: &Event| matches!(event, Event::Received { length: l, .. } if *l == length);
    let events = std::iter::from_fn(|| sim.b.c().poll_event());
    assert!(events.into_iter().any(|event| received(&event)));
}
