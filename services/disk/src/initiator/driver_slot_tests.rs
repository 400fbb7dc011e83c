//! Tests that the driver slot is handed on, and that a broken connection is repaired.
#![allow(non_snake_case)]

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use super::*;

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is asked of a driver for the test.
#[derive(Default)]
struct Orders {
    /// Turns after which the connection breaks, again and again; 0: never.
    breaks_every: AtomicUsize,
    reconnected: AtomicUsize,
    /// A turn panics, or what connects again.
    turn_panics: AtomicBool,
    mend_panics: AtomicBool,
}

/// Ends a request in each turn, the oldest.
struct Driver {
    shared: Weak<Shared<Driver>>,
    orders: Arc<Orders>,
    live: VecDeque<(Request, Over)>,
    turns: usize,
    has_link: bool,
}

impl Drive for Driver {
    fn has_link(&self) -> bool {
        self.has_link
    }

    fn is_busy(&self) -> bool {
        !self.live.is_empty()
    }

    fn turn(&mut self) -> bool {
        let Some(shared) = self.shared.upgrade().filter(|_| self.has_link) else {
            return false;
        };
        self.turns += 1;
        let panics = self.orders.turn_panics.load(Ordering::Relaxed);
        assert!(!panics, "as the test wants");
        let every = self.orders.breaks_every.load(Ordering::Relaxed);
        let ended = {
            let mut inbox = shared.inbox();
            self.live.append(&mut inbox.requests);
            inbox.end.is_some()
        };
        self.has_link = !ended && (every == 0 || !self.turns.is_multiple_of(every));
        if self.has_link {
            match self.live.pop_front() {
                Some((request, over)) => over.tell(Done {
                    result: Ok(()),
                    memory: request.into_memory().0,
                }),
                None => thread::sleep(Duration::from_micros(50)),
            }
        }
        self.has_link
    }

    fn reconnect(&mut self) -> bool {
        let error = self.shared.upgrade().and_then(|it| it.failure());
        if let Some(error) = error {
            for (request, over) in self.live.drain(..) {
                refuse(request, over, error.clone());
            }
            return false;
        }
        self.orders.reconnected.fetch_add(1, Ordering::Relaxed);
        let panics = self.orders.mend_panics.load(Ordering::Relaxed);
        assert!(!panics, "as the test wants");
        self.has_link = true;
        true
    }
}

fn driven(breaks_every: usize) -> (Arc<Shared<Driver>>, Arc<Orders>, thread::JoinHandle<()>) {
    let shared = Arc::new(Shared::new(Waker::default()));
    let orders = Arc::new(Orders::default());
    orders.breaks_every.store(breaks_every, Ordering::Relaxed);
    let driver = Box::new(Driver {
        shared: Arc::downgrade(&shared),
        orders: Arc::clone(&orders),
        live: VecDeque::new(),
        turns: 0,
        has_link: true,
    });
    let attended = Arc::clone(&shared);
    let thread = thread::spawn(move || attended.attend(driver));
    (shared, orders, thread)
}

/// `threads` threads that ask for so many requests each, and tell when they are over.
fn callers(shared: &Arc<Shared<Driver>>, threads: usize, requests: usize) -> Receiver<usize> {
    let (told, over) = channel();
    for number in 0..threads {
        let (shared, told) = (Arc::clone(shared), told.clone());
        // Not joined: one that is forgotten would not end.
        thread::spawn(move || {
            for request in 0..requests {
                match (request + number) % 3 {
                    0 => {
                        let (call, over) = Call::new();
                        shared.submit(Request::Flush, over);
                        shared.wait(&call).result.unwrap();
                    }
                    _ => shared.call(Request::Flush).result.unwrap(),
                }
            }
            // A test that has failed listens no more.
            told.send(number).unwrap_or(());
        });
    }
    over
}

/// A caller that drives finds it broken while others sleep: none of those can reconnect.
#[test]
fn driver_slot__a_connection_that_breaks_while_callers_wait_is_mended() {
    let (shared, orders, thread) = driven(7);
    let over = callers(&shared, 8, 500);
    for number in 0..8 {
        over.recv_timeout(PATIENCE)
            .unwrap_or_else(|_| panic!("{number} of 8 threads were over"));
    }
    assert!(orders.reconnected.load(Ordering::Relaxed) > 100);
    shared.close();
    thread.join().unwrap();
}

#[test]
fn driver_slot__is_handed_on_and_what_none_waits_for_is_driven() {
    let (shared, _orders, thread) = driven(0);
    let over = callers(&shared, 4, 2000);
    let (told, ended) = channel();
    for number in 0..200 {
        let told = told.clone();
        // A test that has failed listens no more.
        let over = Over::new(move |_| told.send(number).unwrap_or(()));
        shared.submit(Request::Flush, over);
        ended
            .recv_timeout(PATIENCE)
            .expect("none waited, and none drove");
    }
    for number in 0..4 {
        over.recv_timeout(PATIENCE)
            .unwrap_or_else(|_| panic!("{number} of 4 threads were over"));
    }
    shared.close();
    thread.join().unwrap();
}

/// The driver slot, once its owner has asked for it often enough.
fn reserved(shared: &Shared<Driver>) -> Driving<'_, Driver> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(driving) = shared.reserve() {
            return driving;
        }
        assert!(
            Instant::now() < until,
            "another thread keeps the driver slot"
        );
        thread::sleep(Duration::from_micros(200));
    }
}

/// Of a connection that breaks at every seventh turn: the queue's thread reconnects, and does nothing else.
#[test]
fn driver_slot__that_is_reserved_is_left_to_its_owner() {
    let (shared, orders, thread) = driven(7);
    let (told, ended) = channel();
    let mut slot = Some(reserved(&shared));
    for number in 0..1000 {
        let told = told.clone();
        shared.submit(
            Request::Flush,
            Over::new(move |_| told.send(number).unwrap_or(())),
        );
        // No other thread drives: what is asked for is over when the owner turns, and not before.
        assert!(slot.is_none() || ended.try_recv().is_err());
        let mut over = false;
        while !over {
            let driving = slot.get_or_insert_with(|| reserved(&shared));
            if !driving.turn() {
                slot = None;
            }
            over = ended.try_recv().is_ok_and(|it| it == number);
        }
    }
    drop(slot.take());
    assert!(orders.reconnected.load(Ordering::Relaxed) > 100);
    // From here on the queue's thread drives.
    shared.release();
    shared.call(Request::Flush).result.unwrap();
    let told = told.clone();
    shared.submit(
        Request::Flush,
        Over::new(move |_| told.send(1000).unwrap_or(())),
    );
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(1000));
    shared.close();
    thread.join().unwrap();
}

/// Runs `first`, and asks for something from other threads meanwhile: all of it fails.
fn fails_after_a_panic(shared: &Arc<Shared<Driver>>, first: impl FnOnce()) {
    let (told, ended) = channel();
    let (tell, failed) = channel();
    let again = tell.clone();
    shared.when_failed(Box::new(move || tell.send(()).unwrap_or(())));
    for number in 0..4 {
        let (shared, told) = (Arc::clone(shared), told.clone());
        // Not joined: one that is forgotten would not end.
        thread::spawn(move || {
            let called = || match number % 2 {
                0 => shared.call(Request::Flush),
                _ => {
                    let (call, over) = Call::new();
                    shared.submit(Request::Flush, over);
                    shared.wait(&call)
                }
            };
            // One that drives panics itself.
            while catch_unwind(AssertUnwindSafe(called)).is_ok_and(|it| it.result.is_ok()) {}
            let after = shared.call(Request::Flush).result;
            told.send(after).unwrap_or(());
        });
    }
    first();
    for _ in 0..4 {
        let after = ended
            .recv_timeout(PATIENCE)
            .expect("a caller waits without end");
        assert!(matches!(after, Err(Error::Panicked)), "{after:?}");
    }
    assert!(matches!(shared.failure(), Some(Error::Panicked)));
    shared.when_failed(Box::new(move || again.send(()).unwrap_or(())));
    assert_eq!(failed.try_iter().count(), 2);
    assert!(shared.reserve().is_none(), "nothing drives any more");
}

#[test]
fn attend__a_panic_of_the_queues_thread_fails_all_requests() {
    let (shared, orders, thread) = driven(7);
    fails_after_a_panic(&shared, || {
        orders.mend_panics.store(true, Ordering::Relaxed)
    });
    assert!(thread.join().is_err());
}

#[test]
fn call__a_panic_of_a_caller_that_drives_fails_all_requests() {
    let (shared, orders, thread) = driven(0);
    fails_after_a_panic(&shared, || {
        orders.turn_panics.store(true, Ordering::Relaxed)
    });
    // Whichever thread it was that drove.
    let _ = thread.join();
}

/// A function that a request was given panics, as that does which tells of the panic.
#[test]
fn Over__dropped_tells_of_a_panic_and_survives_another() {
    let (told, ended) = channel();
    drop(Over::new(move |done| {
        told.send(done.result).unwrap_or(());
        panic!("as the test wants");
    }));
    assert!(matches!(ended.try_recv(), Ok(Err(Error::Panicked))));
}
