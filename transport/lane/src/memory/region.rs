//! Owns the memory that transfers read and write.
//!
//! A [`Region`] owns its bytes exclusively, as a `BytesMut` does. While it is posted it belongs to the lane, and it
//! returns with the completion. A [`SharedRegion`] can be sent several times at once, and only read until no other
//! handle shares its bytes.

use crate::memory::{Mapping, available, mapping, memfd};
use crate::threads::process::Process;
use nix::fcntl::SealFlag;
use std::any::Any;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// Size of a huge page: 2 MiB on the machines that have them.
const HUGE_PAGE: usize = 2 << 20;
/// Regions of at least this length get huge pages. A copy out of a peer's memory looks up each page, and is twice as
/// fast with huge ones. A shorter region would take more than twice its length from the system.
const HUGE_FROM: usize = HUGE_PAGE / 2;

pub(crate) const NOT_OF_CHILDREN: &str = "a child of fork does not have its parent's memfd regions";

/// The owner that keeps the bytes of a [`Region::foreign`] in place until it is dropped.
pub type Owner = Box<dyn Any + Send + Sync>;

/// The kind of memory, which determines how it is freed.
enum Backing {
    Mapped {
        mapping: Mapping,
        /// Whether it belongs to a file, which may shrink.
        file: bool,
    },
    /// Memory that other processes may map, and that no process can shorten.
    Memfd {
        mapping: Mapping,
        memory: Arc<OwnedFd>,
    },
    Vec {
        start: NonNull<u8>,
        len: usize,
        capacity: usize,
    },
    Foreign {
        start: NonNull<u8>,
        /// Whether it belongs to a file, which may shrink.
        file: bool,
        owner: Owner,
    },
}

// SAFETY: a Backing is memory without thread affinity. The right to touch its bytes is decided by the
// Regions made of it, which are disjoint when exclusive.
unsafe impl Send for Backing {}
// SAFETY: as above; a shared Backing is only read through SharedRegions.
unsafe impl Sync for Backing {}

impl Backing {
    /// # Panics
    /// This process is a child of fork, which does not have the memory.
    fn start(&self) -> NonNull<u8> {
        match self {
            Backing::Memfd { mapping, .. } => {
                let is_here = mapping.only().is_none_or(Process::is_current);
                assert!(is_here, "{NOT_OF_CHILDREN}");
                mapping.start()
            }
            Backing::Mapped { mapping, .. } => mapping.start(),
            Backing::Vec { start, .. } | Backing::Foreign { start, .. } => *start,
        }
    }

    fn is_file(&self) -> bool {
        matches!(
            self,
            Backing::Mapped { file: true, .. } | Backing::Foreign { file: true, .. }
        )
    }

    fn owner(&self) -> Option<&(dyn Any + Send + Sync)> {
        match self {
            Backing::Foreign { owner, .. } => Some(&**owner),
            Backing::Mapped { .. } | Backing::Memfd { .. } | Backing::Vec { .. } => None,
        }
    }
}

impl fmt::Debug for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Backing::Mapped { .. } => "Mapped",
            Backing::Memfd { .. } => "Memfd",
            Backing::Vec { .. } => "Vec",
            Backing::Foreign { .. } => "Foreign",
        };
        f.debug_struct(kind)
            .field("file", &self.is_file())
            .finish_non_exhaustive()
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        // The other kinds free their memory when their fields are dropped.
        if let Backing::Vec {
            start,
            len,
            capacity,
        } = *self
        {
            // SAFETY: Region::from_vec took the vector apart, and this is the only place that reassembles it.
            drop(unsafe { Vec::from_raw_parts(start.as_ptr(), len, capacity) });
        }
    }
}

/// Exclusively owned memory that can be posted.
///
/// ```
/// use zerolane_lane::Region;
/// let mut region = Region::anonymous(8192)?;
/// region[0] = 7;
/// let tail = region.split_off(4096);
/// assert_eq!((region.len(), tail.len()), (4096, 4096));
/// region.unsplit(tail).unwrap();
/// assert_eq!(region.len(), 8192);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Region {
    backing: Arc<Backing>,
    offset: usize,
    len: usize,
}

impl Region {
    /// Makes page-aligned memory of `len` zero bytes, in huge pages if the system has them and `len` is at least 1 MiB.
    /// A region of less than 2 MiB takes a whole huge page.
    ///
    /// # Errors
    /// The system has no more memory.
    pub fn anonymous(len: usize) -> io::Result<Region> {
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
        if len < HUGE_FROM {
            return Region::map(len, flags, None, 0);
        }
        let whole = len.max(HUGE_PAGE);
        let padded = whole.checked_add(HUGE_PAGE);
        let region = Region::map(padded.ok_or(io::ErrorKind::OutOfMemory)?, flags, None, 0)?;
        let start = region.backing.start().as_ptr();
        let offset = start.align_offset(HUGE_PAGE);
        // SAFETY: the range lies in the mapping just made; advice changes no content. A kernel without huge pages
        // refuses, which affects only speed.
        unsafe { libc::madvise(start.add(offset).cast(), whole, libc::MADV_HUGEPAGE) };
        Ok(Region {
            offset,
            len,
            ..region
        })
    }

    /// Makes page-aligned memory of `len` zero bytes that another process of this host can map. If it is exported whole
    /// on a connection over shared memory, the peer puts, gets and performs atomic operations in it without this
    /// process's CPU ([`ExportedRegion`](crate::memory::ExportedRegion)). Otherwise it behaves as any other memory.
    ///
    /// The system allocates all of it at once or none: it refuses more than the system or this process's control groups
    /// have left. (The kernel would instead kill processes to free memory, and charge the pages to none of them.) The
    /// region has a descriptor (memfd, sealed against changes of length).
    ///
    /// A child of fork does not have it: the region belongs to one process alone. In the child, the copied handle
    /// panics when its bytes are accessed, and addresses into it are unmapped.
    ///
    /// ```
    /// use zerolane_lane::{ExportedRegion, Region};
    /// let mut region = Region::memfd(4096)?;
    /// region[..4].copy_from_slice(b"four");
    /// let exported = ExportedRegion::new(region).expect("page-aligned");
    /// let region = exported.revoke().expect("the only handle");
    /// assert_eq!(&region[..4], b"four");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput`: `len` is 0. `OutOfMemory`: the system has fewer bytes left. Or no descriptor is left, or `ulimit
    /// -f` is less than `len`.
    pub fn memfd(len: usize) -> io::Result<Region> {
        if len == 0 {
            let why = "memory that peers can map needs at least 1 byte";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        available::check(len)?;
        let pages = len.checked_next_multiple_of(mapping::page());
        let whole = pages.ok_or(io::ErrorKind::OutOfMemory)?;
        // A seal against peers' writes can be added later.
        let memory = memfd::create(whole, SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW)?;
        memfd::fill(&memory, whole)?;
        let mut mapping = Mapping::new(len, libc::MAP_SHARED, Some((memory.as_fd(), 0)))?;
        mapping.keep_from_children();
        let memory = Arc::new(memory);
        Ok(Region {
            backing: Arc::new(Backing::Memfd { mapping, memory }),
            offset: 0,
            len,
        })
    }

    /// The descriptor of its memory, if this region is all of that memory.
    pub(crate) fn descriptor(&self) -> Option<&Arc<OwnedFd>> {
        match &*self.backing {
            Backing::Memfd { mapping, memory } if self.len == mapping.len() => Some(memory),
            _ => None,
        }
    }

    /// A region without bytes; costs nothing.
    pub fn empty() -> Region {
        static NONE: std::sync::OnceLock<Arc<Backing>> = std::sync::OnceLock::new();
        let none = || Arc::clone(&Region::from_vec(Vec::new()).backing);
        Region {
            backing: Arc::clone(NONE.get_or_init(none)),
            offset: 0,
            len: 0,
        }
    }

    /// A region of the bytes of `vec`.
    pub fn from_vec(vec: Vec<u8>) -> Region {
        let mut vec = std::mem::ManuallyDrop::new(vec);
        let (len, capacity) = (vec.len(), vec.capacity());
        let start = NonNull::from(vec.as_mut_slice()).cast();
        Region {
            backing: Arc::new(Backing::Vec {
                start,
                len,
                capacity,
            }),
            offset: 0,
            len,
        }
    }

    /// A region of the `len` bytes at `start`, which `owner` keeps: memory of another language, or of another
    /// allocator. `owner` is dropped with the last region made of it, in any thread. That may be the thread of a
    /// worker, whose other connections make no progress meanwhile: the drop must not block, nor wait for a thread that
    /// may wait for the worker.
    ///
    /// `file` says that the bytes may be a mapped file that can shrink. User space then leaves all copies to the
    /// kernel, as for [`Region::map_file`].
    ///
    /// # Safety
    /// While `owner` lives, the bytes are mapped, initialised and, unless the region is only ever sent, writable.
    /// Furthermore, either nothing else writes them (or reads them, while a receive is posted), or the region is never
    /// dereferenced, only posted; in the latter case concurrent writes corrupt the content of a Transfer and nothing
    /// else.
    pub unsafe fn foreign(start: NonNull<u8>, len: usize, file: bool, owner: Owner) -> Region {
        let backing = Backing::Foreign { start, file, owner };
        Region {
            backing: Arc::new(backing),
            offset: 0,
            len,
        }
    }

    /// The owner of a [`Region::foreign`]; `None` for other regions.
    pub fn owner(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.backing.owner()
    }

    /// A region that starts `skip` bytes after the start of a mapping of `len`.
    pub(super) fn map(
        len: usize,
        flags: i32,
        of: Option<(BorrowedFd<'_>, u64)>,
        skip: usize,
    ) -> io::Result<Region> {
        if len == 0 {
            return Ok(Region::from_vec(Vec::new()));
        }
        Ok(Region {
            backing: Arc::new(Backing::Mapped {
                mapping: Mapping::new(len, flags, of)?,
                file: of.is_some(),
            }),
            offset: skip,
            len: len - skip,
        })
    }

    /// Cuts the region in two: `self` keeps the first `at` bytes.
    ///
    /// # Panics
    /// `at` is larger than the length.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Region {
        assert!(at <= self.len, "cut at {at} of {} bytes", self.len);
        let tail = Region {
            backing: Arc::clone(&self.backing),
            offset: self.offset + at,
            len: self.len - at,
        };
        self.len = at;
        tail
    }

    /// Joins parts of one region: `tail` must follow `self` in the same memory.
    ///
    /// # Errors
    /// Returns `tail` if it does not.
    pub fn unsplit(&mut self, tail: Region) -> Result<(), Region> {
        if !Arc::ptr_eq(&self.backing, &tail.backing) || self.offset + self.len != tail.offset {
            return Err(tail);
        }
        self.len += tail.len;
        Ok(())
    }

    /// Gives up writing in exchange for sending the bytes several times at once.
    pub fn share(self) -> SharedRegion {
        SharedRegion {
            offset: 0,
            len: self.len,
            shared: Arc::new(self),
        }
    }

    /// The one process that has it, if fork does not pass it to children.
    pub(crate) fn only(&self) -> Option<Process> {
        match &*self.backing {
            Backing::Memfd { mapping, .. } => mapping.only(),
            Backing::Mapped { .. } | Backing::Vec { .. } | Backing::Foreign { .. } => None,
        }
    }

    /// Start and length, without a borrow of the bytes.
    pub(crate) fn raw(&self) -> (*mut u8, usize) {
        (self.start(), self.len)
    }

    /// Whether it is a mapped file, whose pages may be gone on access.
    pub(crate) fn is_file(&self) -> bool {
        self.backing.is_file()
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: offset + len lies within the backing, by construction and split_off.
        unsafe { self.backing.start().as_ptr().add(self.offset) }
    }
}

impl Deref for Region {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are initialised and this Region alone names them.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in deref, and self is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

/// Memory that can be sent several times at once, and not written.
///
/// ```
/// use zerolane_lane::Region;
/// let shared = Region::anonymous(8192)?.share();
/// let part = shared.slice(0, 4096);
/// let shared = shared.try_unique().expect_err("a part of it lives");
/// drop(part);
/// let mut region = shared.try_unique().expect("it is the only one");
/// region[0] = 7;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SharedRegion {
    /// The region that was shared. No other region, shared or not, has any of its bytes, except clones and slices of
    /// this one.
    shared: Arc<Region>,
    offset: usize,
    len: usize,
}

impl SharedRegion {
    /// The owner of a [`Region::foreign`]; `None` for other regions.
    pub fn owner(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.shared.owner()
    }

    fn start(&self) -> *mut u8 {
        self.shared.start().wrapping_add(self.offset)
    }

    /// Start and length, without a borrow of the bytes.
    pub(crate) fn raw(&self) -> (*mut u8, usize) {
        (self.start(), self.len)
    }

    /// Whether it is a mapped file, whose pages may be gone on access.
    pub(crate) fn is_file(&self) -> bool {
        self.shared.is_file()
    }

    /// The bytes `[start, start + len)` of it.
    ///
    /// # Panics
    /// They do not lie in it.
    #[must_use]
    pub fn slice(&self, start: usize, len: usize) -> SharedRegion {
        assert!(
            start.checked_add(len).is_some_and(|end| end <= self.len),
            "slice within the region"
        );
        SharedRegion {
            shared: Arc::clone(&self.shared),
            offset: self.offset + start,
            len,
        }
    }

    /// Returns the bytes to exclusive ownership, which [`Region::share`] gave up.
    ///
    /// Clones and slices of it prevent that while they live, even slices of other bytes; so does a send in flight.
    /// Parts cut off before the region was shared ([`Region::split_off`]) do not, and can be joined again. If the last
    /// handle is a slice, it returns its own bytes.
    ///
    /// # Errors
    /// Returns the handle if there is another one.
    pub fn try_unique(self) -> Result<Region, SharedRegion> {
        let SharedRegion {
            shared,
            offset,
            len,
        } = self;
        match Arc::try_unwrap(shared) {
            Ok(region) => Ok(Region {
                offset: region.offset + offset,
                len,
                backing: region.backing,
            }),
            Err(shared) => Err(SharedRegion {
                shared,
                offset,
                len,
            }),
        }
    }
}

impl Deref for SharedRegion {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: offset + len lies within the region, by construction; the bytes are initialised. The region is in an
        // Arc, so nothing writes them: if it is still received into, only settled bytes are shared. Adjacent bytes may
        // be written, so no slice is made of them.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

#[cfg(test)]
#[path = "region_tests.rs"]
mod tests;
