//! The files beside a target, and how the last of them gets its name.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::error::Error;

#[derive(Clone, Debug)]
pub(super) struct Paths {
    pub(super) last: PathBuf,
    pub(super) partial: PathBuf,
    pub(super) list: PathBuf,
    pub(super) unpacked: PathBuf,
    pub(super) force: bool,
}

impl Paths {
    pub(super) fn of(last: PathBuf, force: bool) -> Paths {
        let name = last
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let beside = |suffix: &str| last.with_file_name(format!(".{name}.zerolane-{suffix}"));
        Paths {
            partial: beside("part"),
            list: beside("list"),
            unpacked: beside("tree"),
            last,
            force,
        }
    }
}

/// A name that names something in a directory, and nothing outside of it.
pub(super) fn safe_name(name: &str) -> Result<&str, Error> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(_)), None) if !name.contains(['/', '\0']) && name.len() <= 200 => {
            Ok(name)
        }
        _ => Err(Error::Target(format!(
            "{name:?} is no name for a file: say one with --to"
        ))),
    }
}

/// Renames; without `force` nothing is replaced that came meanwhile.
pub(super) fn rename(from: &Path, to: &Path, force: bool) -> Result<(), Error> {
    let shown = || to.display().to_string();
    if force {
        return fs::rename(from, to).map_err(Error::io(shown()));
    }
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from).map_err(Error::io(shown())),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(Error::Exists(to.to_owned()))
        }
        // A file system without links.
        Err(_) if to.symlink_metadata().is_err() => {
            fs::rename(from, to).map_err(Error::io(shown()))
        }
        Err(_) => Err(Error::Exists(to.to_owned())),
    }
}

pub(super) fn replace_tree(paths: &Paths) -> Result<(), Error> {
    let shown = || paths.last.display().to_string();
    let there = paths.last.symlink_metadata().is_ok();
    if there && !paths.force {
        return Err(Error::Exists(paths.last.clone()));
    }
    let old = paths.unpacked.with_extension("zerolane-old");
    if there {
        fs::rename(&paths.last, &old).map_err(Error::io(shown()))?;
    }
    fs::rename(&paths.unpacked, &paths.last).map_err(Error::io(shown()))?;
    if there {
        fs::remove_dir_all(&old).map_err(Error::io(old.display().to_string()))?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn safe_name__names_nothing_outside() {
        for name in ["", ".", "..", "/", "a/b", "../a", "/a", "a/", "a\0"] {
            assert!(safe_name(name).is_err(), "{name:?}");
        }
        assert!(safe_name("disk image.raw").is_ok());
    }
}
