//! Counts the failures of a copy, and reports them here and to the sender.

use super::FileReceiver;
use crate::error::{Cause, Error, Failure};
use crate::limits::{CONTROL_BYTES, FEEDBACK_FAILURES};
use crate::message::{Feedback, encode_feedback};
use crate::port::Buffer;

impl FileReceiver<'_> {
    pub(super) fn count_file(&mut self, bytes: u64) {
        self.totals.files += 1;
        self.totals.bytes += bytes;
    }

    pub(super) fn count_backups(&mut self) {
        if let Some(backups) = &self.backups {
            self.totals.backed_up += backups.take_made();
        }
    }

    /// Records that the entry at the current path failed here.
    pub(super) fn fail(&mut self, cause: Cause) {
        let failure = Failure::new(&self.path, cause);
        self.totals.failed += 1;
        self.observer.failed(&failure);
        self.failures.push(failure);
    }

    /// Reports failures to the sender.
    pub(super) fn report(&mut self) -> Result<(), Error> {
        self.report_not_kept()?;
        let mut failures = std::mem::take(&mut self.failures);
        while !failures.is_empty() {
            let rest = failures.split_off(failures.len().min(FEEDBACK_FAILURES));
            self.say(&Feedback::Failed {
                failures,
                open: self.failed_open,
            })?;
            failures = rest;
        }
        Ok(())
    }

    pub(super) fn say(&mut self, feedback: &Feedback) -> Result<(), Error> {
        let buffer = self.acquire()?;
        self.say_in(buffer, feedback)
    }

    pub(super) fn say_in(&mut self, mut buffer: Buffer, feedback: &Feedback) -> Result<(), Error> {
        let room = CONTROL_BYTES.min(buffer.len());
        let len = encode_feedback(feedback, &mut buffer[..room])
            .ok_or(Error::Protocol("feedback longer than its limit"))?;
        self.port.submit(buffer, len)
    }

    fn acquire(&mut self) -> Result<Buffer, Error> {
        loop {
            if let Some(buffer) = self.port.take_free() {
                return Ok(buffer);
            }
            self.port.wait()?;
        }
    }
}
