//! Removes a directory with all its contents.

use crate::error::{Cause, Error, Failure};
use crate::message::{EntryKind, RemoveOptions};
use crate::root::{DIRECTORY, is_write_protected, open_in};
use crate::stop::Stop;
use crate::sync::remove::unlink;
use crate::sync::sight::{Listing, Seen, Sight};
use crate::sync::walk::Walker;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, fstat};
use rustix::io::fcntl_dupfd_cloexec;

/// A directory whose contents are being removed.
struct Level {
    name: Vec<u8>,
    inode: u64,
    directory: OwnedFd,
    /// Length of the path before it.
    outer: usize,
    /// Some of its contents stay, which was reported.
    kept: bool,
}

/// Removes the directory `name`, if it still has that inode, entry by entry; reports use `path`. Calls `tell` for each
/// entry that was removed, and for each that was not; a directory that stays because of its contents is not reported.
///
/// # Errors
/// [`Error::Stopped`], and those of `tell`.
pub(super) fn remove_tree(
    parent: &OwnedFd,
    name: &[u8],
    (path, inode): (&[u8], u64),
    options: RemoveOptions,
    stop: &Stop,
    mut tell: impl FnMut(Result<(), Failure>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut path = path.to_vec();
    let (top, walked) = match Level::open(parent, name, inode, 0).and_then(|top| {
        let walked = fcntl_dupfd_cloexec(&top.directory, 0)?;
        Ok((top, walked))
    }) {
        Ok(opened) => opened,
        Err(cause) => return tell(Err(Failure::new(&path, cause))),
    };
    let mut walker = Walker::new(Some(walked), None);
    let mut levels = vec![top];
    while let Some(level) = levels.last_mut() {
        stop.check()?;
        let outer = path.len();
        let failed = match walker.next()? {
            Sight::Entry(seen) if seen.kind == EntryKind::Directory => {
                path.push(b'/');
                path.extend_from_slice(&seen.name);
                match Level::open(&level.directory, &seen.name, seen.inode, outer) {
                    Ok(below) => {
                        levels.push(below);
                        continue;
                    }
                    Err(cause) => {
                        walker.prune();
                        walker.next()?;
                        Some(cause)
                    }
                }
            }
            Sight::Entry(seen) => {
                path.push(b'/');
                path.extend_from_slice(&seen.name);
                match remove_file(&level.directory, &seen, options) {
                    Ok(true) => {
                        tell(Ok(()))?;
                        None
                    }
                    Ok(false) => None,
                    Err(cause) => Some(cause),
                }
            }
            Sight::Unseen { name, cause } => {
                path.push(b'/');
                path.extend_from_slice(&name);
                Some(cause)
            }
            Sight::Cut { cause } => Some(cause),
            // Not requested.
            Sight::Filters(_) => None,
            Sight::Leave => {
                close(parent, &mut levels, &mut path, &mut tell)?;
                continue;
            }
        };
        if let Some(cause) = failed {
            level.kept = true;
            tell(Err(Failure::new(&path, cause)))?;
        }
        path.truncate(outer);
    }
    Ok(())
}

/// Removes the innermost directory, unless some of its contents stay.
fn close(
    top: &OwnedFd,
    levels: &mut Vec<Level>,
    path: &mut Vec<u8>,
    tell: &mut impl FnMut(Result<(), Failure>) -> Result<(), Error>,
) -> Result<(), Error> {
    let Some(mut level) = levels.pop() else {
        return Ok(());
    };
    if !level.kept {
        let parent = levels.last().map_or(top, |above| &above.directory);
        match unlink(parent, &level.name, EntryKind::Directory, level.inode) {
            Ok(true) => tell(Ok(()))?,
            Ok(false) => {}
            Err(cause) => {
                level.kept = true;
                tell(Err(Failure::new(path, cause)))?;
            }
        }
    }
    if let Some(above) = levels.last_mut() {
        above.kept |= level.kept;
    }
    path.truncate(level.outer);
    Ok(())
}

impl Level {
    fn open(parent: &OwnedFd, name: &[u8], inode: u64, outer: usize) -> Result<Level, Cause> {
        let directory = match open_in(parent, name, DIRECTORY, Mode::empty()).map_err(Cause::from) {
            Err(Cause::NotADirectory | Cause::OutsideRoot) => Err(Cause::ChangedSinceListed),
            opened => opened,
        }?;
        if fstat(&directory)?.st_ino != inode {
            return Err(Cause::ChangedSinceListed);
        }
        Ok(Level {
            name: name.to_vec(),
            inode,
            directory,
            outer,
            kept: false,
        })
    }
}

fn remove_file(directory: &OwnedFd, seen: &Seen, options: RemoveOptions) -> Result<bool, Cause> {
    if seen.kind == EntryKind::File && !options.force && is_write_protected(seen.meta.mode) {
        return Err(Cause::ReadOnly);
    }
    unlink(directory, &seen.name, seen.kind, seen.inode)
}

#[cfg(test)]
#[path = "remove_tree_tests.rs"]
mod tests;
