//! Describes what a command does with its disk, for a transport to execute in any thread.
//!
//! Payload moves between the store and the transport's memory; the engine does not touch it.

mod medium;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::cdb::Extent;
use crate::disk::Geometry;
use crate::sense::{Code, Failure, Key, Sense};
use crate::store::Store;
use medium::Medium;

/// Payload of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// None.
    None,
    /// So many bytes for the initiator: [`Work::read`] fills them.
    In(u64),
    /// The number of bytes from the initiator, for [`Work::write`].
    Out(u64),
}

/// The kind of work.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Read {
        extent: Extent,
        bytes: u64,
        fua: bool,
    },
    Write(Extent),
    /// Reads the medium without returning data.
    Verify(Extent),
    /// The initiator's bytes are those of the medium.
    Compare(Extent),
    /// Writes the second half of the initiator's bytes if the first equals the medium.
    CompareAndWrite(Extent),
    /// Each block becomes this one.
    Fill {
        extent: Extent,
        block: Vec<u8>,
    },
    /// Their space is given back, and they become zeros. Those of which that is not possible stay as they are.
    Unmap(Vec<Extent>),
    /// They become zeros, and their space is freed if possible.
    Zero(Extent),
    Flush,
    Prefetch(Extent),
    /// Which blocks are mapped, from `lba` on: so many descriptors at most.
    Status {
        lba: u64,
        most: usize,
    },
}

/// Work for a disk. The transport calls [`read`](Work::read) or [`write`](Work::write) for all of the payload, in
/// pieces and in any order, then [`finish`](Work::finish). The first error ends the command.
#[derive(Debug)]
pub struct Work {
    medium: Medium,
    operation: Operation,
    /// Whether writes reach the medium before the status.
    flush: bool,
    /// The result of the flush before a READ with FUA.
    flushed: OnceLock<Result<(), Failure>>,
    /// The first miscompare of pieces that came so far: the status names it, whatever their order.
    differs: Mutex<Option<u64>>,
}

impl Work {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        geometry: Geometry,
        operation: Operation,
        flush: bool,
    ) -> Work {
        Work {
            medium: Medium { store, geometry },
            operation,
            flush,
            flushed: OnceLock::new(),
            differs: Mutex::default(),
        }
    }

    /// The store that the work uses.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.medium.store
    }

    /// The payload that the transport must move.
    pub fn payload(&self) -> Payload {
        let bytes = |extent: &Extent| self.medium.geometry.bytes(extent).1;
        match &self.operation {
            Operation::Read { bytes: 0, .. } => Payload::None,
            Operation::Read { bytes, .. } => Payload::In(*bytes),
            Operation::Write(extent) | Operation::Compare(extent) => Payload::Out(bytes(extent)),
            Operation::CompareAndWrite(extent) => Payload::Out(2 * bytes(extent)),
            _ => Payload::None,
        }
    }

    /// Whether the payload must come in one piece.
    pub fn is_whole(&self) -> bool {
        matches!(self.operation, Operation::CompareAndWrite(_))
    }

    /// Fills `into` with the payload from its byte `at` on.
    ///
    /// # Errors
    /// The failure of the command: there is no such payload, or the medium failed.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Failure> {
        let Operation::Read { extent, bytes, fua } = &self.operation else {
            return Err(NO_PAYLOAD);
        };
        within(at, into.len(), *bytes)?;
        if *fua {
            (*self.flushed.get_or_init(|| self.medium.flush()))?;
        }
        self.medium.read(self.start(extent) + at, into)
    }

    /// Fills `into` with all of the payload if that does not wait for the medium; otherwise false.
    pub fn read_at_once(&self, into: &mut [u8]) -> bool {
        match &self.operation {
            Operation::Read {
                extent,
                bytes,
                fua: false,
            } if into.len() as u64 == *bytes => {
                self.medium.store.read_at_once(self.start(extent), into)
            }
            _ => false,
        }
    }

    /// Takes `from`, the payload from its byte `at` on.
    ///
    /// # Errors
    /// As for [`read`](Work::read); or the compared bytes differ; or `from` is only part of a payload that must be
    /// [whole](Work::is_whole).
    pub fn write(&self, at: u64, from: &[u8]) -> Result<(), Failure> {
        let Payload::Out(bytes) = self.payload() else {
            return Err(NO_PAYLOAD);
        };
        within(at, from.len(), bytes)?;
        match &self.operation {
            Operation::Write(extent) => self.medium.write(self.start(extent) + at, from),
            Operation::Compare(extent) => {
                let found = self.medium.difference(self.start(extent) + at, from)?;
                self.note_difference(found.map(|it| at + it));
                Ok(())
            }
            Operation::CompareAndWrite(extent) => {
                if from.len() as u64 != bytes {
                    return Err(NO_PAYLOAD);
                }
                match self.medium.compare_and_write(self.start(extent), from)? {
                    Some(at) => Err(miscompare(at)),
                    None => Ok(()),
                }
            }
            _ => Err(NO_PAYLOAD),
        }
    }

    /// Completes the work after all payload has moved. Returns parameter data for the initiator.
    ///
    /// # Errors
    /// The failure of the command.
    pub fn finish(&self) -> Result<Vec<u8>, Failure> {
        match &self.operation {
            Operation::Read { .. } | Operation::Write(_) | Operation::CompareAndWrite(_) => Ok(()),
            Operation::Verify(extent) => self.medium.verify(extent),
            Operation::Compare(_) => {
                let differs = self.differs.lock().unwrap_or_else(PoisonError::into_inner);
                differs.map_or(Ok(()), |at| Err(miscompare(at)))
            }
            Operation::Fill { extent, block } => self.medium.fill(extent, block),
            Operation::Unmap(extents) => extents
                .iter()
                .try_for_each(|it| self.medium.unmap(it).map(drop)),
            Operation::Zero(extent) => self.medium.zero(extent),
            Operation::Flush => self.medium.flush(),
            Operation::Prefetch(extent) => {
                self.medium.prefetch(extent);
                Ok(())
            }
            Operation::Status { lba, most } => return self.medium.status(*lba, *most),
        }?;
        if self.flush {
            self.medium.flush()?;
        }
        Ok(Vec::new())
    }

    fn start(&self, extent: &Extent) -> u64 {
        self.medium.geometry.bytes(extent).0
    }

    fn note_difference(&self, found: Option<u64>) {
        let mut differs = self.differs.lock().unwrap_or_else(PoisonError::into_inner);
        *differs = match (*differs, found) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

/// The transport asked for payload that the command has not: its mistake, and no harm.
const NO_PAYLOAD: Failure = Failure::Check(Sense::new(Key::HardwareError, Code::INTERNAL_FAILURE));

fn within(at: u64, length: usize, bytes: u64) -> Result<(), Failure> {
    let end = at.checked_add(length as u64);
    if end.is_none_or(|end| end > bytes) {
        return Err(NO_PAYLOAD);
    }
    Ok(())
}

/// The byte at that offset of the initiator's is not the medium's.
fn miscompare(at: u64) -> Failure {
    let sense = Sense::new(Key::Miscompare, Code::MISCOMPARE);
    sense.with_information(at).into()
}
