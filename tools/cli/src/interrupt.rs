//! Handles Ctrl-C and SIGTERM: kills the children, so that the main thread cleans up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::Exit;

/// Knows whether the user asked to stop, and stops the children at once.
///
/// The main thread usually waits for a child's answer. Killing the child ends
/// that wait with an error, the main thread unwinds, and every destructor
/// (namespaces, temporary files) runs.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<State>);

#[derive(Debug, Default)]
struct State {
    requested: Arc<AtomicBool>,
    children: Mutex<Vec<Pid>>,
}

impl Interrupt {
    /// Takes over SIGINT, SIGTERM and SIGHUP for the rest of the process.
    pub fn install() -> Result<Interrupt> {
        const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];
        let interrupt = Interrupt::default();
        for signal in SIGNALS {
            // Set in the handler itself, so that the flag is set before the main thread sees what else the same Ctrl-C
            // ended.
            signal_hook::flag::register(signal, Arc::clone(&interrupt.0.requested))?;
        }
        let mut signals = Signals::new(SIGNALS)?;
        let on_signal = interrupt.clone();
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for _ in signals.forever() {
                    on_signal.request();
                }
            })?;
        Ok(interrupt)
    }

    fn request(&self) {
        self.0.requested.store(true, Ordering::SeqCst);
        let children = self
            .0
            .children
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for &child in children.iter() {
            // The child may be gone already.
            let _ = kill(child, Signal::SIGKILL);
        }
    }

    /// Whether the user asked to stop.
    pub fn requested(&self) -> bool {
        self.0.requested.load(Ordering::SeqCst)
    }

    /// Fails with [`Exit::Interrupted`] once the user asked to stop.
    pub fn check(&self) -> Result<()> {
        if self.requested() {
            Err(Exit::Interrupted.into())
        } else {
            Ok(())
        }
    }

    /// Kills `child` when the user asks to stop. Call [`Self::forget`] before reaping the child, which frees its
    /// process ID.
    pub fn watch(&self, child: Pid) {
        self.0
            .children
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(child);
        if self.requested() {
            self.request();
        }
    }

    /// The opposite of [`Self::watch`].
    pub fn forget(&self, child: Pid) {
        self.0
            .children
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|&pid| pid != child);
    }

    /// Replaces an error of `result` by [`Exit::Interrupted`] if the user asked to stop: killing the children caused
    /// it.
    pub fn explain<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() && self.requested() {
            Err(Exit::Interrupted.into())
        } else {
            result
        }
    }
}
