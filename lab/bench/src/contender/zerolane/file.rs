//! Copies a file over Zerolane through a ring of buffers small enough to stay in the cache.
//!
//! It reads into one buffer while the others are in flight. Mapping both files saves a copy at each end, but is slower: the
//! page faults of a newly written file cost more than the copy (`docs/measurements/tried.md`).

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, ensure};
use zerolane::Region;

use super::turns::{Content, Direction, Turns};

/// What is read, sent as one Transfer and written, at a time.
const PIECE: usize = 512 << 10;
/// Pieces in flight.
const AHEAD: usize = 4;

/// A file, piece by piece.
pub(super) struct Pieces {
    file: File,
    bytes: u64,
    /// Calls that read or wrote it.
    pub(super) syscalls: u64,
}

impl Pieces {
    /// Of a file of so many bytes, with a ring of buffers.
    pub(super) fn of(direction: Direction, file: File, bytes: u64) -> Result<Turns<Pieces>> {
        let ring = (0..AHEAD).map(|_| Region::anonymous(PIECE));
        let pieces = Pieces {
            file,
            bytes,
            syscalls: 0,
        };
        let turns = bytes.div_ceil(PIECE as u64);
        Ok(Turns::new(
            direction,
            pieces,
            ring.collect::<Result<_, _>>()?,
            turns,
        ))
    }

    /// Where a turn's piece begins, and its length.
    fn place(&self, turn: u64) -> (u64, usize) {
        let at = turn * PIECE as u64;
        let left = self.bytes - at;
        (
            at,
            usize::try_from(left).map_or(PIECE, |left| left.min(PIECE)),
        )
    }
}

impl Content for Pieces {
    const SLOW: bool = true;

    fn fill(&mut self, turn: u64, region: &mut Region) -> Result<()> {
        let (at, len) = self.place(turn);
        // Only the last piece is shorter, and its end is no longer needed.
        drop(region.split_off(len));
        self.syscalls += 1;
        let read = self.file.read_exact_at(region, at);
        read.context("the file was truncated")
    }

    fn take(&mut self, turn: u64, bytes: &[u8]) -> Result<()> {
        let (at, len) = self.place(turn);
        ensure!(
            bytes.len() == len,
            "received {} bytes instead of {len}",
            bytes.len()
        );
        self.syscalls += 1;
        let written = self.file.write_all_at(bytes, at);
        written.context("writing the copy")
    }
}
