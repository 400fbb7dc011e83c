//! Compares sources with the target, when both are on this machine.

use crate::links::{Identity, identity};
use crate::message::Landing;
use crate::root::open_in;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, Stat, fstat, openat};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The target of a copy within this machine.
#[derive(Debug)]
pub(crate) struct Target {
    /// The directory that receives the sources.
    directory: OwnedFd,
    this: Identity,
    /// The new name of the one source there, if it gets one.
    name: Option<Vec<u8>>,
}

impl Target {
    /// The target that the receiver has found already; `landing`: its meaning of `destination`.
    pub(crate) fn find(destination: &Path, landing: Landing) -> Option<Target> {
        let (directory, name) = match landing {
            Landing::Into => (destination.to_owned(), None),
            Landing::AsCp | Landing::Named => {
                // The receiver writes through a link.
                let real = destination.canonicalize();
                let real = real.unwrap_or_else(|_| destination.to_owned());
                let parent = match real.parent() {
                    Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
                    _ => PathBuf::from("."),
                };
                (parent, Some(real.file_name()?.as_bytes().to_vec()))
            }
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, &directory, flags, Mode::empty()).ok()?;
        let this = identity(&fstat(&directory).ok()?);
        Some(Target {
            directory,
            this,
            name,
        })
    }

    /// Whether `directory` is the one that receives the sources.
    pub(super) fn is_in(&self, directory: &Stat) -> bool {
        identity(directory) == self.this
    }

    /// The entry at the place of `path` of the sources. The receiver follows no links there.
    pub(super) fn at(&self, path: &[u8]) -> Option<Identity> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = match &self.name {
            None => path.to_vec(),
            Some(name) => {
                let below = path.iter().position(|&byte| byte == b'/');
                [&name[..], below.map_or(&[][..], |at| &path[at..])].concat()
            }
        };
        let found = open_in(&self.directory, &path, flags, Mode::empty()).ok()?;
        Some(identity(&fstat(found).ok()?))
    }
}
