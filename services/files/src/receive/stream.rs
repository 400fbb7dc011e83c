//! Receives a stream into a file, which gets its name after all parts are verified.

use super::FileReceiver;
use super::open::NOT_OPEN;
use crate::digest::Digest;
use crate::error::{Cause, Error};
use crate::limits::{FILE_BYTES, UNIT_BYTES};
use crate::message::{CopyOptions, Meta};
use crate::pack::PackReader;
use crate::part::Part;
use crate::position::{Position, Step};

/// A stream that is being received.
pub(super) struct OpenStream {
    name: Vec<u8>,
    meta: Meta,
    /// `None` once it has failed here: parts that still come are discarded.
    part: Option<Part>,
    size: u64,
    /// The parts so far.
    parts: Position,
    /// The last part, which was not full, has come.
    ended: bool,
    outer_path: usize,
}

impl Drop for OpenStream {
    /// Part of a stream is useless: the rest cannot be read again.
    fn drop(&mut self) {
        if let Some(part) = self.part.take() {
            part.discard();
        }
    }
}

impl FileReceiver<'_> {
    pub(super) fn stream(&mut self, name: &[u8], meta: Meta) -> Result<(), Error> {
        let called = name.to_vec();
        let (directory, name) = self.place(name)?;
        let outer_path = self.push_path(&name);
        self.observer.file_started(&self.path, 0);
        let options = CopyOptions {
            resume: false,
            ..self.options
        };
        let part = directory.and_then(|directory| Part::lasting(&directory, &name, &options));
        let (part, failed) = match part {
            Ok(part) => (Some(part), None),
            Err(cause) => (None, Some(cause)),
        };
        self.stream = Some(OpenStream {
            name: called,
            meta,
            part,
            size: 0,
            parts: Position::default(),
            ended: false,
            outer_path,
        });
        if let Some(cause) = failed {
            self.fail_stream(cause);
        }
        Ok(())
    }

    pub(super) fn part(
        &mut self,
        size: u32,
        digest: &Digest,
        pack: &mut PackReader<'_>,
    ) -> Result<(), Error> {
        let contents = pack.take_contents(size as usize)?;
        let stream = self.stream.as_mut().ok_or(NOT_OPEN)?;
        check_part(contents, stream.ended, stream.size)?;
        stream.ended = contents.len() < UNIT_BYTES;
        let taken = match &mut stream.part {
            None => Ok(()),
            Some(_) if self.digester.digest(contents) != *digest => Err(Cause::DigestMismatch),
            Some(part) => part.write(contents, stream.size),
        };
        stream.size += u64::from(size);
        stream.parts.pass(Step::Entry, digest);
        self.observer.advanced(size.into());
        self.reached.units += 1;
        if let Err(cause) = taken {
            self.fail_stream(cause);
        }
        Ok(())
    }

    pub(super) fn close_stream(&mut self, digest: &Digest) -> Result<(), Error> {
        let mut stream = self.stream.take().ok_or(NOT_OPEN)?;
        if let Some(part) = stream.part.take() {
            let size = stream.size;
            let done = match stream.parts.digest() == *digest {
                true => part.commit(size, &stream.meta, &self.options),
                false => {
                    part.discard();
                    Err(Cause::DigestMismatch)
                }
            };
            match done {
                Ok(not_kept) => {
                    self.note_not_kept(not_kept);
                    self.count_file(size);
                }
                Err(cause) => self.fail(cause),
            }
        }
        self.leave_stream(&stream);
        Ok(())
    }

    pub(super) fn abandon_stream(&mut self, cause: Cause) {
        if let Some(stream) = self.stream.take() {
            if stream.part.is_some() {
                self.fail_there(cause);
            }
            self.leave_stream(&stream);
        }
    }

    fn leave_stream(&mut self, stream: &OpenStream) {
        self.path.truncate(stream.outer_path);
        self.settle(Step::Entry, &stream.name);
    }

    fn fail_stream(&mut self, cause: Cause) {
        if let Some(part) = self.stream.as_mut().and_then(|stream| stream.part.take()) {
            part.discard();
        }
        // The sender has nothing else to send.
        self.failed_open = Some(0);
        self.fail(cause);
    }
}

/// Checks a part: not empty, not too long, not after the last one, and not beyond the largest file size.
pub(super) fn check_part(contents: &[u8], ended: bool, before: u64) -> Result<(), Error> {
    let len = contents.len();
    match len == 0 || len > UNIT_BYTES || ended || before + len as u64 > FILE_BYTES {
        true => Err(Error::Protocol("a part of a stream that cannot be")),
        false => Ok(()),
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
