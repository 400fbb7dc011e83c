//! Maps files, whose bytes other processes may change at any moment.

use crate::memory::region::Region;
use crate::memory::shared::Bounds;
use crate::memory::{fault, mapping, memfd};
use nix::fcntl::SealFlag;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileTypeExt;

/// How a mapped file is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To be sent.
    Read,
    /// To be received into: writes reach the file.
    Write,
}

/// Memory of a mapped file that can be posted: [`Region::map_file`].
///
/// Other processes may write the file, and shorten it, at any moment. So there is no slice of it. The program copies in
/// and out; what others write meanwhile can only mix the content.
///
/// ```
/// use zerolane_lane::{Access, Region};
/// # let path = std::env::temp_dir().join(format!("zl-file-region-{}", std::process::id()));
/// std::fs::write(&path, b"in the file")?;
/// let file = std::fs::File::options().read(true).write(true).open(&path)?;
/// let region = Region::map_file(&file, 3, 8, Access::Write)?;
/// region.write(0, b"its")?;
/// assert_eq!(std::fs::read(&path)?, b"in its file");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct FileRegion(Region);

impl FileRegion {
    /// `region` is of a mapped file.
    pub(crate) fn of(region: Region) -> FileRegion {
        FileRegion(region)
    }

    pub(crate) fn region(&self) -> &Region {
        &self.0
    }

    pub(crate) fn into_inner(self) -> Region {
        self.0
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.raw().1
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its start, for C and for system calls. The bytes stay mapped while the region lives; a page that the file no
    /// longer has raises SIGBUS.
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.raw().0
    }

    /// Cuts the region in two: `self` keeps the first `at` bytes.
    ///
    /// # Panics
    /// `at` is larger than the length.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> FileRegion {
        FileRegion(self.0.split_off(at))
    }

    /// Joins parts of one region: `tail` must follow `self` in the same memory.
    ///
    /// # Errors
    /// Returns `tail` if it does not.
    pub fn unsplit(&mut self, tail: FileRegion) -> Result<(), FileRegion> {
        self.0.unsplit(tail.0).map_err(FileRegion)
    }

    /// Copies bytes out of it, from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof`: the file shrank.
    ///
    /// # Panics
    /// The bytes do not lie in it.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> io::Result<()> {
        let (bounds, start) = self.part(offset, into.len());
        // SAFETY: in bounds of a mapping that lives as long as `self`; its bytes are named as shared.
        unsafe { fault::read(start, into, Some(bounds)) }.map_err(|_| shrank())
    }

    /// Copies bytes into it, from `offset` on: into the file, if it was mapped with [`Access::Write`].
    ///
    /// # Errors
    /// `UnexpectedEof`: the file shrank.
    ///
    /// # Panics
    /// They do not fit in it.
    pub fn write(&self, offset: usize, from: &[u8]) -> io::Result<()> {
        let (bounds, start) = self.part(offset, from.len());
        // SAFETY: as in `read`; a mapping of a file is writable.
        unsafe { fault::write(from, start, Some(bounds)) }.map_err(|_| shrank())
    }

    /// Whole words of the mapping that have all bytes of the region, and the address of its byte `offset`.
    fn part(&self, offset: usize, len: usize) -> (Bounds, *mut u8) {
        let (start, whole) = self.0.raw();
        let end = offset.checked_add(len);
        let fits = end.is_some_and(|end| end <= whole);
        assert!(fits, "{len} bytes at {offset} of {whole}");
        // A mapping begins at a page, so at a word.
        let skip = start as usize % mapping::page();
        let bounds = Bounds {
            start: start.wrapping_sub(skip),
            len: skip + whole,
        };
        (bounds, start.wrapping_add(offset))
    }
}

impl Region {
    /// Maps bytes `[offset, offset + len)` of `file`, or of a block device.
    ///
    /// No process may truncate the file while the region lives: an access beyond its end raises SIGBUS, as with every
    /// mapping. Transfers survive a truncation: they fail with
    /// [`Reason::MemoryFault`](zerolane_wire::Reason::MemoryFault).
    ///
    /// # Errors
    /// The file is shorter, or cannot be mapped with this access.
    pub fn map_file(
        file: &File,
        offset: u64,
        len: usize,
        access: Access,
    ) -> io::Result<FileRegion> {
        let end = offset.checked_add(len as u64);
        let length = file_length(file)?;
        if end.is_none_or(|end| end > length) {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file is shorter than the range to be mapped",
            ));
        }
        // A private mapping is writable without a way to write the file.
        let (flags, populate) = match access {
            Access::Read => (libc::MAP_PRIVATE, libc::MADV_POPULATE_READ),
            Access::Write => (libc::MAP_SHARED, libc::MADV_POPULATE_WRITE),
        };
        let page = mapping::page() as u64;
        let skip = (offset % page) as usize;
        let start = offset - skip as u64;
        let region = Region::map(len + skip, flags, Some((file.as_fd(), start)), skip)?;
        // One call instead of a fault for each page. If it fails, the pages fault later.
        // SAFETY: the range is the mapping just made; no content changes.
        unsafe {
            libc::madvise(
                region.raw().0.wrapping_sub(skip).cast(),
                len + skip,
                populate,
            )
        };
        Ok(FileRegion::of(region))
    }

    /// Maps bytes `[offset, offset + len)` of a memfd that is sealed against writing and shrinking: no process can
    /// change them, so the region has slices. What this program writes stays in the region.
    ///
    /// # Errors
    /// `InvalidInput`: `file` is not sealed so. Or as for [`Region::map_file`].
    pub fn map_sealed(file: &File, offset: u64, len: usize) -> io::Result<Region> {
        let needed = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK;
        // Only a memfd has seals.
        let seals = memfd::seals(file.as_fd()).unwrap_or(SealFlag::empty());
        if !seals.contains(needed) {
            let why = "the file is no memfd sealed against writing and shrinking";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(Region::map_file(file, offset, len, Access::Read)?.into_inner())
    }
}

fn shrank() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the mapped file shrank")
}

/// The length of a file or of a block device, whose metadata say 0.
fn file_length(file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    if !metadata.file_type().is_block_device() {
        return Ok(metadata.len());
    }
    // BLKGETSIZE64 of linux/fs.h, which names the size of a size_t and writes 64 bits.
    const DEVICE_LENGTH: libc::Ioctl = libc::_IOR::<libc::size_t>(0x12, 114);
    let mut length = 0_u64;
    // SAFETY: the request writes 64 bits, where there are as many.
    match unsafe { libc::ioctl(file.as_raw_fd(), DEVICE_LENGTH, &raw mut length) } {
        0 => Ok(length),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
#[path = "file_region_tests.rs"]
mod tests;
