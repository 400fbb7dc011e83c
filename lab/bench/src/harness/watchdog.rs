//! Ends a helper process that its orchestrator abandoned.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use zerolane_cli::console;
use zerolane_cli::exit::Exit;

/// Has the kernel kill this process when the thread that started it ends. A
/// parent that ended before this call shows as end of file on standard input.
pub(crate) fn die_with_parent() -> Result<()> {
    Ok(set_pdeathsig(Signal::SIGKILL)?)
}

/// Exits the process when its deadline passes, whatever it is doing.
#[derive(Debug)]
pub(crate) struct Watchdog(Arc<(Mutex<Instant>, Condvar)>);

impl Watchdog {
    /// Starts with a deadline `allowed` from now.
    pub(crate) fn start(allowed: Duration) -> Result<Watchdog> {
        let watchdog = Watchdog(Arc::new((
            Mutex::new(Instant::now() + allowed),
            Condvar::new(),
        )));
        let shared = Arc::clone(&watchdog.0);
        std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || guard(&shared))?;
        Ok(watchdog)
    }

    /// Sets the deadline anew, `allowed` from now.
    pub(crate) fn allow(&self, allowed: Duration) {
        let (deadline, changed) = &*self.0;
        *deadline.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + allowed;
        changed.notify_one();
    }
}

fn guard((deadline, changed): &(Mutex<Instant>, Condvar)) {
    let mut until = deadline.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            console::note("zerolane: gave up: no progress before the deadline");
            std::process::exit(i32::from(Exit::Failure.code()));
        }
        until = changed
            .wait_timeout(until, left)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
}
