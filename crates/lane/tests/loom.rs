//! Every order in which threads can take the steps of what they share, tried by loom.
#![allow(non_snake_case)]

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
    pub(crate) use loom::thread::yield_now;
}

#[path = "../src/doorbell.rs"]
mod doorbell;
#[path = "../src/latch.rs"]
mod latch;

use doorbell::Doorbell;
use latch::Latch;
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
fn gate__shut_means_that_no_thread_touches_what_is_behind() {
    loom::model(|| {
        let shared = Arc::new((Latch::default(), UnsafeCell::new(0)));
        let theirs = Arc::clone(&shared);
        let entering = thread::spawn(move || {
            for _ in 0..2 {
                if theirs.0.enter() {
                    // loom's cell tells if the other thread is in it, too.
                    theirs.1.with_mut(|it| assert!(!it.is_null()));
                    theirs.0.leave();
                }
            }
        });
        shared.0.shut();
        shared.1.with_mut(|it| assert!(!it.is_null()));
        assert!(shared.0.is_shut());
        entering.join().unwrap();
    });
}
