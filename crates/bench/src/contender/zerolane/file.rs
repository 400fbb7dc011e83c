//! From the sender's file to the receiver's through a ring of buffers small enough to stay in the
//! cache: read into one while the others are on their way.
//!
//! Mapping both files instead saves a copy at each end and loses: the page faults of a file that
//! is written for the first time cost more than the copy (`docs/performance.md`).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};
use zerolane::{Completion, Connection, Region};

use super::turns::Turns;

/// What is read, sent as one Transfer and written, at a time.
const PIECE: usize = 512 << 10;
/// Pieces in flight.
const AHEAD: usize = 4;

/// A file and the ring. Pieces of one connection end in the order in which they were posted.
pub(super) struct Ring {
    file: File,
    bytes: u64,
    free: Vec<Region>,
    /// Bytes of the file that were posted.
    posted: u64,
    in_flight: usize,
    /// Calls that read or wrote the file.
    pub(super) syscalls: u64,
}

impl Ring {
    fn new(file: File, bytes: u64) -> Result<Ring> {
        let free = (0..AHEAD).map(|_| Region::anonymous(PIECE));
        Ok(Ring {
            file,
            bytes,
            free: free.collect::<Result<_, _>>()?,
            posted: 0,
            in_flight: 0,
            syscalls: 0,
        })
    }

    /// A piece that is free, if more of the file is left, and how much of that it takes.
    fn next(&mut self) -> Option<(Region, usize)> {
        let left = self.bytes - self.posted;
        let len = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
        (len > 0).then_some(())?;
        Some((self.free.pop()?, len))
    }

    fn posted(&mut self, len: usize) {
        self.posted += len as u64;
        self.in_flight += 1;
    }

    /// The piece of a Transfer that is over; how much it carried.
    fn take_back(&mut self, completion: Completion) -> Result<(Region, usize)> {
        self.in_flight -= 1;
        let got = completion.result?;
        Ok((completion.into_region(), got))
    }
}

/// A file that is sent.
pub(super) struct Outgoing(pub(super) Ring);

impl Outgoing {
    pub(super) fn open(path: &Path, bytes: u64) -> Result<Outgoing> {
        Ok(Outgoing(Ring::new(File::open(path)?, bytes)?))
    }
}

impl Turns for Outgoing {
    const POLLS: bool = true;

    fn post(&mut self, connection: &mut Connection) -> Result<bool> {
        let Outgoing(ring) = self;
        let Some((mut piece, len)) = ring.next() else {
            return Ok(false);
        };
        // Only the last piece is shorter: what is cut off is not needed any more.
        drop(piece.split_off(len));
        let read = ring.file.read_exact_at(&mut piece, ring.posted);
        read.context("the file is shorter than it was")?;
        ring.syscalls += 1;
        connection.post_send(piece)?;
        ring.posted(len);
        Ok(true)
    }

    fn take_back(&mut self, completion: Completion) -> Result<()> {
        let (piece, _) = self.0.take_back(completion)?;
        self.0.free.push(piece);
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.0.in_flight == 0
    }
}

/// A copy of a file, which must not exist yet.
pub(super) struct Incoming {
    pub(super) ring: Ring,
    written: u64,
}

impl Incoming {
    pub(super) fn create(path: &Path, bytes: u64) -> Result<Incoming> {
        Ok(Incoming {
            ring: Ring::new(File::create_new(path)?, bytes)?,
            written: 0,
        })
    }
}

impl Turns for Incoming {
    fn post(&mut self, connection: &mut Connection) -> Result<bool> {
        let Some((piece, len)) = self.ring.next() else {
            return Ok(false);
        };
        connection.post_recv(piece)?;
        self.ring.posted(len);
        Ok(true)
    }

    fn take_back(&mut self, completion: Completion) -> Result<()> {
        let (piece, got) = self.ring.take_back(completion)?;
        let written = self.ring.file.write_all_at(&piece[..got], self.written);
        written.context("writing the copy")?;
        self.written += got as u64;
        self.ring.syscalls += 1;
        self.ring.free.push(piece);
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.ring.in_flight == 0
    }
}
