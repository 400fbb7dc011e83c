//! Sends a file with several names once, and its further names as links.

use super::FileSender;
use super::trouble::Trouble;
use crate::error::Error;
use crate::hard_links::{from_common, shared};
use crate::message::{EntryKind, Meta, Record};
use crate::root::{kind_of, meta_of};
use crate::sync::plan::Linked;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::Stat;

impl FileSender<'_> {
    /// Sends the file at the current path as a link, if it was met under another name; returns true then. Otherwise, if
    /// it has other names, both ends remember it.
    pub(super) fn as_another_name(&mut self, sent_as: &[u8], stat: &Stat) -> Result<bool, Trouble> {
        let Some(file) = shared(stat, self.options.attributes) else {
            return Ok(false);
        };
        if let Some((first, &before)) = self.first_names.get(file) {
            let is = (stat.st_size as u64, meta_of(stat));
            self.another_name(sent_as, &first, is, before)?;
            return Ok(true);
        }
        self.first_names.note(file, &self.path, false)?;
        self.add(&Record::Shared, 0)?;
        Ok(false)
    }

    /// Remembers a file that was sent on an earlier connection, if it has other names. A file that cannot be examined
    /// has none.
    pub(super) fn pass_file(&mut self, directory: BorrowedFd<'_>, name: &[u8]) {
        if !self.options.attributes.hard_links {
            return;
        }
        let stat = self.look(directory, name).ok();
        let file = stat.and_then(|stat| shared(&stat, self.options.attributes));
        if let Some(file) = file.filter(|&file| self.first_names.get(file).is_none()) {
            // Exceeding the limit is reported when another name of the file is met.
            let _ = self.first_names.note(file, &self.path, true);
        }
    }

    /// Sends a file of the source as a link to its other name at the target, if the source still is as planned.
    /// `linked`: the plan's information.
    pub(super) fn link_chosen(
        &mut self,
        directory: &OwnedFd,
        (name, sent_as): (&[u8], &[u8]),
        linked: &Linked,
    ) -> Result<(), Trouble> {
        let now = self.look(directory.as_fd(), name)?;
        let file = shared(&now, self.options.attributes);
        let same = kind_of(&now) == EntryKind::File && file == Some(linked.file);
        if !same || self.first_names.get(linked.file).is_some() {
            return self.chosen(directory, name, sent_as);
        }
        let is = (now.st_size as u64, linked.was.unwrap_or(meta_of(&now)));
        self.another_name(sent_as, &linked.first, is, true)?;
        Ok(self.pass(crate::position::Step::Entry, sent_as)?)
    }

    fn another_name(
        &mut self,
        name: &[u8],
        first: &[u8],
        (size, meta): (u64, Meta),
        before: bool,
    ) -> Result<(), Error> {
        let (level, first) = from_common(&self.path, first);
        self.observer.file_started(&self.path, size);
        self.add(
            &Record::HardLink {
                name,
                level,
                first,
                size,
                meta,
                before,
            },
            0,
        )
    }
}
