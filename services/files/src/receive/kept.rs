//! What is kept of files besides content, permissions and time: only what this end asked for, and what could not be is
//! told once.

use super::FileReceiver;
use crate::attributes::NotKept;
use crate::error::{Cause, Error, Failure};
use crate::extended::{Wanted, is_asked_for};
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

    /// An extended attribute of what comes next.
    pub(super) fn attribute(&mut self, name: &[u8], value: &[u8]) -> Result<(), Error> {
        if !is_asked_for(name, self.options.attributes) {
            return Err(Error::Protocol(
                "an extended attribute that was not asked for",
            ));
        }
        self.coming
            .add(name.to_vec(), value.to_vec())
            .ok_or(Error::Protocol(
                "more extended attributes than a file may have",
            ))
    }

    /// What the file that is here is to have; `None` if nothing of the kind was asked for.
    pub(super) fn wanted(&mut self) -> Option<Wanted> {
        let attributes = self.options.attributes;
        attributes.are_extended().then(|| Wanted {
            extended: std::mem::take(&mut self.extended),
            attributes,
            common_only: self.common_only,
        })
    }

    /// Notes what could not be kept of what is at the current path.
    pub(super) fn note_not_kept(&mut self, not_kept: NotKept) {
        for cause in not_kept {
            // Only a sync looks at it again.
            if matches!(cause, Cause::TimeNotKept(_)) && !self.may_replace {
                continue;
            }
            let kind = discriminant(&cause);
            let is_new = |it: &Failure| discriminant(&it.cause) != kind;
            if self.not_kept.iter().all(is_new) {
                let failure = Failure::new(&self.path, cause);
                self.observer.not_kept(&failure, false);
                self.not_kept.push(failure);
            }
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
pub(super) mod tests;
