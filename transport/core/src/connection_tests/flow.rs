//! Tests that a continuous flow of many Transfers fills a long path from the start.

use super::seeds;
use super::sim::Sim;
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, LinkStats, Loss};
use std::collections::VecDeque;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const RATE_BITS_PER_S: u64 = 1_000_000_000;

/// Transfers posted at a time, and their length: as in `zerolane bench rtt`.
const POSTED: usize = 64;
const LENGTH: u64 = 512 << 10;

/// Result of a flow.
#[derive(Debug)]
struct Outcome {
    /// Payload rate relative to the link's rate.
    fraction: f64,
    /// Retransmitted bytes per byte that arrived.
    resent: f64,
    link: LinkStats,
    spurious_requests: u64,
    /// Transfers announced, and control operations sent by the sender.
    transfers: u64,
    control: u64,
}

/// Sends from A to B for `time` over 1 Gb/s with a queue of one round trip; A's packets are lost at rate `loss`.
fn flow(rtt: Duration, loss: f64, time: Duration, seed: u64) -> Outcome {
    let clean = LinkConfig {
        delay: rtt / 2,
        rate_bits_per_s: Some(RATE_BITS_PER_S),
        queue_packets: (rtt.as_micros() / 12) as usize,
        ..LinkConfig::default()
    };
    let mut sim = Sim::new(clean, seed, Config::default(), Config::default());
    sim.connect();
    sim.run_for(10 * rtt);
    sim.net.link_mut(Side::A).set_config(LinkConfig {
        loss: Loss::Random(loss),
        ..clean
    });
    let mut sources: VecDeque<Span> = (0..POSTED).map(|_| sim.a.filled(7, LENGTH)).collect();
    let mut targets: VecDeque<Span> = (0..POSTED).map(|_| sim.b.empty(LENGTH)).collect();
    let (mut sending, mut receiving) = (VecDeque::new(), VecDeque::new());
    let mut transfers = 0;
    let end = sim.net.now() + time;
    while sim.net.now() < end {
        let now = sim.now();
        while let Some(span) = targets.pop_front() {
            let id = sim.b.c().post_receive(now, span).expect("posted");
            receiving.push_back((id, span));
        }
        while let Some(span) = sources.pop_front() {
            let id = sim.a.c().post_send(now, span, Delivery::Polled);
            sending.push_back((id.expect("posted"), span));
            transfers += 1;
        }
        sim.step(end);
        for event in std::mem::take(&mut sim.a.events) {
            if let Event::Sent { id } = event {
                sources.push_back(take(&mut sending, id));
            }
        }
        for event in std::mem::take(&mut sim.b.events) {
            if let Event::Received { id, .. } = event {
                let target = take(&mut receiving, id);
                assert!(sim.b.holds(target, 7, 4096), "payload");
                targets.push_back(target);
            }
        }
    }
    let arrived = sim.b.c().counters().bytes_received;
    let sender = *sim.a.c().counters();
    Outcome {
        fraction: arrived as f64 * 8.0 / time.as_secs_f64() / RATE_BITS_PER_S as f64,
        resent: sender.bytes_resent as f64 / arrived as f64,
        link: sim.net.link(Side::A).stats(),
        spurious_requests: sim.b.c().counters().spurious_requests,
        transfers,
        control: sender.control_sent,
    }
}

fn take(posted: &mut VecDeque<(TransferId, Span)>, id: TransferId) -> Span {
    let at = posted.iter().position(|it| it.0 == id).expect("posted");
    posted.remove(at).expect("there").1
}

#[test]
fn flow__long_path_that_loses_a_little_is_filled() {
    seeds::each(2, |seed| {
        let it = flow(50 * MS, 0.001, Duration::from_secs(4), seed);
        assert!(it.fraction >= 0.8, "{it:?}");
        // Only the start finds the queue full.
        assert!(it.link.queue_dropped * 200 <= it.link.sent, "{it:?}");
        assert!(it.resent <= 0.008, "{it:?}");
        assert_eq!(it.spurious_requests, 0, "{it:?}");
    });
}

#[test]
fn flow__long_path_is_filled_from_the_start_on() {
    for (rtt, time, least) in [(10, 2, 0.92), (50, 4, 0.85)] {
        let it = flow(MS * rtt, 0.0, Duration::from_secs(time), 1);
        assert!(it.fraction >= least, "{rtt} ms: {it:?}");
    }
}

#[test]
fn flow__a_transfer_that_waits_for_a_turn_is_announced_twice_at_most() {
    let it = flow(MS, 0.0, Duration::from_secs(1), 1);
    assert!(it.transfers > 2 * POSTED as u64, "{it:?}");
    assert!(it.control <= 2 * it.transfers + 10, "{it:?}");
}

#[test]
fn flow__one_of_many_that_wait_for_a_turn_asks_again() {
    // Its turn never comes: there is no room for the first.
    let mut sim = Sim::new(
        LinkConfig::default(),
        1,
        Config::default(),
        Config::default(),
    );
    sim.connect();
    let now = sim.now();
    for _ in 0..POSTED {
        let source = sim.a.filled(7, LENGTH);
        let posted = sim.a.c().post_send(now, source, Delivery::Polled);
        posted.expect("posted");
    }
    sim.run_for(200 * MS);
    let before = sim.a.c().counters().control_sent;
    sim.run_for(Duration::from_secs(10));
    let asked = sim.a.c().counters().control_sent - before;
    assert!((9..=20).contains(&asked), "{asked}");
}
