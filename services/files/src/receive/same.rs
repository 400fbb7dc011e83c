//! Links or copies files from the link directories instead of receiving them.
//!
//! The existing file must still be the one that was compared. If it can have no other name (a limit, another file
//! system, a missing right), it is copied here. So is a file with other names, before its permissions change.

use super::FileReceiver;
use super::hard_links::put_link;
use crate::attributes::NotKept;
use crate::backup::BackupsOf;
use crate::digest::{unit_count, unit_len};
use crate::error::{Cause, Error};
use crate::extended::{Extended, Wanted};
use crate::extents::Extents;
use crate::in_place::is_unfinished;
use crate::limits::UNIT_BYTES;
use crate::links::identity;
use crate::message::{Attributes, EntryKind, Meta};
use crate::name::RelativePath;
use crate::part::{Part, make_way};
use crate::position::Step;
use crate::positioned::read_full;
use crate::root::{READ_FILE, kind_of, meta_with, open_in, stat_at};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, Stat, fstat, fsync};
use std::sync::Arc;

const NOT_ASKED: Error = Error::Protocol("a file that was not asked for to be linked");

/// The existing file that is the same.
pub(super) struct SameAs<'a> {
    /// The number of its link directory, and its path there.
    pub(super) directory: u8,
    pub(super) path: &'a [u8],
    pub(super) size: u64,
    /// The metadata for a copy of it, and its own when it was compared.
    pub(super) meta: Meta,
    pub(super) was: Meta,
}

/// The result.
enum Made {
    Linked,
    Copied(NotKept),
}

impl FileReceiver<'_> {
    pub(super) fn same(&mut self, name: &[u8], as_: &SameAs<'_>) -> Result<(), Error> {
        let path = RelativePath::parse(as_.path).map_err(|_| NOT_ASKED)?;
        let from = self.link_dest.get(usize::from(as_.directory));
        let from = from.ok_or(NOT_ASKED)?.clone();
        if path.leaves() || path.must_be_directory() {
            return Err(NOT_ASKED);
        }
        let called = name;
        let (directory, name) = self.place(called)?;
        let made = match (directory, from) {
            (Ok(directory), Some(from)) => {
                self.make_same(&directory, &name, (&from, &path), as_)?
            }
            (Ok(_), None) => Err(Cause::ChangedSinceListed),
            (Err(cause), _) => Err(cause),
        };
        self.at(&name, |this| match made {
            Ok(made) => {
                this.observer.file_started(&this.path, as_.size);
                match made {
                    Made::Linked => {
                        this.totals.hard_links += 1;
                        this.count_file(0);
                    }
                    Made::Copied(not_kept) => {
                        this.note_not_kept(not_kept);
                        this.totals.bytes_kept += as_.size;
                        this.count_file(as_.size);
                    }
                }
            }
            Err(cause) => this.fail(cause),
        });
        self.settle(Step::Entry, called);
        Ok(())
    }

    /// # Errors
    /// Outer: the copy ends. Inner: this file fails.
    fn make_same(
        &mut self,
        directory: &Arc<OwnedFd>,
        name: &[u8],
        (from, path): (&OwnedFd, &RelativePath),
        as_: &SameAs<'_>,
    ) -> Result<Result<Made, Cause>, Error> {
        let backups = self.backups_here();
        let linked = self.link_same(directory, name, (from, path), as_, backups.as_ref());
        let (file, stat) = match linked {
            Ok(None) => return Ok(Ok(Made::Linked)),
            Ok(Some(file)) => file,
            Err(cause) => return Ok(Err(cause)),
        };
        let wanted = match self.wanted_of(&file) {
            Ok(wanted) => wanted,
            Err(cause) => return Ok(Err(cause)),
        };
        // The replaced entry has its backup already.
        let what = (&as_.meta, wanted, None);
        let copied = self.copy_here((&file, &stat), (directory, name), what)?;
        Ok(copied.map(Made::Copied))
    }

    /// Links it. `Some`: it can have no other name, and must be copied.
    fn link_same(
        &self,
        directory: &OwnedFd,
        name: &[u8],
        (from, path): (&OwnedFd, &RelativePath),
        as_: &SameAs<'_>,
        backups: Option<&BackupsOf>,
    ) -> Result<Option<(OwnedFd, Stat)>, Cause> {
        let gone = |cause| match cause {
            Cause::NotFound | Cause::NotADirectory | Cause::OutsideRoot => {
                Cause::ChangedSinceListed
            }
            cause => cause,
        };
        let search = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (above, leaf) = path.split_last().ok_or(Cause::ChangedSinceListed)?;
        let open = |at: &OwnedFd, name: &[u8], flags| {
            open_in(at, name, flags, Mode::empty()).map_err(|errno| gone(errno.into()))
        };
        let above = open(from, &above.as_bytes(), search)?;
        // A file that could not be read is not linked.
        let file = open(&above, leaf, READ_FILE)?;
        let stat = fstat(&file)?;
        let attributes = Attributes {
            owner: as_.was.owner.is_some(),
            ..Attributes::NONE
        };
        let same = kind_of(&stat) == EntryKind::File
            && stat.st_size as u64 == as_.size
            && meta_with(&stat, attributes) == as_.was
            && !is_unfinished(file.as_fd());
        if !same {
            return Err(Cause::ChangedSinceListed);
        }
        let which = identity(&stat);
        if stat_at(directory, name).is_ok_and(|there| identity(&there) == which) {
            return Ok(None);
        }
        let replace_read_only = self.options.replace_read_only;
        make_way(directory.as_fd(), name, replace_read_only, backups, None)?;
        match put_link((&above, leaf), which, directory, name) {
            Ok(()) if self.options.durable => Ok(fsync(directory).map(|()| None)?),
            Ok(()) => Ok(None),
            Err(Cause::NoHardLink) => Ok(Some((file, stat))),
            Err(Cause::FirstNotThere) => Err(Cause::ChangedSinceListed),
            Err(cause) => Err(cause),
        }
    }

    /// The extended attributes of a file here, for its copy.
    fn wanted_of(&self, file: &OwnedFd) -> Result<Option<Wanted>, Cause> {
        let attributes = self.options.attributes;
        if !attributes.are_extended() {
            return Ok(None);
        }
        Ok(Some(Wanted {
            extended: Extended::read(file.as_fd(), attributes)?,
            attributes,
            common_only: self.common_only,
        }))
    }

    /// Makes `name` a copy of a file here, with its holes and the metadata `meta`.
    ///
    /// # Errors
    /// Outer: the copy as a whole ends. Inner: this file fails.
    pub(super) fn copy_here(
        &mut self,
        (file, stat): (&OwnedFd, &Stat),
        (directory, name): (&Arc<OwnedFd>, &[u8]),
        (meta, wanted, backups): (&Meta, Option<Wanted>, Option<BackupsOf>),
    ) -> Result<Result<NotKept, Cause>, Error> {
        let size = stat.st_size as u64;
        let mut part = match Part::brief(directory, name) {
            Ok(part) => part,
            Err(cause) => return Ok(Err(cause)),
        };
        let mut scratch = Vec::new();
        for index in 0..unit_count(size) {
            if let Err(cause) = copy_unit(&mut part, (file, stat), index, &mut scratch) {
                part.give_up(&cause);
                return Ok(Err(cause));
            }
            self.note_copied()?;
        }
        let is = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        if !fstat(file).is_ok_and(|now| is(&now) == is(stat)) {
            part.discard();
            return Ok(Err(Cause::ChangedSinceListed));
        }
        let part = part.wanting(wanted).backing_up(backups);
        Ok(part.commit(size, meta, &self.options))
    }
}

/// Copies the data of one unit.
fn copy_unit(
    part: &mut Part,
    (file, stat): (&OwnedFd, &Stat),
    index: u64,
    scratch: &mut Vec<u8>,
) -> Result<(), Cause> {
    let len = unit_len(stat.st_size as u64, index);
    for piece in Extents::of(file.as_fd(), stat).unit(index).data(len) {
        let at = index * UNIT_BYTES as u64 + u64::from(piece.offset);
        if part.copy(file.as_fd(), at, u64::from(piece.len))? {
            continue;
        }
        scratch.resize(piece.len as usize, 0);
        if read_full(file.as_fd(), scratch, at)? < scratch.len() {
            return Err(Cause::ChangedSinceListed);
        }
        part.write(scratch, at)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "same_tests.rs"]
mod tests;
