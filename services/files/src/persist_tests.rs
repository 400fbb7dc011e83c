//! Tests that a copy continues after errors that time can cure, and ends after others.

#![allow(non_snake_case)]

use super::*;
use crate::message::Totals;
use crate::position::Step;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Counts events.
#[derive(Default)]
struct Told {
    interrupted: AtomicU32,
    reconnected: AtomicU32,
}

impl Observer for Told {
    fn interrupted(&self, _why: &Error, left: Duration) {
        assert!(!left.is_zero());
        self.interrupted.fetch_add(1, Relaxed);
    }
    fn reconnected(&self, _outage: Duration, _bytes: u64) {
        self.reconnected.fetch_add(1, Relaxed);
    }
}

const LONG: Duration = Duration::from_secs(3600);
const LOST: Error = Error::Transport(zerolane::Error::Closed(CloseReason::PeerDead));

/// Runs attempts, each with its number; returns the result and the number of attempts.
fn run(
    patience: Duration,
    told: &Told,
    mut attempt: impl FnMut(u32, &mut Copying<'_>) -> Result<Totals, Error>,
) -> (Result<Totals, Error>, u32) {
    let stop = Stop::default();
    let mut tries = 0;
    let outcome = Copying::new(told, &stop, patience).run(|copying| {
        tries += 1;
        attempt(tries, copying)
    });
    (outcome, tries)
}

#[test]
fn run__goes_on_until_all_is_copied() {
    let told = Told::default();
    let (outcome, tries) = run(LONG, &told, |number, copying| {
        match number {
            // No answer: the outage continues.
            2 => {}
            _ => copying.accepted([1; 16], false),
        }
        match number {
            4 => Ok(Totals::default()),
            _ => Err(LOST),
        }
    });
    assert!(outcome.is_ok());
    assert_eq!(tries, 4);
    assert_eq!(told.interrupted.load(Relaxed), 2);
    assert_eq!(told.reconnected.load(Relaxed), 2);
}

#[test]
fn run__what_was_never_accepted_is_not_tried_again() {
    let (outcome, tries) = run(LONG, &Told::default(), |_, _| Err(LOST));
    assert!(matches!(outcome, Err(Error::Transport(_))));
    assert_eq!(tries, 1);
}

#[test]
fn run__a_refusal_is_not_tried_again() {
    let closed = |reason| Error::Transport(zerolane::Error::Closed(reason));
    for refusal in [
        closed(CloseReason::Untrusted([1; 32])),
        closed(CloseReason::ExchangeRefused(Reason::Denied)),
        closed(CloseReason::Peer(Reason::Denied)),
        closed(CloseReason::Violation),
        Refusal::NotAllowed.into(),
        Refusal::ReadOnly.into(),
        Error::Version { peer: 9 },
        Error::Protocol("x"),
        Error::NoMemory,
    ] {
        let mut refusal = Some(refusal);
        let (outcome, tries) = run(LONG, &Told::default(), |_, copying| {
            copying.accepted([1; 16], false);
            Err(refusal.take().unwrap_or(Error::Internal))
        });
        assert_eq!(tries, 1, "{outcome:?}");
    }
}

#[test]
fn run__gives_up_without_progress_only() {
    let patience = Duration::from_millis(200);
    let (outcome, tries) = run(patience, &Told::default(), |_, copying| {
        copying.accepted([1; 16], false);
        Err(LOST)
    });
    assert!(
        matches!(&outcome, Err(Error::GaveUp { patience: it, .. }) if *it == patience),
        "{outcome:?}"
    );
    assert!(tries >= 2);
    // Each of these attempts makes progress, so no outage lasts long.
    let (outcome, tries) = run(patience, &Told::default(), |number, copying| {
        copying.accepted([1; 16], false);
        copying.reached.position.pass(Step::Entry, b"a");
        std::thread::sleep(patience / 4);
        match number {
            20 => Ok(Totals::default()),
            _ => Err(LOST),
        }
    });
    assert_eq!((outcome.is_ok(), tries), (true, 20));
    // Without patience the error is that of the connection.
    let (outcome, tries) = run(Duration::ZERO, &Told::default(), |_, copying| {
        copying.accepted([1; 16], false);
        Err(LOST)
    });
    assert!(matches!(outcome, Err(Error::Transport(_))));
    assert_eq!(tries, 1);
}

#[test]
fn run__a_stop_ends_it_while_it_waits() {
    let stop = Stop::default();
    let mut tries = 0;
    let outcome: Result<(), _> = Copying::new(&(), &stop, LONG).run(|copying| {
        copying.accepted([1; 16], false);
        tries += 1;
        if tries == 3 {
            stop.request();
        }
        Err(LOST)
    });
    assert!(matches!(outcome, Err(Error::Stopped)));
    assert_eq!(tries, 3);
}

#[test]
fn accepted__after_another_start_of_the_system_only_what_was_synced_counts() {
    for (durable, counts) in [(false, false), (true, true)] {
        let stop = Stop::default();
        let mut copying = Copying::new(&(), &stop, LONG);
        copying.accepted([1; 16], durable);
        copying.reached.position.pass(Step::Entry, b"a");
        let position = copying.reached.position;
        copying.accepted([1; 16], durable);
        assert_eq!(copying.reached.position, position);
        copying.accepted([2; 16], durable);
        assert_eq!(copying.reached.position == position, counts);
    }
}
