//! Every order in which threads can take the steps of what they share, tried by loom.
#![allow(non_snake_case)]

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
    pub(crate) use loom::thread::yield_now;
}

#[path = "../src/doorbell.rs"]
mod doorbell;
#[path = "../src/grace.rs"]
mod grace;

use doorbell::Doorbell;
use grace::GracePeriods;
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Notify};
use loom::thread;
use sync::{AtomicUsize, Ordering};

/// Sleeps as a driver does, until woken; loom reports one that never wakes.
fn hear(bell: &Doorbell, event: &Notify) {
    while !bell.take() {
        bell.sleep(|| event.wait());
    }
}

fn ring(bell: &Doorbell, event: &Notify) {
    if bell.ring() {
        event.notify();
    }
}

#[test]
fn doorbell__no_ring_is_slept_through() {
    loom::model(|| {
        let shared = Arc::new((Doorbell::default(), Notify::new()));
        let theirs = Arc::clone(&shared);
        let ringing = thread::spawn(move || ring(&theirs.0, &theirs.1));
        hear(&shared.0, &shared.1);
        ringing.join().unwrap();
        assert!(!shared.0.take(), "heard twice");
    });
}

#[test]
fn doorbell__brings_what_was_written_before() {
    // Three threads have too many orders to try all.
    let mut few = loom::model::Builder::new();
    few.preemption_bound = Some(2);
    few.check(|| {
        let shared = Arc::new((Doorbell::default(), Notify::new(), AtomicUsize::new(0)));
        let ringing: Vec<_> = (0..2)
            .map(|_| {
                let theirs = Arc::clone(&shared);
                thread::spawn(move || {
                    theirs.2.fetch_add(1, Ordering::Relaxed);
                    ring(&theirs.0, &theirs.1);
                })
            })
            .collect();
        while shared.2.load(Ordering::Relaxed) < 2 {
            hear(&shared.0, &shared.1);
        }
        ringing.into_iter().for_each(|it| it.join().unwrap());
    });
}

#[test]
fn grace__what_was_taken_away_is_touched_by_no_turn() {
    loom::model(|| {
        let shared = Arc::new((GracePeriods::default(), UnsafeCell::new(0)));
        let theirs = Arc::clone(&shared);
        let turning = thread::spawn(move || {
            let mut gone = false;
            for _ in 0..2 {
                gone |= theirs.0.enter();
                if !gone {
                    // loom's cell tells if the other thread is in it, too.
                    theirs.1.with_mut(|it| assert!(!it.is_null()));
                }
                theirs.0.leave();
            }
        });
        shared.0.tell();
        shared.0.wait();
        shared.1.with_mut(|it| assert!(!it.is_null()));
        turning.join().unwrap();
    });
}

#[test]
fn grace__turns_are_told_of_all_that_is_taken_away() {
    loom::model(|| {
        let shared = Arc::new((GracePeriods::default(), AtomicUsize::new(0)));
        let taking: Vec<_> = (0..2)
            .map(|_| {
                let theirs = Arc::clone(&shared);
                thread::spawn(move || {
                    theirs.1.fetch_add(1, Ordering::Release);
                    theirs.0.tell();
                })
            })
            .collect();
        let mut seen = 0;
        if shared.0.enter() {
            seen = shared.1.load(Ordering::Acquire);
        }
        shared.0.leave();
        taking.into_iter().for_each(|it| it.join().unwrap());
        if shared.0.enter() {
            seen = shared.1.load(Ordering::Acquire);
        }
        shared.0.leave();
        assert_eq!(seen, 2, "not told of one");
    });
}
