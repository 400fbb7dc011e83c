//! The directories being filled, and links.

use super::FileReceiver;
use super::top_level::TopLevel;
use crate::error::{Cause, Error};
use crate::limits::{PATH_BYTES, TREE_DEPTH};
use crate::message::Meta;
use crate::name::check_name;
use crate::part::{make_link, set_meta};
use crate::root::{DIRECTORY, open_in};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, Mode};
use rustix::io::Errno;
use std::borrow::Cow;
use std::sync::Arc;

/// A directory being filled.
pub(super) struct Level {
    /// `None` if it could not be made: what belongs in it fails too.
    directory: Option<Arc<OwnedFd>>,
    meta: Meta,
    /// Length of the path before it.
    outer: usize,
}

/// A directory, `None` if it could not be made, and a name in it.
pub(super) type Place<'n> = (Option<Arc<OwnedFd>>, Cow<'n, [u8]>);

impl FileReceiver<'_> {
    /// The directory that the next entry goes into, and the name it gets there.
    pub(super) fn place<'n>(&mut self, name: &'n [u8]) -> Result<Place<'n>, Error> {
        let name =
            check_name(name).map_err(|_| Error::Protocol("a name that is not one component"))?;
        if let Some(level) = self.levels.last() {
            return Ok((level.directory.clone(), name.into()));
        }
        self.top_entries += 1;
        let name = match &self.top {
            TopLevel::Any => name.into(),
            TopLevel::Only(names) if names.contains(name) => name.into(),
            TopLevel::One(renamed) if self.top_entries == 1 => renamed.clone().into(),
            _ => return Err(Error::Protocol("something that was not asked for")),
        };
        Ok((Some(self.base.clone()), name))
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
        if self.levels.len() >= TREE_DEPTH {
            return Err(Error::Protocol("directories nest too deeply"));
        }
        if !self.options.recursive {
            return Err(Error::Protocol(
                "a directory in a copy that is not recursive",
            ));
        }
        let (parent, name) = self.place(name)?;
        let outer = self.push_path(&name);
        let made = parent
            .ok_or(Cause::NoDirectory)
            .and_then(|parent| make_directory(&parent, &name));
        let directory = match made {
            Ok(directory) => {
                self.totals.directories += 1;
                Some(Arc::new(directory))
            }
            Err(cause) => {
                self.fail(cause);
                None
            }
        };
        self.levels.push(Level {
            directory,
            meta,
            outer,
        });
        Ok(())
    }

    /// A directory is complete: only now its permissions and time, which filling it would change
    /// or might forbid.
    pub(super) fn leave(&mut self) -> Result<(), Error> {
        let level = self
            .levels
            .pop()
            .ok_or(Error::Protocol("left more directories than entered"))?;
        let settle = |directory: Arc<OwnedFd>| set_meta(directory.as_fd(), &level.meta);
        if let Some(Err(cause)) = level.directory.map(settle) {
            self.fail(cause);
        }
        self.path.truncate(level.outer);
        Ok(())
    }

    pub(super) fn link(&mut self, name: &[u8], target: &[u8], meta: &Meta) -> Result<(), Error> {
        if target.is_empty() || target.len() > PATH_BYTES || target.contains(&0) {
            return Err(Error::Protocol("a link's target that cannot be"));
        }
        let (directory, name) = self.place(name)?;
        let force = self.options.replace_read_only;
        let made = directory
            .ok_or(Cause::NoDirectory)
            .and_then(|directory| make_link(directory.as_fd(), &name, target, meta, force));
        match made {
            Ok(()) => self.totals.links += 1,
            Err(cause) => self.at(&name, |this| this.fail(cause)),
        }
        Ok(())
    }
}

/// Makes a directory, or takes the one that is there. Open to its owner only until it is complete.
fn make_directory(parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Cause> {
    match fs::mkdirat(parent, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    match open_in(parent, name, DIRECTORY, Mode::empty()) {
        Ok(directory) => Ok(directory),
        // A link stands there: it is not followed.
        Err(Errno::LOOP | Errno::NOTDIR) => Err(Cause::NotADirectory),
        Err(errno) => Err(errno.into()),
    }
}
