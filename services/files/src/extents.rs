//! Finds the data and the holes of a file.

use crate::limits::UNIT_BYTES;
use crate::message::Piece;
use rustix::fd::BorrowedFd;
use rustix::fs::{SeekFrom, Stat, seek};
use rustix::io::Errno;

/// The data and holes in one unit of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UnitMap {
    /// Only data.
    Data,
    /// Only a hole.
    Hole,
    /// These pieces are data, the rest is a hole.
    Mixed(Vec<Piece>),
}

impl UnitMap {
    /// The data in the first `len` bytes of the unit.
    pub(crate) fn data(self, len: usize) -> Vec<Piece> {
        let len = len as u32;
        let mut pieces = match self {
            UnitMap::Hole => Vec::new(),
            UnitMap::Data => vec![Piece { offset: 0, len }],
            UnitMap::Mixed(pieces) => pieces,
        };
        pieces.retain(|piece| piece.offset < len);
        if let Some(last) = pieces.last_mut() {
            last.len = last.len.min(len - last.offset);
        }
        pieces
    }
}

/// Reads the map of a file, unit by unit.
#[derive(Debug)]
pub(crate) struct Extents<'f> {
    /// `None`: a file without holes, or a file system that cannot report them.
    file: Option<BorrowedFd<'f>>,
    size: u64,
    /// The last extent of data found, or the next one ahead; `[start, end)`.
    data: (u64, u64),
}

impl<'f> Extents<'f> {
    /// The map of `file`. If a file occupies at least as many bytes as its size, the kernel is not asked for holes.
    pub(crate) fn of(file: BorrowedFd<'f>, stat: &Stat) -> Extents<'f> {
        let size = stat.st_size as u64;
        let sparse = (stat.st_blocks as u64).saturating_mul(512) < size;
        let mut extents = Extents {
            file: sparse.then_some(file),
            size,
            data: (0, 0),
        };
        if !sparse {
            extents.data = (0, size);
        }
        extents
    }

    /// The map of unit `index`. Units must be requested in increasing order.
    pub(crate) fn unit(&mut self, index: u64) -> UnitMap {
        let start = index * UNIT_BYTES as u64;
        let end = self.size.min(start + UNIT_BYTES as u64);
        let mut pieces = Vec::new();
        let mut at = start;
        while at < end {
            if self.data.1 <= at {
                self.data = self.next_data(at);
            }
            let (from, to) = (self.data.0.max(at), self.data.1.min(end));
            if from >= to {
                break;
            }
            pieces.push(Piece {
                offset: (from - start) as u32,
                len: (to - from) as u32,
            });
            at = to;
        }
        match pieces[..] {
            [] => UnitMap::Hole,
            [Piece { offset: 0, len }] if len as u64 == end - start => UnitMap::Data,
            _ => UnitMap::Mixed(pieces),
        }
    }

    /// How many units from `index` on, at most `most`, lie within the known extent of data.
    pub(crate) fn known_data_units(&self, index: u64, most: u64) -> u64 {
        let start = index * UNIT_BYTES as u64;
        if start < self.data.0 || start >= self.data.1 {
            return 0;
        }
        let units = match self.data.1 >= self.size {
            true => (self.size - start).div_ceil(UNIT_BYTES as u64),
            false => (self.data.1 - start) / UNIT_BYTES as u64,
        };
        units.min(most)
    }

    /// The first extent of data at or after `at`. After the last data, and if the file shrank meanwhile: an empty
    /// extent at the end. If the kernel cannot tell, everything is data.
    fn next_data(&self, at: u64) -> (u64, u64) {
        let Some(file) = self.file else {
            return (at, self.size);
        };
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start.max(at),
            Err(Errno::NXIO) => return (u64::MAX, u64::MAX),
            Err(_) => return (at, self.size),
        };
        match seek(file, SeekFrom::Hole(start)) {
            Ok(end) if end > start => (start, end.min(self.size)),
            _ => (start, self.size),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use rustix::fs::fstat;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    const UNIT: u64 = UNIT_BYTES as u64;

    /// A file on tmpfs, whose holes have page granularity.
    fn sparse_file(size: u64, data: &[(u64, usize)]) -> File {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.set_len(size).unwrap();
        for &(offset, len) in data {
            file.write_all_at(&vec![7; len], offset).unwrap();
        }
        file
    }

    fn map(file: &File) -> Vec<UnitMap> {
        let stat = fstat(file).unwrap();
        let mut extents = Extents::of(file.as_fd(), &stat);
        (0..(stat.st_size as u64).div_ceil(UNIT))
            .map(|index| extents.unit(index))
            .collect()
    }

    #[test]
    fn unit__no_holes() {
        let file = sparse_file(2 * UNIT + 5, &[(0, 2 * UNIT_BYTES + 5)]);
        assert_eq!(map(&file), [UnitMap::Data, UnitMap::Data, UnitMap::Data]);
    }

    #[test]
    fn unit__only_a_hole() {
        assert_eq!(
            map(&sparse_file(2 * UNIT + 5, &[])),
            [UnitMap::Hole, UnitMap::Hole, UnitMap::Hole]
        );
    }

    #[test]
    fn unit__mixed() {
        let file = sparse_file(
            4 * UNIT + 100,
            &[
                (4096, 4096),
                (65536, 8192),
                (2 * UNIT, UNIT_BYTES + 4096),
                (4 * UNIT, 100),
            ],
        );
        let piece = |offset, len| Piece { offset, len };
        assert_eq!(
            map(&file),
            [
                UnitMap::Mixed(vec![piece(4096, 4096), piece(65536, 8192)]),
                UnitMap::Hole,
                UnitMap::Data,
                UnitMap::Mixed(vec![piece(0, 4096)]),
                UnitMap::Data,
            ]
        );
    }

    #[test]
    fn data__of_the_beginning_of_a_unit() {
        let piece = |offset, len| Piece { offset, len };
        let mixed = UnitMap::Mixed(vec![piece(4096, 4096), piece(65536, 8192)]);
        assert_eq!(UnitMap::Hole.data(100), []);
        assert_eq!(UnitMap::Data.data(100), [piece(0, 100)]);
        for (len, data) in [
            (UNIT_BYTES, vec![piece(4096, 4096), piece(65536, 8192)]),
            (65537, vec![piece(4096, 4096), piece(65536, 1)]),
            (65536, vec![piece(4096, 4096)]),
            (5000, vec![piece(4096, 904)]),
            (4096, vec![]),
        ] {
            assert_eq!(mixed.clone().data(len), data, "{len}");
        }
    }

    #[test]
    fn known_data_units__stops_at_the_hole_and_at_the_end() {
        let file = sparse_file(
            8 * UNIT + 100,
            &[(0, 3 * UNIT_BYTES + 4096), (6 * UNIT, 2 * UNIT_BYTES + 100)],
        );
        let stat = fstat(&file).unwrap();
        let mut extents = Extents::of(file.as_fd(), &stat);
        assert_eq!(extents.unit(0), UnitMap::Data);
        assert_eq!(extents.known_data_units(0, 16), 3);
        assert_eq!(extents.known_data_units(1, 16), 2);
        assert_eq!(extents.known_data_units(0, 2), 2);
        assert_eq!(extents.unit(4), UnitMap::Hole);
        assert_eq!(extents.known_data_units(4, 16), 0);
        assert_eq!(extents.unit(6), UnitMap::Data);
        assert_eq!(extents.known_data_units(6, 16), 3);
    }

    #[test]
    fn unit__file_that_shrank_is_a_hole_not_a_loop() {
        let file = sparse_file(4 * UNIT, &[(2 * UNIT, 4096)]);
        let stat = fstat(&file).unwrap();
        file.set_len(0).unwrap();
        let mut extents = Extents::of(file.as_fd(), &stat);
        for index in 0..4 {
            assert_eq!(extents.unit(index), UnitMap::Hole);
        }
    }
}
