//! Puts records into packs, and packs and units into buffers; takes feedback meanwhile.

use super::FileSender;
use crate::error::Error;
use crate::limits::{BUFFER_BYTES, QUIET_UNITS, RESUME_UNITS};
use crate::message::{Feedback, Record, decode_feedback};
use crate::pack::PackWriter;
use crate::port::Buffer;

/// Units without content that were not recorded yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    Hole(u64),
    Keep(u64),
}

impl FileSender<'_> {
    /// Counts one more unit without content. Records the earlier ones first if they are too many for one record.
    pub(super) fn pend(&mut self, one: Pending) -> Result<(), Error> {
        let units = match (self.pending, one) {
            (Some(Pending::Hole(units)), Pending::Hole(_))
            | (Some(Pending::Keep(units)), Pending::Keep(_)) => units + 1,
            _ => {
                self.settle_pending()?;
                1
            }
        };
        self.pending = Some(match one {
            Pending::Hole(_) => Pending::Hole(units),
            Pending::Keep(_) => Pending::Keep(units),
        });
        match units >= QUIET_UNITS {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn settle_pending(&mut self) -> Result<(), Error> {
        match self.pending.take() {
            None => Ok(()),
            Some(Pending::Hole(units)) => self.add(&Record::Hole { units }, 0),
            Some(Pending::Keep(units)) => self.add(&Record::Keep { units }, 0),
        }
    }

    /// Adds a record, in a new pack if this one is full.
    pub(super) fn add(&mut self, record: &Record<'_>, contents: usize) -> Result<(), Error> {
        self.make_room(contents)?;
        self.add_fitting(record, contents)
    }

    /// Makes room in the pack for a record and `contents` bytes, after recording pending units.
    pub(super) fn make_room(&mut self, contents: usize) -> Result<(), Error> {
        self.settle_pending()?;
        if !self.pack.fits(contents, BUFFER_BYTES) {
            self.flush()?;
        }
        Ok(())
    }

    pub(super) fn add_fitting(
        &mut self,
        record: &Record<'_>,
        contents: usize,
    ) -> Result<(), Error> {
        self.pack_buffer()?;
        self.pack.add(record, contents)
    }

    /// The pack and its buffer.
    pub(super) fn pack_buffer(&mut self) -> Result<(&PackWriter, &mut Buffer), Error> {
        if self.pack_buffer.is_none() {
            let buffer = self.acquire()?;
            self.pack_buffer = Some(buffer);
        }
        let buffer = self.pack_buffer.as_mut().ok_or(Error::PeerGone)?;
        Ok((&self.pack, buffer))
    }

    /// Sends the pack, if it is not empty.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        self.settle_pending()?;
        if let Some(mut buffer) = self.pack_buffer.take() {
            if self.pack.is_empty() {
                self.pack_buffer = Some(buffer);
                return Ok(());
            }
            let len = self.pack.finish(&mut buffer);
            self.port.submit(buffer, len)?;
        }
        Ok(())
    }

    /// A buffer to fill. Takes feedback while it waits: a receiver that cannot send feedback would stop taking data.
    pub(super) fn acquire(&mut self) -> Result<Buffer, Error> {
        self.port.poll()?;
        loop {
            self.take_feedback()?;
            if let Some(buffer) = self.port.take_free() {
                return Ok(buffer);
            }
            self.port.wait()?;
        }
    }

    pub(super) fn take_feedback(&mut self) -> Result<(), Error> {
        while let Some(filled) = self.port.take_arrived() {
            let feedback = decode_feedback(filled.bytes())?;
            self.port.release(filled.buffer);
            match feedback {
                Feedback::Have { digests, last } => {
                    if self.have.len() as u64 > RESUME_UNITS {
                        return Err(Error::Protocol("more digests than may be"));
                    }
                    self.have.extend(digests);
                    self.have_all |= last;
                }
                Feedback::Failed { failures, open } => {
                    self.refused = open.or(self.refused);
                    failures
                        .iter()
                        .for_each(|failure| self.observer.failed_remotely(failure));
                }
                Feedback::NotKept { failures } => failures
                    .iter()
                    .for_each(|failure| self.observer.not_kept(failure, true)),
                Feedback::Settled { position, totals } => {
                    self.reached.position = position;
                    self.reached.totals = self.before.plus(totals);
                }
                Feedback::Done(totals) => self.done = Some(totals),
            }
        }
        Ok(())
    }
}
