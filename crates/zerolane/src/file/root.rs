//! The directory a server serves: everything below it, nothing outside.
//!
//! Two locks on the same door. Requests name paths, which are checked ([`RelativePath`]) and then
//! resolved by `openat2` with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`: the kernel refuses whatever
//! would leave, even if the tree changes at that moment. Everything below a resolved directory is
//! reached name by name with `O_NOFOLLOW`.

use super::error::Cause;
use super::message::{EntryKind, Meta};
use super::name::RelativePath;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use std::path::Path;

/// Flags to open any directory that was resolved or named safely.
pub(crate) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Flags to open a file for reading. Non-blocking: a FIFO that took a file's place must not hang us.
pub(crate) const READ_FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

/// A directory and the right to all that is below it.
#[derive(Debug)]
pub(crate) struct Root {
    directory: OwnedFd,
}

impl Root {
    /// Opens the directory; symbolic links on the way to it are the owner's business and followed.
    pub(crate) fn open(path: &Path) -> Result<Root, Cause> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Root {
            directory: fs::openat(CWD, path, flags, Mode::empty())?,
        })
    }

    /// A directory below, and the right to what is below that only.
    pub(crate) fn below(&self, path: &RelativePath) -> Result<Root, Cause> {
        let directory = self.open_directory(path)?;
        Ok(Root { directory })
    }

    /// Opens a directory below (or the root itself).
    pub(crate) fn open_directory(&self, path: &RelativePath) -> Result<OwnedFd, Cause> {
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        // Without O_NOFOLLOW, a link at the end is told apart from a file there (ELOOP, ENOTDIR).
        let flags = DIRECTORY.difference(OFlags::NOFOLLOW);
        Ok(fs::openat2(
            &self.directory,
            path.as_bytes(),
            flags,
            Mode::empty(),
            resolve,
        )?)
    }

    /// The directory that holds the last component, and that component.
    /// `None` for the root itself.
    pub(crate) fn open_parent<'p>(
        &self,
        path: &'p RelativePath,
    ) -> Result<Option<(OwnedFd, &'p [u8])>, Cause> {
        match path.split_last() {
            None => Ok(None),
            Some((parent, name)) => Ok(Some((self.open_directory(&parent)?, name))),
        }
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// What `name` in `directory` is, links not followed.
pub(crate) fn stat_at(directory: impl AsFd, name: &[u8]) -> Result<Stat, Cause> {
    Ok(fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// The kind of a file.
pub(crate) fn kind_of(stat: &Stat) -> EntryKind {
    entry_kind(FileType::from_raw_mode(stat.st_mode))
}

/// The kind that a type stands for.
pub(crate) fn entry_kind(file_type: FileType) -> EntryKind {
    match file_type {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Special,
    }
}

/// What is kept of a file.
pub(crate) fn meta_of(stat: &Stat) -> Meta {
    Meta {
        mode: stat.st_mode & 0o7777,
        mtime_seconds: stat.st_mtime,
        mtime_nanoseconds: stat.st_mtime_nsec as u32,
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::fs as std_fs;
    use std::os::unix::fs::symlink;

    /// root/{inside/file, out -> ../outside, loop -> inside}, outside/secret
    fn tree() -> (tempfile::TempDir, Root) {
        let base = tempfile::tempdir().unwrap();
        let path = base.path();
        std_fs::create_dir_all(path.join("root/inside")).unwrap();
        std_fs::create_dir(path.join("outside")).unwrap();
        std_fs::write(path.join("root/inside/file"), b"x").unwrap();
        std_fs::write(path.join("outside/secret"), b"s").unwrap();
        symlink("../outside", path.join("root/out")).unwrap();
        symlink("inside", path.join("root/within")).unwrap();
        let root = Root::open(&path.join("root")).unwrap();
        (base, root)
    }

    fn parse(path: &[u8]) -> RelativePath {
        RelativePath::parse(path).unwrap()
    }

    #[test]
    fn open_directory__inside() {
        let (_base, root) = tree();
        root.open_directory(&parse(b"")).unwrap();
        let inside = root.open_directory(&parse(b"inside")).unwrap();
        assert_eq!(
            kind_of(&stat_at(&inside, b"file").unwrap()),
            EntryKind::File
        );
    }

    #[test]
    fn open_directory__symlinks_are_refused() {
        let (_base, root) = tree();
        // The last component is a link: it is not a directory. On the way: it leads outside.
        assert_eq!(
            root.open_directory(&parse(b"out")).unwrap_err(),
            Cause::OutsideRoot
        );
        assert_eq!(
            root.open_directory(&parse(b"within")).unwrap_err(),
            Cause::OutsideRoot
        );
        let path = parse(b"out/secret");
        assert_eq!(root.open_parent(&path).unwrap_err(), Cause::OutsideRoot);
    }

    #[test]
    fn open_directory__missing_and_not_a_directory() {
        let (_base, root) = tree();
        assert_eq!(
            root.open_directory(&parse(b"none")).unwrap_err(),
            Cause::NotFound
        );
        assert_eq!(
            root.open_directory(&parse(b"inside/file")).unwrap_err(),
            Cause::NotADirectory
        );
    }

    #[test]
    fn open_parent__of_the_root_is_none() {
        let (_base, root) = tree();
        assert!(root.open_parent(&parse(b".")).unwrap().is_none());
        let path = parse(b"inside/new");
        let (_, name) = root.open_parent(&path).unwrap().unwrap();
        assert_eq!(name, b"new");
    }
}
