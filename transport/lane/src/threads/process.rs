//! Tells a child of fork from its parent. The child has copies of all state, but not the other threads. It shares
//! descriptors with its parent: its sends and waits on them disturb the parent.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Forks between the process that first called [`Process::current`] and this one. A counter, because `getpid` is a
/// system call and each request of a handle checks this.
static FORKS: AtomicU32 = AtomicU32::new(0);
static WATCHED: Once = Once::new();

/// Identifies a process among those that descend from each other by fork. A child made without libc's `fork` is not
/// distinguished.
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
    /// The present process.
    pub fn current() -> Process {
        WATCHED.call_once(|| {
            // SAFETY: the handler only adds to an atomic, which is allowed in a child right after fork.
            let _ = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        });
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// Forks between the process that first called [`Process::current`] and this one. A child's number is one more than
    /// its parent's; siblings have the same.
    pub fn forks(self) -> u32 {
        self.0
    }

    /// Whether this is the process that was current then.
    pub fn is_current(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

/// Runs first in a child.
extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
