//! Maps files, whose bytes other processes may change at any moment.

#[cfg(doc)]
use crate::memory::region::Access;
use crate::memory::region::Region;
use crate::memory::shared::Bounds;
use crate::memory::{fault, mapping};
use std::io;

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

fn shrank() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the mapped file shrank")
}

impl From<FileRegion> for crate::memory::Memory {
    fn from(region: FileRegion) -> crate::memory::Memory {
        crate::memory::Memory::File(region)
    }
}

/// Memory that a request may write: a [`Region`] or a [`FileRegion`].
pub trait Writable: crate::memory::region::Postable + Send + 'static {
    /// Length in bytes.
    fn length(&self) -> usize;

    /// Its bytes, if they are this program's alone and in place.
    fn own_bytes(&mut self) -> Option<&mut [u8]>;
}

impl Writable for Region {
    fn length(&self) -> usize {
        self.len()
    }

    fn own_bytes(&mut self) -> Option<&mut [u8]> {
        match self.is_file() {
            true => None,
            false => Some(self),
        }
    }
}

impl Writable for FileRegion {
    fn length(&self) -> usize {
        self.len()
    }

    fn own_bytes(&mut self) -> Option<&mut [u8]> {
        None
    }
}

#[cfg(test)]
#[path = "file_region_tests.rs"]
mod tests;
