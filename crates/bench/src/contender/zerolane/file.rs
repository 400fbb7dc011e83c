//! From the sender's file to the receiver's through a ring of buffers small enough to stay in the
//! cache: read into one while the others are on their way.
//!
//! Mapping both files instead saves a copy at each end and loses: the page faults of a file that
//! is written for the first time cost more than the copy (`docs/measurements/tried.md`).

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
        // Only the last piece is shorter: what is cut off is not needed any more.
        drop(region.split_off(len));
        self.syscalls += 1;
        let read = self.file.read_exact_at(region, at);
        read.context("the file is shorter than it was")
    }

    fn take(&mut self, turn: u64, bytes: &[u8]) -> Result<()> {
        let (at, len) = self.place(turn);
        ensure!(
            bytes.len() == len,
            "{} bytes came instead of {len}",
            bytes.len()
        );
        self.syscalls += 1;
        let written = self.file.write_all_at(bytes, at);
        written.context("writing the copy")
    }
}
