//! Delays a store's work until a test lets it go on.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use zerolane_disk::target::Settings;

use super::Served;
use super::hooked::{self, Hooked, Hooks};

/// Longer than anything takes that a test waits for.
pub const LONG: Duration = Duration::from_secs(60);

/// A store whose first write waits until it is let go.
#[derive(Debug, Default)]
pub struct Gated {
    /// Whether a write waits, and whether it may go.
    gate: Mutex<(bool, bool)>,
    news: Condvar,
}

impl Gated {
    /// One of so many bytes, and a target that has it alone.
    pub fn served(bytes: u64) -> (Arc<Hooked<Gated>>, Served) {
        hooked::served(bytes, Gated::default())
    }

    pub fn served_with(bytes: u64, settings: Settings) -> (Arc<Hooked<Gated>>, Served) {
        hooked::served_with(bytes, Gated::default(), settings)
    }

    /// Waits until the first write waits.
    pub fn has_one(&self) {
        let gate = self.gate.lock().unwrap();
        let waited = self.news.wait_timeout_while(gate, LONG, |it| !it.0);
        assert!(!waited.unwrap().1.timed_out(), "none has come");
    }

    /// Whether the first write waits.
    pub fn has_one_yet(&self) -> bool {
        self.gate.lock().unwrap().0
    }

    /// Waits at the gate, if it is the first.
    pub fn pass(&self) {
        let mut gate = self.gate.lock().unwrap();
        if !std::mem::replace(&mut gate.0, true) {
            self.news.notify_all();
            // A test that has failed opens nothing, and waits for its target.
            let waited = self.news.wait_timeout_while(gate, LONG, |it| !it.1);
            drop(waited.unwrap());
        }
    }

    pub fn open(&self) {
        self.gate.lock().unwrap().1 = true;
        self.news.notify_all();
    }
}

impl Hooks for Gated {
    fn before_read_at_once(&self) -> bool {
        true
    }

    fn before_write(&self) -> std::io::Result<()> {
        self.pass();
        Ok(())
    }
}
