//! Tests receives that are posted when a message arrives and lacks one.

use super::bare_messages::send;
use super::eager::datagrams;
use super::seeds::{Dice, each};
use super::sim::{Sim, bytes_of};
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, Loss};
use std::time::Duration;

const DELAY: Duration = Duration::from_micros(500);
const LIMIT: Duration = Duration::from_secs(60);

fn connected(link: LinkConfig, seed: u64) -> Sim {
    let link = LinkConfig {
        delay: DELAY,
        ..link
    };
    let mut sim = Sim::new(link, seed, Config::default(), Config::default());
    sim.connect();
    sim.run_for(Duration::from_secs(1));
    sim
}

fn post(sim: &mut Sim, control: &[u8], (seed, length): (u64, u64)) -> TransferId {
    let now = sim.now();
    let payload = (length > 0).then(|| sim.a.filled(seed, length));
    let flags = WorkFlags {
        awaited: true,
        ..WorkFlags::default()
    };
    let posted = sim.a.c().post_message(now, control, payload, flags);
    posted.expect("posted")
}

/// As if a receive had been posted before: half a round trip, and nothing is held or sent twice.
#[test]
fn receive__at_arrival_costs_no_round_trip() {
    let messages: [(&[u8], u64); 5] = [
        (b"control", 0),
        (b"", 1432),
        (b"", 16 << 10),
        (b"control", 4000),
        (b"control", 100_000),
    ];
    for (control, length) in messages {
        let mut posted = connected(LinkConfig::default(), 1);
        posted.b.pool = vec![length];
        let now = posted.now();
        posted.b.post_pooled(now);
        let mut pooled = connected(LinkConfig::default(), 1);
        pooled.b.pool = vec![length];
        let took = |sim: &mut Sim| {
            let (start, before) = (sim.net.now(), datagrams(sim, Side::A));
            post(sim, control, (7, length));
            sim.run_until(LIMIT, |sim| {
                let id = sim.b.pooled.first().map(|it| it.0);
                id.is_some_and(|id| sim.b.outcomes(id) > 0)
            });
            let time = sim.net.now() - start;
            sim.run_for(Duration::from_secs(1));
            (time, datagrams(sim, Side::A) - before)
        };
        assert_eq!(took(&mut pooled), took(&mut posted), "{length} bytes");
        let (_, target) = pooled.b.pooled[0];
        assert!(pooled.b.holds(target, 7, length));
        assert_eq!(pooled.b.c().counters().dropped(DropReason::Limit), 0);
    }
}

/// Too long a message fails at both ends, and no other does.
#[test]
fn receive__that_is_too_short_fails_alone() {
    let mut sim = connected(LinkConfig::default(), 1);
    sim.b.pool = vec![2000; 3];
    let sent = [1000, 2001, 2000].map(|length| post(&mut sim, b"", (length, length)));
    sim.run_until(LIMIT, |sim| sim.a.sent(sent[0]) && sim.a.sent(sent[2]));
    sim.run_for(Duration::from_secs(1));
    let error = TransferError::MessageTooLarge {
        length: 2001,
        room: 2000,
    };
    assert_eq!(sim.a.failed(sent[1]), Some(error));
    let ids: Vec<_> = sim.b.pooled.iter().map(|it| it.0).collect();
    assert_eq!(ids.len(), 3);
    let failed: Vec<_> = ids.iter().map(|&id| sim.b.failed(id)).collect();
    assert_eq!(failed, [None, Some(error), None]);
}

/// Messages that found nothing continue once there is a receive; one that its sender gave up meanwhile leaves the
/// receive unmatched, and it can be taken back.
#[test]
fn wants_receive__until_one_is_posted() {
    let mut sim = connected(LinkConfig::default(), 1);
    assert!(!sim.b.c().wants_receive());
    let from = post(&mut sim, b"one", (1, 8));
    sim.run_for(Duration::from_millis(50));
    assert!(sim.b.c().wants_receive() && !sim.a.sent(from));
    sim.b.pool = vec![100; 2];
    let now = sim.now();
    sim.b.post_pooled(now);
    assert!(!sim.b.c().wants_receive());
    sim.run_until(LIMIT, |sim| sim.a.sent(from));

    sim.b.pool.clear();
    let given_up = post(&mut sim, b"two", (2, 8));
    sim.run_for(Duration::from_millis(50));
    let (now, number) = (sim.now(), sim.b.c().next_operation());
    sim.a.c().cancel(now, given_up);
    sim.b.pool = vec![100];
    sim.b.post_pooled(now);
    let id = sim.b.pooled[1].0;
    sim.run_for(Duration::from_secs(1));
    assert_ne!(sim.b.c().next_operation(), number);
    let now = sim.now();
    assert!(sim.b.c().cancel_unmatched(now, id));
    assert!(!sim.b.c().cancel_unmatched(now, id));
}

/// Over any link, each message takes one receive of the pool, in order, and takes none twice.
#[test]
fn receives__are_taken_once_each_over_lossy_links() {
    each(40, |seed| {
        let mut dice = Dice::new(seed);
        let link = LinkConfig {
            loss: Loss::Random(0.05),
            ..LinkConfig::default()
        };
        let mut sim = connected(link, seed);
        let lengths: Vec<u64> = (0..30)
            .map(|_| match dice.below(3) {
                0 => 0,
                1 => dice.below(16 << 10),
                _ => dice.below(100_000),
            })
            .collect();
        let with_control: Vec<bool> = lengths.iter().map(|_| dice.below(2) == 0).collect();
        sim.b.pool = vec![100_000; lengths.len()];
        let mut sent = vec![];
        for (n, &length) in lengths.iter().enumerate() {
            let control = bytes_of(
                n as u64,
                if with_control[n] || length == 0 {
                    20
                } else {
                    0
                },
            );
            sent.push(post(&mut sim, &control, (n as u64, length)));
        }
        sim.run_until(LIMIT, |sim| sent.iter().all(|&id| sim.a.sent(id)));
        assert_eq!(sim.b.pooled.len(), lengths.len());
        for (n, &length) in lengths.iter().enumerate() {
            let (id, target) = sim.b.pooled[n];
            assert_eq!(sim.b.outcomes(id), 1, "message {n}");
            assert!(sim.b.holds(target, n as u64, length), "message {n}");
        }
        sim.b.assert_guards();
    });
}

/// Nothing of the peer is expected, so an idle connection needs no pings, and has no receive.
#[test]
fn receive__none_of_an_idle_connection() {
    let mut sim = connected(LinkConfig::default(), 1);
    sim.b.pool = vec![4096];
    send(&mut sim, Side::A, 7, 100, true);
    sim.run_for(Duration::from_secs(1));
    assert!(!sim.b.c().is_busy());
    assert_eq!((sim.b.pool.len(), sim.b.pooled.len()), (0, 1));
}
