//! Detects that a file changed, by comparing its metadata at two times.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// Metadata that differs after a file was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(it: &Metadata) -> Stamp {
        Stamp {
            device: it.dev(),
            inode: it.ino(),
            len: it.len(),
            modified: (it.mtime(), it.mtime_nsec()),
            changed: (it.ctime(), it.ctime_nsec()),
        }
    }
}
