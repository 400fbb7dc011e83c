//! Receives a stream and writes it to an output such as standard output, each part once it is verified.

use super::stream::check_part;
use crate::digest::{Digest, Digester};
use crate::error::{Cause, Error, Failure};
use crate::limits::UNIT_BYTES;
use crate::message::{EntryKind, Feedback, Record, Totals, encode_feedback};
use crate::observe::Observer;
use crate::pack::PackReader;
use crate::port::Port;
use crate::position::Step;
use crate::reached::Reached;
use crate::root::kind_of;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::fs::fstat;
use rustix::io::{Errno, ReadWriteFlags, pwritev2, write};
use std::io::IoSlice;

const OUT_OF_ORDER: Error =
    Error::Protocol("a record that is no part of a stream, or out of order");

/// Receives one stream.
pub(crate) struct StreamReceiver<'a> {
    pub(crate) port: Port,
    pub(crate) observer: &'a dyn Observer,
    pub(crate) digester: Digester,
    pub(crate) out: BorrowedFd<'a>,
    /// The parts that were passed on, and their size, over all connections.
    pub(crate) reached: &'a mut Reached,
    /// The path that the user gave.
    pub(crate) path: &'a [u8],
}

/// The record that may come next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Stream,
    Part,
    /// The last part was not full.
    Close,
    Finish,
    Nothing,
}

impl StreamReceiver<'_> {
    /// Receives until the sender has finished; returns the totals.
    pub(crate) fn receive(mut self) -> Result<Totals, Error> {
        let mut next = Next::Stream;
        while next != Next::Nothing {
            let filled = loop {
                match self.port.take_arrived() {
                    Some(filled) => break filled,
                    None => self.port.wait()?,
                }
            };
            let taken = self.take_pack(filled.bytes(), &mut next);
            self.port.release(filled.buffer);
            taken?;
        }
        self.say(&Feedback::Done(self.reached.totals))?;
        Ok(self.reached.totals)
    }

    fn take_pack(&mut self, bytes: &[u8], next: &mut Next) -> Result<(), Error> {
        let mut pack = PackReader::parse(bytes)?;
        while let Some(record) = pack.next_record()? {
            *next = match (*next, record) {
                (Next::Stream, Record::Total { files, bytes }) => {
                    self.observer.counted(files, bytes);
                    Next::Stream
                }
                (Next::Stream, Record::Stream { .. }) => {
                    self.observer.file_started(self.path, 0);
                    Next::Part
                }
                (Next::Part, Record::Part { size, digest }) => {
                    self.part(pack.take_contents(size as usize)?, &digest)?
                }
                (Next::Part | Next::Close, Record::Close { digest }) => {
                    self.close(&digest)?;
                    Next::Finish
                }
                (Next::Part | Next::Close, Record::Abandon { cause }) => {
                    let failure = Failure::new(self.path, cause);
                    if !self.failed() {
                        self.reached.totals.failed = 1;
                        self.observer.failed_remotely(&failure);
                    }
                    Next::Finish
                }
                (Next::Finish, Record::Finish) => Next::Nothing,
                _ => return Err(OUT_OF_ORDER),
            };
        }
        match pack.is_exhausted() {
            true => Ok(()),
            false => Err(Error::Protocol("contents that belong to no record")),
        }
    }

    fn failed(&self) -> bool {
        self.reached.totals.failed > 0
    }

    fn part(&mut self, contents: &[u8], digest: &Digest) -> Result<Next, Error> {
        check_part(contents, false, self.reached.totals.bytes)?;
        if self.digester.digest(contents) != *digest {
            self.fail(Cause::DigestMismatch)?;
        }
        if !self.failed() {
            write_all(self.out, contents, || self.port.check_stop())?;
            self.reached.position.pass(Step::Entry, digest);
            self.reached.totals.bytes += contents.len() as u64;
            self.observer.advanced(contents.len() as u64);
        }
        Ok(match contents.len() < UNIT_BYTES {
            true => Next::Close,
            false => Next::Part,
        })
    }

    fn close(&mut self, digest: &Digest) -> Result<(), Error> {
        if self.failed() {
            return Ok(());
        }
        if self.reached.position.digest() != *digest {
            return self.fail(Cause::DigestMismatch);
        }
        self.reached.totals.files = 1;
        Ok(())
    }

    /// Fails the stream: nothing more is passed on, and the sender need not send more.
    fn fail(&mut self, cause: Cause) -> Result<(), Error> {
        if self.failed() {
            return Ok(());
        }
        self.reached.totals.failed = 1;
        let failure = Failure::new(self.path, cause);
        self.observer.failed(&failure);
        self.say(&Feedback::Failed {
            failures: vec![failure],
            open: Some(0),
        })
    }

    fn say(&mut self, feedback: &Feedback) -> Result<(), Error> {
        let mut buffer = loop {
            match self.port.take_free() {
                Some(buffer) => break buffer,
                None => self.port.wait()?,
            }
        };
        let len = encode_feedback(feedback, &mut buffer)
            .ok_or(Error::Protocol("feedback longer than its limit"))?;
        self.port.submit(buffer, len)
    }
}

/// Bytes that a ready pipe accepts without blocking (PIPE_BUF).
const AT_ONCE: usize = 4096;

/// Interval of checks while the output is blocked.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// Writes all of it, unless `check` fails meanwhile.
fn write_all(
    out: BorrowedFd<'_>,
    mut bytes: &[u8],
    check: impl Fn() -> Result<(), Error>,
) -> Result<(), Error> {
    let stat = fstat(out).map_err(|errno| Error::Output(errno.into()))?;
    let is_file = kind_of(&stat) == EntryKind::File;
    while !bytes.is_empty() {
        check()?;
        let mut ready = [PollFd::from_borrowed_fd(out, PollFlags::OUT)];
        match poll(&mut ready, Some(&LOOK)) {
            Ok(0) | Err(Errno::INTR) => continue,
            // An error shows in the next write.
            Ok(_) | Err(_) => {}
        }
        let written = match is_file {
            true => write(out, bytes),
            false => write_ready(out, bytes),
        };
        match written {
            Ok(len) => bytes = &bytes[len..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(Error::Output(errno.into())),
        }
    }
    Ok(())
}

/// Writes as much as a ready output accepts without blocking: all that there is room for, if the system supports that
/// (pipes, sockets), else a page (FIFOs, terminals).
fn write_ready(out: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    // The offset after the last write.
    const HERE: u64 = u64::MAX;
    match pwritev2(out, &[IoSlice::new(bytes)], HERE, ReadWriteFlags::NOWAIT) {
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            write(out, &bytes[..bytes.len().min(AT_ONCE)])
        }
        written => written,
    }
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
