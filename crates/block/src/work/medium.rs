//! A store as blocks: its errors as sense data.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;

use crate::cdb::Extent;
use crate::disk::Geometry;
use crate::limits::PIECE_BYTES;
use crate::sense::{Code, Failure, Key, Sense};
use crate::store::Store;

#[derive(Debug)]
pub(super) struct Medium {
    pub(super) store: Arc<dyn Store>,
    pub(super) geometry: Geometry,
}

impl Medium {
    pub(super) fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Failure> {
        let done = self.store.read(at, into);
        done.map_err(|error| {
            self.failed(&error, Code::READ_ERROR, at, into.len() as u64, |part| {
                let within = (part.start - at) as usize..(part.end - at) as usize;
                self.store.read(part.start, &mut into[within])
            })
        })
    }

    pub(super) fn write(&self, at: u64, from: &[u8]) -> Result<(), Failure> {
        let done = self.store.write(at, from);
        done.map_err(|error| {
            self.failed(&error, Code::WRITE_ERROR, at, from.len() as u64, |part| {
                let within = (part.start - at) as usize..(part.end - at) as usize;
                self.store.write(part.start, &from[within])
            })
        })
    }

    /// What may be lost is not known, so no block is named.
    pub(super) fn flush(&self) -> Result<(), Failure> {
        let done = self.store.flush();
        done.map_err(|error| self.failure(&error, Code::WRITE_ERROR))
    }

    pub(super) fn unmap(&self, extent: &Extent) -> Result<(), Failure> {
        let (at, bytes) = self.geometry.bytes(extent);
        let done = self.store.unmap(at, bytes);
        done.map_err(|error| {
            self.failed(&error, Code::WRITE_ERROR, at, bytes, |part| {
                self.store.unmap(part.start, part.end - part.start)
            })
        })
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

    /// The parameter data of GET LBA STATUS, from `lba` on.
    pub(super) fn status(&self, lba: u64, most: usize) -> Result<Vec<u8>, Failure> {
        let mut list: Vec<(Extent, bool)> = Vec::new();
        let mut next = lba;
        // Runs that are alike once they are rounded to blocks become one, so there may be more of them.
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
            // What does not fit its field has to be the last.
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
        let run = self.store.run(at);
        let run = run.map_err(|error| {
            self.failed(&error, Code::READ_ERROR, at, block, |part| {
                self.store.run(part.start).map(drop)
            })
        })?;
        let (mapped, blocks) = match (run.mapped, run.bytes / block) {
            (true, _) => (true, run.bytes.div_ceil(block)),
            (false, 0) => (true, 1),
            (false, whole) => (false, whole),
        };
        let blocks = blocks.clamp(1, left);
        Ok((Extent { lba, blocks }, mapped))
    }

    /// What an error of the store is to an initiator, with the first block that failed, if the medium is broken. `act`
    /// does a part of what failed again: the store does not say how far it came.
    fn failed(
        &self,
        error: &io::Error,
        failed: Code,
        at: u64,
        bytes: u64,
        act: impl FnMut(Range<u64>) -> io::Result<()>,
    ) -> Failure {
        match self.failure(error, failed) {
            Failure::Check(sense) if sense.key == Key::MediumError => {
                let block = self.first_failing(at, bytes, act);
                block.map_or(sense, |it| sense.with_information(it)).into()
            }
            failure => failure,
        }
    }

    /// The first block of these bytes that `act` fails with, found by halves. None if it fails with none any more.
    fn first_failing(
        &self,
        at: u64,
        bytes: u64,
        mut act: impl FnMut(Range<u64>) -> io::Result<()>,
    ) -> Option<u64> {
        let block = u64::from(self.geometry.block_bytes);
        let end = at + bytes;
        // Of the blocks at both ends there may be a part.
        let mut fails = |blocks: Range<u64>| {
            let part = (blocks.start * block).max(at)..(blocks.end * block).min(end);
            act(part).is_err()
        };
        let (mut low, mut high) = (at / block, end.div_ceil(block));
        while high - low > 1 {
            let middle = low.midpoint(high);
            match fails(low..middle) {
                true => high = middle,
                false => low = middle,
            }
        }
        fails(low..high).then_some(low)
    }

    /// What an error of the store is to an initiator. `failed` is what a broken medium does.
    fn failure(&self, error: &io::Error, failed: Code) -> Failure {
        let errno = Errno::from_io_error(error);
        let is_write = failed == Code::WRITE_ERROR;
        // What Linux says of a SCSI device that another initiator has reserved.
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
