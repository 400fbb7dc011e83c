//! A listing on its way out, a message at a time.

use crate::error::Cause;
use crate::limits::{CONTROL_BYTES, ENTRY_OVERHEAD_BYTES, NAME_BYTES};
use crate::message::Entry;
use crate::name::RelativePath;
use crate::root::{Root, kind_of, meta_of, stat_at};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::Dir;

/// A directory's entries, or the one that was asked for.
pub(super) enum Listing {
    One(Option<Entry>),
    Directory(Box<Dir>),
}

impl Listing {
    pub(super) fn open(root: &Root, path: &RelativePath) -> Result<Listing, Cause> {
        match root.open_directory(path) {
            Ok(directory) => return Ok(Listing::Directory(Box::new(Dir::new(directory)?))),
            Err(Cause::NotADirectory | Cause::OutsideRoot) if !path.must_be_directory() => {}
            Err(cause) => return Err(cause),
        }
        let (parent, name) = root.open_parent(path)?.ok_or(Cause::NotFound)?;
        Ok(Listing::One(Some(entry(parent.as_fd(), name)?)))
    }

    /// As many entries as one message holds, and whether they are the last.
    pub(super) fn next_entries(&mut self) -> (Vec<Entry>, bool) {
        match self {
            Listing::One(entry) => (entry.take().into_iter().collect(), true),
            Listing::Directory(directory) => next_entries(directory),
        }
    }
}

fn next_entries(directory: &mut Dir) -> (Vec<Entry>, bool) {
    let mut entries = Vec::new();
    let mut room = CONTROL_BYTES - 2 * ENTRY_OVERHEAD_BYTES;
    while let Some(next) = directory.next() {
        // An error ends the directory; what was read of it is shown.
        let Ok(next) = next else {
            return (entries, true);
        };
        let name = next.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        // Gone meanwhile, perhaps: not shown.
        let found = directory
            .fd()
            .map_err(Cause::from)
            .and_then(|fd| entry(fd, name));
        if let Ok(found) = found {
            room = room.saturating_sub(found.name.len() + ENTRY_OVERHEAD_BYTES);
            entries.push(found);
        }
        if room < NAME_BYTES + ENTRY_OVERHEAD_BYTES {
            return (entries, false);
        }
    }
    (entries, true)
}

fn entry(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Entry, Cause> {
    let stat = stat_at(directory, name)?;
    Ok(Entry {
        name: name.to_vec(),
        kind: kind_of(&stat),
        size: stat.st_size as u64,
        meta: meta_of(&stat),
    })
}
