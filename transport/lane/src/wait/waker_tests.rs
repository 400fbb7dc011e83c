//! Tests that a wake is never lost and ends exactly one sleep.
#![allow(non_snake_case)]
use super::*;
use std::sync::mpsc;

/// Whether the descriptor would end a sleep within this time.
fn is_ready(event: BorrowedFd<'_>, milliseconds: i32) -> bool {
    let mut poll = libc::pollfd {
        fd: std::os::fd::AsRawFd::as_raw_fd(&event),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd that lives across the call.
    unsafe { libc::poll(&raw mut poll, 1, milliseconds) == 1 }
}

fn woken(waker: bool) -> Ready {
    Ready {
        socket: false,
        waker,
    }
}

/// Whether a sleep would end at once. `None`: the sleep was skipped.
fn looks(waker: &Waker) -> Option<bool> {
    let mut seen = None;
    let slept = waker.sleep(|event| {
        let ready = is_ready(event.expect("a descriptor"), 0);
        seen = Some(ready);
        Ok(woken(ready))
    });
    assert!(!slept.expect("no error"), "there is no socket");
    seen
}

/// Sleeps until woken, without a timeout: a lost wake-up would hang here.
fn sleep_until_woken(waker: &Waker) {
    while !waker.take() {
        let slept = waker.sleep(|event| {
            let event = event.expect("a descriptor");
            assert!(is_ready(event, 20_000), "asleep, and not woken");
            Ok(woken(true))
        });
        slept.expect("no error");
    }
}

#[test]
fn wake__is_never_lost_between_two_threads() {
    let waker = Waker::default();
    let theirs = waker.clone();
    let (woken, next) = mpsc::channel();
    let waking = std::thread::spawn(move || {
        for round in 0..20_000 {
            // At a different moment of the sleeper's way to sleep in each round.
            for _ in 0..round % 64 {
                std::hint::spin_loop();
            }
            theirs.wake();
            next.recv().expect("the sleeper goes on");
        }
    });
    for _ in 0..20_000 {
        sleep_until_woken(&waker);
        woken.send(()).expect("the other end lives");
    }
    waking.join().expect("no panic");
    assert!(!waker.take(), "each was taken once");
}

#[test]
fn sleep__is_left_out_when_already_asked() {
    let waker = Waker::default();
    waker.wake();
    assert_eq!(looks(&waker), None);
    assert!(waker.take());
    assert_eq!(looks(&waker), Some(false), "the descriptor is clear");
}

#[test]
fn sleep__is_ended_once_by_a_wake_that_writes_late() {
    let waker = Waker::default();
    // The other thread is delayed between its ring and its write, and the ring was seen meanwhile.
    waker.descriptor().expect("a descriptor");
    let event = waker.shared.event.get().and_then(Option::as_ref);
    let mut event = event.expect("a descriptor");
    event.write_all(&1u64.to_ne_bytes()).expect("written");
    assert_eq!(looks(&waker), Some(true));
    assert_eq!(looks(&waker), Some(false), "from then on");
}
