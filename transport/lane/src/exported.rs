//! Memory that peers use while this program does.

use crate::grace::GracePeriods;
use crate::memory::{NOT_OF_CHILDREN, Region};
use crate::shared::{self, Bounds};
use crate::{Process, fault};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a connection shares with the threads that revoke what it exports.
#[derive(Debug, Default)]
pub(crate) struct Exporter {
    pub(crate) grace: GracePeriods,
    /// Handles of what was revoked, for the connection to end.
    revoked: Mutex<Vec<u32>>,
}

impl Exporter {
    fn revoke(&self, handle: u32) {
        let mut revoked = self.revoked.lock().unwrap_or_else(PoisonError::into_inner);
        revoked.push(handle);
        self.grace.tell();
    }

    /// Handles of what was revoked since this was asked.
    pub(crate) fn take_revoked(&self) -> Vec<u32> {
        let mut revoked = self.revoked.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut revoked)
    }
}

/// A peer's way to the memory past this process: by a mapping of its own.
pub(crate) trait Loan: fmt::Debug + Send + Sync {
    /// Ends it. When this returns, no access of the peer's is in progress, or it counts for nothing.
    fn end(&self);
}

/// The memory, as lanes see it: to be followed within a turn, from its export until the connection is
/// told that it was revoked.
pub(crate) struct ExportWindow {
    bounds: Bounds,
    file: bool,
    /// By which peers can map it.
    memfd: Option<Arc<OwnedFd>>,
    /// The one process that has it, if a child of fork does not.
    only: Option<Process>,
    revoked: AtomicBool,
    state: Mutex<WindowState>,
    process: Process,
}

struct WindowState {
    /// Given back with the revocation.
    region: Option<Region>,
    /// Where it is exported: address of the exporter, and handle.
    exports: HashMap<(usize, u32), Arc<Exporter>>,
    /// What peers have mapped of it.
    loans: Vec<Arc<dyn Loan>>,
    /// Some peer may have it mapped, whatever it was told since.
    was_lent: bool,
}

impl ExportWindow {
    /// The window's lock. It is held for no longer than a look; one who holds it takes no window's.
    fn state(&self) -> MutexGuard<'_, WindowState> {
        #[cfg(test)]
        seam::count_touch();
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `exporter` exports it as `handle`, and is told when it is revoked. False if it was already.
    pub(crate) fn join(&self, exporter: &Arc<Exporter>, handle: u32) -> bool {
        let mut state = self.state();
        let key = (Arc::as_ptr(exporter) as usize, handle);
        state.exports.insert(key, Arc::clone(exporter));
        !self.is_revoked()
    }

    /// `exporter` does so no more.
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

    /// By which peers can map it, if they can.
    pub(crate) fn memfd(&self) -> Option<&Arc<OwnedFd>> {
        self.memfd.as_ref()
    }

    /// A peer is about to have it mapped, until `loan` ends. False if it was revoked.
    pub(crate) fn lend(&self, loan: &Arc<dyn Loan>) -> bool {
        let mut state = self.state();
        if self.is_revoked() {
            return false;
        }
        state.was_lent = true;
        state.loans.push(Arc::clone(loan));
        true
    }

    /// That one is ended by its connection.
    pub(crate) fn return_loan(&self, loan: &Arc<dyn Loan>) {
        self.state().loans.retain(|it| !Arc::ptr_eq(it, loan));
    }

    /// The memory, from here on its owner's alone. A peer that had it mapped may write to it still, as one that was
    /// stopped in the middle of a put: the bytes as they are now go to other memory.
    fn give_back(&self) -> io::Result<Region> {
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

    /// Whether this process has the memory: not a child of fork that it is kept from ([`Region::memfd`]).
    fn is_here(&self) -> bool {
        self.only.is_none_or(Process::is_current)
    }

    /// Whether it was not made by a process that this one was forked from.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process.is_current()
    }

    /// No turn that begins touches it any more, and those that were in progress are over: a lane's turn
    /// takes microseconds, and no turn sleeps. In a child of fork it does nothing: the turns are other threads', which are not
    /// there, and what peers have mapped is the parent's to take back.
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
        // Without the lock: a turn may need it to end.
        exporters.iter().for_each(|it| it.grace.wait());
        loans.iter().for_each(|it| it.end());
    }
}

/// Memory that can be exported to peers, which read and write it at any moment; a handle, cheap to
/// clone and to share between threads.
///
/// It is registered once, here, and belongs to no connection: each may export it to its peer, with rights
/// of that peer's own.
///
/// Of a [`Region::memfd`] a peer in shared memory has a mapping of its own, if its rights have READ in them: it puts
/// (with WRITE as well), gets and does atomic operations (with WRITE too) there without this program, which need make
/// no call for it.
///
/// There is no slice of it, for a slice's bytes must not change behind its back: this program
/// copies in and out, and has the aligned words as atomics.
///
/// After fork it belongs to the parent, which alone can export and revoke it. The child has a copy of the bytes, and of those of
/// a [`Region::memfd`] none.
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

/// What was revoked while there were other handles goes with the last of them, whoever holds the window.
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

/// Memory on its way to peers: no handle of it. It keeps nobody from giving the region back.
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
    /// Whether the region was revoked: nobody exports it any more.
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
    /// Gives it back if its start is no multiple of 8: words could not be accessed atomically.
    pub fn new(region: Region) -> Result<ExportedRegion, Region> {
        let (start, len) = region.raw();
        if !(start as usize).is_multiple_of(8) {
            return Err(region);
        }
        let window = ExportWindow {
            bounds: Bounds { start, len },
            file: region.is_file(),
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

    /// For who exports it, now or later. Its bytes stay in place until it is revoked, also without a handle.
    pub fn exporting(&self) -> Exporting {
        Exporting(Arc::clone(self.window()))
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
    /// They do not lie in it, or where [`ExportedRegion::try_read`] fails.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.try_read(offset, into)
            .unwrap_or_else(|error| panic!("{error}"));
    }

    /// The same, of memory that may be a mapped file that others make shorter.
    ///
    /// # Errors
    /// `UnexpectedEof`: it is a mapped file that shrank. `Other`: this process is a child of fork, which does not have the memory.
    ///
    /// # Panics
    /// The bytes do not lie in it.
    pub fn try_read(&self, offset: usize, into: &mut [u8]) -> io::Result<()> {
        self.check_here()?;
        let bounds = self.part(offset, into.len());
        if self.window().is_file() {
            // SAFETY: in bounds of memory that lives as long as `self`; the kernel copies, so that
            // what is written meanwhile makes for mixed content and nothing worse.
            let read = unsafe { fault::read(bounds.start.add(offset), into, Some(bounds)) };
            return read.map_err(|_| shrank());
        }
        // SAFETY: in bounds of memory that lives as long as `self`, and is only touched so.
        unsafe { shared::load(bounds, offset, into) }
        Ok(())
    }

    /// Copies bytes into it, from `offset` on.
    ///
    /// # Panics
    /// They do not fit in it, or where [`ExportedRegion::try_write`] fails.
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.try_write(offset, from)
            .unwrap_or_else(|error| panic!("{error}"));
    }

    /// The same, to memory that may be a mapped file that others make shorter.
    ///
    /// # Errors
    /// As of [`ExportedRegion::try_read`].
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

    /// Whether this process made it: a child of fork can neither export nor revoke what its parent made.
    pub fn is_of_this_process(&self) -> bool {
        self.window().is_of_this_process()
    }

    /// Ends all exports of it, on every connection, at once: when this returns, no peer and no lane
    /// touches it any more. Gives the region back.
    ///
    /// What a peer has mapped comes back as other memory, at another address, with the bytes that are in it when this
    /// returns: what that peer still writes, as one that is stopped in the middle of a put and goes on later, is lost.
    /// Each such peer in the middle of an access is waited for, 20 ms at most.
    ///
    /// # Errors
    /// Another handle lives: it is revoked, but stays memory that several may use, and that such a peer may still
    /// write. Or the system has no memory for what a peer has mapped: to be tried again. Or this process is a child of the one
    /// that exports it: nothing was revoked.
    pub fn revoke(self) -> Result<Region, ExportedRegion> {
        self.window().revoke();
        let handle = match Arc::try_unwrap(self.handle) {
            Ok(handle) => handle,
            Err(handle) => return Err(ExportedRegion { handle }),
        };
        // Lanes may hold the window for a while yet, but follow it no more.
        if !handle.window.is_of_this_process() {
            return Err(ExportedRegion {
                handle: Arc::new(handle),
            });
        }
        handle.window.give_back().map_err(|_| ExportedRegion {
            handle: Arc::new(handle),
        })
    }

    /// The same, of memory that is not wanted back: it is freed, with the last handle. What a peer has mapped costs no copy
    /// then, and no memory for one.
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

/// What this thread touched of windows, beside their memory.
#[cfg(test)]
pub(crate) mod seam {
    use std::cell::Cell;

    thread_local! {
        static TOUCHED: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count_touch() {
        TOUCHED.set(TOUCHED.get() + 1);
    }

    /// How often, since this was asked last.
    pub(crate) fn take() -> usize {
        TOUCHED.take()
    }
}

#[cfg(test)]
#[path = "exported_tests.rs"]
mod tests;
