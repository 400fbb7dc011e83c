//! Removing what is too much: entry by entry, as it was listed, never a tree as a whole.

use super::plan::{Step, next_step};
use crate::attributes::set_time;
use crate::error::{Cause, Error, Failure};
use crate::limits::TREE_DEPTH;
use crate::message::EntryKind;
use crate::root::{DIRECTORY, kind_of, meta_of, open_in, stat_at};
use crate::stop::Stop;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, fchmod, fstat, unlinkat};

/// A directory that steps are in; `None` if it has gone or cannot be opened.
struct Level {
    directory: Option<OwnedFd>,
    /// Length of the path before it.
    outer: usize,
}

/// Carries out the removals of `plan` below `base`. `tell` hears of each that was done, and of each
/// that failed.
///
/// # Errors
/// [`Error::Protocol`] for a plan that cannot be, [`Error::Stopped`], and those of `tell`.
pub(crate) fn remove(
    base: OwnedFd,
    mut plan: &[u8],
    stop: &Stop,
    mut tell: impl FnMut(Result<(), Failure>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut path = Vec::new();
    let mut levels = vec![Level {
        directory: Some(base),
        outer: 0,
    }];
    while let Some(step) = next_step(&mut plan)? {
        stop.check()?;
        let directory = levels.last().and_then(|level| level.directory.as_ref());
        match step {
            Step::Enter { name, .. } => {
                if levels.len() > TREE_DEPTH {
                    return Err(Error::Protocol("directories nest too deeply"));
                }
                let outer = push(&mut path, &name);
                let directory = match directory.map(|parent| enter(parent, &name)) {
                    Some(Err(cause)) => {
                        tell(Err(Failure::new(&path, cause)))?;
                        None
                    }
                    Some(Ok(directory)) => directory,
                    None => None,
                };
                levels.push(Level { directory, outer });
            }
            Step::Leave if levels.len() > 1 => {
                if let Some(level) = levels.pop() {
                    path.truncate(level.outer);
                }
            }
            Step::Remove { name, kind, inode } => {
                let outer = push(&mut path, &name);
                match directory.map(|directory| unlink_within(directory, &name, kind, inode)) {
                    Some(Ok(true)) => tell(Ok(()))?,
                    Some(Err(cause)) => tell(Err(Failure::new(&path, cause)))?,
                    Some(Ok(false)) | None => {}
                }
                path.truncate(outer);
            }
            Step::Leave | Step::Copy { .. } | Step::Link { .. } | Step::Settle { .. } => {
                return Err(Error::Protocol("a step that removes nothing"));
            }
        }
    }
    Ok(())
}

fn push(path: &mut Vec<u8>, name: &[u8]) -> usize {
    let outer = path.len();
    if outer > 0 {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    outer
}

/// Opens a directory; `None` if it has gone.
fn enter(parent: &OwnedFd, name: &[u8]) -> Result<Option<OwnedFd>, Cause> {
    match open_in(parent, name, DIRECTORY, Mode::empty()).map_err(Cause::from) {
        Err(Cause::NotFound) => Ok(None),
        Err(Cause::NotADirectory | Cause::OutsideRoot) => Err(Cause::ChangedSinceListed),
        opened => opened.map(Some),
    }
}

/// Removes what was listed, and leaves permissions and time of the directory as they were. False if it has gone.
fn unlink_within(
    directory: &OwnedFd,
    name: &[u8],
    kind: EntryKind,
    inode: u64,
) -> Result<bool, Cause> {
    let before = meta_of(&fstat(directory)?);
    let closed = before.mode & 0o300 != 0o300;
    if closed {
        fchmod(directory, Mode::from_raw_mode(before.mode | 0o300))?;
    }
    let unlinked = unlink(directory, name, kind, inode);
    if closed {
        fchmod(directory, Mode::from_raw_mode(before.mode))?;
    }
    if unlinked == Ok(true) {
        // It is that of the source by now; another owner's cannot be set, and need not be.
        let _ = set_time(directory.as_fd(), &before);
    }
    unlinked
}

/// Removes what was looked at, if it is that still; a directory only if it is empty. False if it has gone.
pub(crate) fn unlink(
    directory: &OwnedFd,
    name: &[u8],
    kind: EntryKind,
    inode: u64,
) -> Result<bool, Cause> {
    let stat = match stat_at(directory, name) {
        Err(Cause::NotFound) => return Ok(false),
        stat => stat?,
    };
    if kind_of(&stat) != kind || stat.st_ino != inode {
        return Err(Cause::ChangedSinceListed);
    }
    let flags = match kind {
        EntryKind::Directory => AtFlags::REMOVEDIR,
        _ => AtFlags::empty(),
    };
    unlinkat(directory, name, flags)?;
    Ok(true)
}

#[cfg(test)]
#[path = "remove_tests.rs"]
mod tests;
