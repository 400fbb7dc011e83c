//! Receives a file in segments: opens it, takes each segment, closes it.

use super::FileReceiver;
use super::open_file::{OpenFile, hash_left_over};
use crate::digest::Digest;
use crate::error::{Cause, Error};
use crate::limits::{COPIED_UNITS, FILE_BYTES, RUN_UNITS};
use crate::message::{CopyOptions, Feedback, Meta, Piece};
use crate::pack::PackReader;
use crate::position::Step;

pub(super) const NOT_OPEN: Error =
    Error::Protocol("a segment without an open file, or a file inside another");
const TOO_MANY_UNITS: Error = Error::Protocol("more units than the file has");

impl FileReceiver<'_> {
    pub(super) fn open(
        &mut self,
        name: &[u8],
        meta: Meta,
        size: u64,
        (number, resume): (u64, bool),
    ) -> Result<(), Error> {
        if number != self.opened || size > FILE_BYTES {
            return Err(Error::Protocol("a file opened out of order or too large"));
        }
        if resume && !self.may_resume() {
            return Err(Error::Protocol(
                "asks what there is of a file that was not begun",
            ));
        }
        self.opened += 1;
        self.open_name = name.to_vec();
        self.reached.units = 0;
        let next = self.position.steps.saturating_add(1);
        self.reached.started = self.reached.started.max(next);
        let options = CopyOptions {
            resume,
            ..self.options
        };
        let (directory, name) = self.place(name)?;
        let named = self.is_named();
        let backups = self.backups_here();
        let outer = self.push_path(&name);
        self.observer.file_started(&self.path, size);
        let created = directory.and_then(|directory| {
            let name = (&*name, named);
            OpenFile::create(&directory, name, meta, size, &options, &self.digester)
        });
        let (mut open, failed) = match created {
            Ok(open) => (open, None),
            Err(cause) => (OpenFile::failed(meta, size, &self.digester), Some(cause)),
        };
        open.number = number;
        open.outer_path = outer;
        open.wanted = self.wanted();
        open.backups = backups;
        open.shared = self.is_shared;
        if resume {
            self.offer(&mut open)?;
        }
        self.open = Some(open);
        if let Some(cause) = failed {
            self.fail_open(cause);
        }
        Ok(())
    }

    /// Sends the digests of the existing content to the sender.
    fn offer(&mut self, open: &mut OpenFile) -> Result<(), Error> {
        loop {
            let (digests, last) = hash_left_over(open);
            self.say(&Feedback::Have { digests, last })?;
            if last {
                return Ok(());
            }
        }
    }

    pub(super) fn opened_file(&mut self) -> Result<&mut OpenFile, Error> {
        self.open.as_mut().ok_or(NOT_OPEN)
    }

    pub(super) fn announce(&mut self, units: u64) -> Result<(), Error> {
        let open = self.opened_file()?;
        if units == 0 || units > RUN_UNITS || units > open.units_left() {
            return Err(TOO_MANY_UNITS);
        }
        self.run = units;
        Ok(())
    }

    pub(super) fn holes(&mut self, units: u64) -> Result<(), Error> {
        if units > self.opened_file()?.units_left() {
            return Err(TOO_MANY_UNITS);
        }
        self.catch_up()?;
        for _ in 0..units {
            let open = self.opened_file()?;
            let len = open.next_unit_len() as u64;
            let outcome = open.take_hole();
            self.note_open(outcome, len);
            // Hashing zeros takes long: notice if the copy was given up meanwhile.
            self.port.poll()?;
        }
        Ok(())
    }

    pub(super) fn keep(&mut self, units: u64) -> Result<(), Error> {
        for _ in 0..units {
            let open = self.opened_file()?;
            let len = open.next_unit_len() as u64;
            let outcome = open.take_kept()?;
            let copied = !open.keeps_all();
            self.note_open(outcome, len);
            match copied {
                true => self.note_copied()?,
                false => self.port.poll()?,
            }
        }
        Ok(())
    }

    /// Copies the units kept of the old file, once the new file turns out to differ.
    pub(super) fn catch_up(&mut self) -> Result<(), Error> {
        while let Some(open) = &mut self.open
            && open.is_behind()
        {
            if let Err(cause) = open.copy_next() {
                self.fail_open(cause);
            }
            self.note_copied()?;
        }
        Ok(())
    }

    /// Counts a unit copied here, which may take as long as one that is received, and tells the sender from time to
    /// time that this end is at work.
    pub(super) fn note_copied(&mut self) -> Result<(), Error> {
        self.port.poll()?;
        self.units_copied += 1;
        if !self.units_copied.is_multiple_of(COPIED_UNITS) {
            return Ok(());
        }
        match self.port.take_free() {
            Some(buffer) => self.say_in(buffer, &Feedback::AT_WORK),
            // An earlier message is still in flight.
            None => Ok(()),
        }
    }

    pub(super) fn patch(
        &mut self,
        pieces: &[Piece],
        pack: &mut PackReader<'_>,
    ) -> Result<(), Error> {
        let open = self.opened_file()?;
        let len = open.next_unit_len();
        check_pieces(pieces, len)?;
        let contents = pack.take_contents(pieces.iter().map(|piece| piece.len as usize).sum())?;
        self.catch_up()?;
        let open = self.opened_file()?;
        let outcome = open.take_patch(pieces, contents);
        self.note_open(outcome, len as u64);
        Ok(())
    }

    pub(super) fn close(&mut self, digest: &Digest) -> Result<(), Error> {
        let open = self.opened_file()?;
        if open.units_left() > 0 {
            return Err(Error::Protocol("a file closed before its end"));
        }
        if !open.keeps_file() {
            self.catch_up()?;
        }
        let open = self.open.take().ok_or(NOT_OPEN)?;
        let outer = open.outer_path;
        let number = open.number;
        if !open.has_failed() {
            let shared = open.shared;
            let (size, kept, holes) = (open.size, open.bytes_kept, open.bytes_in_holes);
            match open.close(digest, &self.options) {
                Ok((not_kept, file)) => {
                    if shared {
                        self.written.add(file)?;
                    }
                    self.note_not_kept(not_kept);
                    self.count_file(size);
                    self.totals.bytes_kept += kept;
                    self.totals.bytes_in_holes += holes;
                }
                Err(cause) => {
                    self.fail(cause);
                    self.failed_open = Some(number);
                }
            }
        }
        self.path.truncate(outer);
        self.settle_open();
        Ok(())
    }

    fn settle_open(&mut self) {
        let name = std::mem::take(&mut self.open_name);
        self.settle(Step::Entry, &name);
    }

    pub(super) fn abandon(&mut self, cause: Cause) {
        if let Some(open) = self.open.take() {
            let outer = open.outer_path;
            if !open.has_failed() {
                open.discard();
                self.fail_there(cause);
            }
            self.path.truncate(outer);
            self.settle_open();
        }
    }

    pub(super) fn fail_open(&mut self, cause: Cause) {
        if let Some(open) = self.open.as_mut() {
            open.give_up(&cause);
            self.failed_open = Some(open.number);
        }
        self.fail(cause);
    }
}

/// Checks that pieces lie in their unit, in order, without overlap.
fn check_pieces(pieces: &[Piece], unit_len: usize) -> Result<(), Error> {
    let mut end = 0;
    for piece in pieces {
        let (from, len) = (piece.offset as usize, piece.len as usize);
        if len == 0 || from < end || from + len > unit_len {
            return Err(Error::Protocol("pieces that do not fit their unit"));
        }
        end = from + len;
    }
    match pieces.is_empty() || unit_len == 0 {
        true => Err(Error::Protocol("a patch without pieces or unit")),
        false => Ok(()),
    }
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
