//! Tests the synchronisation between threads in every order of its steps, by loom.
#![allow(non_snake_case)]

mod sync {
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub(crate) use loom::sync::{Mutex, MutexGuard};
    pub(crate) use loom::thread::yield_now;
}

#[path = "../src/memory/delegated.rs"]
mod delegated;
#[path = "../src/wait/doorbell.rs"]
mod doorbell;
#[path = "../src/memory/grace.rs"]
mod grace;
// Its own tests run in the lane.
#[allow(dead_code, unreachable_pub)]
#[path = "../src/shm/lease.rs"]
mod lease;
// The lane exports it to the crates above.
#[path = "../src/threads/mailbox.rs"]
mod mailbox;
#[allow(dead_code, unreachable_pub)]
#[path = "../src/unavailable/shm.rs"]
mod unavailable;
// Its own tests run in the lane.
#[allow(dead_code, unreachable_pub)]
#[path = "../src/shm/ring.rs"]
mod ring;
// The lane exports it to the crates above.
#[allow(unreachable_pub)]
#[path = "../src/threads/submissions.rs"]
mod submissions;

use doorbell::Doorbell;
use grace::GracePeriods;
use lease::{Accesses, Accessor, Lease};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Notify};
use loom::thread;
use mailbox::Mailbox;
use ring::{ALIGN, ARRIVAL, Consumer, End, Producer, ROOM, Way};
use std::collections::VecDeque;
use submissions::Submissions;
use sync::{AtomicBool, AtomicUsize, Ordering};

/// Sleeps as a driver does, until woken; loom reports a sleep without end.
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
fn doorbell__no_end_is_slept_through() {
    loom::model(|| {
        let shared = Arc::new((Doorbell::default(), Notify::new(), AtomicBool::new(false)));
        let hearer = Arc::clone(&shared);
        let hears = thread::spawn(move || {
            let (bell, event, ended) = &*hearer;
            while bell.goes_on(ended) {
                bell.sleep(|| event.wait());
            }
        });
        let (bell, event, ended) = &*shared;
        ended.store(true, Ordering::Release);
        ring(bell, event);
        hears.join().unwrap();
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
                    // loom's cell reports if the other thread accesses it, too.
                    theirs.1.with_mut(|it| assert!(!it.is_null()));
                }
                theirs.0.leave();
            }
        });
        shared.0.announce();
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
                    theirs.0.announce();
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

#[test]
fn lease__that_ended_without_an_access_in_progress_is_used_by_none() {
    loom::model(|| {
        let shared = Arc::new((Accesses::default(), Lease::default(), UnsafeCell::new(0)));
        let number = shared.1.grant(0);
        let theirs = Arc::clone(&shared);
        let accessing = thread::spawn(move || {
            let mut accessor = Accessor::default();
            for _ in 0..2 {
                accessor.access(&theirs.0, (&theirs.1, number), || {
                    theirs.2.with_mut(|it| assert!(!it.is_null()));
                });
            }
        });
        shared.1.end(number);
        if let Some(current) = shared.0.current() {
            while shared.0.current() == Some(current) {
                thread::yield_now();
            }
        }
        shared.2.with_mut(|it| assert!(!it.is_null()));
        accessing.join().unwrap();
    });
}

#[test]
fn lease__abandoned_has_all_accesses_that_count() {
    loom::model(|| {
        let shared = Arc::new((Accesses::default(), Lease::default(), AtomicUsize::new(0)));
        let number = shared.1.grant(0);
        let theirs = Arc::clone(&shared);
        let accessing = thread::spawn(move || {
            let done = Accessor::default().access(&theirs.0, (&theirs.1, number), || {
                theirs.2.store(1, Ordering::Relaxed);
            });
            done == Some(Some(()))
        });
        shared.1.end(number);
        shared.1.abandon(number);
        let moved = shared.2.load(Ordering::Relaxed);
        let counts = accessing.join().unwrap();
        assert!(!counts || moved == 1, "lost");
    });
}

#[test]
fn submissions__each_is_taken_once_in_order_and_none_is_slept_through() {
    // loom supports four threads. Three have too many orders to try all with two pushes each.
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

/// Behaves as a descriptor that is readable from a write to a read.
#[derive(Default)]
struct Bell(loom::sync::Mutex<bool>, loom::sync::Condvar);

impl Bell {
    fn notify(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.0.lock().unwrap();
        while !std::mem::take(&mut *rung) {
            rung = self.1.wait(rung).unwrap();
        }
    }
}

/// A direction, with its producer, its consumer, and the events that wake them.
#[derive(Default)]
struct Shared {
    way: Way,
    ends: [End; 2],
    bells: [Bell; 2],
    slots: [UnsafeCell<u64>; 2],
}

/// Room for two records of the shortest length.
const CAPACITY: u64 = 2 * ALIGN;

#[test]
fn ring__each_record_is_taken_once_in_order_and_no_end_sleeps_through_the_other() {
    let mut few = loom::model::Builder::new();
    few.preemption_bound = Some(3);
    few.check(|| {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let producing = thread::spawn(move || {
            let mut producer = Producer::default();
            for n in 1..=3 {
                while !producer.has_room(&theirs.way, CAPACITY, ALIGN).unwrap() {
                    theirs.ends[0].arm(ROOM);
                    if !producer.is_behind(&theirs.way) {
                        theirs.bells[0].wait();
                    }
                    theirs.ends[0].disarm();
                }
                let slot = producer.position() % CAPACITY / ALIGN;
                // SAFETY: loom's cell reports if the consumer accesses it, too.
                theirs.slots[slot as usize].with_mut(|it| unsafe { *it = n });
                producer.publish(&theirs.way, ALIGN);
                if theirs.ends[1].claim_wake(ARRIVAL) {
                    theirs.bells[1].notify();
                }
            }
        });
        let mut consumer = Consumer::default();
        for n in 1..=3 {
            while consumer.available(&shared.way, CAPACITY).unwrap() == 0 {
                shared.ends[1].arm(ARRIVAL);
                if !consumer.has_more(&shared.way) {
                    shared.bells[1].wait();
                }
                shared.ends[1].disarm();
            }
            let slot = consumer.position() % CAPACITY / ALIGN;
            // SAFETY: loom's cell reports if the producer accesses it, too.
            let found = shared.slots[slot as usize].with(|it| unsafe { *it });
            assert_eq!(found, n, "lost, or out of order");
            consumer.take(ALIGN);
            consumer.release(&shared.way);
            if shared.ends[0].claim_wake(ROOM) {
                shared.bells[0].notify();
            }
        }
        producing.join().unwrap();
    });
}

#[test]
fn ring__what_was_given_back_is_never_told() {
    loom::model(|| {
        let way = Arc::new(Way::default());
        // The producer's memory: valid until it returns to its owner.
        let memory = Arc::new(AtomicUsize::new(7));
        let (theirs, named) = (Arc::clone(&way), Arc::clone(&memory));
        let producing = thread::spawn(move || {
            let mut producer = Producer::default();
            producer.publish(&theirs, ALIGN);
            producer.retire(&theirs);
            named.store(0, Ordering::Relaxed);
        });
        let mut consumer = Consumer::default();
        if consumer.available(&way, CAPACITY).unwrap() > 0 {
            let copied = memory.load(Ordering::Relaxed);
            assert!(consumer.is_retired(&way, 0) || copied == 7, "told");
        }
        producing.join().unwrap();
    });
}

/// A direct put, the record of its immediate, and another direct put.
#[test]
fn ring__a_record_tells_of_all_that_was_stored_before_it() {
    loom::model(|| {
        let way = Arc::new(Way::default());
        let lent = Arc::new((Accesses::default(), Lease::default(), AtomicUsize::new(0)));
        let number = lent.1.grant(0);
        let (theirs, reached) = (Arc::clone(&way), Arc::clone(&lent));
        let putting = thread::spawn(move || {
            let (mut producer, mut accessor) = (Producer::default(), Accessor::default());
            for put in 1..=2 {
                let done = accessor.access(&reached.0, (&reached.1, number), || {
                    reached.2.store(put, Ordering::Relaxed);
                });
                assert_eq!(done, Some(Some(())));
                if put == 1 {
                    producer.publish(&theirs, ALIGN);
                }
            }
        });
        let mut consumer = Consumer::default();
        if consumer.available(&way, CAPACITY).unwrap() > 0 {
            let there = lent.2.load(Ordering::Relaxed);
            assert!(there >= 1, "the record came before the bytes");
        }
        putting.join().unwrap();
    });
}

#[test]
fn delegated__what_was_called_off_is_touched_no_more() {
    loom::model(|| {
        let memory = Arc::new(UnsafeCell::new(0));
        let (access, recall) = delegated::delegate();
        let theirs = Arc::clone(&memory);
        let running = thread::spawn(move || {
            if access.begin() {
                // loom's cell reports if the other thread accesses it, too.
                theirs.with_mut(|it| assert!(!it.is_null()));
            }
        });
        recall.call_off();
        memory.with_mut(|it| assert!(!it.is_null()));
        assert!(recall.is_over());
        running.join().unwrap();
    });
}

#[test]
fn delegated__what_is_over_by_itself_is_seen() {
    loom::model(|| {
        let memory = Arc::new(UnsafeCell::new(0));
        let (access, recall) = delegated::delegate();
        let theirs = Arc::clone(&memory);
        let running = thread::spawn(move || {
            assert!(access.begin(), "nothing called it off");
            theirs.with_mut(|it| assert!(!it.is_null()));
        });
        while !recall.is_over() {
            thread::yield_now();
        }
        memory.with_mut(|it| assert!(!it.is_null()));
        running.join().unwrap();
    });
}

/// The notifications that a reader sleeps on, and takes back.
#[derive(Default)]
struct Notifications {
    times: AtomicUsize,
    notify: Notify,
}

impl Notifications {
    fn notify(&self) {
        self.times.fetch_add(1, Ordering::Release);
        self.notify.notify();
    }

    fn take_back(&self) -> u64 {
        self.times.swap(0, Ordering::Acquire) as u64
    }

    fn sleep(&self) {
        while self.times.load(Ordering::Acquire) == 0 {
            self.notify.wait();
        }
    }
}

#[test]
fn mailbox__no_item_is_slept_through_and_no_notification_is_left() {
    // Two items have too many orders to try all.
    let mut few = loom::model::Builder::new();
    few.preemption_bound = Some(3);
    few.check(|| {
        let shared = Arc::new((Mailbox::default(), Notifications::default()));
        let theirs = Arc::clone(&shared);
        let putting = thread::spawn(move || {
            for item in 0..2 {
                if theirs.0.push(item) {
                    theirs.1.notify();
                }
            }
        });
        let look = || shared.0.take(VecDeque::new(), || shared.1.take_back());
        let mut seen = vec![];
        while seen.len() < 2 {
            let found = look();
            if found.is_empty() {
                shared.1.sleep();
            }
            seen.extend(found);
        }
        assert_eq!(seen, [0, 1]);
        putting.join().unwrap();
        // Otherwise its descriptor would end every later sleep.
        let left = (0..2).map(|_| look().len()).sum::<usize>();
        assert_eq!((left, shared.1.take_back()), (0, 0));
    });
}
