//! Where a node's content lies: a file or device, or memory of the program's.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use zerolane::ExportedRegion;

/// What chunks are read from and written to, by threads beside the connections.
#[derive(Clone, Debug)]
pub(crate) enum Store {
    File(Arc<File>),
    /// Read and written by words, so that a program that touches it meanwhile spoils content and nothing else.
    Memory(ExportedRegion),
}

impl Store {
    /// Fills `into` with what lies at `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` if it ends before, also memory that is a mapped file that shrank; and what the file says.
    pub(crate) fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Store::File(file) => file.read_exact_at(into, offset),
            Store::Memory(memory) => {
                let at = within(memory, into.len(), offset);
                memory.try_read(at.ok_or(io::ErrorKind::UnexpectedEof)?, into)
            }
        }
    }

    /// Has `content` lie at `offset`.
    ///
    /// # Errors
    /// What the file says; memory ends before, or is a mapped file that shrank.
    pub(crate) fn write_all_at(&self, content: &[u8], offset: u64) -> io::Result<()> {
        match self {
            Store::File(file) => file.write_all_at(content, offset),
            Store::Memory(memory) => {
                let at = within(memory, content.len(), offset);
                memory.try_write(at.ok_or(io::ErrorKind::WriteZero)?, content)
            }
        }
    }

    /// Whether what is read and written takes no longer than the bytes themselves: no device is waited for.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Store::Memory(_))
    }
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
}
