//! Reads and writes files of keys, safely against other users and concurrent changes.

use super::{Error, MAX_BYTES};
use data_encoding::HEXLOWER;
use rustix::fs::{self, AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags};
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Whether other users may read a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Secrecy {
    /// They may.
    Public,
    /// They may neither read nor change it.
    Secret,
}

/// The content of the file, `None` if there is none.
pub(super) fn read(path: &Path, secrecy: Secrecy) -> Result<Option<String>, Error> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match fs::openat(CWD, path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(Error::io(path, error)),
    };
    let meta = file.metadata().map_err(|error| Error::io(path, error))?;
    if !meta.is_file() {
        return Err(Error::io(path, ErrorKind::InvalidInput));
    }
    check(path, &meta, secrecy)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::io(path, error))?;
    check_length(path, bytes.len())?;
    let text = String::from_utf8(bytes);
    text.map_or(Err(Error::io(path, ErrorKind::InvalidData)), |it| {
        Ok(Some(it))
    })
}

/// Refuses a text that is too long: a truncated one would pass for a whole one.
fn check_length(path: &Path, len: usize) -> Result<(), Error> {
    match len as u64 > MAX_BYTES {
        true => Err(Error::TooLong(path.to_owned())),
        false => Ok(()),
    }
}

/// Refuses a file that other users may read (if secret) or change.
fn check(path: &Path, meta: &Metadata, secrecy: Secrecy) -> Result<(), Error> {
    let others = meta.permissions().mode() & 0o077;
    let what = match secrecy {
        Secrecy::Secret if others != 0 => "read",
        _ if others & 0o022 != 0 => "change",
        _ if meta.uid() != rustix::process::geteuid().as_raw() && meta.uid() != 0 => "change",
        _ => return Ok(()),
    };
    let path = path.to_owned();
    Err(Error::Exposed { path, what })
}

/// Changes a public file: `change` gets its text (empty if there is no file) and returns the new text, or `None` to
/// keep it. Changes exclude one another. Links are followed, and permissions and owner stay, because the server may run
/// as another user than the one who changes its list.
pub(super) fn update<T>(
    path: &Path,
    change: impl FnOnce(&str) -> Result<(Option<String>, T), Error>,
) -> Result<T, Error> {
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let _lock = lock(make_directory(path)?);
    let text = read(path, Secrecy::Public)?.unwrap_or_default();
    let (text, done) = change(&text)?;
    if let Some(text) = text {
        check_length(path, text.len())?;
        write(path, &text, false)?;
    }
    Ok(done)
}

/// Locks `directory` until dropped, so that other programs cannot change its files. It locks the directory because a
/// replaced file cannot hold a lock. Without effect on a file system without such locks (NFS): there the last of two
/// changes wins.
fn lock(directory: &Path) -> Option<File> {
    let directory = File::open(directory).ok()?;
    fs::flock(&directory, FlockOperation::LockExclusive).ok()?;
    Some(directory)
}

/// The directory of `path`, created if it does not exist.
fn make_directory(path: &Path) -> Result<&Path, Error> {
    let io = |error: std::io::Error| Error::io(path, error);
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    if !directory.exists() {
        std::fs::create_dir_all(directory).map_err(io)?;
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700)).map_err(io)?;
    }
    Ok(directory)
}

/// Writes `text` atomically: a concurrent reader finds the old file or the new one. Creates the directory if necessary.
/// With `fresh` an existing file is an error; otherwise the new file keeps its permissions and owner.
pub(super) fn write(path: &Path, text: &str, fresh: bool) -> Result<(), Error> {
    let io = |error: std::io::Error| Error::io(path, error);
    let directory = make_directory(path)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    // The name is random, because another process may have the same process number: in another container, with the same
    // home.
    let random: [u8; 32] = zerolane_lane::random().map_err(Error::Random)?;
    name.push(format!(".{}.new", HEXLOWER.encode(&random[..16])));
    let beside = directory.join(name);
    let old = path.metadata().ok().filter(|_| !fresh);
    let written = write_new(&beside, text, old.as_ref()).and_then(|()| {
        let flags = match fresh {
            true => RenameFlags::NOREPLACE,
            false => RenameFlags::empty(),
        };
        fs::renameat_with(CWD, &beside, CWD, path, flags).map_err(Into::into)
    });
    written.map_err(|error| {
        let _ = fs::unlinkat(CWD, &beside, AtFlags::empty());
        match error.kind() {
            ErrorKind::AlreadyExists => Error::Exists(path.to_owned()),
            _ => io(error),
        }
    })
}

fn write_new(path: &Path, text: &str, old: Option<&Metadata>) -> std::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)?);
    if let Some(old) = old {
        let is_ours = file.metadata()?.uid() == old.uid() && file.metadata()?.gid() == old.gid();
        if !is_ours {
            std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(old.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
