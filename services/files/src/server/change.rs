//! Carries out requests that change the served tree without files: remove, make directories, rename.

use super::remove_tree::remove_tree;
use super::session::Session;
use super::tally::Tally;
use crate::error::{Cause, Error, Failure};
use crate::expand::Expander;
use crate::message::{EntryKind, RemoveOptions, Replace};
use crate::name::RelativePath;
use crate::root::{DIRECTORY, Root, is_write_protected, kind_of, open_in, stat_at};
use crate::sync::remove::unlink;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, RenameFlags, Stat, mkdirat, renameat, renameat_with};
use rustix::io::Errno;
use zerolane::Connection;

impl Session<'_> {
    /// Removes what the paths and patterns match.
    pub(super) fn delete(
        &self,
        connection: &mut Connection,
        paths: &[Vec<u8>],
        options: RemoveOptions,
    ) -> Result<(), Error> {
        self.check_writable(connection)?;
        let root = self.root_for(connection, paths)?;
        self.begin(connection)?;
        let mut tally = Tally::new(self, connection);
        let mut expander = Expander::new(root);
        for path in paths {
            match expander.expand(path) {
                Ok(found) => {
                    for path in found {
                        self.delete_one(root, &path, options, &mut tally)?;
                    }
                }
                Err(Cause::NoMatch | Cause::NotFound) if options.force => {}
                Err(cause) => tally.tell(Err(Failure::new(path, cause)))?,
            }
        }
        tally.finish()
    }

    fn delete_one(
        &self,
        root: &Root,
        path: &[u8],
        options: RemoveOptions,
        tally: &mut Tally<'_, '_>,
    ) -> Result<(), Error> {
        self.stop.check()?;
        let outcome = match removable(root, path, options) {
            Err(Cause::NotFound) if options.force => return Ok(()),
            Ok((parent, name, stat)) => match kind_of(&stat) {
                EntryKind::Directory if !options.empty => {
                    let tell = |outcome| tally.tell(outcome);
                    let path = path.strip_suffix(b"/").unwrap_or(path);
                    let listed = (path, stat.st_ino);
                    return remove_tree(&parent, &name, listed, options, &self.stop, tell);
                }
                kind => unlink(&parent, &name, kind, stat.st_ino).map(drop),
            },
            Err(cause) => Err(cause),
        };
        tally.tell(outcome.map_err(|cause| Failure::new(path, cause)))
    }

    /// Makes directories.
    pub(super) fn make_directories(
        &self,
        connection: &mut Connection,
        paths: &[Vec<u8>],
        parents: bool,
    ) -> Result<(), Error> {
        self.check_writable(connection)?;
        let root = self.root_for(connection, paths)?;
        self.begin(connection)?;
        let mut tally = Tally::new(self, connection);
        for path in paths {
            let made = RelativePath::parse(path).and_then(|path| match parents {
                true => make_with_parents(root, &path).map(drop),
                false => make(root, &path),
            });
            tally.tell(made.map_err(|cause| Failure::new(path, cause)))?;
        }
        tally.finish()
    }

    /// Renames a file, link or directory.
    pub(super) fn rename(
        &self,
        connection: &mut Connection,
        from: &[u8],
        to: &[u8],
        replace: Replace,
    ) -> Result<(), Error> {
        self.check_writable(connection)?;
        let root = self.root_for(connection, &[from.to_vec()])?;
        self.begin(connection)?;
        let renamed = rename(root, from, to, replace);
        let mut tally = Tally::new(self, connection);
        tally.tell(renamed)?;
        tally.finish()
    }
}

/// The parent directory of a path with a name, the name, and its status.
fn named(root: &Root, path: &[u8]) -> Result<(OwnedFd, Vec<u8>, Stat), Cause> {
    let path = RelativePath::parse(path)?;
    let (parent, name) = root.open_parent(&path)?.ok_or(Cause::ServedDirectory)?;
    if path.is_contents() {
        return Err(Cause::InvalidName);
    }
    let stat = stat_at(&parent, name)?;
    if path.must_be_directory() && kind_of(&stat) != EntryKind::Directory {
        return Err(Cause::NotADirectory);
    }
    Ok((parent, name.to_vec(), stat))
}

fn removable(
    root: &Root,
    path: &[u8],
    options: RemoveOptions,
) -> Result<(OwnedFd, Vec<u8>, Stat), Cause> {
    let (parent, name, stat) = named(root, path)?;
    match kind_of(&stat) {
        EntryKind::Directory if options.empty => Ok((parent, name, stat)),
        _ if options.empty => Err(Cause::NotADirectory),
        EntryKind::Directory if !options.recursive => Err(Cause::NotRecursive),
        EntryKind::File if !options.force && is_write_protected(stat.st_mode) => {
            Err(Cause::ReadOnly)
        }
        _ => Ok((parent, name, stat)),
    }
}

/// The mode that copies use, too.
const NEW: Mode = Mode::from_raw_mode(0o755);

fn make(root: &Root, path: &RelativePath) -> Result<(), Cause> {
    let (parent, name) = root.open_parent(path)?.ok_or(Cause::Exists)?;
    match mkdirat(parent, name, NEW) {
        Err(Errno::EXIST) => Err(Cause::Exists),
        made => Ok(made?),
    }
}

/// Opens the directory at `path`, and makes it and its parents if necessary.
fn make_with_parents(root: &Root, path: &RelativePath) -> Result<OwnedFd, Cause> {
    match root.open_directory(path) {
        Err(Cause::NotFound) => {}
        opened => return opened,
    }
    let (above, name) = path.split_last().ok_or(Cause::NotFound)?;
    let parent = make_with_parents(root, &above)?;
    match mkdirat(&parent, name, NEW) {
        Err(Errno::EXIST) => {}
        made => made?,
    }
    Ok(open_in(&parent, name, DIRECTORY, Mode::empty())?)
}

fn rename(root: &Root, from: &[u8], to: &[u8], replace: Replace) -> Result<(), Failure> {
    let (old_parent, old_name, old) =
        named(root, from).map_err(|cause| Failure::new(from, cause))?;
    let place = new_place(root, to, &old_name, &old).and_then(|(parent, name)| {
        let flags = match stat_at(&parent, &name) {
            Err(Cause::NotFound) => RenameFlags::NOREPLACE,
            new => check_replaced(&old, &new?, replace)?,
        };
        Ok((parent, name, flags))
    });
    let (parent, name, flags) = place.map_err(|cause| Failure::new(to, cause))?;
    let renamed = match renameat_with(&old_parent, &old_name, &parent, &name, flags) {
        // The file system does not know the flag: an entry made meanwhile is replaced, if that is permitted.
        Err(Errno::INVAL) if replace != Replace::Nothing => {
            renameat(&old_parent, &old_name, &parent, &name)
        }
        renamed => renamed,
    };
    renamed.map_err(|errno| match errno {
        Errno::EXIST => Failure::new(to, Cause::Exists),
        Errno::XDEV => Failure::new(from, Cause::OtherFileSystem),
        Errno::INVAL if kind_of(&old) == EntryKind::Directory => {
            Failure::new(from, Cause::IntoItself)
        }
        errno => Failure::new(to, errno.into()),
    })
}

/// The new place: in a directory, under the old name, or under a new one.
fn new_place(root: &Root, to: &[u8], name: &[u8], old: &Stat) -> Result<(OwnedFd, Vec<u8>), Cause> {
    let path = RelativePath::parse(to)?;
    match root.open_directory(&path) {
        Ok(directory) => return Ok((directory, name.to_vec())),
        Err(Cause::NotFound) if path.is_contents() => return Err(Cause::NotFound),
        Err(Cause::NotFound | Cause::NotADirectory) => {}
        Err(cause) => return Err(cause),
    }
    if path.must_be_directory() && kind_of(old) != EntryKind::Directory {
        return Err(Cause::NotADirectory);
    }
    let (parent, name) = root.open_parent(&path)?.ok_or(Cause::NotADirectory)?;
    Ok((parent, name.to_vec()))
}

/// Checks whether the existing entry may be replaced; returns the flags to do so.
fn check_replaced(old: &Stat, new: &Stat, replace: Replace) -> Result<RenameFlags, Cause> {
    if (old.st_dev, old.st_ino) == (new.st_dev, new.st_ino) {
        return Err(Cause::SameFile);
    }
    match (kind_of(old), kind_of(new)) {
        _ if replace == Replace::Nothing => Err(Cause::Exists),
        (_, EntryKind::Directory) => Err(Cause::IsADirectory),
        (EntryKind::Directory, _) => Err(Cause::NotADirectory),
        (_, EntryKind::File) if replace != Replace::Any && is_write_protected(new.st_mode) => {
            Err(Cause::ReadOnly)
        }
        _ => Ok(RenameFlags::empty()),
    }
}
