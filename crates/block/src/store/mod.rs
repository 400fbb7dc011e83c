//! What a disk keeps its blocks in.

mod file;
mod flushes;
mod holder;
mod memory;

pub use file::{FileStore, InUse};
pub use memory::MemoryStore;

use std::fmt::Debug;
use std::io;

/// Bytes that all have a place on the medium, or all have none and read as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// They have a place.
    pub mapped: bool,
    /// How many, at least 1 within the store.
    pub bytes: u64,
}

/// In an [`io::Error`] of kind [`UnexpectedEof`](io::ErrorKind::UnexpectedEof): the medium failed, and what was asked for is not
/// to be tried again in parts, for the store knows where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the medium failed: {why}")]
pub struct BrokenMedium {
    /// The first byte that failed, if that is known.
    pub at: Option<u64>,
    /// In words.
    pub why: String,
}

/// The bytes of a disk. Callers stay within [`bytes`](Store::bytes); several threads may call at once, and those that
/// write the same bytes at once get one content or the other, block by block.
pub trait Store: Debug + Send + Sync {
    /// Its size.
    fn bytes(&self) -> u64;

    /// No write is possible.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Blocks of a disk have at least so many bytes: the store's own, of which none is written in part, lest the rest be torn.
    fn least_block_bytes(&self) -> u32 {
        1
    }

    /// The space of unmapped bytes is given back: initiators are told that they may unmap.
    fn gives_back(&self) -> bool {
        true
    }

    /// Fills `into` with what is at `at`.
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

    /// Writes the second half of `both` at `at` if the first half is what is there; else returns the first byte of it that
    /// differs. No other store of the same disk writes these bytes meanwhile. `None`, and nothing is done:
    /// the caller has the disk alone, and reads, compares and writes.
    ///
    /// # Errors
    /// As for reads and writes.
    fn compare_and_write(&self, _at: u64, _both: &[u8]) -> Option<io::Result<Option<u64>>> {
        None
    }

    /// All that was written or unmapped before is on the medium when this returns.
    ///
    /// # Errors
    /// Something may be lost. What failed once fails from then on, and for all callers, those that call at the same time
    /// among them: the kernel forgets such an error when it has told it to one.
    fn flush(&self) -> io::Result<()>;

    /// A flush has failed: no other will succeed, and what was written and not flushed before may be lost.
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

    /// What was written is there when this process is gone, flushed or not, as long as the machine runs.
    fn outlives_process(&self) -> bool {
        false
    }

    /// These bytes will be read soon.
    fn expect(&self, _at: u64, _bytes: u64) {}
}
