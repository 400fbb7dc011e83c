//! Removes extra entries one by one, as listed, or moves them to backups; never a whole tree at once.

use super::plan::{Step, next_step};
use crate::attributes::set_time;
use crate::backup::{Backups, BackupsOf, has_backup};
use crate::error::{Cause, Error, Failure};
use crate::limits::TREE_DEPTH;
use crate::message::EntryKind;
use crate::root::{DIRECTORY, kind_of, meta_of, open_in, stat_at};
use crate::stop::Stop;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, fchmod, fstat, unlinkat};
use std::sync::Arc;

/// The directory of the current steps; `None` if it vanished or cannot be opened.
struct Level {
    directory: Option<OwnedFd>,
    /// Length of the path before it.
    outer: usize,
}

/// The result of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    /// It was deleted.
    Gone,
    /// It was moved to a backup.
    BackedUp,
}

/// Carries out the removals of `plan` below `base`. Calls `tell` for each success and each failure.
///
/// # Errors
/// [`Error::Protocol`] for a malformed plan, [`Error::Stopped`], and those of `tell`.
pub(crate) fn remove(
    base: OwnedFd,
    mut plan: &[u8],
    backups: Option<Backups>,
    stop: &Stop,
    mut tell: impl FnMut(Result<Removed, Failure>) -> Result<(), Error>,
) -> Result<(), Error> {
    let backups = backups.map(Arc::new);
    let mut path = Vec::new();
    let mut levels = vec![Level {
        directory: Some(base),
        outer: 0,
    }];
    while let Some(step) = next_step(&mut plan)? {
        stop.check()?;
        let directory = levels.last().and_then(|level| level.directory.as_ref());
        match step {
            Step::Enter { ref name, .. } | Step::EnterAside { ref name, .. } => {
                let called = match &step {
                    Step::EnterAside { aside, .. } => aside,
                    _ => name,
                };
                if levels.len() > TREE_DEPTH {
                    return Err(Error::Protocol("directories nest too deeply"));
                }
                let outer = push(&mut path, name);
                let directory = match directory.map(|parent| enter(parent, called)) {
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
                let here = backups.as_ref().map(|backups| backups.of(&path));
                let outer = push(&mut path, &name);
                let removed = directory
                    .map(|directory| remove_within(directory, (&name, kind, inode), here.as_ref()));
                match removed {
                    Some(Ok(Some(removed))) => tell(Ok(removed))?,
                    Some(Err(cause)) => tell(Err(Failure::new(&path, cause)))?,
                    Some(Ok(None)) | None => {}
                }
                path.truncate(outer);
            }
            Step::Leave
            | Step::Copy { .. }
            | Step::Wanted { .. }
            | Step::Same { .. }
            | Step::Link { .. }
            | Step::SetAttributes { .. } => {
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

/// Opens a directory; `None` if it vanished.
fn enter(parent: &OwnedFd, name: &[u8]) -> Result<Option<OwnedFd>, Cause> {
    match open_in(parent, name, DIRECTORY, Mode::empty()).map_err(Cause::from) {
        Err(Cause::NotFound) => Ok(None),
        Err(Cause::NotADirectory | Cause::OutsideRoot) => Err(Cause::ChangedSinceListed),
        opened => opened.map(Some),
    }
}

/// A listed entry: name, kind, inode.
type Listed<'n> = (&'n [u8], EntryKind, u64);

/// Removes a listed entry, and restores permissions and time of the directory. `None` if the entry vanished.
fn remove_within(
    directory: &OwnedFd,
    listed: Listed<'_>,
    backups: Option<&BackupsOf>,
) -> Result<Option<Removed>, Cause> {
    let before = meta_of(&fstat(directory)?);
    let closed = before.mode & 0o300 != 0o300;
    if closed {
        fchmod(directory, Mode::from_raw_mode(before.mode | 0o300))?;
    }
    let removed = remove_listed(directory, listed, backups);
    if closed {
        fchmod(directory, Mode::from_raw_mode(before.mode))?;
    }
    if matches!(removed, Ok(Some(_))) {
        // By now the time is the source's. Another owner's directory cannot keep it, and need not.
        let _ = set_time(directory.as_fd(), &before);
    }
    removed
}

fn remove_listed(
    directory: &OwnedFd,
    (name, kind, inode): Listed<'_>,
    backups: Option<&BackupsOf>,
) -> Result<Option<Removed>, Cause> {
    let backups = backups.filter(|it| has_backup(kind) && !it.is_backup(name));
    match backups {
        None => Ok(unlink(directory, name, kind, inode)?.then_some(Removed::Gone)),
        Some(_) if !is_still(directory, name, kind, inode)? => Ok(None),
        Some(backups) => {
            backups.take(directory, name)?;
            Ok(Some(Removed::BackedUp))
        }
    }
}

/// Removes an entry if it is still the one that was examined; a directory only if it is empty. False if it vanished.
pub(crate) fn unlink(
    directory: &OwnedFd,
    name: &[u8],
    kind: EntryKind,
    inode: u64,
) -> Result<bool, Cause> {
    if !is_still(directory, name, kind, inode)? {
        return Ok(false);
    }
    let flags = match kind {
        EntryKind::Directory => AtFlags::REMOVEDIR,
        _ => AtFlags::empty(),
    };
    unlinkat(directory, name, flags)?;
    Ok(true)
}

/// Whether the examined entry is still there. False if it vanished; another entry in its place is an error.
fn is_still(directory: &OwnedFd, name: &[u8], kind: EntryKind, inode: u64) -> Result<bool, Cause> {
    let stat = match stat_at(directory, name) {
        Err(Cause::NotFound) => return Ok(false),
        stat => stat?,
    };
    match kind_of(&stat) == kind && stat.st_ino == inode {
        true => Ok(true),
        false => Err(Cause::ChangedSinceListed),
    }
}

#[cfg(test)]
#[path = "remove_tests.rs"]
mod tests;
