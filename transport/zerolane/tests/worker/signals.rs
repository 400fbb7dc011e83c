//! Tests that a program's signal handlers run on its own threads.

use super::anywhere;
use super::fork::in_a_child;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::unistd::{Pid, gettid};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;
use zerolane::worker::{Worker, background};
use zerolane::{Endpoint, Options};

/// The thread that ran the handler last.
static RAN_ON: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(_: nix::libc::c_int) {
    RAN_ON.store(gettid().as_raw(), Ordering::Relaxed);
}

#[test]
fn handler__runs_on_no_thread_of_the_library() {
    in_a_child(|| {
        let action = SigAction::new(SigHandler::Handler(note), SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler calls what a handler may.
        unsafe { sigaction(Signal::SIGUSR1, &action) }.expect("allowed");
        let worker = Worker::new()
            .expect("descriptors")
            .spawn()
            .expect("a thread");
        let listening = worker.listen(anywhere(), Options::default()).wait();
        let _endpoint = Endpoint::bind(anywhere(), Options::default()).expect("a port");
        let shared = background().expect("a thread");
        let connecting =
            shared.connect(listening.expect("a port").local_addr(), &Options::default());
        let mut user = SigSet::empty();
        user.add(Signal::SIGUSR1);
        user.thread_block().expect("allowed");
        for _ in 0..20 {
            // A thread that takes it leaves none to wait for: the child hangs, and is killed.
            kill(Pid::this(), Signal::SIGUSR1).expect("sent");
            // In which another thread would take it.
            std::thread::sleep(Duration::from_millis(1));
            assert_eq!(user.wait(), Ok(Signal::SIGUSR1));
        }
        assert_eq!(RAN_ON.load(Ordering::Relaxed), 0);
        user.thread_unblock().expect("allowed");
        kill(Pid::this(), Signal::SIGUSR1).expect("sent");
        assert_eq!(RAN_ON.load(Ordering::Relaxed), gettid().as_raw());
        drop(connecting);
    });
}
