//! Reads and writes a node's content: a file, a device, or the program's memory.
//!
//! Blocks of zeros become holes in a file, even over older data, so a sparse source stays sparse at its hosts.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use zerolane::ExportedRegion;

/// The shortest hole, and a divisor of where one begins, bytes: a block of most file systems.
const BLOCK: usize = 4096;

/// So much is written at once where zeros are.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The store that threads beside the connections read chunks from and write them to.
#[derive(Clone, Debug)]
pub(crate) enum Store {
    File(Arc<File>),
    /// A block device: all of it is written.
    Device(Arc<File>),
    /// Memory, read and written by words, so that a program that touches it meanwhile can only damage content.
    Memory(ExportedRegion),
}

impl Store {
    /// Fills `into` with the bytes at `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the store is too short, or is memory of a mapped file that shrank; or the file's error.
    pub(crate) fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Store::File(file) | Store::Device(file) => file.read_exact_at(into, offset),
            Store::Memory(memory) => {
                let at = within(memory, into.len(), offset);
                memory.try_read(at.ok_or(io::ErrorKind::UnexpectedEof)?, into)
            }
        }
    }

    /// Has `content` lie at `offset`.
    ///
    /// # Errors
    /// The file's error; or the memory is too short, or of a mapped file that shrank.
    pub(crate) fn write_all_at(&self, content: &[u8], offset: u64) -> io::Result<()> {
        match self {
            Store::File(file) => write_sparsely(file, content, offset),
            Store::Device(file) => file.write_all_at(content, offset),
            Store::Memory(memory) => {
                let at = within(memory, content.len(), offset);
                memory.try_write(at.ok_or(io::ErrorKind::WriteZero)?, content)
            }
        }
    }

    /// Writes `len` zeros at `offset`.
    ///
    /// # Errors
    /// As [`write_all_at`](Self::write_all_at).
    pub(crate) fn fill(&self, len: usize, offset: u64) -> io::Result<()> {
        if let Store::File(file) | Store::Device(file) = self
            && punch(file, len, offset)
        {
            return Ok(());
        }
        let mut at = 0;
        while at < len {
            let piece = &ZEROS[..ZEROS.len().min(len - at)];
            match self {
                Store::File(file) | Store::Device(file) => {
                    file.write_all_at(piece, offset + at as u64)?;
                }
                Store::Memory(_) => self.write_all_at(piece, offset + at as u64)?,
            }
            at += piece.len();
        }
        Ok(())
    }

    /// Whether the file is known to have only a hole there, which reads as zeros.
    pub(crate) fn is_hole(&self, offset: u64, len: usize) -> bool {
        let Store::File(file) = self else {
            return false;
        };
        let end = offset + len as u64;
        match seek(file, SeekFrom::Data(offset)) {
            Ok(data) => data >= end,
            // It ends in a hole, or before.
            Err(Errno::NXIO) => file.metadata().is_ok_and(|it| it.len() >= end),
            Err(_) => false,
        }
    }

    /// Whether the store is memory, so that reads and writes never wait for a device.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Store::Memory(_))
    }
}

/// Writes, and leaves holes where blocks are zeros.
fn write_sparsely(file: &File, content: &[u8], offset: u64) -> io::Result<()> {
    let is_zero = |block: &[u8]| block[0] == 0 && block[1..] == block[..block.len() - 1];
    let mut blocks = content.chunks(BLOCK).map(is_zero).peekable();
    let mut at = 0;
    while let Some(zero) = blocks.next() {
        let mut end = at + BLOCK;
        while blocks.next_if(|it| *it == zero).is_some() {
            end += BLOCK;
        }
        let run = &content[at..end.min(content.len())];
        let offset = offset + at as u64;
        if !zero || !punch(file, run.len(), offset) {
            file.write_all_at(run, offset)?;
        }
        at = end;
    }
    Ok(())
}

/// Makes a hole; whether the file, or device, can have one there.
fn punch(file: &File, len: usize, offset: u64) -> bool {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    len == 0 || fallocate(file, mode, offset, len as u64).is_ok()
}

/// Where so many bytes at `offset` begin, if they lie in the memory.
fn within(memory: &ExportedRegion, len: usize, offset: u64) -> Option<usize> {
    let at = usize::try_from(offset).ok()?;
    (at.checked_add(len)? <= memory.len()).then_some(at)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use zerolane::Region;

    use super::*;

    #[test]
    fn memory__bytes_beyond_its_end_are_an_error() {
        let memory = ExportedRegion::new(Region::from_vec(vec![7; 64])).unwrap();
        let store = Store::Memory(memory);
        store.write_all_at(&[1, 2, 3], 61).unwrap();
        let mut back = [0; 4];
        store.read_exact_at(&mut back, 60).unwrap();
        assert_eq!(back, [7, 1, 2, 3]);
        for offset in [61, 64, u64::MAX - 1] {
            assert!(store.read_exact_at(&mut back, offset).is_err(), "{offset}");
            assert!(store.write_all_at(&back, offset).is_err(), "{offset}");
        }
    }

    /// Whether the file system makes a hole where there was data, and tells of it.
    fn has_holes() -> bool {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 2 * BLOCK], 0).unwrap();
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = fallocate(&file, mode, 0, BLOCK as u64);
        punched.is_ok() && Store::File(Arc::new(file)).is_hole(0, BLOCK)
    }

    #[test]
    fn file__has_holes_where_blocks_are_zeros_whatever_was_there() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let len = 40 * BLOCK + 100;
        file.write_all_at(&vec![7; len], 0).unwrap();
        let mut content = vec![0; len];
        content[3 * BLOCK + 5] = 1;
        content[20 * BLOCK..21 * BLOCK].fill(2);
        let store = Store::File(Arc::clone(&file));
        store.write_all_at(&content[..30 * BLOCK], 0).unwrap();
        store.fill(len - 30 * BLOCK, 30 * BLOCK as u64).unwrap();
        let mut back = vec![9; len];
        store.read_exact_at(&mut back, 0).unwrap();
        assert!(back == content);
        assert_eq!(file.metadata().unwrap().len(), len as u64);
        if !has_holes() {
            return eprintln!("skipped: the file system has no holes");
        }
        let hole = |block: usize| store.is_hole((block * BLOCK) as u64, BLOCK);
        assert!(hole(2) && !hole(3) && hole(4) && !hole(20) && hole(21) && hole(39));
    }

    #[test]
    fn fill__is_zeros_also_in_memory() {
        let memory = ExportedRegion::new(Region::from_vec(vec![7; 200_000])).unwrap();
        let store = Store::Memory(memory);
        store.fill(150_000, 1000).unwrap();
        let mut back = vec![1; 200_000];
        store.read_exact_at(&mut back, 0).unwrap();
        let zero = |it: usize| (1000..151_000).contains(&it);
        assert!((0..200_000).all(|it| back[it] == if zero(it) { 0 } else { 7 }));
        assert!(store.fill(10, 199_995).is_err());
    }
}
