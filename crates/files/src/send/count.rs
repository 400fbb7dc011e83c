//! What there is to send, for progress.

use super::start::Start;
use crate::limits::TREE_DEPTH;
use crate::message::EntryKind;
use crate::root::{DIRECTORY, entry_kind, kind_of, open_in, stat_at};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Dir, FileType, Mode};

/// Files and bytes below `starts`. What cannot be read counts nothing: it is reported later.
pub(crate) fn count(starts: &[Start], recursive: bool) -> (u64, u64) {
    let mut sum = (0, 0);
    for start in starts {
        count_start(start, recursive, &mut sum);
    }
    sum
}

fn count_start(start: &Start, recursive: bool, sum: &mut (u64, u64)) {
    match start {
        Start::Named { directory, name } => {
            count_entry(directory.as_fd(), name, None, recursive, TREE_DEPTH, sum);
        }
        Start::Contents(directory) => count_contents(directory, TREE_DEPTH, sum),
        Start::Below { root, path } => {
            count_start(&Start::open(root, path, recursive), recursive, sum);
        }
        Start::Missing { .. } => {}
    }
}

fn count_entry(
    directory: BorrowedFd<'_>,
    name: &[u8],
    kind: Option<EntryKind>,
    recursive: bool,
    depth: usize,
    sum: &mut (u64, u64),
) {
    let stat = match kind {
        Some(EntryKind::Directory | EntryKind::Link | EntryKind::Special) => None,
        _ => stat_at(directory, name).ok(),
    };
    match kind.or(stat.as_ref().map(kind_of)) {
        Some(EntryKind::File) => {
            sum.0 += 1;
            sum.1 += stat.map_or(0, |stat| stat.st_size as u64);
        }
        Some(EntryKind::Directory) if recursive && depth > 0 => {
            if let Ok(directory) = open_in(directory, name, DIRECTORY, Mode::empty()) {
                count_contents(&directory, depth - 1, sum);
            }
        }
        _ => {}
    }
}

fn count_contents(directory: &OwnedFd, depth: usize, sum: &mut (u64, u64)) {
    let Ok(entries) = Dir::read_from(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            let kind = match entry.file_type() {
                FileType::Unknown => None,
                known => Some(entry_kind(known)),
            };
            count_entry(directory.as_fd(), name, kind, true, depth, sum);
        }
    }
}
