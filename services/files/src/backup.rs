//! Renames files that a sync replaces or removes to backups, beside them or in a directory of backups.
//!
//! A file that is about to be replaced is first linked to its backup, so that it has both names until the new content
//! takes the old one. A file that cannot have a second name is moved to its backup, and so is a file that is removed. A
//! process killed at any moment leaves the old content at its place, in its backup, or at both.

use crate::error::Cause;
use crate::limits::{NAME_BYTES, PATH_BYTES};
use crate::links::identity;
use crate::message::{Backup, EntryKind};
use crate::name::RelativePath;
use crate::root::{DIRECTORY, Root, kind_of, open_in, stat_at};
use crate::temporary::random_name;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    self, AtFlags, Mode, OFlags, Stat, fstat, fsync, linkat, mkdirat, renameat, unlinkat,
};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

impl Backup {
    /// Checks a request of a user or a client.
    ///
    /// # Errors
    /// The faulty path or suffix, and the reason.
    pub(crate) fn check(&self) -> Result<(), (&[u8], Cause)> {
        let suffix = &self.suffix[..];
        let no_name = suffix.iter().any(|&byte| byte == b'/' || byte == 0);
        let nothing = suffix.is_empty() && self.directory.is_none();
        if no_name || nothing || suffix.len() >= NAME_BYTES {
            return Err((suffix, Cause::InvalidName));
        }
        match &self.directory {
            Some(path) => match RelativePath::parse(path) {
                Ok(_) => Ok(()),
                Err(cause) => Err((path, cause)),
            },
            None => Ok(()),
        }
    }

    /// Whether a file with this name is a backup by its suffix.
    pub(crate) fn is_backup(&self, name: &[u8]) -> bool {
        self.directory.is_none() && name.ends_with(&self.suffix)
    }

    /// The path of the directory of backups below `destination`, if its name says that it is there.
    pub(crate) fn below(&self, destination: &[u8]) -> Option<Vec<u8>> {
        let destination = RelativePath::parse(destination).ok()?;
        let path = RelativePath::parse(self.directory.as_deref()?).ok()?;
        let names = destination.join(&path).below(&destination)?.join(&b'/');
        (!names.is_empty()).then_some(names)
    }
}

/// Makes backups of the files in one destination.
#[derive(Debug)]
pub(crate) struct Backups {
    asked: Backup,
    /// `None`: backups stand beside the files.
    tree: Option<BackupTree>,
    durable: bool,
    /// Backups made and not yet counted.
    made: AtomicU64,
}

/// A directory of backups.
#[derive(Debug)]
struct BackupTree {
    /// The deepest existing directory of its path, and the directories to be made below that.
    anchor: OwnedFd,
    missing: Vec<Vec<u8>>,
    /// The destination.
    base: OwnedFd,
    /// The directory of the last backup, and its path below the destination.
    last: Mutex<Option<(Vec<u8>, Arc<OwnedFd>)>>,
}

impl Backups {
    /// Backups for `base`, which is `destination` below `root`. The directory of backups is made with the first backup.
    ///
    /// # Errors
    /// The path of the directory, or the suffix, and the reason.
    pub(crate) fn below<'b>(
        root: &Root,
        destination: &RelativePath,
        base: &OwnedFd,
        (backup, durable): (&'b Backup, bool),
    ) -> Result<Backups, (&'b [u8], Cause)> {
        Backups::new(base, (backup, durable), |path| match root.is_of_login() {
            true => open(base, path),
            false => root.open_from(destination, path),
        })
    }

    /// Backups for `base` on this machine: symbolic links in the path of the directory of backups belong to the user
    /// and are followed.
    ///
    /// # Errors
    /// As for [`Backups::below`].
    pub(crate) fn local<'b>(
        base: &OwnedFd,
        backup: (&'b Backup, bool),
    ) -> Result<Backups, (&'b [u8], Cause)> {
        Backups::new(base, backup, |path| open(base, path))
    }

    fn new<'b>(
        base: &OwnedFd,
        (backup, durable): (&'b Backup, bool),
        open: impl Fn(&RelativePath) -> Result<OwnedFd, Cause>,
    ) -> Result<Backups, (&'b [u8], Cause)> {
        backup.check()?;
        let tree = match &backup.directory {
            None => None,
            Some(path) => {
                Some(BackupTree::find(base, path, open).map_err(|cause| (&path[..], cause))?)
            }
        };
        Ok(Backups {
            asked: backup.clone(),
            tree,
            durable,
            made: AtomicU64::new(0),
        })
    }

    /// How many were made since the last call.
    pub(crate) fn take_made(&self) -> u64 {
        self.made.swap(0, Ordering::Relaxed)
    }

    /// Backups for the directory at `above`, a path below the destination.
    pub(crate) fn of(self: &Arc<Backups>, above: &[u8]) -> BackupsOf {
        BackupsOf {
            backups: self.clone(),
            above: above.to_vec(),
        }
    }

    /// Gives the file or link `name` its backup's name. One that stays keeps its own name too, if it can have both.
    fn store(
        &self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        above: &[u8],
        kept: Kept<'_>,
    ) -> Result<(), Cause> {
        let there = match self.tree.as_ref().map(|tree| tree.directory(above)) {
            Some(there) => Some(there?),
            None => None,
        };
        let to = there.as_ref().map_or(directory, |there| there.as_fd());
        let backup = [name, &self.asked.suffix].concat();
        if backup == name && identity(&fstat(to)?) == identity(&fstat(directory)?) {
            return Err(Cause::BackupIsItself);
        }
        let linked = match kept {
            Kept::Stays { by } => link(directory, name, (to, &backup), by)?,
            Kept::Leaves => Linked::Cannot,
        };
        match linked {
            Linked::Yes => {}
            Linked::Needless => return Ok(()),
            Linked::Cannot => rename(directory, name, to, &backup)?,
        }
        if self.durable {
            fsync(to)?;
        }
        self.made.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Backups of the files in one directory of the destination.
#[derive(Clone, Debug)]
pub(crate) struct BackupsOf {
    backups: Arc<Backups>,
    above: Vec<u8>,
}

impl BackupsOf {
    /// Makes a backup of a file or link at `name` before it is replaced, `by` a file with this status. The file may no
    /// longer be there afterwards. If it is of the same version as the new one, another copy has replaced the old one and
    /// made its backup, which stays.
    pub(crate) fn keep(
        &self,
        directory: impl AsFd,
        name: &[u8],
        by: Option<&Stat>,
    ) -> Result<(), Cause> {
        let stat = match stat_at(&directory, name) {
            Err(Cause::NotFound) => return Ok(()),
            stat => stat?,
        };
        match has_backup(kind_of(&stat)) {
            true => self.store(directory.as_fd(), name, Kept::Stays { by }),
            false => Ok(()),
        }
    }

    /// Whether a file with this name is itself a backup, and gets none.
    pub(crate) fn is_backup(&self, name: &[u8]) -> bool {
        self.backups.asked.is_backup(name)
    }

    /// Moves a file or link to its backup.
    pub(crate) fn take(&self, directory: impl AsFd, name: &[u8]) -> Result<(), Cause> {
        self.store(directory.as_fd(), name, Kept::Leaves)
    }

    fn store(&self, directory: BorrowedFd<'_>, name: &[u8], kept: Kept<'_>) -> Result<(), Cause> {
        self.backups.store(directory, name, &self.above, kept)
    }
}

/// The kinds that get backups. Directories are emptied first; devices, sockets and FIFOs have no content.
pub(crate) fn has_backup(kind: EntryKind) -> bool {
    matches!(kind, EntryKind::File | EntryKind::Link)
}

impl BackupTree {
    fn find(
        base: &OwnedFd,
        path: &[u8],
        open: impl Fn(&RelativePath) -> Result<OwnedFd, Cause>,
    ) -> Result<BackupTree, Cause> {
        let mut path = RelativePath::parse(path)?;
        let mut missing = Vec::new();
        let anchor = loop {
            match open(&path) {
                Ok(directory) => break directory,
                Err(Cause::NotFound) => {}
                Err(cause) => return Err(cause),
            }
            let (above, name) = path.split_last().ok_or(Cause::NotFound)?;
            missing.insert(0, name.to_vec());
            path = above;
        };
        Ok(BackupTree {
            anchor,
            missing,
            base: fcntl_dupfd_cloexec(base, 0)?,
            last: Mutex::new(None),
        })
    }

    /// The directory for backups of files in `above`, made if necessary.
    fn directory(&self, above: &[u8]) -> Result<Arc<OwnedFd>, Cause> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((path, directory)) = &*last
            && path == above
        {
            return Ok(directory.clone());
        }
        let mut directory = fcntl_dupfd_cloexec(&self.anchor, 0)?;
        for name in &self.missing {
            directory = make(&directory, name, || None)?;
        }
        let mut end = 0;
        for name in above
            .split(|&byte| byte == b'/')
            .filter(|it| !it.is_empty())
        {
            end += name.len() + usize::from(end > 0);
            directory = make(&directory, name, || Some(self.mode(&above[..end])))?;
        }
        let directory = Arc::new(directory);
        *last = Some((above.to_vec(), directory.clone()));
        Ok(directory)
    }

    /// Permissions of the directory for backups of `path`: no wider for other users than those of `path`.
    fn mode(&self, path: &[u8]) -> Mode {
        const OWNER_ONLY: u32 = 0o700;
        let look = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let stat = match path.len() > PATH_BYTES {
            true => Err(Errno::NAMETOOLONG),
            false => open_in(&self.base, path, look, Mode::empty()).and_then(fstat),
        };
        let mode = stat.map_or(0, |stat| stat.st_mode & 0o777);
        Mode::from_raw_mode(mode | OWNER_ONLY)
    }
}

/// Opens a directory by a path from `base`.
fn open(base: &OwnedFd, path: &RelativePath) -> Result<OwnedFd, Cause> {
    let flags = DIRECTORY.difference(OFlags::NOFOLLOW);
    Ok(fs::openat(base, path.as_bytes(), flags, Mode::empty())?)
}

/// Opens the directory `name`, or makes it: with these permissions, or with the usual ones of a new directory.
fn make(
    parent: &OwnedFd,
    name: &[u8],
    mode: impl FnOnce() -> Option<Mode>,
) -> Result<OwnedFd, Cause> {
    match open_in(parent, name, DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT) => {}
        opened => return opened.map_err(no_backup),
    }
    let mode = mode();
    let open_to_all = Mode::from_raw_mode(0o777);
    match mkdirat(parent, name, mode.unwrap_or(open_to_all)) {
        // Another connection made it.
        Err(Errno::EXIST) => {}
        made => made.map_err(no_backup)?,
    }
    let directory = open_in(parent, name, DIRECTORY, Mode::empty()).map_err(no_backup)?;
    if let Some(mode) = mode {
        // Overrides the umask.
        let _ = fs::fchmod(&directory, mode);
    }
    Ok(directory)
}

/// How a file gets its backup's name.
#[derive(Clone, Copy)]
enum Kept<'s> {
    /// It keeps its own until another replaces it, with this status if that is known.
    Stays { by: Option<&'s Stat> },
    /// It is removed.
    Leaves,
}

/// The outcome of linking a file to its backup.
enum Linked {
    Yes,
    /// It is of the version that replaces it.
    Needless,
    /// It cannot have a second name.
    Cannot,
}

/// Whether both are of one version, as a sync compares them.
fn same_version(one: &Stat, other: &Stat) -> bool {
    let version = |it: &Stat| (it.st_mode, it.st_size, it.st_mtime, it.st_mtime_nsec);
    version(one) == version(other)
}

/// Links `name` to the backup `to`, replacing a file of that name, unless it is of the version `by`.
fn link(
    directory: BorrowedFd<'_>,
    name: &[u8],
    (to, backup): (BorrowedFd<'_>, &[u8]),
    by: Option<&Stat>,
) -> Result<Linked, Cause> {
    let aside = random_name()?;
    match linkat(directory, name, to, &aside, AtFlags::empty()) {
        Ok(()) => {}
        Err(Errno::MLINK | Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
            return Ok(Linked::Cannot);
        }
        Err(errno) => return Err(no_backup(errno)),
    }
    // Looked at under its new name: another copy may replace the old one at any moment.
    let needless = by.is_some_and(|by| stat_at(to, &aside).is_ok_and(|it| same_version(&it, by)));
    let named = match needless {
        true => Ok(()),
        false => renameat(to, &aside, to, backup),
    };
    // It still exists if `backup` was already a link to the same file.
    let _ = unlinkat(to, &aside, AtFlags::empty());
    named.map_err(no_backup)?;
    Ok(match needless {
        true => Linked::Needless,
        false => Linked::Yes,
    })
}

fn rename(
    directory: BorrowedFd<'_>,
    name: &[u8],
    to: BorrowedFd<'_>,
    backup: &[u8],
) -> Result<(), Cause> {
    let file = identity(&stat_at(directory, name)?);
    renameat(directory, name, to, backup).map_err(no_backup)?;
    // rename does nothing if `backup` is already a link to the same file.
    match stat_at(directory, name).is_ok_and(|stat| identity(&stat) == file) {
        true => Ok(unlinkat(directory, name, AtFlags::empty())?),
        false => Ok(()),
    }
}

fn no_backup(errno: Errno) -> Cause {
    Cause::NoBackup(errno.raw_os_error())
}

#[cfg(test)]
#[path = "backup_tests.rs"]
mod tests;
