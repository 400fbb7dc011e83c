//! Sends a stream, whose length is unknown when it begins.
//!
//! Each part carries its digest, so that a receiver can pass it on as soon as it has arrived. The end is explicit.

use super::FileSender;
use super::segments::changed;
use super::trouble::Trouble;
use crate::digest::Digest;
use crate::error::{Cause, Error, Failure};
use crate::limits::{PUMP_WAIT_MILLISECONDS, UNIT_BYTES};
use crate::message::{Meta, Record, Totals};
use crate::port::Port;
use crate::position::{Position, Step};
use crate::positioned::read_full;
use crate::root::meta_of;
use crate::umask::umask;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::fstat;
use rustix::io::{Errno, read};

/// The input of a stream.
#[derive(Debug)]
pub(crate) enum Source<'f> {
    /// An input that is read once, such as standard input.
    Input(BorrowedFd<'f>),
    /// A file.
    File(OwnedFd),
}

impl FileSender<'_> {
    /// Sends `source` as a stream called `name`, from part `from` on: the parts before it are read and compared.
    pub(crate) fn send_stream(
        mut self,
        name: &[u8],
        meta: Meta,
        source: &Source<'_>,
        from: Position,
    ) -> Result<Totals, Error> {
        self.path = name.to_vec();
        match self.stream(name, meta, source, from) {
            Ok(digest) => self.add(&Record::Close { digest }, 0)?,
            Err(Trouble::Copy(error)) => return Err(error),
            Err(Trouble::Refused) => self.end_stream(Cause::SourceChanged)?,
            Err(Trouble::File(cause)) => {
                let failure = Failure::new(&self.path, cause.clone());
                self.observer.failed(&failure);
                self.end_stream(cause)?;
            }
        }
        self.finish()
    }

    fn end_stream(&mut self, cause: Cause) -> Result<(), Error> {
        self.add(&Record::Abandon { cause }, 0)
    }

    /// Sends all parts, and returns the digest of all of them.
    fn stream(
        &mut self,
        name: &[u8],
        meta: Meta,
        source: &Source<'_>,
        from: Position,
    ) -> Result<Digest, Trouble> {
        self.add(&Record::Stream { name, meta }, 0)?;
        self.flush()?;
        let before = match source {
            Source::Input(_) => None,
            Source::File(file) => Some(fstat(file)?),
        };
        let mut position = Position::default();
        loop {
            if self.refused.is_some() {
                return Err(Trouble::Refused);
            }
            let mut buffer = self.acquire()?;
            let unit = &mut buffer[..UNIT_BYTES];
            let len = match source.read(unit, position.steps, &mut self.port) {
                Ok(len) => len,
                Err(trouble) => {
                    self.port.put_back(buffer);
                    return Err(trouble);
                }
            };
            let digest = self.digester.digest(&buffer[..len]);
            if len > 0 {
                position.pass(Step::Entry, &digest);
                self.observer.advanced(len as u64);
            }
            if len == 0 || position.steps <= from.steps {
                self.port.put_back(buffer);
            } else {
                let size = len as u32;
                self.pack_buffer = Some(buffer);
                self.add_fitting(&Record::Part { size, digest }, len)?;
                self.flush()?;
            }
            if position.steps == from.steps && position != from {
                return Err(Cause::SourceChanged.into());
            }
            if len < UNIT_BYTES {
                break;
            }
        }
        if position.steps < from.steps {
            return Err(Cause::SourceChanged.into());
        }
        if let (Source::File(file), Some(before)) = (source, before)
            && !self.options.allow_changing
            && changed(file.as_fd(), &before)?
        {
            return Err(Cause::SourceChanged.into());
        }
        Ok(position.digest())
    }
}

impl Source<'_> {
    /// The metadata for a copy of it. Without a name, it gets the metadata of a new file of this process.
    pub(crate) fn meta(&self) -> Result<Meta, Cause> {
        match self {
            Source::File(file) => Ok(meta_of(&fstat(file)?)),
            Source::Input(_) => {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
                Ok(Meta {
                    mode: 0o666 & !umask(),
                    mtime_seconds: now.tv_sec,
                    mtime_nanoseconds: now.tv_nsec as u32,
                    owner: None,
                })
            }
        }
    }

    /// Fills `unit`, which has this index, unless the input ends first; returns the number of bytes.
    fn read(&self, unit: &mut [u8], index: u64, port: &mut Port) -> Result<usize, Trouble> {
        match self {
            Source::File(file) => Ok(read_full(file.as_fd(), unit, index * UNIT_BYTES as u64)?),
            Source::Input(input) => read_input(*input, unit, port),
        }
    }
}

/// Reads until `unit` is full or the input ends; checks meanwhile whether the copy was given up.
fn read_input(input: BorrowedFd<'_>, unit: &mut [u8], port: &mut Port) -> Result<usize, Trouble> {
    let mut done = 0;
    while done < unit.len() {
        let look = Timespec {
            tv_sec: 0,
            tv_nsec: PUMP_WAIT_MILLISECONDS as i64 * 1_000_000,
        };
        let mut ready = [PollFd::from_borrowed_fd(input, PollFlags::IN)];
        match poll(&mut ready, Some(&look)) {
            Ok(0) | Err(Errno::INTR) => {
                port.poll()?;
                continue;
            }
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        match read(input, &mut unit[done..]) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(done)
}
