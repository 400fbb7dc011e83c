//! Resolves the target of a copy, a directory or a new name, by the rules of `cp`.

use crate::error::Cause;
use crate::links::end_of;
use crate::message::{EntryKind, Landing};
use crate::name::{RelativePath, check_name};
use crate::receive::TopLevel;
use crate::root::{DIRECTORY, Root, kind_of, open_in, stat_at};
use rustix::fd::OwnedFd;
use rustix::fs::{self, CWD, FileType, Mode, OFlags, Stat};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Properties of the sources, known before the target is resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sources {
    /// How many there are.
    pub(crate) count: u32,
    /// Whether one of them stands for the contents of a directory.
    pub(crate) contents: bool,
    /// Whether the target may be a block device.
    pub(crate) device: bool,
}

impl Sources {
    /// Whether only a directory can take them.
    fn need_directory(self) -> bool {
        self.count != 1 || self.contents
    }
}

/// A directory to receive into, and the new name of the one source, if it gets one.
pub(crate) type Target = (OwnedFd, Option<Vec<u8>>);

/// Finds the target below a served directory.
pub(crate) fn resolve_below(
    root: &Root,
    path: &RelativePath,
    sources: Sources,
    landing: Landing,
) -> Result<Target, Cause> {
    if landing == Landing::Into {
        return Ok((root.open_directory(path)?, None));
    }
    if root.is_of_login() && path.split_last().is_some() {
        // As on this machine: the target of a link at the end is written, and the link stays.
        let bytes = path.as_bytes();
        let slash = if path.must_be_directory() { "/" } else { "" };
        let path = [&bytes, slash.as_bytes()].concat();
        let path = Path::new(OsStr::from_bytes(&path));
        return match resolve_local(path, sources)? {
            (_, None) if landing == Landing::Named => made_meanwhile(path),
            target => Ok(target),
        };
    }
    if landing == Landing::Named {
        let (parent, name) = root.open_parent(path)?.ok_or(Cause::NotADirectory)?;
        return Ok((parent, Some(name.to_vec())));
    }
    match root.open_directory(path) {
        Ok(directory) => return Ok((directory, None)),
        Err(Cause::NotFound | Cause::NotADirectory) => {}
        Err(cause) => return Err(cause),
    }
    let (parent, name) = root.open_parent(path)?.ok_or(Cause::NotADirectory)?;
    let name = name.to_vec();
    new_name(
        parent,
        name,
        path.must_be_directory(),
        sources,
        |parent, name| Ok(open_in(parent, name, DIRECTORY, Mode::empty())?),
    )
}

/// Finds the target on this machine. Symbolic links in its path, also one at its end, belong to the user and are
/// followed.
pub(crate) fn resolve_local(path: &Path, sources: Sources) -> Result<Target, Cause> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |path: &Path| fs::openat(CWD, path, flags, Mode::empty()).map_err(Cause::from);
    match open(path) {
        Ok(directory) => return Ok((directory, None)),
        // A circular link is reported below.
        Err(Cause::NotFound | Cause::NotADirectory | Cause::OutsideRoot) => {}
        Err(cause) => return Err(cause),
    }
    let path = &*end_of_links(path, sources.device)?;
    let name = path.file_name().ok_or(Cause::NotFound)?.as_bytes();
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => open(parent)?,
        _ => open(Path::new("."))?,
    };
    let must_be_directory = path.as_os_str().as_bytes().ends_with(b"/");
    new_name(
        parent,
        check_name(name)?.to_vec(),
        must_be_directory,
        sources,
        |parent, name| Ok(fs::openat(parent, name, flags, Mode::empty())?),
    )
}

/// Resolves a name that was new when the copy began and is now a directory, which the copy made. A link cannot have
/// been made by the copy.
fn made_meanwhile(path: &Path) -> Result<Target, Cause> {
    let name = path.file_name().ok_or(Cause::IsADirectory)?.as_bytes();
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = fs::openat(CWD, parent, flags, Mode::empty())?;
    match kind_of(&stat_at(&parent, name)?) {
        EntryKind::Directory => Ok((parent, Some(name.to_vec()))),
        _ => Err(Cause::IsADirectory),
    }
}

/// The real path of the file at `path`, which is not a directory: the target of a symbolic link is written, and the
/// link stays. Only a file may be replaced by a file; a block `device` may be written.
fn end_of_links(path: &Path, device: bool) -> Result<Cow<'_, Path>, Cause> {
    let Ok(stat) = stat_at(CWD, path.as_os_str().as_bytes()) else {
        return Ok(path.into());
    };
    let kind = kind_of(&stat);
    if kind != EntryKind::Link {
        return match kind {
            EntryKind::Special if !(device && is_block_device(&stat)) => Err(Cause::NotAFile),
            _ => Ok(path.into()),
        };
    }
    // An open file of a process, such as its standard output, must not be replaced.
    let (stat, has_name) = end_of(path).map_err(|_| Cause::LinkToNothing)?;
    match kind_of(&stat) == EntryKind::File || device && is_block_device(&stat) {
        true if has_name => {
            let path = path.canonicalize();
            Ok(path.map_err(|_| Cause::LinkToNothing)?.into())
        }
        _ => Err(Cause::NotAFile),
    }
}

fn is_block_device(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice
}

/// Handles a target that is not a directory yet: `name` in `parent` is new, or a file.
fn new_name(
    parent: OwnedFd,
    name: Vec<u8>,
    must_be_directory: bool,
    sources: Sources,
    open: impl FnOnce(&OwnedFd, &[u8]) -> Result<OwnedFd, Cause>,
) -> Result<Target, Cause> {
    let exists = stat_at(&parent, &name).is_ok();
    if !sources.need_directory() && !must_be_directory {
        return Ok((parent, Some(name)));
    }
    if exists {
        return Err(Cause::NotADirectory);
    }
    // The contents of one source make their own directory; several sources, or a name with a slash, need an existing
    // one.
    if !(sources.contents && sources.count == 1) {
        return Err(Cause::NotFound);
    }
    fs::mkdirat(&parent, &name, Mode::from_raw_mode(0o755))?;
    Ok((open(&parent, &name)?, None))
}

/// What may arrive at the top, given the new name.
pub(crate) fn top_level(new_name: Option<Vec<u8>>, otherwise: TopLevel) -> TopLevel {
    new_name.map_or(otherwise, TopLevel::One)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const ONE: Sources = Sources {
        count: 1,
        contents: false,
        device: false,
    };
    const TWO: Sources = Sources {
        count: 2,
        contents: false,
        device: false,
    };
    const CONTENTS: Sources = Sources {
        count: 1,
        contents: true,
        device: false,
    };

    /// Both resolvers must agree.
    fn resolve(base: &Path, path: &str, sources: Sources) -> Result<Option<Vec<u8>>, Cause> {
        let root = Root::open(base).unwrap();
        let below = resolve_below(
            &root,
            &RelativePath::parse(path.as_bytes()).unwrap(),
            sources,
            Landing::AsCp,
        );
        let below = below.map(|(_, name)| name);
        if !sources.contents {
            let local = resolve_local(&base.join(path), sources).map(|(_, name)| name);
            assert_eq!(below, local, "{path}");
        }
        below
    }

    #[test]
    fn resolve__as_cp_does() {
        let base = tempfile::tempdir().unwrap();
        std::fs::create_dir(base.path().join("dir")).unwrap();
        std::fs::write(base.path().join("file"), b"x").unwrap();
        let at = |path, sources| resolve(base.path(), path, sources);
        for sources in [ONE, TWO, CONTENTS] {
            assert_eq!(at("dir", sources), Ok(None));
            assert_eq!(at("dir/", sources), Ok(None));
            assert_eq!(at("", sources), Ok(None));
            assert_eq!(at("none/new", sources), Err(Cause::NotFound));
            assert_eq!(at("file/new", sources), Err(Cause::NotADirectory));
        }
        assert_eq!(at("file", ONE), Ok(Some(b"file".to_vec())));
        assert_eq!(at("dir/new", ONE), Ok(Some(b"new".to_vec())));
        assert_eq!(at("new/", ONE), Err(Cause::NotFound));
        assert_eq!(at("file/", ONE), Err(Cause::NotADirectory));
        assert_eq!(at("file", TWO), Err(Cause::NotADirectory));
        assert_eq!(at("new", TWO), Err(Cause::NotFound));
        assert_eq!(at("file", CONTENTS), Err(Cause::NotADirectory));
        assert_eq!(at("new", CONTENTS), Ok(None));
        assert!(base.path().join("new").is_dir());
    }

    /// Resolves `path`, which is in `base`, for all connections of one copy.
    fn again_as_before(root: &Root, base: &Path, path: &Path) {
        let path = RelativePath::parse(path.as_os_str().as_bytes()).unwrap();
        let name = |landing| {
            let target = resolve_below(root, &path, ONE, landing);
            target.map(|(_, name)| name)
        };
        assert_eq!(name(Landing::AsCp), Ok(Some(b"new".to_vec())));
        assert_eq!(name(Landing::Into), Err(Cause::NotFound));
        // The directory that a copy made before its connection was lost.
        std::fs::create_dir(base.join("new")).unwrap();
        assert_eq!(name(Landing::AsCp), Ok(None));
        assert_eq!(name(Landing::Into), Ok(None));
        assert_eq!(name(Landing::Named), Ok(Some(b"new".to_vec())));
        // No copy makes a link like this.
        std::fs::remove_dir(base.join("new")).unwrap();
        std::os::unix::fs::symlink(base, base.join("new")).unwrap();
        if root.is_of_login() {
            assert_eq!(name(Landing::Named), Err(Cause::IsADirectory));
        }
    }

    #[test]
    fn resolve_below__again_as_before() {
        let base = tempfile::tempdir().unwrap();
        let root = Root::open(base.path()).unwrap();
        again_as_before(&root, base.path(), Path::new("new"));
        let base = tempfile::tempdir().unwrap();
        let root = Root::of_login().unwrap();
        again_as_before(&root, base.path(), &base.path().join("new"));
    }

    #[test]
    fn resolve_below__links_are_refused() {
        let base = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/tmp", base.path().join("link")).unwrap();
        let root = Root::open(base.path()).unwrap();
        for path in [&b"link"[..], b"link/", b"link/x"] {
            let path = RelativePath::parse(path).unwrap();
            assert_eq!(
                resolve_below(&root, &path, ONE, Landing::AsCp).unwrap_err(),
                Cause::OutsideRoot
            );
        }
    }
}
