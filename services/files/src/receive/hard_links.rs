//! Makes hard links to files that this copy wrote, or that a sync found unchanged.
//!
//! A link is made only to a file that this end wrote itself, or that the client, which compared the trees, says is
//! unchanged: then it must still be as it was. The link is made under a random name and checked there before it
//! replaces anything, so that a file swapped in meanwhile is not linked.

use super::FileReceiver;
use crate::attributes::same_time;
use crate::error::{Cause, Error};
use crate::limits::LINKED_FILES;
use crate::links::{Identity, identity};
use crate::message::{EntryKind, Meta};
use crate::name::RelativePath;
use crate::part::make_way;
use crate::position::Step;
use crate::root::{kind_of, meta_of, open_in, stat_at};
use crate::temporary::{random_name, remove_left_over};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, Stat, fsync, linkat, renameat, unlinkat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

const NOT_ASKED: Error = Error::Protocol("a hard link that was not asked for, or cannot be");

/// The files with several names that a copy has written, over all connections of the end that keeps it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written(Arc<Mutex<HashSet<Identity>>>);

impl Written {
    /// Adds a file that was written.
    pub(super) fn add(&self, file: Identity) -> Result<(), Error> {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.insert(file);
        match files.len() > LINKED_FILES {
            true => Err(Error::Protocol("more files with several names than may be")),
            false => Ok(()),
        }
    }

    fn has(&self, file: Identity) -> bool {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.contains(&file)
    }

    pub(super) fn clear(&self) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.clear();
    }
}

/// The file that a further name belongs to.
pub(super) struct First<'a> {
    /// How many directories both names have in common, and the file's path below these.
    pub(super) level: u32,
    pub(super) path: &'a [u8],
    /// Its current size.
    pub(super) size: u64,
    pub(super) meta: Meta,
    /// It did not come on this connection.
    pub(super) before: bool,
}

impl FileReceiver<'_> {
    /// Records that the next file has other names.
    pub(super) fn shared(&mut self) -> Result<(), Error> {
        self.coming_shared = self.options.attributes.hard_links;
        match self.coming_shared {
            true => Ok(()),
            false => Err(NOT_ASKED),
        }
    }

    pub(super) fn hard_link(&mut self, name: &[u8], first: &First<'_>) -> Result<(), Error> {
        let path = RelativePath::parse(first.path).map_err(|_| NOT_ASKED)?;
        let can_be = !path.leaves() && !path.must_be_directory();
        if !self.options.attributes.hard_links || !can_be {
            return Err(NOT_ASKED);
        }
        let from = match first.level.checked_sub(1) {
            None => Some(self.base.clone()),
            Some(level) => {
                let level = self.levels.get(level as usize).ok_or(NOT_ASKED)?;
                level.directory.clone()
            }
        };
        let called = name;
        let (directory, name) = self.place(called)?;
        let made = directory.and_then(|directory| {
            let from = from.ok_or(Cause::NoDirectory)?;
            self.make_hard_link(&directory, &name, &from, &path, first)
        });
        self.at(&name, |this| match made {
            Ok(()) => {
                this.observer.file_started(&this.path, first.size);
                this.totals.hard_links += 1;
                this.count_file(0);
            }
            Err(cause) => this.fail(cause),
        });
        self.settle(Step::Entry, called);
        Ok(())
    }

    fn make_hard_link(
        &self,
        directory: &OwnedFd,
        name: &[u8],
        from: &OwnedFd,
        path: &RelativePath,
        first: &First<'_>,
    ) -> Result<(), Cause> {
        let (above, leaf) = path.split_last().ok_or(Cause::FirstNotThere)?;
        let search = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let above = match open_in(from, &above.as_bytes(), search, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Err(Cause::FirstNotThere),
            above => above?,
        };
        let stat = match stat_at(&above, leaf) {
            Err(Cause::NotFound) => return Err(Cause::FirstNotThere),
            stat => stat?,
        };
        self.check_first(&stat, first)?;
        let file = identity(&stat);
        if stat_at(directory, name).is_ok_and(|there| identity(&there) == file) {
            return Ok(());
        }
        let backups = self.backups_here();
        let replace_read_only = self.options.replace_read_only;
        make_way(
            directory.as_fd(),
            name,
            replace_read_only,
            backups.as_ref(),
            None,
        )?;
        put_link((&above, leaf), file, directory, name)?;
        match self.options.durable {
            true => Ok(fsync(directory)?),
            false => Ok(()),
        }
    }

    /// Checks that it is a file that this copy wrote or, if the client says so, one that is unchanged.
    fn check_first(&self, stat: &Stat, first: &First<'_>) -> Result<(), Cause> {
        let file = kind_of(stat) == EntryKind::File;
        let may_be_before = self.told.is_some() || self.expected.is_some();
        let known = self.written.has(identity(stat)) || first.before && may_be_before;
        if !file || !known {
            return Err(Cause::FirstNotThere);
        }
        let same = stat.st_size as u64 == first.size && same_time(&first.meta, &meta_of(stat), 0);
        match same {
            true => Ok(()),
            false => Err(Cause::ChangedSinceListed),
        }
    }
}

/// Makes `name` another name of `file`, which is at `leaf`; an existing entry is replaced.
pub(super) fn put_link(
    (above, leaf): (&OwnedFd, &[u8]),
    file: Identity,
    directory: &OwnedFd,
    name: &[u8],
) -> Result<(), Cause> {
    let aside = random_name()?;
    match linkat(above, leaf, directory, &aside, AtFlags::empty()) {
        Err(Errno::NOENT) => return Err(Cause::FirstNotThere),
        Err(Errno::MLINK | Errno::XDEV | Errno::PERM | Errno::OPNOTSUPP) => {
            return Err(Cause::NoHardLink);
        }
        linked => linked?,
    }
    let named = match stat_at(directory, &aside).map(|it| identity(&it) == file) {
        Ok(true) => renameat(directory, &aside, directory, name).map_err(Cause::from),
        Ok(false) => Err(Cause::FirstNotThere),
        Err(cause) => Err(cause),
    };
    // rename does nothing between two names of the same file, so that both still exist.
    let _ = unlinkat(directory, &aside, AtFlags::empty());
    named?;
    remove_left_over(directory.as_fd(), name);
    Ok(())
}

#[cfg(test)]
#[path = "hard_links_tests.rs"]
mod tests;
