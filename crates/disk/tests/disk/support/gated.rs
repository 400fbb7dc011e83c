//! A store that is slow when a test wants it.

use std::sync::{Arc, Condvar, Mutex};

use zerolane_block::store::{MemoryStore, Run, Store};

use super::{Served, Shown};

/// A store whose first write waits until it is let go.
#[derive(Debug)]
pub struct Gated {
    inner: MemoryStore,
    /// Whether a write waits, and whether it may go.
    gate: Mutex<(bool, bool)>,
    news: Condvar,
}

impl Gated {
    /// One of so many bytes, and a target that has it alone.
    pub fn served(bytes: u64) -> (Arc<Gated>, Served) {
        let store = Arc::new(Gated {
            inner: MemoryStore::new(bytes),
            gate: Mutex::default(),
            news: Condvar::new(),
        });
        let shown = Shown {
            store: Arc::clone(&store) as Arc<dyn Store>,
            read_only: false,
        };
        (store, Served::new(vec![shown]))
    }

    /// Waits until the first write waits.
    pub fn has_one(&self) {
        let gate = self.gate.lock().unwrap();
        drop(self.news.wait_while(gate, |(waits, _)| !*waits).unwrap());
    }

    /// Whether the first write waits.
    pub fn has_one_yet(&self) -> bool {
        self.gate.lock().unwrap().0
    }

    pub fn open(&self) {
        self.gate.lock().unwrap().1 = true;
        self.news.notify_all();
    }
}

impl Store for Gated {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.inner.read(at, into)
    }

    fn write(&self, at: u64, from: &[u8]) -> std::io::Result<()> {
        let mut gate = self.gate.lock().unwrap();
        if !std::mem::replace(&mut gate.0, true) {
            self.news.notify_all();
            drop(self.news.wait_while(gate, |(_, open)| !*open).unwrap());
        } else {
            drop(gate);
        }
        self.inner.write(at, from)
    }

    fn flush(&self) -> std::io::Result<()> {
        self.inner.flush()
    }

    fn unmap(&self, at: u64, bytes: u64) -> std::io::Result<()> {
        self.inner.unmap(at, bytes)
    }

    fn run(&self, at: u64) -> std::io::Result<Run> {
        self.inner.run(at)
    }
}
