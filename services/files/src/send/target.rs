//! Compares what is sent with its target, when both are on this machine.

use crate::links::{Identity, identity};
use crate::message::Landing;
use crate::root::open_in;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, Stat, fstat, openat};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where a copy within this machine goes.
#[derive(Debug)]
pub(crate) struct Target {
    /// The directory that takes what is sent.
    directory: OwnedFd,
    this: Identity,
    /// What the one source is called there, if it gets another name.
    name: Option<Vec<u8>>,
}

impl Target {
    /// The target that the receiver has found already; `landing`: how it takes `destination`.
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

    /// Whether that is the directory that takes what is sent.
    pub(super) fn is_in(&self, directory: &Stat) -> bool {
        identity(directory) == self.this
    }

    /// What stands where the entry at `path` of the sources goes. The receiver follows no links there.
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
