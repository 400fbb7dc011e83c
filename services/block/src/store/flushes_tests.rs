//! Tests that concurrent flushes are merged, and that all of them fail when the kernel reports lost writes.
#![allow(non_snake_case)]

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::*;

/// Longer than a thread takes to begin to wait.
const MOMENT: Duration = Duration::from_millis(200);

/// A page cache: writes that are lost, and calls that have asked.
#[derive(Debug, Default)]
struct Kernel {
    error: AtomicBool,
    calls: AtomicU64,
}

impl Kernel {
    /// The error is told once.
    fn sync(&self) -> io::Result<()> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        match self.error.swap(false, Ordering::SeqCst) {
            true => Err(Errno::IO.into()),
            false => Ok(()),
        }
    }
}

/// Two flushes of what is lost at the same time, and later ones: the kernel tells the first alone.
#[test]
fn flushes__all_fail_when_the_kernel_tells_one_of_lost_writes() {
    let kernel = Arc::new(Kernel::default());
    let flushes = Arc::new(Flushes::default());
    flushes.flush(|| kernel.sync()).unwrap();
    kernel.error.store(true, Ordering::SeqCst);
    let (tell, told) = channel();
    let (ours, theirs) = (Arc::clone(&flushes), Arc::clone(&kernel));
    let mut other = None;
    let first = flushes.flush(|| {
        let heard = kernel.sync();
        // The kernel has told, and this thread has not.
        other = Some(thread::spawn(move || {
            let _ = tell.send(ours.flush(|| theirs.sync()).is_ok());
        }));
        // One that waits for this one has nothing to say yet.
        assert!(told.recv_timeout(MOMENT).is_err(), "it did not wait");
        heard
    });
    assert!(first.is_err());
    assert!(!told.recv().unwrap(), "lost writes were told to be flushed");
    other.unwrap().join().unwrap();
    for _ in 0..3 {
        assert!(flushes.flush(|| kernel.sync()).is_err(), "it is sticky");
    }
    assert!(flushes.have_failed());
    // The kernel was asked by none of those that it would have told a lie.
    assert_eq!(kernel.calls.load(Ordering::SeqCst), 2);
}

/// Four that come while a call is in progress; how many calls there were for all five. When they come is not known, for a
/// thread may be late.
fn calls_of_five(kernel: &Arc<Kernel>, flushes: &Arc<Flushes>) -> u64 {
    let before = kernel.calls.load(Ordering::SeqCst);
    let mut others = Vec::new();
    flushes
        .flush(|| {
            for _ in 0..4 {
                let (ours, theirs) = (Arc::clone(flushes), Arc::clone(kernel));
                let flush = move || ours.flush(|| theirs.sync()).unwrap();
                others.push(thread::spawn(flush));
            }
            thread::sleep(MOMENT);
            kernel.sync()
        })
        .unwrap();
    others.into_iter().for_each(|it| it.join().unwrap());
    kernel.calls.load(Ordering::SeqCst) - before
}

/// What is written while a call is in progress may have been missed by it; those that wait together share the next.
#[test]
fn flushes__that_come_during_another_are_done_by_the_next() {
    let kernel = Arc::new(Kernel::default());
    let flushes = Arc::new(Flushes::default());
    let share = || {
        let calls = calls_of_five(&kernel, &flushes);
        assert!((2..=5).contains(&calls), "{calls}");
        calls == 2
    };
    assert!((0..20).any(|_| share()), "they share none");
    let calls = kernel.calls.load(Ordering::SeqCst);
    flushes.flush(|| kernel.sync()).unwrap();
    let again = kernel.calls.load(Ordering::SeqCst);
    assert_eq!(again, calls + 1, "what comes alone is done at once");
}
