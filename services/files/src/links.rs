//! Symbolic links of a source: sent as links, or followed.
//!
//! What a peer asks to have followed stays below the served directory: a link is resolved from there, by the
//! same system call that resolves the paths of requests, and never from where it stands. The kernel refuses
//! what leads out, whatever changes places meanwhile.

use crate::error::Cause;
use crate::message::{CopyOptions, EntryKind};
use crate::root::{Root, kind_of, open_in, stat_at};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, CWD, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;

/// What a copy does with the symbolic links of its sources.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceLinks {
    /// Those that were named as sources.
    named: Links,
    /// Those below.
    below: Links,
}

impl SourceLinks {
    /// Of sources on this machine.
    pub(crate) fn local(options: &CopyOptions) -> SourceLinks {
        SourceLinks {
            named: Links::local(!options.keep_links),
            below: Links::local(options.copy_links),
        }
    }

    /// Of sources below a served directory.
    pub(crate) fn of_root(options: &CopyOptions, root: &Arc<Root>) -> SourceLinks {
        SourceLinks {
            named: Links::below(!options.keep_links, root),
            below: Links::below(options.copy_links, root),
        }
    }

    /// What is done with one that is in these directories of the source; in none, if it was named.
    pub(crate) fn inside(&self, directories: &[Identity]) -> &Links {
        match directories {
            [] => &self.named,
            _ => &self.below,
        }
    }
}

/// The same is done with all.
impl From<Links> for SourceLinks {
    fn from(links: Links) -> SourceLinks {
        SourceLinks {
            named: links.clone(),
            below: links,
        }
    }
}

/// What is done with symbolic links.
#[derive(Clone, Debug, Default)]
pub(crate) enum Links {
    /// They are copied as links.
    #[default]
    Kept,
    /// What they lead to is copied, wherever it is: they are the user's own.
    Followed,
    /// The same, for a peer: not what is outside of the served directory.
    FollowedBelow(Arc<Root>),
}

impl Links {
    /// Of a source on this machine.
    pub(crate) fn local(follow: bool) -> Links {
        match follow {
            true => Links::Followed,
            false => Links::Kept,
        }
    }

    /// Of a source below a served directory; a login's are its own.
    pub(crate) fn below(follow: bool, root: &Arc<Root>) -> Links {
        match follow && !root.is_of_login() {
            true => Links::FollowedBelow(Arc::clone(root)),
            false => Links::local(follow),
        }
    }

    /// Whether they are followed: then directories may be met in themselves.
    pub(crate) fn are_followed(&self) -> bool {
        !matches!(self, Links::Kept)
    }

    /// What `name` in `directory` is. `path`: it, from the served directory.
    ///
    /// # Errors
    /// [`Cause::LinkToNothing`], [`Cause::OutsideRoot`], or what the system says.
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

    /// Opens `name` in `directory`, or what it leads to. `flags` do not follow. `path` as above.
    pub(crate) fn open(
        &self,
        directory: impl AsFd,
        name: &[u8],
        path: impl FnOnce() -> Vec<u8>,
        flags: OFlags,
    ) -> Result<OwnedFd, Cause> {
        match open_in(&directory, name, flags, Mode::empty()) {
            // A link, where a file or a directory is asked for.
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

/// Which directory or file it is, on this machine.
pub(crate) type Identity = (u64, u64);

/// What `path` leads to on this machine, and whether only names lead there: no open file of a process, as in `/proc/self/fd`.
pub(crate) fn end_of(path: &Path) -> rustix::io::Result<(Stat, bool)> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let open = |resolve| fs::openat2(CWD, path, flags, Mode::empty(), resolve);
    let end = fs::fstat(open(ResolveFlags::empty())?)?;
    Ok((end, open(ResolveFlags::NO_MAGICLINKS).is_ok()))
}

/// Which one it is.
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
