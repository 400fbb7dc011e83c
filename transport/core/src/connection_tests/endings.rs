//! Tests that cancels and closes take effect while the link loses their operations.

use super::seeds::{Dice, each};
use super::sim::{Sim, bytes_of};
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, Loss, Reorder};
use std::time::Duration;
use zerolane_wire::{Profile, Profiles, Reason, Rights};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

fn bad(loss: f64) -> LinkConfig {
    LinkConfig {
        delay: MS / 5,
        rate_bits_per_s: Some(100_000_000),
        loss: Loss::Random(loss),
        duplicate: loss / 4.0,
        reorder: Reorder {
            probability: loss,
            by: MS / 2,
        },
        ..LinkConfig::default()
    }
}

fn any_profile(dice: &mut Dice) -> Config {
    let profiles = match dice.chance(30) {
        true => Profiles::only(Profile::Classic),
        false => Profiles::BOTH,
    };
    Config {
        profiles,
        ..Config::default()
    }
}

fn connected(loss: f64, seed: u64, config: &Config) -> Sim {
    let mut sim = Sim::new(bad(loss), seed, config.clone(), config.clone());
    sim.connect();
    sim
}

/// Posts a send of A and the matching receive.
fn stream(sim: &mut Sim, content: u64, length: u64) -> (TransferId, TransferId, Span) {
    let now = sim.now();
    let source = sim.a.filled(content, length);
    let target = sim.b.empty(length);
    let to = sim.b.c().post_receive(now, target).expect("posted");
    let from = sim.a.c().post_send(now, source, Delivery::Polled);
    (from.expect("posted"), to, target)
}

#[test]
fn cancel__is_told_in_its_own_words_whatever_is_lost() {
    each(300, |seed| {
        let mut dice = Dice::new(seed);
        let config = any_profile(&mut dice);
        let mut sim = connected(0.2, seed, &config);
        let length = 150_000 + dice.below(300_000);
        let (from, to, _) = stream(&mut sim, 1, length);
        sim.run_until(20 * S, |sim| {
            sim.b
                .connection
                .as_ref()
                .is_some_and(|it| it.counters().bytes_received > 50_000)
        });
        let now = sim.now();
        let by_sender = dice.chance(30);
        let (other, cancelled) = match by_sender {
            true => (to, sim.a.c().cancel(now, from)),
            false => (from, sim.b.c().cancel(now, to)),
        };
        assert!(cancelled, "still in flight");
        let why = |sim: &Sim| match by_sender {
            true => sim.b.failed(other),
            false => sim.a.failed(other),
        };
        sim.run_until(20 * S, |sim| why(sim).is_some());
        let error = TransferError::Refused(Reason::Cancelled);
        assert_eq!(why(&sim), Some(error), "by the sender: {by_sender}");
        // Later Transfers are not delayed.
        let (next, to, target) = stream(&mut sim, 2, 1_000);
        sim.run_until(20 * S, |sim| {
            sim.a.sent(next) && sim.b.received(to).is_some()
        });
        assert!(sim.b.holds(target, 2, 1_000));
    });
}

/// Everything arrived and the receiver closes at once: the sender learns of the arrival, whatever was lost.
#[test]
fn close__of_a_receiver_that_has_everything_fails_no_send() {
    each(300, |seed| {
        let mut dice = Dice::new(seed);
        let config = any_profile(&mut dice);
        let mut sim = connected(0.2, seed, &config);
        let count = 1 + dice.below(4);
        let all: Vec<_> = (0..count)
            .map(|n| stream(&mut sim, n, dice.below(8_000)))
            .collect();
        sim.run_until(60 * S, |sim| {
            all.iter().all(|&(_, to, _)| sim.b.received(to).is_some())
        });
        let now = sim.now();
        sim.b.c().close(now);
        sim.run_until(20 * S, |sim| sim.a.closed().is_some());
        for (from, ..) in all {
            assert!(sim.a.sent(from), "{:?}", sim.a.failed(from));
        }
    });
}

/// A completion reported to the sender is reported to the receiver before the end is, even if the sender closes at the
/// moment when it learns of the completion.
#[test]
fn close__of_a_sender_hides_no_completion_that_it_knows_of() {
    each(300, |seed| {
        let mut dice = Dice::new(seed);
        let config = any_profile(&mut dice);
        let mut sim = connected(0.2, seed, &config);
        let count = 1 + dice.below(4);
        let all: Vec<_> = (0..count)
            .map(|n| {
                let most = if dice.chance(50) { 2 } else { 20_000 };
                let length = dice.below(most);
                let (from, to, target) = stream(&mut sim, n, length);
                (from, to, target, n, length)
            })
            .collect();
        let (awaited, ..) = all[dice.below(count) as usize];
        sim.run_until(60 * S, |sim| sim.a.sent(awaited));
        let now = sim.now();
        sim.a.c().close(now);
        sim.run_until(20 * S, |sim| sim.b.closed().is_some());
        let last = sim.b.events.last();
        assert!(matches!(last, Some(Event::Closed(_))), "{last:?}");
        for (from, to, target, n, length) in all {
            assert_eq!(sim.b.outcomes(to), 1);
            if sim.a.sent(from) {
                assert_eq!(sim.b.received(to), Some(length), "Transfer {n}");
                assert!(sim.b.holds(target, n, length), "Transfer {n}");
            }
        }
    });
}

/// The same where it does not wait for the answer, on a link that loses everything but that one operation.
#[test]
fn abandon__tells_what_arrived() {
    let mut sim = connected(0.0, 1, &Config::default());
    let (from, to, _) = stream(&mut sim, 1, 100_000);
    sim.run_until(S, |sim| sim.b.outcomes(to) == 1 || is_all_but_complete(sim));
    sim.net.link_mut(netsim::Side::B).set_up(false);
    sim.run_until(S, |sim| sim.b.received(to).is_some());
    sim.run_for(MS);
    sim.net.link_mut(netsim::Side::B).set_up(true);
    let now = sim.now();
    assert!(!sim.a.sent(from), "the report got through");
    sim.b.c().abandon(now, Reason::GoingAway);
    sim.run_until(S, |sim| sim.a.closed().is_some());
    assert!(sim.a.sent(from));
    assert_eq!(sim.a.closed(), Some(CloseReason::Peer(Reason::GoingAway)));
}

/// Whether the last of 100,000 bytes are in flight to B.
fn is_all_but_complete(sim: &Sim) -> bool {
    let counters = sim.b.connection.as_ref().map(Connection::counters);
    counters.is_some_and(|it| it.bytes_received > 90_000)
}

#[test]
fn close__of_an_end_that_has_seen_the_last_put_fails_no_put() {
    each(300, |seed| {
        let mut sim = connected(0.2, seed, &Config::default());
        let region = sim.a.empty(4_000);
        let (handle, mx) = sim
            .a
            .c()
            .export(region, Rights::ALL, ExportAs::Handle)
            .expect("room");
        let now = sim.now();
        let flags = WorkFlags {
            signalled: false,
            ..WorkFlags::default()
        };
        for n in 0..3 {
            let place = RemotePlace {
                handle,
                mx,
                address: n * 1000,
            };
            let span = sim.b.filled(n, 1000);
            let put = sim.b.c().post_put(now, place, span, Some(n as u32), flags);
            put.expect("posted");
        }
        sim.run_until(20 * S, |sim| sim.a.is_shown(2));
        let now = sim.now();
        sim.a.c().close(now);
        sim.run_until(20 * S, |sim| sim.b.closed().is_some());
        let failed = |event: &&Event| matches!(event, Event::Failed { .. });
        assert_eq!(sim.b.events.iter().find(failed), None);
        for n in 0..3 {
            assert!(sim.a.holds(region.part(n * 1000, 1000), n, 1000));
        }
    });
}

/// Posts a receive of a message with a payload of up to `room` bytes at B.
fn receive_message(sim: &mut Sim, room: u64) -> (TransferId, Span) {
    let control = sim.b.empty(u64::from(limits::MAX_CONTROL));
    let payload = sim.b.empty(room);
    let posted = sim.b.c().post_message_receive(control, Some(payload));
    (posted.expect("posted"), payload)
}

fn send_message(sim: &mut Sim, content: u64, length: u64) -> TransferId {
    let now = sim.now();
    let control = bytes_of(content, 8);
    let payload = sim.a.filled(content, length);
    let posted = sim
        .a
        .c()
        .post_message(now, &control, Some(payload), WorkFlags::default());
    posted.expect("posted")
}

/// A peer that has a message waits for its payload. It must be told that the payload will not come, whenever it is
/// cancelled.
#[test]
fn cancel__of_a_payload_is_told_before_it_was_announced() {
    each(300, |seed| {
        let mut dice = Dice::new(seed);
        let config = Config {
            slots: 1,
            ..Config::default()
        };
        let mut sim = connected(if dice.chance(30) { 0.0 } else { 0.1 }, seed, &config);
        // Takes the only slot.
        let now = sim.now();
        let source = sim.a.filled(1, 5_000);
        let first = sim
            .a
            .c()
            .post_send(now, source, Delivery::Polled)
            .expect("posted");
        sim.run_for(Duration::from_micros(dice.below(2_000)));
        let (one, two) = (
            receive_message(&mut sim, 3_000),
            receive_message(&mut sim, 3_000),
        );
        let cancelled = send_message(&mut sim, 2, 3_000);
        sim.run_for(Duration::from_micros(dice.below(20_000)));
        let now = sim.now();
        assert!(sim.a.c().cancel(now, cancelled), "no slot for it yet");
        sim.run_for(Duration::from_micros(dice.below(2_000)));
        let sent = send_message(&mut sim, 3, 2_000);
        let now = sim.now();
        let target = sim.b.empty(5_000);
        let to = sim.b.c().post_receive(now, target).expect("posted");
        sim.run_until(60 * S, |sim| sim.a.sent(first) && sim.a.sent(sent));
        assert!(sim.b.received(to).is_some() && sim.b.holds(target, 1, 5_000));
        // If the message never left, its receive takes the next one.
        let payload = match sim.b.failed(one.0) {
            Some(error) => {
                assert_eq!(error, TransferError::Refused(Reason::Cancelled));
                assert_eq!(sim.b.outcomes(two.0), 1);
                two.1
            }
            None => {
                assert_eq!((sim.b.outcomes(one.0), sim.b.outcomes(two.0)), (1, 0));
                one.1
            }
        };
        assert!(sim.b.holds(payload, 3, 2_000));
        assert_eq!(sim.a.outcomes(cancelled), 1);
        sim.run_until(20 * S, |sim| {
            let all_over = |it: &Connection| !it.is_sending() && it.cx.endings.len() == 0;
            sim.a.connection.as_ref().is_some_and(all_over)
        });
    });
}

/// A question to a peer that left while it was asked has no answer.
#[test]
fn close__at_once_with_a_peer_that_goes_away() {
    let mut sim = connected(0.0, 1, &Config::default());
    let now = sim.now();
    sim.a.c().close(now);
    sim.b.c().abandon(now, Reason::GoingAway);
    // Nothing from A arrives any more.
    sim.net.link_mut(Side::A).set_up(false);
    sim.run_until(S, |sim| sim.a.closed().is_some());
    assert_eq!(sim.a.closed(), Some(CloseReason::Local));
}

#[test]
fn close__by_both_at_once_whatever_is_lost() {
    each(100, |seed| {
        let mut sim = connected(0.3, seed, &Config::default());
        let now = sim.now();
        sim.a.c().close(now);
        sim.b.c().close(now);
        let closed = |sim: &Sim| sim.a.closed().is_some() && sim.b.closed().is_some();
        sim.run_until(10 * S, closed);
        for end in [&sim.a, &sim.b] {
            assert_eq!(end.closed(), Some(CloseReason::Local));
        }
    });
}
