//! Every order in which threads can take the steps of what they share, tried by loom.
#![allow(non_snake_case)]

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
    pub(crate) use loom::thread::yield_now;
}

#[path = "../src/doorbell.rs"]
mod doorbell;
#[path = "../src/latch.rs"]
mod latch;
// The lane offers it to the crates above.
#[allow(unreachable_pub)]
#[path = "../src/submissions.rs"]
mod submissions;

use doorbell::Doorbell;
use latch::Latch;
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Notify};
use loom::thread;
use std::collections::VecDeque;
use submissions::Submissions;
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
        assert!(!shared.0.is_rung() && !shared.0.take(), "heard twice");
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

/// Producers push, then ring; the worker takes all there is, and sleeps when there is nothing.
#[test]
fn submissions__each_is_taken_once_in_order_and_none_is_slept_through() {
    // loom has room for four threads. Three have too many orders to try all with two pushes each.
    for (producers, pushes) in [(1, 2), (2, 2), (3, 1)] {
        let mut few = loom::model::Builder::new();
        few.preemption_bound = Some(2);
        few.check(move || {
            let shared = Arc::new((Submissions::default(), Doorbell::default(), Notify::new()));
            let pushing: Vec<_> = (0..producers)
                .map(|producer| {
                    let theirs = Arc::clone(&shared);
                    thread::spawn(move || {
                        for n in 0..pushes {
                            theirs.0.push((producer, n)).unwrap();
                            ring(&theirs.1, &theirs.2);
                        }
                    })
                })
                .collect();
            let mut next = vec![0; producers];
            let mut spare = VecDeque::new();
            while next.iter().any(|&it| it < pushes) {
                hear(&shared.1, &shared.2);
                let mut taken = shared.0.take(spare);
                for (producer, n) in taken.drain(..) {
                    assert_eq!(next[producer], n, "out of order, or twice");
                    next[producer] += 1;
                }
                spare = taken;
            }
            pushing.into_iter().for_each(|it| it.join().unwrap());
        });
    }
}

#[test]
fn submissions__closed_gives_each_back_to_one_side() {
    loom::model(|| {
        let shared = Arc::new(Submissions::default());
        let theirs = Arc::clone(&shared);
        let pushing = thread::spawn(move || (0..2).filter(|&n| theirs.push(n).is_err()).count());
        let left = shared.close();
        let refused = pushing.join().unwrap();
        assert_eq!(left.len() + refused, 2, "lost, or twice");
        assert_eq!(shared.push(7), Err(7));
    });
}
