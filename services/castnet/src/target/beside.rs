//! Opens and removes the files beside a target, whose names other users can guess.
//!
//! In a directory where other users can create names, anything may have such a name. This module reads and writes only
//! regular files that belong to this user and have one name: a link may lead to a file elsewhere, and another owner could
//! write to the file after it is complete. It does not remove other files either, because they may not be this program's.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::process::geteuid;

use super::paths::remove_all;
use crate::error::Error;

/// How often an open is retried when the file vanishes at that moment.
const TRIES: u32 = 8;

/// A file that becomes the target keeps its content to itself until it has the mode of the source's.
pub(super) const PRIVATE: u32 = 0o600;

/// The usual mode of a new file, before the user's umask.
pub(super) const USUAL: u32 = 0o666;

/// Whether it is a file of this user's, and has this name alone.
fn is_own(there: &Metadata) -> bool {
    there.is_file() && there.nlink() == 1 && there.uid() == geteuid().as_raw()
}

/// Opens a file of this user's alone, if there is one.
///
/// # Errors
/// Another kind of file is there ([`Error::InTheWay`]), or the system's error.
pub(super) fn open_own(path: &Path, writable: bool) -> Result<Option<File>, Error> {
    let failed = || Error::io(path.display().to_string());
    // Opening a device may have side effects.
    match path.symlink_metadata() {
        Ok(there) if is_own(&there) => {}
        Ok(_) => return Err(Error::InTheWay(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed()(error)),
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    let options = options.read(true).write(writable);
    let opened = options.custom_flags(flags.bits().cast_signed()).open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed())?,
    };
    // It may be another by now.
    match is_own(&file.metadata().map_err(failed())?) {
        true => Ok(Some(file)),
        false => Err(Error::InTheWay(path.to_owned())),
    }
}

/// Opens and locks the partial file of a target: that of an earlier attempt, or a new one with this mode.
///
/// # Errors
/// As [`open_own`]; or another process holds the lock ([`Error::Busy`], with the target).
pub(super) fn open_partial(path: &Path, mode: u32, target: &Path) -> Result<File, Error> {
    open_and_lock(path, mode, target, || {})
}

/// The same, and calls `between` before it locks what it has opened.
fn open_and_lock(path: &Path, mode: u32, target: &Path, between: impl Fn()) -> Result<File, Error> {
    let failed = || Error::io(path.display().to_string());
    for _ in 0..TRIES {
        let file = match open_own(path, true)? {
            Some(file) => file,
            None => {
                let mut options = OpenOptions::new();
                let options = options.read(true).write(true).create_new(true);
                match options.mode(mode).open(path) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                    made => made.map_err(failed())?,
                }
            }
        };
        between();
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::Busy(target.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed()(error)),
        }
        // Before the lock was free, its process may have given it its last name.
        if stands_at(path, &file.metadata().map_err(failed())?) {
            return Ok(file);
        }
    }
    Err(Error::Busy(target.to_owned()))
}

/// Whether a file stands at this name.
pub(super) fn stands_at(path: &Path, file: &Metadata) -> bool {
    let there = path.symlink_metadata();
    there.is_ok_and(|it| (it.dev(), it.ino()) == (file.dev(), file.ino()))
}

/// Writes a file with this content to `path`, and replaces what is there.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<(), Error> {
    let failed = || Error::io(path.display().to_string());
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    let made = builder.prefix(".zerolane-").tempfile_in(directory);
    let mut made = made.map_err(failed())?;
    made.write_all(content).map_err(failed())?;
    made.persist(path).map_err(|it| failed()(it.error))?;
    Ok(())
}

/// Makes a directory for its owner alone, in place of one of this user's that an earlier try left.
pub(super) fn make_directory(path: &Path) -> Result<OwnedFd, Error> {
    let failed = || Error::io(path.display().to_string());
    let is_own = |there: &Metadata| there.is_dir() && there.uid() == geteuid().as_raw();
    match path.symlink_metadata() {
        Ok(there) if is_own(&there) => remove_all(path).map_err(failed())?,
        Ok(_) => return Err(Error::InTheWay(path.to_owned())),
        Err(_) => {}
    }
    mkdirat(CWD, path, Mode::RWXU).map_err(|it| failed()(it.into()))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(CWD, path, flags, Mode::empty());
    let made = File::from(opened.map_err(|it| failed()(it.into()))?);
    match is_own(&made.metadata().map_err(failed())?) {
        true => Ok(made.into()),
        false => Err(Error::InTheWay(path.to_owned())),
    }
}

#[cfg(test)]
#[path = "beside_tests.rs"]
mod tests;
