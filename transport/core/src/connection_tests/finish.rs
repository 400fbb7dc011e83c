//! Tests that one direction can finish while the other continues.
//!
//! Earlier posts arrive, and waiting receives learn that nothing more comes.

use super::memory::{at, export, put};
use super::memory_faults::bad;
use super::seeds::{Dice, each};
use super::sim::{Sim, bytes_of};
use crate::*;
use netsim::Side;
use netsim::link::LinkConfig;
use std::time::Duration;
use zerolane_wire::{End, Operation, Reason, Rights};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

fn sim_with(link: LinkConfig, seed: u64) -> Sim {
    let mut sim = Sim::new(link, seed, Config::default(), Config::default());
    sim.connect();
    sim
}

fn quiet() -> Sim {
    let link = LinkConfig {
        delay: 5 * MS,
        ..LinkConfig::default()
    };
    sim_with(link, 1)
}

fn finish(sim: &mut Sim, side: Side) {
    let now = sim.now();
    sim.host(side).c().finish(now).expect("open");
}

fn send(sim: &mut Sim, from: Side, seed: u64, length: u64) -> Result<TransferId, PostError> {
    let now = sim.now();
    let host = sim.host(from);
    let span = host.filled(seed, length);
    host.c().post_send(now, span, Delivery::Interrupt)
}

fn message(sim: &mut Sim, seed: u64, payload: u64) -> Result<TransferId, PostError> {
    let now = sim.now();
    let control = bytes_of(seed, 16);
    let payload = (payload > 0).then(|| sim.a.filled(seed + 1, payload));
    let flags = WorkFlags::default();
    sim.a.c().post_message(now, &control, payload, flags)
}

fn receive(sim: &mut Sim, side: Side, length: u64) -> (TransferId, Span) {
    let now = sim.now();
    let host = sim.host(side);
    let span = host.empty(length);
    (host.c().post_receive(now, span).expect("posted"), span)
}

fn receive_message(sim: &mut Sim, payload: u64) -> (TransferId, Span, Span) {
    let (control, payload) = (sim.b.empty(16), sim.b.empty(payload));
    let posted = sim.b.c().post_message_receive(control, Some(payload));
    (posted.expect("posted"), control, payload)
}

const FINISHED: Option<TransferError> = Some(TransferError::Finished);

#[test]
fn finish__what_waits_for_more_fails_and_the_other_direction_goes_on() {
    let mut sim = quiet();
    let (first, there) = receive(&mut sim, Side::B, 100_000);
    let (second, _) = receive(&mut sim, Side::B, 100_000);
    let (mail, _, _) = receive_message(&mut sim, 100);
    send(&mut sim, Side::A, 7, 100_000).expect("posted");
    finish(&mut sim, Side::A);
    assert_eq!(send(&mut sim, Side::A, 8, 1), Err(PostError::Finished));
    assert_eq!(message(&mut sim, 8, 1), Err(PostError::Finished));
    sim.run_until(S, |sim| sim.b.outcomes(second) > 0);
    // Behind earlier arrivals.
    assert!(sim.b.received(first).is_some() && sim.b.holds(there, 7, 100_000));
    assert_eq!(sim.b.failed(second), FINISHED);
    assert_eq!(sim.b.failed(mail), FINISHED);
    // Later posts fail at once.
    let late = receive(&mut sim, Side::B, 10).0;
    let late_mail = receive_message(&mut sim, 10).0;
    sim.run_for(20 * MS);
    assert_eq!(sim.b.failed(late), FINISHED);
    assert_eq!(sim.b.failed(late_mail), FINISHED);
    // The other direction, and memory, work as before.
    let (back, here) = receive(&mut sim, Side::A, 50_000);
    send(&mut sim, Side::B, 9, 50_000).expect("not finished");
    let memory = sim.b.empty(100);
    let place = export(&mut sim, memory, Rights::ALL);
    let written = put(&mut sim, at(place, 0), 5, 100, None);
    sim.run_until(S, |sim| {
        sim.a.outcomes(back) > 0 && sim.a.outcomes(written) > 0
    });
    assert!(sim.a.holds(here, 9, 50_000) && sim.b.holds(memory, 5, 100));
    // A second call has no effect, and nothing stays unconfirmed.
    finish(&mut sim, Side::A);
    finish(&mut sim, Side::B);
    sim.run_for(S);
    assert!(!sim.a.c().is_busy() && !sim.b.c().is_busy());
}

/// A program that closes once everything is sent, by [`Connection::is_sending`], closes behind the end of sending.
#[test]
fn finish__is_not_all_sent_before_the_peer_knows() {
    let mut sim = quiet();
    finish(&mut sim, Side::A);
    assert!(sim.a.c().is_sending());
    sim.net.link_mut(Side::A).set_up(false);
    sim.run_for(4 * MS);
    sim.net.link_mut(Side::A).set_up(true);
    sim.run_until(S, |sim| {
        !sim.a
            .connection
            .as_ref()
            .is_some_and(Connection::is_sending)
    });
    let (late, _) = receive(&mut sim, Side::B, 1);
    sim.run_for(Duration::ZERO);
    assert_eq!(sim.b.failed(late), FINISHED);
}

#[test]
fn finish__follows_all_that_has_no_number_yet() {
    let mut sim = quiet();
    let count = 400;
    for seed in 0..count {
        send(&mut sim, Side::A, seed, 32 << 10).expect("posted");
    }
    finish(&mut sim, Side::A);
    sim.run_for(S);
    for seed in 0..count {
        let (id, there) = receive(&mut sim, Side::B, 32 << 10);
        sim.run_until(10 * S, |sim| sim.b.outcomes(id) > 0);
        assert!(sim.b.holds(there, seed, 32 << 10), "{seed}");
    }
    let (last, _) = receive(&mut sim, Side::B, 1);
    sim.run_until(S, |sim| sim.b.outcomes(last) > 0);
    assert_eq!(sim.b.failed(last), FINISHED);
}

#[test]
fn finish__nothing_before_it_is_missed_whatever_is_lost() {
    each(60, |seed| {
        let mut dice = Dice::new(seed);
        let mut sim = sim_with(bad(), seed);
        let memory = sim.b.empty(100_000);
        let place = export(&mut sim, memory, Rights::ALL);
        let (mut sent, mut mail, mut cancelled) = (vec![], vec![], vec![]);
        for name in 0..30 {
            let length = 1 + dice.below(60_000);
            match dice.below(4) {
                0 | 1 => {
                    let id = send(&mut sim, Side::A, name, length).expect("posted");
                    let cancel = dice.chance(20);
                    sent.push((name, length, cancel));
                    cancelled.extend(cancel.then_some(id));
                }
                2 => {
                    message(&mut sim, name, length % 20_000).expect("posted");
                    mail.push((name, length % 20_000));
                }
                _ => {
                    put(&mut sim, place, name, length, None);
                }
            }
            sim.run_for(Duration::from_micros(dice.below(400)));
            let now = sim.now();
            for id in cancelled.drain(..) {
                sim.a.c().cancel(now, id);
            }
        }
        finish(&mut sim, Side::A);
        // One of each is always posted, until it reports that there is no more.
        let (mut sent, mut mail) = (sent.into_iter(), mail.into_iter());
        let mut transfer = Some(receive(&mut sim, Side::B, 60_000));
        let mut letter = Some(receive_message(&mut sim, 20_000));
        while transfer.is_some() || letter.is_some() {
            let ids = [transfer.map(|it| it.0), letter.map(|it| it.0)];
            sim.run_until(60 * S, |sim| {
                ids.into_iter().flatten().any(|id| sim.b.outcomes(id) > 0)
            });
            if let Some((id, there)) = transfer.take_if(|it| sim.b.outcomes(it.0) > 0) {
                match sim.b.failed(id) {
                    FINISHED => continue,
                    // It had begun when it was cancelled.
                    Some(error) => assert_eq!(error, TransferError::Refused(Reason::Cancelled)),
                    None => {
                        let length = sim.b.received(id).expect("over");
                        // A cancelled one may have arrived all the same.
                        let is_it = |it: &(u64, u64, bool)| !it.2 || it.1 == length;
                        let (name, length, _) = sent.find(is_it).expect("what was sent");
                        assert!(sim.b.holds(there, name, length));
                    }
                }
                transfer = Some(receive(&mut sim, Side::B, 60_000));
            }
            if let Some((id, control, payload)) = letter.take_if(|it| sim.b.outcomes(it.0) > 0) {
                if sim.b.failed(id) == FINISHED {
                    continue;
                }
                let (name, length) = mail.next().expect("a message");
                assert!(sim.b.holds(control, name, 16) && sim.b.holds(payload, name + 1, length));
                letter = Some(receive_message(&mut sim, 20_000));
            }
        }
        assert!(sent.all(|it| it.2) && mail.next().is_none());
        sim.run_for(5 * S);
        assert!(!sim.a.c().is_busy() && !sim.b.c().is_busy());
    });
}

/// An End with an arbitrary number has only that effect: earlier announcements still arrive, and nothing grows.
#[test]
fn finish__by_a_peer_that_does_not_mean_it() {
    let mut sim = quiet();
    let now = sim.now();
    let end = |sequence| {
        Operation::End(End {
            reason: Reason::Finished,
            from_source: true,
            sequence,
            d_id: 0,
            s_id: 77,
        })
    };
    let (waiting, there) = receive(&mut sim, Side::B, 100);
    for sequence in [1, 1, 5, 60_000, u32::MAX, 1 << 31] {
        sim.say(now, Side::A, end(sequence));
    }
    assert_eq!(sim.b.outcomes(waiting), 0, "announcement 0 was not heard");
    send(&mut sim, Side::A, 3, 100).expect("posted");
    sim.run_until(S, |sim| sim.b.outcomes(waiting) > 0);
    assert!(sim.b.holds(there, 3, 100));
    let (late, _) = receive(&mut sim, Side::B, 100);
    sim.run_for(20 * MS);
    assert_eq!(sim.b.failed(late), FINISHED);
}
