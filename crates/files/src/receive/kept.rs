//! What is kept of files besides content, permissions and time: only what this end asked for, and what could not be is
//! told once.

use super::FileReceiver;
use crate::attributes::NotKept;
use crate::error::{Error, Failure};
use crate::message::{Feedback, Record};
use std::mem::discriminant;

impl FileReceiver<'_> {
    /// What was not asked for is never set.
    pub(super) fn check_meta(&self, record: &Record<'_>) -> Result<(), Error> {
        let owner = record.meta().and_then(|meta| meta.owner);
        match owner.is_none_or(|owner| self.options.attributes.owner && owner.can_be()) {
            true => Ok(()),
            false => Err(Error::Protocol(
                "an owner that was not asked for, or cannot be",
            )),
        }
    }

    /// Notes what could not be kept of what is at the current path.
    pub(super) fn note_not_kept(&mut self, not_kept: NotKept) {
        let Some(cause) = not_kept else { return };
        let kind = discriminant(&cause);
        if self
            .not_kept
            .iter()
            .all(|it| discriminant(&it.cause) != kind)
        {
            let failure = Failure::new(&self.path, cause);
            self.observer.not_kept(&failure, false);
            self.not_kept.push(failure);
        }
    }

    /// Tells the sender of that.
    pub(super) fn report_not_kept(&mut self) -> Result<(), Error> {
        if self.told_not_kept < self.not_kept.len() {
            let failures = self.not_kept[self.told_not_kept..].to_vec();
            self.told_not_kept = self.not_kept.len();
            self.say(&Feedback::NotKept { failures })?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "kept_tests.rs"]
mod tests;
