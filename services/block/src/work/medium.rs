//! Presents a store as blocks, and converts its errors to sense data.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;

use crate::cdb::Extent;
use crate::disk::Geometry;
use crate::limits::{FAILING_PATIENCE, PIECE_BYTES};
use crate::sense::{Code, Failure, Key, Sense};
use crate::store::{BrokenMedium, Store};

#[derive(Debug)]
pub(super) struct Medium {
    pub(super) store: Arc<dyn Store>,
    pub(super) geometry: Geometry,
}

impl Medium {
    pub(super) fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Failure> {
        self.attempt(Code::READ_ERROR, at, into.len() as u64, |part| {
            let within = (part.start - at) as usize..(part.end - at) as usize;
            self.store.read(part.start, &mut into[within])
        })
    }

    pub(super) fn write(&self, at: u64, from: &[u8]) -> Result<(), Failure> {
        self.attempt(Code::WRITE_ERROR, at, from.len() as u64, |part| {
            let within = (part.start - at) as usize..(part.end - at) as usize;
            self.store.write(part.start, &from[within])
        })
    }

    /// The lost blocks are unknown, so the error names none.
    pub(super) fn flush(&self) -> Result<(), Failure> {
        let done = self.store.flush();
        done.map_err(|error| self.failure(&error, Code::WRITE_ERROR))
    }

    /// Gives the space of these blocks back, which become zeros. False: the store cannot, and nothing is done.
    pub(super) fn unmap(&self, extent: &Extent) -> Result<bool, Failure> {
        let (at, bytes) = self.geometry.bytes(extent);
        let mut is_done = false;
        self.attempt(Code::WRITE_ERROR, at, bytes, |part| {
            is_done = self.store.unmap(part.start, part.end - part.start)?;
            Ok(())
        })?;
        Ok(is_done)
    }

    /// Makes these blocks zeros, without space if the store can do that.
    pub(super) fn zero(&self, extent: &Extent) -> Result<(), Failure> {
        match self.unmap(extent)? {
            true => Ok(()),
            false => self.fill(extent, &vec![0; self.geometry.block_bytes as usize]),
        }
    }

    pub(super) fn prefetch(&self, extent: &Extent) {
        let (at, bytes) = self.geometry.bytes(extent);
        self.store.expect(at, bytes);
    }

    /// Reads all of it.
    pub(super) fn verify(&self, extent: &Extent) -> Result<(), Failure> {
        self.pieces(extent, |at, length, buffer| {
            self.read(at, &mut buffer[..length])
        })
    }

    pub(super) fn fill(&self, extent: &Extent, block: &[u8]) -> Result<(), Failure> {
        let mut content = Vec::new();
        self.pieces(extent, |at, length, _| {
            if content.is_empty() {
                content = block.repeat(length / block.len());
            }
            self.write(at, &content[..length])
        })
    }

    /// Calls `act` for the pieces of `extent`, whole blocks, the first of them the longest.
    fn pieces(
        &self,
        extent: &Extent,
        mut act: impl FnMut(u64, usize, &mut [u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (mut at, bytes) = self.geometry.bytes(extent);
        let end = at + bytes;
        let mut buffer = vec![0; bytes.min(PIECE_BYTES as u64) as usize];
        while at < end {
            let length = (end - at).min(PIECE_BYTES as u64) as usize;
            act(at, length, &mut buffer)?;
            at += length as u64;
        }
        Ok(())
    }

    /// Which byte of `expected` is the first that the medium has not, at `at`.
    pub(super) fn difference(&self, at: u64, expected: &[u8]) -> Result<Option<u64>, Failure> {
        let mut buffer = vec![0; expected.len().min(PIECE_BYTES)];
        let mut before = 0;
        for piece in expected.chunks(PIECE_BYTES) {
            let found = &mut buffer[..piece.len()];
            self.read(at + before, found)?;
            if let Some(within) = piece.iter().zip(found.iter()).position(|(a, b)| a != b) {
                return Ok(Some(before + within as u64));
            }
            before += piece.len() as u64;
        }
        Ok(None)
    }

    /// Writes the second half of `both` at `at` if the first half is there; else returns the first byte that is not.
    pub(super) fn compare_and_write(&self, at: u64, both: &[u8]) -> Result<Option<u64>, Failure> {
        let (expected, new) = both.split_at(both.len() / 2);
        if let Some(done) = self.store.compare_and_write(at, both) {
            let bytes = at..at + new.len() as u64;
            // Once more it would be another comparison.
            let none = |_| None;
            return done.map_err(|it| self.failed(&it, Code::WRITE_ERROR, &bytes, none));
        }
        let found = self.difference(at, expected)?;
        if found.is_none() {
            self.write(at, new)?;
        }
        Ok(found)
    }

    /// The parameter data of GET LBA STATUS, from `lba` on.
    pub(super) fn status(&self, lba: u64, most: usize) -> Result<Vec<u8>, Failure> {
        let mut list: Vec<(Extent, bool)> = Vec::new();
        let mut next = lba;
        // Rounding to blocks merges equal neighbours, so ask for more runs than needed.
        for _ in 0..2 * most {
            if next >= self.geometry.blocks {
                break;
            }
            let (extent, mapped) = self.run(next)?;
            let is_full = list.len() == most;
            match list.last_mut() {
                Some((last, was)) if *was == mapped => last.blocks += extent.blocks,
                _ if is_full => break,
                _ => list.push((extent, mapped)),
            }
            next += extent.blocks;
        }
        let mut bytes = (4 + 16 * list.len() as u32).to_be_bytes().to_vec();
        bytes.extend([0; 4]);
        for (extent, mapped) in list {
            let blocks = u32::try_from(extent.blocks).unwrap_or(u32::MAX);
            bytes.extend(extent.lba.to_be_bytes());
            bytes.extend(blocks.to_be_bytes());
            bytes.extend([u8::from(!mapped), 0, 0, 0]);
            // An extent that does not fit its field must be the last.
            if u64::from(blocks) != extent.blocks {
                let length = bytes.len() as u32 - 4;
                bytes[..4].copy_from_slice(&length.to_be_bytes());
                break;
            }
        }
        Ok(bytes)
    }

    /// Blocks from `lba` on that are alike. A block of which a part is mapped is mapped.
    fn run(&self, lba: u64) -> Result<(Extent, bool), Failure> {
        let block = u64::from(self.geometry.block_bytes);
        let (at, left) = (lba * block, self.geometry.blocks - lba);
        let mut run = None;
        self.attempt(Code::READ_ERROR, at, block, |part| {
            run = Some(self.store.run(part.start)?);
            Ok(())
        })?;
        let run = run.ok_or(Sense::new(Key::HardwareError, Code::INTERNAL_FAILURE))?;
        let (mapped, blocks) = match (run.mapped, run.bytes / block) {
            (true, _) => (true, run.bytes.div_ceil(block)),
            (false, 0) => (true, 1),
            (false, whole) => (false, whole),
        };
        let blocks = blocks.clamp(1, left);
        Ok((Extent { lba, blocks }, mapped))
    }

    /// Has `act` done for these bytes. If it fails, the first block that did is looked for by [`first_failing`].
    fn attempt(
        &self,
        failed: Code,
        at: u64,
        bytes: u64,
        mut act: impl FnMut(Range<u64>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let since = Instant::now();
        let all = at..at + bytes;
        let Err(error) = act(all.clone()) else {
            return Ok(());
        };
        let block = u64::from(self.geometry.block_bytes);
        let first = |blocks: Range<u64>| {
            first_failing(blocks, since, |part| {
                // Of the blocks at both ends there may be a part.
                let part = (part.start * block).max(all.start)..(part.end * block).min(all.end);
                act(part).is_err()
            })
        };
        Err(self.failed(&error, failed, &all, first))
    }

    /// Converts an error of the store at `bytes` for an initiator. One of the medium names the first block that failed,
    /// as the store does, or as `first` finds it. `failed` is what a broken medium does.
    fn failed(
        &self,
        error: &io::Error,
        failed: Code,
        bytes: &Range<u64>,
        first: impl FnOnce(Range<u64>) -> Option<u64>,
    ) -> Failure {
        let sense = match self.failure(error, failed) {
            Failure::Check(sense) if sense.key == Key::MediumError => sense,
            failure => return failure,
        };
        let block = u64::from(self.geometry.block_bytes);
        let blocks = bytes.start / block..bytes.end.div_ceil(block);
        let known: Option<&BrokenMedium> = error.get_ref().and_then(|it| it.downcast_ref());
        let first = match known {
            Some(known) => known
                .at
                .map(|it| it / block)
                .filter(|it| blocks.contains(it)),
            None => first(blocks),
        };
        first.map_or(sense, |it| sense.with_information(it)).into()
    }

    /// Converts an error of the store for an initiator. `failed` is the code for a broken medium.
    fn failure(&self, error: &io::Error, failed: Code) -> Failure {
        let errno = Errno::from_io_error(error);
        let is_write = failed == Code::WRITE_ERROR;
        // Linux's error for a SCSI device that another initiator has reserved.
        if errno == Some(Errno::BADE) {
            return Failure::Conflict;
        }
        let (key, code) = match (errno, error.kind()) {
            (Some(Errno::NOSPC | Errno::DQUOT), _) => {
                (Key::DataProtect, Code::SPACE_ALLOCATION_FAILED)
            }
            (_, ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                (Key::DataProtect, Code::SPACE_ALLOCATION_FAILED)
            }
            (Some(Errno::PERM | Errno::BADF | Errno::ACCESS), _) if is_write => {
                (Key::DataProtect, Code::WRITE_PROTECTED)
            }
            (_, ErrorKind::ReadOnlyFilesystem) if is_write => {
                (Key::DataProtect, Code::WRITE_PROTECTED)
            }
            (Some(Errno::NODEV | Errno::NXIO | Errno::STALE), _) => {
                (Key::NotReady, Code::NOT_READY)
            }
            (Some(Errno::IO), _) | (_, ErrorKind::UnexpectedEof) => (Key::MediumError, failed),
            _ => (Key::HardwareError, Code::INTERNAL_FAILURE),
        };
        Sense::new(key, code).into()
    }
}

/// The first of `blocks`, which failed together, that fails, found by halves: the store does not say how far it came.
/// None if none of them still fails, or they do so slowly, as a disk that tries a bad sector for seconds: its initiator
/// would take the command for lost. What failed was begun at `since`.
fn first_failing(
    blocks: Range<u64>,
    since: Instant,
    mut fails: impl FnMut(Range<u64>) -> bool,
) -> Option<u64> {
    let is_patient = || since.elapsed() <= FAILING_PATIENCE;
    let Range { mut start, mut end } = blocks;
    // These, alone, were seen to fail.
    let mut is_seen = true;
    while end - start > 1 {
        if !is_patient() {
            return None;
        }
        let middle = start.midpoint(end);
        is_seen = fails(start..middle);
        match is_seen {
            true => end = middle,
            false => start = middle,
        }
    }
    (is_seen || is_patient() && fails(start..end)).then_some(start)
}
