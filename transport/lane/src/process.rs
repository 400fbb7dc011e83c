//! Tells a child of fork from its parent. The child has copies of all there was, without the other threads, and descriptors
//! that are its parent's as well: what it sends by them, or waits for, disturbs the parent.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Forks that lie between this process and the one that asked first. `getpid` is a system call; this is looked at for
/// every request of a handle.
static FORKS: AtomicU32 = AtomicU32::new(0);
static WATCHED: Once = Once::new();

/// Names a process among those that fork made of each other. One made without libc's `fork` is not told apart.
///
/// ```
/// use zerolane_lane::Process;
/// let made_in = Process::current();
/// // In a child of fork this is false.
/// assert!(made_in.is_current());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// This one.
    pub fn current() -> Process {
        WATCHED.call_once(|| {
            // SAFETY: the function only adds to an atomic, which is all that a child may do at that moment.
            let _ = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        });
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this is the process that was current then.
    pub fn is_current(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

/// The first that a child does.
extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
