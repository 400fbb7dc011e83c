//! Opens a source's symbolic links: as links, or followed.
//!
//! A link that a peer asks to follow must stay below the served directory. It is resolved from that directory, by the
//! same system call that resolves the paths of requests, and never from the link's own directory. The kernel refuses a
//! target outside, even if the tree changes meanwhile.

use crate::error::Cause;
use crate::message::{CopyOptions, EntryKind};
use crate::root::{Root, kind_of, open_in, stat_at};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, CWD, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;

/// How a copy treats the symbolic links of its sources.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceLinks {
    /// Links named as sources.
    named: Links,
    /// Links below the sources.
    below: Links,
}

impl SourceLinks {
    /// For sources on this machine.
    pub(crate) fn local(options: &CopyOptions) -> SourceLinks {
        SourceLinks {
            named: Links::local(!options.keep_links),
            below: Links::local(options.copy_links),
        }
    }

    /// For sources below a served directory.
    pub(crate) fn of_root(options: &CopyOptions, root: &Arc<Root>) -> SourceLinks {
        SourceLinks {
            named: Links::below(!options.keep_links, root),
            below: Links::below(options.copy_links, root),
        }
    }

    /// The treatment of a link inside these directories of the source; `directories` is empty for a named source.
    pub(crate) fn inside(&self, directories: &[Identity]) -> &Links {
        match directories {
            [] => &self.named,
            _ => &self.below,
        }
    }
}

/// Treats all links the same way.
impl From<Links> for SourceLinks {
    fn from(links: Links) -> SourceLinks {
        SourceLinks {
            named: links.clone(),
            below: links,
        }
    }
}

/// How symbolic links are treated.
#[derive(Clone, Debug, Default)]
pub(crate) enum Links {
    /// Copied as links.
    #[default]
    Kept,
    /// Replaced by their targets, wherever those are: the links belong to the user.
    Followed,
    /// Replaced by their targets, for a peer: not outside of the served directory.
    FollowedBelow(Arc<Root>),
}

impl Links {
    /// For a source on this machine.
    pub(crate) fn local(follow: bool) -> Links {
        match follow {
            true => Links::Followed,
            false => Links::Kept,
        }
    }

    /// For a source below a served directory; a login's links belong to the user.
    pub(crate) fn below(follow: bool, root: &Arc<Root>) -> Links {
        match follow && !root.is_of_login() {
            true => Links::FollowedBelow(Arc::clone(root)),
            false => Links::local(follow),
        }
    }

    /// Whether they are followed: a directory may then contain itself.
    pub(crate) fn are_followed(&self) -> bool {
        !matches!(self, Links::Kept)
    }

    /// The status of `name` in `directory`. `path` is its path from the served directory.
    ///
    /// # Errors
    /// [`Cause::LinkToNothing`], [`Cause::OutsideRoot`], or the system's error.
    pub(crate) fn stat(
        &self,
        directory: impl AsFd,
        name: &[u8],
        path: impl FnOnce() -> Vec<u8>,
    ) -> Result<Stat, Cause> {
        let stat = stat_at(&directory, name)?;
        if !self.are_followed() || kind_of(&stat) != EntryKind::Link {
            return Ok(stat);
        }
        match self.follow(directory, name, &path(), OFlags::PATH | OFlags::CLOEXEC) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Err(Cause::LinkToNothing),
            end => Ok(fs::fstat(end?)?),
        }
    }

    /// Opens `name` in `directory`, or the target of that link. `flags` do not follow links. `path` as in `stat`.
    pub(crate) fn open(
        &self,
        directory: impl AsFd,
        name: &[u8],
        path: impl FnOnce() -> Vec<u8>,
        flags: OFlags,
    ) -> Result<OwnedFd, Cause> {
        match open_in(&directory, name, flags, Mode::empty()) {
            // A link, where a file or a directory was requested.
            Err(Errno::LOOP | Errno::NOTDIR) if self.are_followed() => {
                let flags = flags.difference(OFlags::NOFOLLOW);
                match self.follow(directory, name, &path(), flags) {
                    Err(Errno::NOENT | Errno::LOOP) => Err(Cause::LinkToNothing),
                    opened => Ok(opened?),
                }
            }
            opened => Ok(opened?),
        }
    }

    fn follow(
        &self,
        directory: impl AsFd,
        name: &[u8],
        path: &[u8],
        flags: OFlags,
    ) -> rustix::io::Result<OwnedFd> {
        match self {
            Links::FollowedBelow(root) => root.follow(path, flags),
            Links::Kept | Links::Followed => fs::openat(directory, name, flags, Mode::empty()),
        }
    }
}

/// The identity of a file or directory on this machine: device and inode number.
pub(crate) type Identity = (u64, u64);

/// The status of the target of `path` on this machine, and whether names alone lead there. They do not for an open file
/// of a process, as in `/proc/self/fd`.
pub(crate) fn end_of(path: &Path) -> rustix::io::Result<(Stat, bool)> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let open = |resolve| fs::openat2(CWD, path, flags, Mode::empty(), resolve);
    let end = fs::fstat(open(ResolveFlags::empty())?)?;
    Ok((end, open(ResolveFlags::NO_MAGICLINKS).is_ok()))
}

/// The identity in a file's status.
pub(crate) fn identity(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

/// `name` below `path`, which may be empty.
pub(crate) fn joined(path: &[u8], name: &[u8]) -> Vec<u8> {
    match (path.is_empty(), name.is_empty()) {
        (true, _) => name.to_vec(),
        (false, true) => path.to_vec(),
        (false, false) => [path, name].join(&b'/'),
    }
}

#[cfg(test)]
#[path = "links_tests.rs"]
mod tests;
