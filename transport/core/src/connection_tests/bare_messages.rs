//! Tests that bare messages are cheap and fast, wait for no timer, and keep their order.

use super::eager::{assert_nothing_in_vain, datagrams};
use super::memory_faults::assert_fail_with_a_dead_peer;
use super::seeds::{Dice, each};
use super::sim::{Sim, bytes_of};
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, Loss, Reorder};
use std::time::Duration;
use zerolane_wire::Rights;

const US: Duration = Duration::from_micros(1);
const DELAY: Duration = Duration::from_micros(500);

fn quiet() -> Sim {
    let link = LinkConfig {
        delay: DELAY,
        ..LinkConfig::default()
    };
    let mut sim = Sim::new(link, 1, Config::default(), Config::default());
    sim.connect();
    sim.run_for(Duration::from_secs(1));
    sim.trace = Some(vec![]);
    sim
}

pub(super) fn send(sim: &mut Sim, side: Side, seed: u64, length: u64, awaited: bool) -> TransferId {
    let now = sim.now();
    let host = sim.host(side);
    let payload = host.filled(seed, length);
    let flags = WorkFlags {
        awaited,
        ..WorkFlags::default()
    };
    let posted = host.c().post_message(now, &[], Some(payload), flags);
    posted.expect("posted")
}

pub(super) fn receive(sim: &mut Sim, side: Side, length: u64) -> (TransferId, Span) {
    let now = sim.now();
    let host = sim.host(side);
    let (control, target) = (host.empty(128), host.empty(length));
    let request = WorkRequest::ReceiveMessage { control };
    (host.c().post(now, request, target).expect("posted"), target)
}

#[test]
fn message__is_its_payload_and_nothing_else() {
    for (length, expected) in [(1, 1), (1432, 1), (4 << 10, 3), (16 << 10, 12)] {
        let mut sim = quiet();
        let (to, target) = receive(&mut sim, Side::B, length);
        let from = send(&mut sim, Side::A, 7, length, true);
        let start = sim.net.now();
        sim.run_until(Duration::from_secs(1), |sim| sim.b.outcomes(to) > 0);
        assert!(sim.net.now() - start <= DELAY + 200 * US, "{length} bytes");
        sim.run_until(Duration::from_secs(1), |sim| sim.a.sent(from));
        assert!(
            sim.net.now() - start <= 2 * DELAY + 400 * US,
            "{length} bytes"
        );
        assert!(sim.b.holds(target, 7, length));
        assert_eq!(sim.spoken(), "A Data eager, B State complete");
        assert_eq!(datagrams(&sim, Side::A), expected, "{length} bytes");
        sim.run_for(Duration::from_secs(1));
        assert_eq!(datagrams(&sim, Side::A), expected, "nothing is repeated");
        assert_nothing_in_vain(&mut sim);
    }
}

#[test]
fn message__with_control_leaves_before_its_payload() {
    let mut sim = quiet();
    let now = sim.now();
    let (to, _) = receive(&mut sim, Side::B, 4096);
    let (control, payload) = (bytes_of(9, 20), sim.a.filled(7, 4096));
    let flags = WorkFlags::default();
    let posted = sim.a.c().post_message(now, &control, Some(payload), flags);
    posted.expect("posted");
    sim.run_until(Duration::from_secs(1), |sim| sim.b.outcomes(to) > 0);
    assert!(sim.spoken().starts_with("A Data 0, A Data eager"));
    assert_eq!(datagrams(&sim, Side::A), 4);
}

/// Only the receive depends on the peer: nothing that A sent is pending.
#[test]
fn receive__of_a_message_fails_with_a_dead_peer() {
    let mut sim = quiet();
    let (awaited, _) = receive(&mut sim, Side::A, 4096);
    sim.run_for(Duration::from_secs(60));
    assert_eq!(sim.a.closed(), None, "the peer lives, and says nothing");
    assert_fail_with_a_dead_peer(&mut sim, &[awaited]);
}

/// A receive does not count as sending: an end that closes waits only for its sends, and a put may use shared memory if
/// nothing is before it.
#[test]
fn receive__of_a_message_is_nothing_that_this_end_sends() {
    let mut sim = quiet();
    receive(&mut sim, Side::A, 4096);
    sim.run_for(Duration::from_millis(10));
    assert!(sim.a.c().is_busy());
    assert!(!sim.a.c().is_sending() && sim.a.c().ahead() == Ahead::Nothing);
}

/// Like a program that sends and receives in turn, each call waiting for its end: the receive of the answer is posted
/// once the message is known to have arrived.
#[test]
fn answers__wait_for_no_timer() {
    let mut sim = quiet();
    let start = sim.net.now();
    let rounds = 1000;
    let mut receiver = Side::B;
    let mut expected = receive(&mut sim, receiver, 4096);
    for round in 0..rounds {
        let sender = receiver.other();
        let from = send(&mut sim, sender, round, 4096, true);
        let limit = Duration::from_secs(1);
        let (to, target) = expected;
        sim.run_until(limit, |sim| outcomes(sim, receiver, to) > 0);
        // The next sender answers at once; this one posts its receive when its call returns.
        let answer = send(&mut sim, receiver, round, 1, true);
        sim.run_until(limit, |sim| outcomes(sim, sender, from) > 0);
        let (heard, _) = receive(&mut sim, sender, 1);
        sim.run_until(limit, |sim| outcomes(sim, sender, heard) > 0);
        sim.run_until(limit, |sim| outcomes(sim, receiver, answer) > 0);
        assert!(sim.host(receiver).holds(target, round, 4096));
        expected = receive(&mut sim, sender, 4096);
        receiver = sender;
    }
    let took = (sim.net.now() - start) / rounds as u32;
    assert!(
        took <= 3 * DELAY + 300 * US,
        "{took:?} a round of two messages"
    );
    assert_nothing_in_vain(&mut sim);
}

/// More than there are slots, with nothing else that would free slots.
#[test]
fn many__one_after_another() {
    let mut sim = quiet();
    for n in 0..1000 {
        let (to, target) = receive(&mut sim, Side::B, 4096);
        let from = send(&mut sim, Side::A, n, 4096, n % 2 == 0);
        sim.run_until(Duration::from_secs(1), |sim| {
            sim.b.outcomes(to) > 0 && sim.a.sent(from)
        });
        assert!(sim.b.holds(target, n, 4096));
    }
    assert_nothing_in_vain(&mut sim);
}

fn outcomes(sim: &Sim, side: Side, id: TransferId) -> usize {
    match side {
        Side::A => sim.a.outcomes(id),
        Side::B => sim.b.outcomes(id),
    }
}

#[test]
fn held__is_there_as_soon_as_a_receive_is_posted() {
    let mut sim = quiet();
    let from: Vec<_> = (0..3)
        .map(|n| send(&mut sim, Side::A, n, 4096, false))
        .collect();
    sim.run_for(20 * DELAY);
    let sent = datagrams(&sim, Side::A);
    for (n, from) in from.into_iter().enumerate() {
        assert_eq!(sim.a.outcomes(from), 0);
        let (to, target) = receive(&mut sim, Side::B, 4096);
        if n == 0 {
            sim.run_for(Duration::ZERO);
            assert_eq!(sim.b.outcomes(to), 1, "at once");
        }
        sim.run_until(Duration::from_secs(1), |sim| {
            sim.b.outcomes(to) == 1 && sim.a.sent(from)
        });
        assert!(sim.b.holds(target, n as u64, 4096));
        if n == 0 {
            assert_eq!(datagrams(&sim, Side::A), sent, "it is not asked for again");
        }
    }
    assert!(sim.b.holds.is_empty());
    assert_eq!(sim.a.c().counters().bytes_resent, 0);
}

#[test]
fn order__among_the_operations_around_it() {
    let mut sim = quiet();
    let receives: Vec<_> = (0..6).map(|_| receive(&mut sim, Side::B, 9000)).collect();
    let lengths = [4096, 20, 9000, 1, 1432, 1433];
    let now = sim.now();
    let mut sent = vec![];
    for (n, length) in lengths.into_iter().enumerate() {
        let control = bytes_of(9, 8 * (n as u64 % 2));
        let payload = sim.a.filled(n as u64, length);
        let flags = WorkFlags::default();
        let posted = sim.a.c().post_message(now, &control, Some(payload), flags);
        sent.push(posted.expect("posted"));
    }
    sim.run_until(Duration::from_secs(1), |sim| {
        sent.iter().all(|&id| sim.a.sent(id))
    });
    for (n, ((to, target), length)) in receives.into_iter().zip(lengths).enumerate() {
        let event = Event::Message {
            id: to,
            control: 8 * (n as u32 % 2),
            payload: length,
        };
        assert!(sim.b.events.contains(&event), "{n}");
        assert!(sim.b.holds(target, n as u64, length), "{n}");
    }
    assert_nothing_in_vain(&mut sim);
}

/// The payload of message 1 comes, and nothing of message 0: it waits for its turn, at either end.
#[test]
fn hostile__out_of_turn_and_again() {
    let mut sim = quiet();
    let (first, _) = receive(&mut sim, Side::B, 4096);
    let (second, target) = receive(&mut sim, Side::B, 4096);
    let mut lost = 0;
    sim.copies = Some(Box::new(move |side, _| {
        lost += usize::from(side == Side::A);
        // Message 0 is lost once, the datagrams of message 1 come three times.
        match (side, lost) {
            (Side::A, 1) => 0,
            (Side::A, 2..=4) => 3,
            _ => 1,
        }
    }));
    let from =
        [(3, 1), (4, 4096)].map(|(seed, length)| send(&mut sim, Side::A, seed, length, false));
    sim.run_until(Duration::from_secs(2), |sim| {
        from.iter().all(|&id| sim.a.sent(id))
    });
    sim.run_for(Duration::from_secs(2));
    let message = |id, payload| Event::Message {
        id,
        control: 0,
        payload,
    };
    // The lost message may come last, but each has its own receive.
    assert!(sim.b.events.contains(&message(first, 1)));
    assert!(sim.b.events.contains(&message(second, 4096)));
    assert_eq!((sim.b.outcomes(first), sim.b.outcomes(second)), (1, 1));
    assert!(sim.b.holds(target, 4, 4096));
    assert!(sim.b.holds.is_empty());
}

/// Whatever is lost, late or repeated, and whenever receives are posted: each message matches the next receive, behind
/// the puts before it, and all end once.
#[test]
fn model__puts_and_messages_in_order() {
    each(60, |seed| {
        let mut dice = Dice::new(seed);
        let link = LinkConfig {
            delay: DELAY,
            loss: Loss::Random(dice.pick(&[0.0, 0.02, 0.2])),
            duplicate: dice.pick(&[0.0, 0.1]),
            reorder: Reorder {
                probability: dice.pick(&[0.0, 0.2]),
                by: DELAY,
            },
            ..LinkConfig::default()
        };
        let mut sim = Sim::new(link, seed, Config::default(), Config::default());
        sim.connect();
        let word = sim.b.empty(8);
        let (handle, mx) = sim
            .b
            .c()
            .export(word, Rights::ALL, ExportAs::Handle)
            .expect("room");
        let place = RemotePlace {
            handle,
            mx,
            address: 0,
        };
        let (mut sent, mut receives) = (vec![], vec![]);
        let count = 30;
        for n in 0..count {
            // Before each message, its number is put; its receiver must find that number, or a later one.
            let number = sim.a.words(&[n]);
            let flags = WorkFlags {
                signalled: dice.chance(50),
                fence: false,
                awaited: dice.chance(50),
            };
            let now = sim.now();
            sim.a
                .c()
                .post_put(now, place, number, None, flags)
                .expect("room");
            let control = bytes_of(9, dice.pick(&[0, 0, 0, 16]));
            let length = 1 + dice.below(12 << 10);
            let payload = sim.a.filled(n, length);
            let flags = WorkFlags {
                signalled: true,
                ..flags
            };
            let from = sim.a.c().post_message(now, &control, Some(payload), flags);
            sent.push((from.expect("room"), length));
            if dice.chance(70) && receives.len() < sent.len() {
                receives.push(receive(&mut sim, Side::B, 12 << 10));
            }
            if dice.chance(60) {
                sim.run_for(Duration::from_micros(dice.below(3000)));
            }
        }
        while receives.len() < count as usize {
            receives.push(receive(&mut sim, Side::B, 12 << 10));
            sim.run_for(Duration::from_micros(dice.below(3000)));
        }
        let wanted = sent.clone();
        let all: Vec<_> = receives.iter().map(|it| it.0).collect();
        sim.run_until(Duration::from_secs(60), |sim| {
            wanted.iter().all(|it| sim.a.sent(it.0)) && all.iter().all(|&to| sim.b.outcomes(to) > 0)
        });
        sim.run_for(Duration::from_secs(5));
        for (n, ((from, length), (to, target))) in sent.into_iter().zip(receives).enumerate() {
            assert_eq!((sim.a.outcomes(from), sim.b.outcomes(to)), (1, 1), "{n}");
            assert!(sim.b.holds(target.part(0, length), n as u64, length), "{n}");
        }
        assert_eq!(sim.b.word(word), count - 1);
        assert!(sim.b.holds.is_empty());
        assert!(!sim.a.c().is_busy() && !sim.b.c().is_busy());
        sim.b.assert_guards();
    });
}
