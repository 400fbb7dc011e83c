//! Opens files below the directory that a server serves, and none outside.
//!
//! Two checks guard it. Paths in requests are checked ([`RelativePath`]) and then resolved by `openat2` with
//! `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`: the kernel refuses every path that would leave, even if the tree changes at
//! that moment. Everything below a resolved directory is reached name by name, opened under the same rules
//! ([`open_in`]) or, where the system call opens nothing (rename, unlink and the like), as one checked name whose link
//! is not followed.
//!
//! A server that a login started for itself serves all that the login can reach ([`Root::of_login`]): the kernel
//! resolves the paths of its requests as any other program's. Everything below them is reached in the same way.

use crate::error::Cause;
use crate::limits::LINK_TRIES;
use crate::message::{Attributes, EntryKind, Meta, Owner, Status, Version};
use crate::name::RelativePath;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::path::Path;

/// Flags to open a directory that was resolved or named safely.
pub(crate) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Flags to open a file for reading. Non-blocking, because open would block on a FIFO that took the file's place.
pub(crate) const READ_FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

/// Nothing outside, and no links on the way.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// Opens `name` below `directory`.
pub(crate) fn open_in(
    directory: impl AsFd,
    name: &[u8],
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    fs::openat2(directory, name, flags, mode, BENEATH)
}

/// A directory, with the right to everything below it, or to everything that this process can reach from it.
#[derive(Debug)]
pub(crate) struct Root {
    directory: OwnedFd,
    of_login: bool,
}

impl Root {
    /// Opens the directory. Symbolic links in its path belong to the owner and are followed.
    pub(crate) fn open(path: &Path) -> Result<Root, Cause> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Root {
            directory: fs::openat(CWD, path, flags, Mode::empty())?,
            of_login: false,
        })
    }

    /// The working directory, with the right to everything that this process can reach from it: absolute paths, `..`
    /// and symbolic links are followed.
    pub(crate) fn of_login() -> Result<Root, Cause> {
        Ok(Root {
            of_login: true,
            ..Root::open(Path::new("."))?
        })
    }

    /// Whether it was made by [`of_login`](Self::of_login).
    pub(crate) fn is_of_login(&self) -> bool {
        self.of_login
    }

    /// A directory below, with the right to everything below that alone.
    pub(crate) fn below(&self, path: &RelativePath) -> Result<Root, Cause> {
        let directory = self.open_directory(path)?;
        Ok(Root {
            directory,
            of_login: false,
        })
    }

    /// Opens `path` below, following links as long as they stay below.
    pub(crate) fn follow(&self, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let below = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut tries = LINK_TRIES;
        loop {
            let opened = fs::openat2(&self.directory, path, flags, Mode::empty(), below);
            tries -= 1;
            match opened {
                // A path with `..`, while something was renamed.
                Err(Errno::AGAIN) if tries > 0 => {}
                opened => return opened,
            }
        }
    }

    /// Checks whether a path may be resolved at all.
    pub(crate) fn check(&self, path: &RelativePath) -> Result<(), Cause> {
        match path.leaves() && !self.of_login {
            true => Err(Cause::OutsideRoot),
            false => Ok(()),
        }
    }

    /// Opens a directory below (or the root itself).
    pub(crate) fn open_directory(&self, path: &RelativePath) -> Result<OwnedFd, Cause> {
        // Without O_NOFOLLOW the errors of a link at the end (ELOOP) and of a file there (ENOTDIR) differ.
        let flags = DIRECTORY.difference(OFlags::NOFOLLOW);
        let bytes = path.as_bytes();
        self.check(path)?;
        Ok(match self.of_login {
            true => fs::openat(&self.directory, bytes, flags, Mode::empty())?,
            false => open_in(&self.directory, &bytes, flags, Mode::empty())?,
        })
    }

    /// Opens a directory whose path is relative to `destination`. No link is followed below: `..` goes up by name.
    pub(crate) fn open_from(
        &self,
        destination: &RelativePath,
        path: &RelativePath,
    ) -> Result<OwnedFd, Cause> {
        self.open_directory(&destination.join(path))
    }

    /// The parent directory of the last component, and that component. `None` for the root itself, and for another
    /// directory without a name (`..`).
    pub(crate) fn open_parent<'p>(
        &self,
        path: &'p RelativePath,
    ) -> Result<Option<(OwnedFd, &'p [u8])>, Cause> {
        match path.split_last() {
            None => self.check(path).map(|()| None),
            Some((parent, name)) => Ok(Some((self.open_directory(&parent)?, name))),
        }
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// The status of `name` in `directory`, without following links.
pub(crate) fn stat_at(directory: impl AsFd, name: &[u8]) -> Result<Stat, Cause> {
    Ok(fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// The kind of a file.
pub(crate) fn kind_of(stat: &Stat) -> EntryKind {
    entry_kind(FileType::from_raw_mode(stat.st_mode))
}

/// The kind for a file type.
pub(crate) fn entry_kind(file_type: FileType) -> EntryKind {
    match file_type {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Special,
    }
}

/// Whether a file of this mode has no write permission for any user.
pub(crate) fn is_write_protected(mode: u32) -> bool {
    mode & 0o222 == 0
}

/// The metadata that is always kept.
pub(crate) fn meta_of(stat: &Stat) -> Meta {
    Meta {
        mode: stat.st_mode & 0o7777,
        mtime_seconds: stat.st_mtime,
        mtime_nanoseconds: stat.st_mtime_nsec as u32,
        owner: None,
    }
}

/// The status of a file for clients that read ranges.
pub(crate) fn status_of(stat: &Stat) -> Status {
    let size = stat.st_size as u64;
    Status {
        kind: kind_of(stat),
        size,
        meta: meta_of(stat),
        version: Version {
            inode: stat.st_ino,
            size,
            changed_seconds: stat.st_ctime,
            changed_nanoseconds: stat.st_ctime_nsec as u32,
        },
    }
}

/// The metadata that is kept with these attributes.
pub(crate) fn meta_with(stat: &Stat, attributes: Attributes) -> Meta {
    let owner = Owner {
        uid: stat.st_uid,
        gid: stat.st_gid,
    };
    Meta {
        owner: attributes.owner.then_some(owner),
        ..meta_of(stat)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::fs as std_fs;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

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
        // As the last component, the link is not a directory. In the middle, it leads outside.
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
    fn open__paths_that_leave_are_refused_below_and_the_kernels_for_a_login() {
        let (base, root) = tree();
        let absolute = base.path().join("outside").into_os_string();
        let absolute = absolute.as_encoded_bytes();
        let login = Root {
            of_login: true,
            ..Root::open(&base.path().join("root")).unwrap()
        };
        for leaves in [absolute, b"../outside", b"out", b"within/../out"] {
            let secret = parse(&[leaves, b"/secret"].concat());
            assert_eq!(
                root.open_directory(&parse(leaves)).unwrap_err(),
                Cause::OutsideRoot
            );
            assert_eq!(root.open_parent(&secret).unwrap_err(), Cause::OutsideRoot);
            let (parent, name) = login.open_parent(&secret).unwrap().unwrap();
            assert_eq!(kind_of(&stat_at(&parent, name).unwrap()), EntryKind::File);
            login.open_directory(&parse(leaves)).unwrap();
        }
        for nameless in [&b".."[..], b"/", b"inside/.."] {
            assert_eq!(
                root.open_parent(&parse(nameless)).unwrap_err(),
                Cause::OutsideRoot
            );
            assert!(login.open_parent(&parse(nameless)).unwrap().is_none());
        }
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
    fn open_in__neither_up_nor_through_a_link_nor_absolute() {
        let (base, root) = tree();
        let absolute = base.path().join("outside/secret").into_os_string();
        let names: [&[u8]; 6] = [
            b"../outside/secret",
            b"inside/../../outside/secret",
            b"out/secret",
            b"out",
            b"..",
            absolute.as_encoded_bytes(),
        ];
        for name in names {
            // With `..` in the path, which names in requests never have, the kernel asks to try again if anything on
            // this machine was renamed meanwhile.
            let mut tries = (0..10_000).map(|_| open_in(&root, name, READ_FILE, Mode::empty()));
            let opened = tries.find(|it| !matches!(it, Err(Errno::AGAIN)));
            assert!(
                matches!(opened, Some(Err(Errno::XDEV | Errno::LOOP))),
                "{}: {opened:?}",
                name.escape_ascii()
            );
        }
        open_in(&root, b"inside/file", READ_FILE, Mode::empty()).unwrap();
    }

    #[test]
    fn open__while_directories_and_links_change_places() {
        const TRIES: usize = 20_000;
        let (base, root) = tree();
        std_fs::write(base.path().join("root/inside/secret"), b"x").unwrap();
        let done = AtomicBool::new(false);
        let (mut opened, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            // A swap that defeats a check in user space followed by an open.
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let exchange = fs::RenameFlags::EXCHANGE;
                    fs::renameat_with(&root, "inside", &root, "out", exchange).unwrap();
                }
            });
            for tries in 0..100 * TRIES {
                if tries >= TRIES && opened > 0 && refused > 0 {
                    break;
                }
                let path = parse(b"inside/secret");
                let found = root.open_parent(&path).and_then(|found| {
                    let (parent, name) = found.unwrap();
                    Ok(open_in(parent, name, READ_FILE, Mode::empty())?)
                });
                match found {
                    Ok(file) => {
                        let content = std::io::read_to_string(std_fs::File::from(file)).unwrap();
                        assert_eq!(content, "x", "the secret is s");
                        opened += 1;
                    }
                    Err(_) => refused += 1,
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(opened > 0 && refused > 0, "{opened} and {refused}");
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
