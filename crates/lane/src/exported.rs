//! Memory that peers use while this program does.

use crate::fault;
use crate::latch::Latch;
use crate::memory::{Postable, Region};
use crate::shared::{self, Bounds};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The memory, as lanes see it: to be entered for the length of a turn.
pub(crate) struct ExportWindow {
    region: Region,
    latch: Latch,
}

impl ExportWindow {
    /// From here to [`ExportWindow::leave`] the memory stays exported. False if it was revoked.
    pub(crate) fn enter(&self) -> bool {
        self.latch.enter()
    }

    pub(crate) fn leave(&self) {
        self.latch.leave();
    }

    pub(crate) fn bounds(&self) -> Bounds {
        let (start, len) = self.region.raw();
        Bounds { start, len }
    }

    pub(crate) fn is_file(&self) -> bool {
        self.region.is_file()
    }

    /// No turn enters any more, and those that were in have left: a lane's turn takes microseconds, and no
    /// turn sleeps.
    fn revoke(&self) {
        self.latch.shut();
    }
}

/// Memory that can be exported to peers, which read and write it at any moment; a handle, cheap to
/// clone and to share between threads.
///
/// There is no slice of it, for a slice's bytes must not change behind its back: this program
/// copies in and out, and has the aligned words as atomics.
///
/// ```
/// use std::sync::atomic::Ordering;
/// use zerolane_lane::{ExportedRegion, Region};
/// let exported = ExportedRegion::new(Region::anonymous(4096)?).expect("page-aligned");
/// exported.write(16, b"hello");
/// exported.word(8).fetch_add(2, Ordering::Relaxed);
/// let mut bytes = [0; 5];
/// exported.read(16, &mut bytes);
/// assert_eq!(&bytes, b"hello");
/// let region = exported.revoke().expect("the only handle");
/// assert_eq!(region[8], 2);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct ExportedRegion {
    handle: Arc<Handle>,
}

struct Handle {
    window: Arc<ExportWindow>,
}

impl fmt::Debug for ExportedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportedRegion")
            .field("len", &self.len())
            .field("revoked", &self.is_revoked())
            .finish()
    }
}

impl ExportedRegion {
    /// Makes `region` exportable.
    ///
    /// # Errors
    /// Gives it back if its start is no multiple of 8: words could not be accessed atomically.
    pub fn new(region: Region) -> Result<ExportedRegion, Region> {
        let (start, _) = region.raw();
        if !(start as usize).is_multiple_of(8) {
            return Err(region);
        }
        let window = ExportWindow {
            region,
            latch: Latch::default(),
        };
        Ok(ExportedRegion {
            handle: Arc::new(Handle {
                window: Arc::new(window),
            }),
        })
    }

    pub(crate) fn window(&self) -> &Arc<ExportWindow> {
        &self.handle.window
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.window().bounds().len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes from `offset` on out of it. Each aligned word is as it was at one moment.
    ///
    /// # Panics
    /// They do not lie in it, or it is a mapped file that shrank.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        let bounds = self.part(offset, into.len());
        if self.window().is_file() {
            // SAFETY: in bounds of memory that lives as long as `self`; the kernel copies, so that
            // what is written meanwhile makes for mixed content and nothing worse.
            let read = unsafe { fault::read(bounds.start.add(offset), into, Some(bounds)) };
            return assert!(read.is_ok(), "the mapped file shrank");
        }
        // SAFETY: in bounds of memory that lives as long as `self`, and is only touched so.
        unsafe { shared::load(bounds, offset, into) }
    }

    /// Copies bytes into it, from `offset` on.
    ///
    /// # Panics
    /// They do not fit in it, or it is a mapped file that shrank.
    pub fn write(&self, offset: usize, from: &[u8]) {
        let bounds = self.part(offset, from.len());
        // SAFETY: as in `read`; a region's bytes are writable.
        let written = unsafe { store(bounds, offset, from, self.window().is_file()) };
        assert!(written, "the mapped file shrank");
    }

    /// The aligned word at `offset`, for atomic operations that go together with the peers'.
    ///
    /// # Panics
    /// `offset` is no multiple of 8, or the word does not lie in it.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "word at {offset}");
        let bounds = self.part(offset, 8);
        // SAFETY: aligned and in bounds; the memory lives as long as `self`, and no handle gives it
        // back as a region while this borrow lasts.
        unsafe { shared::word(bounds, offset) }
    }

    fn part(&self, offset: usize, len: usize) -> Bounds {
        let bounds = self.window().bounds();
        let end = offset.checked_add(len);
        let fits = end.is_some_and(|end| end <= bounds.len);
        assert!(fits, "{len} bytes at {offset} of {}", bounds.len);
        bounds
    }

    /// Whether it was revoked.
    pub fn is_revoked(&self) -> bool {
        self.window().latch.is_shut()
    }

    /// Ends all exports of it, on every connection, at once: when this returns, no peer and no lane
    /// touches it any more. Gives the region back.
    ///
    /// # Errors
    /// Another handle lives: it is revoked, but stays memory that several may use.
    pub fn revoke(self) -> Result<Region, ExportedRegion> {
        self.window().revoke();
        match Arc::try_unwrap(self.handle) {
            // Lanes may hold the window for a while yet, but enter it no more.
            Ok(handle) => Ok(handle.window.region.again()),
            Err(handle) => Err(ExportedRegion { handle }),
        }
    }
}

/// Writes `bytes` at `offset` of shared memory. False if it is a mapped file that shrank.
///
/// # Safety
/// As of [`shared::store`].
pub(crate) unsafe fn store(bounds: Bounds, offset: usize, bytes: &[u8], file: bool) -> bool {
    if file {
        // SAFETY: as promised; the kernel copies.
        return unsafe { fault::write(bytes, bounds.start.add(offset), Some(bounds)) }.is_ok();
    }
    // SAFETY: as promised.
    unsafe { shared::store(bounds, offset, bytes) };
    true
}

#[cfg(test)]
#[path = "exported_tests.rs"]
mod tests;
