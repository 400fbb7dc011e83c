//! Enters, makes and completes directories, and makes symbolic links.

use super::FileReceiver;
use super::top_level::TopLevel;
use crate::attributes::{replace_meta, with_permissions};
use crate::backup::BackupsOf;
use crate::error::{Cause, Error};
use crate::extended::Wanted;
use crate::limits::{PATH_BYTES, TREE_DEPTH};
use crate::message::Meta;
use crate::name::check_name;
use crate::part::make_link;
use crate::position::Step;
use crate::root::{DIRECTORY, open_in};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, Mode};
use rustix::io::Errno;
use std::borrow::Cow;
use std::sync::Arc;

/// A directory being filled.
pub(super) struct Level {
    /// `None` if it could not be made: its contents fail too.
    pub(super) directory: Option<Arc<OwnedFd>>,
    meta: Meta,
    /// Extended attributes, if requested.
    wanted: Option<Wanted>,
    /// Length of the path before it.
    outer: usize,
}

/// A directory, or why it is unusable, and a name in it.
pub(super) type Place<'n> = (Result<Arc<OwnedFd>, Cause>, Cow<'n, [u8]>);

impl FileReceiver<'_> {
    /// The directory for the next entry, and the entry's name there.
    pub(super) fn place<'n>(&mut self, name: &'n [u8]) -> Result<Place<'n>, Error> {
        let name =
            check_name(name).map_err(|_| Error::Protocol("a name that is not one component"))?;
        if let Some(level) = self.levels.last() {
            let directory = level.directory.clone().ok_or(Cause::NoDirectory);
            return Ok((directory, name.into()));
        }
        self.top_entries += 1;
        let name = match &self.top {
            TopLevel::Any => name.into(),
            TopLevel::Offered(offered) => match offered.admit(&self.base, name)? {
                Ok(()) => name.into(),
                Err(cause) => return Ok((Err(cause), name.into())),
            },
            TopLevel::Only(wanted) if wanted.contains(name) => name.into(),
            TopLevel::One(renamed) if self.top_entries == 1 => renamed.clone().into(),
            _ => return Err(Error::Protocol("something that was not asked for")),
        };
        Ok((Ok(self.base.clone()), name))
    }

    /// The backups of the directory for the next entry.
    pub(super) fn backups_here(&self) -> Option<BackupsOf> {
        let backups = self.backups.as_ref();
        backups.map(|backups| backups.of(&self.path))
    }

    /// Whether the user named the entry itself, and not a directory around it.
    pub(super) fn is_named(&self) -> bool {
        self.levels.is_empty() && matches!(self.top, TopLevel::One(_))
    }

    /// Runs `work` with the path of `name` as the current one.
    pub(super) fn at<T>(&mut self, name: &[u8], work: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.push_path(name);
        let result = work(self);
        self.path.truncate(outer);
        result
    }

    pub(super) fn push_path(&mut self, name: &[u8]) -> usize {
        let outer = self.path.len();
        if outer > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        outer
    }

    pub(super) fn enter(&mut self, name: &[u8], meta: Meta) -> Result<(), Error> {
        match self.go_in(name, meta)? {
            // The pass over the directories counts it, or reports the failure.
            _ if !self.share.settles_directories() => {}
            Ok(()) => self.totals.directories += 1,
            Err(cause) => self.fail(cause),
        }
        self.settle(Step::Enter, name);
        Ok(())
    }

    /// Enters a directory that was entered, and counted, on an earlier connection.
    pub(super) fn reenter(&mut self, name: &[u8], meta: Meta) -> Result<(), Error> {
        self.go_in(name, meta).map(drop)
    }

    fn go_in(&mut self, name: &[u8], meta: Meta) -> Result<Result<(), Cause>, Error> {
        if self.levels.len() >= TREE_DEPTH {
            return Err(Error::Protocol("directories nest too deeply"));
        }
        if !self.options.recursive {
            return Err(Error::Protocol(
                "a directory in a copy that is not recursive",
            ));
        }
        let wanted = self.wanted();
        let (parent, name) = self.place(name)?;
        let outer = self.push_path(&name);
        let made = parent.and_then(|parent| self.make_directory(&parent, &name, meta));
        let (directory, meta, outcome) = match made {
            Ok((directory, meta)) => (Some(Arc::new(directory)), meta, Ok(())),
            Err(cause) => (None, meta, Err(cause)),
        };
        self.levels.push(Level {
            directory,
            meta,
            wanted,
            outer,
        });
        Ok(outcome)
    }

    /// Makes a directory, or takes the existing one; returns its final metadata. Until it is complete, a new one has
    /// mode 0700, unless it gets the mode of any new directory.
    fn make_directory(
        &self,
        parent: &OwnedFd,
        name: &[u8],
        meta: Meta,
    ) -> Result<(OwnedFd, Meta), Cause> {
        let mode = match self.options.no_permissions {
            // A later connection recognizes the directory by this mode.
            true => meta.mode & 0o777 | 0o700,
            false => 0o700,
        };
        let is_new = match fs::mkdirat(parent, name, Mode::from_raw_mode(mode)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(errno.into()),
        };
        let directory = match open_in(parent, name, DIRECTORY, Mode::empty()) {
            Ok(directory) => directory,
            // A link, which is not followed.
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(Cause::NotADirectory),
            Err(errno) => return Err(errno.into()),
        };
        let meta = match self.options.no_permissions {
            true => {
                let there = fs::fstat(&directory)?.st_mode;
                with_permissions(&meta, (!is_new).then_some(there))
            }
            false => meta,
        };
        self.unlock(&directory);
        Ok((directory, meta))
    }

    /// Lets its owner write to an existing directory; its permissions are set when it is complete.
    fn unlock(&self, directory: &OwnedFd) {
        if let (true, Ok(stat)) = (self.may_replace, fs::fstat(directory))
            && stat.st_mode & 0o300 != 0o300
        {
            let mode = Mode::from_raw_mode(stat.st_mode & 0o7777 | 0o300);
            // On failure the write that needs this fails and reports the reason.
            let _ = fs::fchmod(directory, mode);
        }
    }

    /// Completes a directory: sets its permissions and time, which filling it would change or might prevent.
    pub(super) fn leave(&mut self) -> Result<(), Error> {
        let level = self
            .levels
            .pop()
            .ok_or(Error::Protocol("left more directories than entered"))?;
        let settle = |directory: Arc<OwnedFd>| {
            replace_meta(directory.as_fd(), &level.meta, level.wanted.as_ref())
        };
        let settled = level.directory.filter(|_| self.share.settles_directories());
        match settled.map(settle) {
            Some(Ok(not_kept)) => self.note_not_kept(not_kept),
            Some(Err(cause)) => self.fail(cause),
            None => {}
        }
        self.path.truncate(level.outer);
        self.settle(Step::Leave, b"");
        Ok(())
    }

    pub(super) fn link(&mut self, name: &[u8], target: &[u8], meta: &Meta) -> Result<(), Error> {
        if target.is_empty() || target.len() > PATH_BYTES || target.contains(&0) {
            return Err(Error::Protocol("a link's target that cannot be"));
        }
        let called = name;
        let (directory, name) = self.place(called)?;
        let backups = self.backups_here();
        let made = directory.and_then(|directory| {
            let (directory, options) = (directory.as_fd(), &self.options);
            make_link(directory, &name, target, meta, options, backups.as_ref())
        });
        match made {
            Ok(not_kept) => {
                self.totals.links += 1;
                self.at(&name, |this| this.note_not_kept(not_kept));
            }
            Err(cause) => self.at(&name, |this| this.fail(cause)),
        }
        self.settle(Step::Entry, called);
        Ok(())
    }
}
