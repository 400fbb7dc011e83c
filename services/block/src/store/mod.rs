//! Defines the store of a disk: the trait through which blocks are read, written and flushed.

mod file;
mod flushes;
mod holder;
mod memory;

pub use file::{FileStore, InUse};
pub use memory::MemoryStore;

use std::fmt::Debug;
use std::io;

/// A run of bytes that are all mapped on the medium, or all unmapped and read as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Whether the bytes are mapped.
    pub mapped: bool,
    /// Length in bytes, at least 1 within the store.
    pub bytes: u64,
}

/// In an [`io::Error`] of kind [`UnexpectedEof`](io::ErrorKind::UnexpectedEof): the medium failed. Do not retry the
/// request in parts: the store knows where it failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the medium failed: {why}")]
pub struct BrokenMedium {
    /// The first byte that failed, if that is known.
    pub at: Option<u64>,
    /// The reason, as text.
    pub why: String,
}

/// The bytes of a disk. Callers must stay within [`bytes`](Store::bytes). Several threads may call at once. After
/// simultaneous writes to the same bytes, each block holds the content of one of them.
pub trait Store: Debug + Send + Sync {
    /// Its size.
    fn bytes(&self) -> u64;

    /// No write is possible.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Fewest bytes of a disk's block: the store's own block length, because a partial write of one could tear the rest.
    fn least_block_bytes(&self) -> u32 {
        1
    }

    /// Whether unmapping frees space. If so, initiators learn that they may unmap.
    fn gives_back(&self) -> bool {
        true
    }

    /// Fills `into` with the bytes at `at`.
    ///
    /// # Errors
    /// The medium's; then `into` holds anything.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// As [`read`](Store::read), if that needs no wait for the medium; else false, and `into` holds anything.
    fn read_at_once(&self, _at: u64, _into: &mut [u8]) -> bool {
        false
    }

    /// Writes `from` at `at`. It is read back at once, and is on the medium after the next [`flush`](Store::flush).
    ///
    /// # Errors
    /// The medium's; then any part may be written.
    fn write(&self, at: u64, from: &[u8]) -> io::Result<()>;

    /// Writes the second half of `both` at `at` if the first half equals the bytes there; otherwise returns the first
    /// byte that differs. No other store of the same disk may write these bytes meanwhile. `None`: does nothing,
    /// because the caller has the disk alone, and can read, compare and write itself.
    ///
    /// # Errors
    /// As for reads and writes.
    fn compare_and_write(&self, _at: u64, _both: &[u8]) -> Option<io::Result<Option<u64>>> {
        None
    }

    /// All that was written or unmapped before is on the medium when this returns.
    ///
    /// # Errors
    /// Data may be lost. After one failure, every later or simultaneous flush fails for all callers, because the kernel
    /// reports such an error only once.
    fn flush(&self) -> io::Result<()>;

    /// Whether a flush has failed. Then no other will succeed, and unflushed writes may be lost.
    fn has_failed(&self) -> bool {
        false
    }

    /// Gives the space of these bytes back; they read as zeros from now on. False: the store cannot, and they are what
    /// they were. Zeros written in their place would take the space that a caller wants to give back.
    ///
    /// # Errors
    /// As for writes.
    fn unmap(&self, at: u64, bytes: u64) -> io::Result<bool>;

    /// Which bytes from `at` on are alike. Called within the store only.
    ///
    /// # Errors
    /// The medium's.
    fn run(&self, at: u64) -> io::Result<Run>;

    /// Whether writes survive the end of this process, flushed or not, while the machine runs.
    fn outlives_process(&self) -> bool {
        false
    }

    /// These bytes will be read soon.
    fn expect(&self, _at: u64, _bytes: u64) {}
}
