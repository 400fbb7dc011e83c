//! Reads and applies a file's metadata: permissions and modification time.
//!
//! The target's file system may store less. A cast does not keep owners, which are names of another machine; set-user-ID and
//! set-group-ID bits, because the owner here is another user; or access control lists and other extended attributes.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, Mode, Timespec, Timestamps, UTIME_OMIT, fchmod, futimens, utimensat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Permissions of owner, group and others. Beyond them are the bits for set-user-ID, set-group-ID and sticky.
const PERMISSIONS: u32 = 0o777;

/// Nanoseconds of a second.
const SECOND: u32 = 1_000_000_000;

/// The metadata of a file that a cast keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meta {
    pub(crate) mode: u32,
    /// When it was changed, since 1970.
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: u32,
}

impl Meta {
    pub(crate) fn of(it: &Metadata) -> Meta {
        Meta {
            mode: it.mode() & 0o7777,
            seconds: it.mtime(),
            nanoseconds: it.mtime_nsec() as u32,
        }
    }

    /// Gives it to a file or directory.
    pub(crate) fn set(&self, file: impl AsFd) -> rustix::io::Result<()> {
        let mode = Mode::from_raw_mode(self.mode & PERMISSIONS);
        where_possible(fchmod(&file, mode))?;
        where_possible(futimens(&file, &self.times()))
    }

    /// Sets the time of a symbolic link. Its permissions have no effect.
    pub(crate) fn set_link(
        &self,
        directory: BorrowedFd<'_>,
        name: &[u8],
    ) -> rustix::io::Result<()> {
        let times = self.times();
        where_possible(utimensat(
            directory,
            name,
            &times,
            AtFlags::SYMLINK_NOFOLLOW,
        ))
    }

    /// As the system takes it; the time of access stays.
    fn times(&self) -> Timestamps {
        Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT,
            },
            last_modification: Timespec {
                tv_sec: self.seconds,
                tv_nsec: self.nanoseconds.min(SECOND - 1).into(),
            },
        }
    }
}

/// A file system of another kind has no permissions, or other times: the content is there all the same.
fn where_possible(set: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match set {
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::INVAL | Errno::RANGE) => Ok(()),
        set => set,
    }
}
