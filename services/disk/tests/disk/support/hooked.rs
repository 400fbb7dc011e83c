//! Calls a test's hook before each read or write of a store in memory.

use std::fmt::Debug;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

use zerolane::Options;
use zerolane_block::store::{MemoryStore, Run, Store};
use zerolane_disk::target::Settings;

use super::{Served, Shown};

/// What a test does before the store does its part.
pub trait Hooks: Debug + Send + Sync {
    /// Called before a read by the network thread; false: another thread must read.
    fn before_read_at_once(&self) -> bool {
        false
    }

    fn before_read(&self, _at: u64, _bytes: usize) -> io::Result<()> {
        Ok(())
    }

    fn before_write(&self) -> io::Result<()> {
        Ok(())
    }

    fn before_flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn has_failed(&self) -> bool {
        false
    }

    fn outlives_process(&self) -> bool {
        false
    }
}

/// The store, and the test's part of it.
#[derive(Debug)]
pub struct Hooked<H> {
    inner: MemoryStore,
    hooks: H,
}

/// One of so many bytes.
pub fn store<H: Hooks>(bytes: u64, hooks: H) -> Arc<Hooked<H>> {
    let inner = MemoryStore::new(bytes);
    Arc::new(Hooked { inner, hooks })
}

/// One of so many bytes, and a target that has it alone.
pub fn served<H: Hooks + 'static>(bytes: u64, hooks: H) -> (Arc<Hooked<H>>, Served) {
    served_with(bytes, hooks, Settings::default())
}

pub fn served_with<H: Hooks + 'static>(
    bytes: u64,
    hooks: H,
    settings: Settings,
) -> (Arc<Hooked<H>>, Served) {
    let store = store(bytes, hooks);
    let shown = Shown {
        store: Arc::clone(&store) as Arc<dyn Store>,
        read_only: false,
    };
    (
        store,
        Served::with(vec![shown], settings, Options::default()),
    )
}

impl<H> Deref for Hooked<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.hooks
    }
}

impl<H: Hooks> Store for Hooked<H> {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.hooks.before_read(at, into.len())?;
        self.inner.read(at, into)
    }

    fn read_at_once(&self, at: u64, into: &mut [u8]) -> bool {
        self.hooks.before_read_at_once() && self.inner.read_at_once(at, into)
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.hooks.before_write()?;
        self.inner.write(at, from)
    }

    fn flush(&self) -> io::Result<()> {
        self.hooks.before_flush()?;
        self.inner.flush()
    }

    fn has_failed(&self) -> bool {
        self.hooks.has_failed()
    }

    fn outlives_process(&self) -> bool {
        self.hooks.outlives_process()
    }

    fn unmap(&self, at: u64, bytes: u64) -> io::Result<bool> {
        self.inner.unmap(at, bytes)
    }

    fn run(&self, at: u64) -> io::Result<Run> {
        self.inner.run(at)
    }
}
