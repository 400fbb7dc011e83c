//! Sets the requested attributes of files, and reports once for each kind those that could not be set.

use super::FileReceiver;
use crate::attributes::NotKept;
use crate::error::{Cause, Error, Failure};
use crate::extended::{Wanted, is_asked_for};
use crate::message::{Feedback, Record};
use std::mem::discriminant;

impl FileReceiver<'_> {
    /// Refuses attributes that were not requested.
    pub(super) fn check_meta(&self, record: &Record<'_>) -> Result<(), Error> {
        let owner = record.meta().and_then(|meta| meta.owner);
        match owner.is_none_or(|owner| self.options.attributes.owner && owner.can_be()) {
            true => Ok(()),
            false => Err(Error::Protocol(
                "an owner that was not asked for, or cannot be",
            )),
        }
    }

    /// Takes an extended attribute of the next file.
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

    /// The extended attributes for the current file; `None` if none were requested.
    pub(super) fn wanted(&mut self) -> Option<Wanted> {
        let attributes = self.options.attributes;
        attributes.are_extended().then(|| Wanted {
            extended: std::mem::take(&mut self.extended),
            attributes,
            common_only: self.common_only,
        })
    }

    /// Records the attributes of the entry at the current path that could not be kept.
    pub(super) fn note_not_kept(&mut self, not_kept: NotKept) {
        for cause in not_kept {
            // Only a sync compares times again.
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

    /// Reports them to the sender.
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
