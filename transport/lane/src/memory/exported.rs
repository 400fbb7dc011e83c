//! Exports memory that peers and this program use at the same time.

use crate::memory::file_region::FileRegion;
use crate::memory::grace::GracePeriods;
use crate::memory::region::{NOT_OF_CHILDREN, Region};
use crate::memory::shared::Bounds;
use crate::memory::{fault, shared};
use crate::threads::Process;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zerolane_core::Atomic;

/// State shared by a connection and the threads that revoke its exports.
#[derive(Debug, Default)]
pub(crate) struct Exporter {
    pub(crate) grace: GracePeriods,
    /// Handles that were revoked and that the connection must end.
    revoked: Mutex<Vec<u32>>,
}

impl Exporter {
    fn revoke(&self, handle: u32) {
        let mut revoked = self.revoked.lock().unwrap_or_else(PoisonError::into_inner);
        revoked.push(handle);
        self.grace.announce();
    }

    /// Handles revoked since the last call.
    pub(crate) fn take_revoked(&self) -> Vec<u32> {
        let mut revoked = self.revoked.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut revoked)
    }
}

/// A peer's own mapping of the memory, which bypasses this process.
pub(crate) trait Loan: fmt::Debug + Send + Sync {
    /// Ends it. On return no access by the peer is in progress, or that access has no effect.
    fn end(&self);
}

/// The memory, as lanes see it. A lane may access it within a turn, from the export until the connection learns of the
/// revocation.
pub(crate) struct ExportWindow {
    bounds: Bounds,
    file: bool,
    /// The region is of a [`FileRegion`], and is not given back.
    mapped_file: bool,
    /// The descriptor by which peers can map it.
    memfd: Option<Arc<OwnedFd>>,
    /// The one process that has the memory, if fork does not pass it to children.
    only: Option<Process>,
    revoked: AtomicBool,
    state: Mutex<WindowState>,
    process: Process,
}

struct WindowState {
    /// Returned by the revocation.
    region: Option<Region>,
    /// Its exports: address of the exporter, and handle.
    exports: HashMap<(usize, u32), Arc<Exporter>>,
    /// The mappings that peers have of it.
    loans: Vec<Arc<dyn Loan>>,
    /// Some peer may still have it mapped, whatever that peer was told since.
    was_lent: bool,
}

impl ExportWindow {
    /// The window's lock. Hold it only for a short look, and never together with another window's.
    fn state(&self) -> MutexGuard<'_, WindowState> {
        #[cfg(test)]
        seam::count_touch();
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that `exporter` exports it as `handle`, and must learn of its revocation. False if it is already
    /// revoked.
    pub(crate) fn join(&self, exporter: &Arc<Exporter>, handle: u32) -> bool {
        let mut state = self.state();
        let key = (Arc::as_ptr(exporter) as usize, handle);
        state.exports.insert(key, Arc::clone(exporter));
        !self.is_revoked()
    }

    /// Removes that record.
    pub(crate) fn part(&self, exporter: &Arc<Exporter>, handle: u32) {
        let key = (Arc::as_ptr(exporter) as usize, handle);
        self.state().exports.remove(&key);
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub(crate) fn is_file(&self) -> bool {
        self.file
    }

    /// The descriptor by which peers can map it, if they can.
    pub(crate) fn memfd(&self) -> Option<&Arc<OwnedFd>> {
        self.memfd.as_ref()
    }

    /// Records that a peer is about to map it, until `loan` ends. False if it is revoked.
    pub(crate) fn lend(&self, loan: &Arc<dyn Loan>) -> bool {
        let mut state = self.state();
        if self.is_revoked() {
            return false;
        }
        state.was_lent = true;
        state.loans.push(Arc::clone(loan));
        true
    }

    /// Removes a loan that its connection has ended.
    pub(crate) fn return_loan(&self, loan: &Arc<dyn Loan>) {
        self.state().loans.retain(|it| !Arc::ptr_eq(it, loan));
    }

    /// Returns the memory to its owner alone. A peer that had it mapped may still write to it, for example after a stop
    /// in the middle of a put. The present bytes therefore move to other memory.
    fn give_back(&self) -> io::Result<Region> {
        if self.mapped_file {
            drop(self.state().region.take());
            return Ok(Region::empty());
        }
        let (region, was_lent) = {
            let mut state = self.state();
            (
                state.region.take().unwrap_or_else(Region::empty),
                state.was_lent,
            )
        };
        if !was_lent {
            return Ok(region);
        }
        match Region::memfd(region.len()) {
            Ok(mut own) => {
                // SAFETY: in bounds of memory that `region` keeps; peers may write it.
                unsafe { shared::load(self.bounds, 0, &mut own) };
                Ok(own)
            }
            Err(error) => {
                self.state().region = Some(region);
                Err(error)
            }
        }
    }

    fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    /// Whether this process has the memory: a child of fork may not ([`Region::memfd`]).
    fn is_here(&self) -> bool {
        self.only.is_none_or(Process::is_current)
    }

    /// Whether this process made it, and not one that this process was forked from.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process.is_current()
    }

    /// Makes turns that begin from now on leave the memory alone, and waits for those in progress: a turn takes
    /// microseconds and never sleeps. Does nothing in a child of fork: the threads that take turns do not exist there,
    /// and only the parent can take back mappings.
    fn revoke(&self) {
        if !self.is_of_this_process() {
            return;
        }
        let (exporters, loans) = {
            let state = self.state();
            let again = self.revoked.swap(true, Ordering::AcqRel);
            for ((_, handle), exporter) in state.exports.iter().filter(|_| !again) {
                exporter.revoke(*handle);
            }
            let exporters: Vec<_> = state.exports.values().map(Arc::clone).collect();
            (exporters, state.loans.clone())
        };
        // Without the lock: a turn may need it to finish.
        exporters.iter().for_each(|it| it.grace.wait());
        loans.iter().for_each(|it| it.end());
    }
}

/// Memory that can be exported to peers, which read and write it at any moment. A handle, cheap to clone and to share
/// between threads.
///
/// It is registered once, here, and belongs to no connection: each connection may export it to its peer, with rights of
/// that peer's own.
///
/// A peer in shared memory gets its own mapping of a [`Region::memfd`] if its rights include READ. It then gets, puts
/// (with WRITE) and performs atomic operations (with WRITE) without this program's CPU and without a call by this
/// program.
///
/// There is no slice of it, because the bytes of a slice must not change while it lives. The program copies in and out,
/// and accesses aligned words as atomics.
///
/// After fork it belongs to the parent, which alone can export and revoke it. The child has a copy of the bytes, except
/// those of a [`Region::memfd`].
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

/// Memory revoked while there were other handles is freed with the last handle, even if a lane holds the window.
impl Drop for Handle {
    fn drop(&mut self) {
        if self.window.is_revoked() {
            let region = self.window.state().region.take();
            drop(region);
        }
    }
}

impl fmt::Debug for ExportedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportedRegion")
            .field("len", &self.len())
            .field("revoked", &self.is_revoked())
            .finish()
    }
}

/// Memory on its way to peers. It is no handle, and does not stop a handle from returning the region.
#[derive(Clone)]
pub struct Exporting(pub(crate) Arc<ExportWindow>);

impl fmt::Debug for Exporting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporting")
            .field("len", &self.0.bounds().len)
            .field("revoked", &self.is_revoked())
            .finish()
    }
}

impl Exporting {
    /// Whether the region was revoked: it is no longer exported.
    pub fn is_revoked(&self) -> bool {
        self.0.is_revoked()
    }
}

const SHRANK: &str = "the mapped file shrank";

fn shrank() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, SHRANK)
}

impl ExportedRegion {
    /// Makes `region` exportable.
    ///
    /// # Errors
    /// Returns the region if its start is not a multiple of 8, because words could not be accessed atomically.
    pub fn new(region: Region) -> Result<ExportedRegion, Region> {
        ExportedRegion::of(region, false)
    }

    /// Makes a mapped file exportable. [`ExportedRegion::revoke`] unmaps it, and returns an empty region.
    ///
    /// # Errors
    /// Returns the region if its start is not a multiple of 8.
    pub fn of_file(file: FileRegion) -> Result<ExportedRegion, FileRegion> {
        ExportedRegion::of(file.into_inner(), true).map_err(FileRegion::of)
    }

    fn of(region: Region, mapped_file: bool) -> Result<ExportedRegion, Region> {
        let (start, len) = region.raw();
        if !(start as usize).is_multiple_of(8) {
            return Err(region);
        }
        let window = ExportWindow {
            bounds: Bounds { start, len },
            file: region.is_file(),
            mapped_file,
            memfd: region.descriptor().map(Arc::clone),
            only: region.only(),
            revoked: AtomicBool::new(false),
            state: Mutex::new(WindowState {
                region: Some(region),
                exports: HashMap::new(),
                loans: Vec::new(),
                was_lent: false,
            }),
            process: Process::current(),
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

    /// The memory in the form that a connection exports. Its bytes stay in place until it is revoked, even after the
    /// last handle is dropped.
    pub fn exporting(&self) -> Exporting {
        Exporting(Arc::clone(self.window()))
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.window().bounds().len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes out of it, from `offset` on. Each aligned word is as it was at one moment.
    ///
    /// # Panics
    /// The bytes do not lie in it, or [`ExportedRegion::try_read`] fails.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.try_read(offset, into)
            .unwrap_or_else(|error| panic!("{error}"));
    }

    /// Does the same for memory that may be a mapped file that others shorten.
    ///
    /// # Errors
    /// `UnexpectedEof`: it is a mapped file that shrank. `Other`: this process is a child of fork, which does not have
    /// the memory.
    ///
    /// # Panics
    /// The bytes do not lie in it.
    pub fn try_read(&self, offset: usize, into: &mut [u8]) -> io::Result<()> {
        self.check_here()?;
        let bounds = self.part(offset, into.len());
        if self.window().is_file() {
            // SAFETY: in bounds of memory that lives as long as `self`. The kernel copies, so concurrent writes can
            // only mix the content.
            let read = unsafe { fault::read(bounds.start.add(offset), into, Some(bounds)) };
            return read.map_err(|_| shrank());
        }
        // SAFETY: in bounds of memory that lives as long as `self`, and is only accessed in this way.
        unsafe { shared::load(bounds, offset, into) }
        Ok(())
    }

    /// Copies bytes into it, from `offset` on.
    ///
    /// # Panics
    /// They do not fit in it, or [`ExportedRegion::try_write`] fails.
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.try_write(offset, from)
            .unwrap_or_else(|error| panic!("{error}"));
    }

    /// Does the same for memory that may be a mapped file that others shorten.
    ///
    /// # Errors
    /// As [`ExportedRegion::try_read`].
    ///
    /// # Panics
    /// The bytes do not fit in it.
    pub fn try_write(&self, offset: usize, from: &[u8]) -> io::Result<()> {
        self.check_here()?;
        let bounds = self.part(offset, from.len());
        // SAFETY: as in `try_read`; a region's bytes are writable.
        match unsafe { store(bounds, offset, from, self.window().is_file()) } {
            true => Ok(()),
            false => Err(shrank()),
        }
    }

    /// The aligned word at `offset`, for atomic operations that are atomic with respect to the peers' as well.
    ///
    /// # Panics
    /// `offset` is not a multiple of 8, or the word does not lie in it.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "word at {offset}");
        let bounds = self.part(offset, 8);
        // SAFETY: aligned and in bounds; the memory lives as long as `self`, and no handle returns it as a region while
        // this borrow lasts.
        unsafe { shared::word(bounds, offset) }
    }

    /// Performs `op` on the aligned word of 64 or 32 bits at `offset`, as a peer's operation does, and returns the old
    /// word. The memory must have the 8 aligned bytes that hold a word of 32 bits.
    ///
    /// Use it, and not an atomic of 32 bits, for words of 32 bits that peers change: all atomic accesses to the memory
    /// have 64 bits.
    ///
    /// # Panics
    /// `offset` is not a multiple of the word's length, the 8 bytes do not lie in the region, or this process is a child
    /// of fork, which does not have the memory.
    pub fn fetch_op(&self, offset: usize, op: impl Into<Atomic>) -> u64 {
        let atomic = op.into();
        let len = atomic.word.bytes() as usize;
        assert!(offset.is_multiple_of(len), "word at {offset}");
        let skip = offset % 8;
        shared::fetch_op(self.word(offset - skip), skip, atomic)
    }

    fn check_here(&self) -> io::Result<()> {
        match self.window().is_here() {
            true => Ok(()),
            false => Err(io::Error::other(NOT_OF_CHILDREN)),
        }
    }

    fn part(&self, offset: usize, len: usize) -> Bounds {
        let bounds = self.window().bounds();
        let end = offset.checked_add(len);
        let fits = end.is_some_and(|end| end <= bounds.len);
        assert!(fits, "{len} bytes at {offset} of {}", bounds.len);
        assert!(self.window().is_here(), "{NOT_OF_CHILDREN}");
        bounds
    }

    /// Whether it was revoked.
    pub fn is_revoked(&self) -> bool {
        self.window().is_revoked()
    }

    /// Whether this process made it: a child of fork can neither export nor revoke its parent's memory.
    pub fn is_of_this_process(&self) -> bool {
        self.window().is_of_this_process()
    }

    /// Ends all exports of it, on all connections, at once, and returns the region. On return no peer and no lane
    /// accesses it any more.
    ///
    /// If a peer had it mapped, it returns as other memory, at another address, with the bytes present on return. Later
    /// writes of such a peer, for example one that was stopped in the middle of a put, are lost. The call waits for
    /// each such peer in the middle of an access, at most 20 ms.
    ///
    /// # Errors
    /// Another handle lives: the region is revoked, but stays memory of several handles, which a peer that had it
    /// mapped may still write. Or the system has no memory for the copy: the caller should retry. Or this process is a
    /// child of the exporting one: nothing was revoked.
    pub fn revoke(self) -> Result<Region, ExportedRegion> {
        self.window().revoke();
        let handle = match Arc::try_unwrap(self.handle) {
            Ok(handle) => handle,
            Err(handle) => return Err(ExportedRegion { handle }),
        };
        // Lanes may still hold the window, but no longer access the memory.
        if !handle.window.is_of_this_process() {
            return Err(ExportedRegion {
                handle: Arc::new(handle),
            });
        }
        handle.window.give_back().map_err(|_| ExportedRegion {
            handle: Arc::new(handle),
        })
    }

    /// Does the same for memory that the caller does not want back: it is freed with the last handle. Memory that a
    /// peer has mapped then needs no copy.
    ///
    /// ```
    /// use zerolane_lane::{ExportedRegion, Region};
    /// let exported = ExportedRegion::new(Region::memfd(4096)?).expect("page-aligned");
    /// let other = exported.clone();
    /// exported.end();
    /// assert!(other.is_revoked());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn end(self) {
        self.window().revoke();
    }
}

/// Writes `bytes` at `offset` of shared memory. False if it is a mapped file that shrank.
///
/// # Safety
/// As [`shared::store`].
pub(crate) unsafe fn store(bounds: Bounds, offset: usize, bytes: &[u8], file: bool) -> bool {
    if file {
        // SAFETY: as promised; the kernel copies.
        return unsafe { fault::write(bytes, bounds.start.add(offset), Some(bounds)) }.is_ok();
    }
    // SAFETY: as promised.
    unsafe { shared::store(bounds, offset, bytes) };
    true
}

/// Counts this thread's accesses to windows, besides their memory.
#[cfg(test)]
pub(crate) mod seam {
    use std::cell::Cell;

    thread_local! {
        static TOUCHED: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count_touch() {
        TOUCHED.set(TOUCHED.get() + 1);
    }

    /// Accesses since the last call.
    pub(crate) fn take() -> usize {
        TOUCHED.take()
    }
}

#[cfg(test)]
#[path = "exported_tests.rs"]
mod tests;
