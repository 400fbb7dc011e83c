//! How a copy tells its progress.

use super::error::Failure;

/// Told what a copy does, from whatever thread does it. Every method may be left out.
pub trait Observer: Send + Sync {
    /// There are `files` files with `bytes` bytes to copy. Only if asked to count first.
    fn counted(&self, files: u64, bytes: u64) {
        let _ = (files, bytes);
    }

    /// A file of `size` bytes begins; `path` is below the source, as bytes.
    fn file_started(&self, path: &[u8], size: u64) {
        let _ = (path, size);
    }

    /// `bytes` more bytes were read (at a sender) or written (at a receiver), or need not be.
    fn advanced(&self, bytes: u64) {
        let _ = bytes;
    }

    /// A file was not copied; the others go on.
    fn failed(&self, failure: &Failure) {
        let _ = failure;
    }
}

/// Nobody wants to know.
impl Observer for () {}
