//! Presents a disk of another host as a [`Store`], for doors of this host. Blocks pass once through memory here.

use std::fmt;
use std::io::{self, ErrorKind};

use zerolane::Region;
use zerolane_block::sense::{Code, Key};
use zerolane_block::store::{BrokenMedium, Run, Store};

use crate::initiator::{DisplaySense, Done, Error, Queue, Request};

/// The bytes of a unit opened by a [`Queue`]. Writes must be whole blocks of the unit.
pub struct RemoteStore(Queue);

impl RemoteStore {
    /// The unit of `queue`.
    pub fn new(queue: Queue) -> RemoteStore {
        RemoteStore(queue)
    }

    /// Its queue.
    pub fn queue(&self) -> &Queue {
        &self.0
    }

    fn call(&self, request: Request) -> io::Result<Region> {
        let Done { result, memory } = self.0.call(request);
        result.map(|()| memory).map_err(|it| self.io_error(it))
    }

    /// Converts an error of the unit to one of a file, from which a door's engine makes sense data.
    fn io_error(&self, error: Error) -> io::Error {
        let kind = match &error {
            Error::Sense(wrong) => match (wrong.0.key, wrong.0.code) {
                (Key::DataProtect, Code::SPACE_ALLOCATION_FAILED) => ErrorKind::StorageFull,
                (Key::DataProtect, _) => ErrorKind::ReadOnlyFilesystem,
                (Key::MediumError, _) => {
                    // The disk's host has looked for the block.
                    let block_bytes = u64::from(self.0.unit().block_bytes);
                    let block = wrong.0.information;
                    let broken = BrokenMedium {
                        at: block.and_then(|it| it.checked_mul(block_bytes)),
                        why: error.to_string(),
                    };
                    return io::Error::new(ErrorKind::UnexpectedEof, broken);
                }
                _ => ErrorKind::Other,
            },
            Error::Reserved => return io::Error::from_raw_os_error(EBADE),
            _ => ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

impl fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteStore({:?})", self.0.unit())
    }
}

/// Linux's error for a disk that another initiator has reserved. The engine recognises it.
const EBADE: i32 = 52;

impl Store for RemoteStore {
    fn bytes(&self) -> u64 {
        self.0.unit().bytes()
    }

    fn is_read_only(&self) -> bool {
        self.0.unit().read_only
    }

    fn least_block_bytes(&self) -> u32 {
        self.0.unit().block_bytes
    }

    fn gives_back(&self) -> bool {
        self.0.unit().thin
    }

    /// An initiator may have room for a part of a block: whole ones are asked for.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let block = u64::from(self.0.unit().block_bytes);
        let before = (at % block) as usize;
        let bytes = (before + into.len()).next_multiple_of(block as usize);
        let memory = Region::anonymous(bytes)?;
        let at = at - before as u64;
        let memory = self.call(Request::Read { at, memory })?;
        into.copy_from_slice(&memory[before..before + into.len()]);
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        let mut memory = Region::anonymous(from.len())?;
        memory.copy_from_slice(from);
        let durable = false;
        let request = Request::Write {
            at,
            memory,
            durable,
        };
        self.call(request).map(drop)
    }

    /// The disk's host does it, because there may be other doors.
    fn compare_and_write(&self, at: u64, both: &[u8]) -> Option<io::Result<Option<u64>>> {
        let memory = Region::anonymous(both.len()).map(|mut memory| {
            memory.copy_from_slice(both);
            memory
        });
        let memory = match memory {
            Ok(memory) => memory,
            Err(error) => return Some(Err(error)),
        };
        let Done { result, .. } = self.0.call(Request::CompareAndWrite { at, memory });
        Some(match result {
            Ok(()) => Ok(None),
            Err(Error::Sense(DisplaySense(sense))) if sense.key == Key::Miscompare => {
                Ok(Some(sense.information.unwrap_or(0)))
            }
            Err(error) => Err(self.io_error(error)),
        })
    }

    fn flush(&self) -> io::Result<()> {
        self.call(Request::Flush).map(drop)
    }

    fn unmap(&self, at: u64, bytes: u64) -> io::Result<bool> {
        let unmap = self.gives_back();
        if unmap {
            self.call(Request::Zero { at, bytes, unmap })?;
        }
        Ok(unmap)
    }

    fn run(&self, at: u64) -> io::Result<Run> {
        let found = self.0.extents(at, 1).map_err(|it| self.io_error(it))?;
        let first = found.first().ok_or(ErrorKind::UnexpectedEof)?;
        Ok(Run {
            mapped: first.mapped,
            bytes: first.bytes,
        })
    }
}
