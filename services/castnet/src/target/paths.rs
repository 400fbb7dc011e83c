//! Names the files beside a target, and renames the complete one into place.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with, syncfs};
use rustix::io::Errno;

use crate::error::Error;

/// The longest name of a file, bytes.
const NAME_BYTES: usize = 255;

/// Length of the suffix of names beside the target: `part`, `list`, `tree` or `old`.
const SUFFIX_BYTES: usize = 4;

#[derive(Clone, Debug)]
pub(super) struct Paths {
    pub(super) last: PathBuf,
    pub(super) partial: PathBuf,
    pub(super) list: PathBuf,
    pub(super) unpacked: PathBuf,
    /// The name of the replaced tree, if the file system cannot exchange two names.
    old: PathBuf,
    pub(super) force: bool,
}

impl Paths {
    pub(super) fn of(last: PathBuf, force: bool) -> Paths {
        let name = last.file_name().unwrap_or_default().as_bytes();
        let whole = [b".", name, b".zerolane-"].concat();
        let start = match whole.len() + SUFFIX_BYTES <= NAME_BYTES {
            true => whole,
            false => format!(".{}.zerolane-", &blake3::hash(name).to_hex()[..32]).into_bytes(),
        };
        let beside = |suffix: &str| {
            let name = [&start[..], suffix.as_bytes()].concat();
            last.with_file_name(OsStr::from_bytes(&name))
        };
        Paths {
            partial: beside("part"),
            list: beside("list"),
            unpacked: beside("tree"),
            old: beside("old"),
            last,
            force,
        }
    }
}

/// Checks that a name stays within its directory.
pub(super) fn safe_name(name: &[u8]) -> Result<&Path, Error> {
    let path = Path::new(OsStr::from_bytes(name));
    let mut parts = path.components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(_)), None)
            if !name.contains(&b'/') && !name.contains(&0) && name.len() <= 200 =>
        {
            Ok(path)
        }
        _ => Err(Error::Target(format!(
            "{:?} cannot name a file: give a name with --to",
            String::from_utf8_lossy(name)
        ))),
    }
}

/// Renames. Without `force`, does not replace anything that appeared meanwhile.
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

/// Gives the unpacked tree its name, when it is on the disk.
pub(super) fn replace_tree(paths: &Paths) -> Result<(), Error> {
    replace_by(paths, exchange)
}

/// `exchange` exchanges two names at once, unless the file system cannot.
fn replace_by(paths: &Paths, exchange: fn(&Path, &Path) -> io::Result<bool>) -> Result<(), Error> {
    let failed = |path: &Path| Error::io(path.display().to_string());
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
    let mut options = OpenOptions::new();
    let unpacked = options.read(true).custom_flags(flags).open(&paths.unpacked);
    let unpacked = unpacked.map_err(failed(&paths.unpacked))?;
    // All of it with one call: of each file it would take as many waits as there are, and a right to read them.
    syncfs(&unpacked).map_err(|errno| failed(&paths.unpacked)(errno.into()))?;
    if paths.last.symlink_metadata().is_err() {
        fs::rename(&paths.unpacked, &paths.last).map_err(failed(&paths.last))?;
        sync_names(paths)?;
        // A crash may have left the old tree there, and until now it was the only copy. It does no harm if it cannot be
        // removed.
        let _ = remove_tree(&paths.old);
        return Ok(());
    }
    if !paths.force {
        return Err(Error::Exists(paths.last.clone()));
    }
    // The new tree is in place, so a failure to remove the old one is not an error.
    if exchange(&paths.unpacked, &paths.last).map_err(failed(&paths.last))? {
        sync_names(paths)?;
        let _ = remove_tree(&paths.old);
        let _ = remove_tree(&paths.unpacked);
        return Ok(());
    }
    // Left by a crash. The target exists, so this copy is not needed.
    remove_tree(&paths.old)?;
    fs::rename(&paths.last, &paths.old).map_err(failed(&paths.last))?;
    fs::rename(&paths.unpacked, &paths.last).map_err(failed(&paths.last))?;
    sync_names(paths)?;
    let _ = remove_tree(&paths.old);
    Ok(())
}

/// Makes the new tree's name durable before the old tree is removed.
fn sync_names(paths: &Paths) -> Result<(), Error> {
    let directory = match paths.last.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    let synced = File::open(directory).and_then(|it| it.sync_all());
    synced.map_err(Error::io(directory.display().to_string()))
}

/// Removes the directory at one of our paths. Anything else there is not ours, and stays.
fn remove_tree(path: &Path) -> Result<(), Error> {
    match path.symlink_metadata() {
        Ok(there) if there.is_dir() => {
            remove_all(path).map_err(Error::io(path.display().to_string()))
        }
        _ => Ok(()),
    }
}

/// Removes one of our directories with its contents, including unwritable ones.
pub(super) fn remove_all(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let _ = make_writable(path);
            fs::remove_dir_all(path)
        }
        done => done,
    }
}

/// Makes a directory and its subdirectories writable by their owner.
fn make_writable(path: &Path) -> io::Result<()> {
    let there = path.symlink_metadata()?;
    if !there.is_dir() {
        return Ok(());
    }
    let mut mode = there.permissions();
    mode.set_mode(mode.mode() | 0o700);
    // We cannot change another user's directory, and its contents may be ours.
    let _ = fs::set_permissions(path, mode);
    fs::read_dir(path)?
        .flatten()
        .for_each(|it| drop(make_writable(&it.path())));
    Ok(())
}

/// Exchanges two names atomically. False if the kernel or the file system cannot.
fn exchange(one: &Path, other: &Path) -> io::Result<bool> {
    match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn safe_name__names_nothing_outside() {
        for name in ["", ".", "..", "/", "a/b", "../a", "/a", "a/", "a\0"] {
            assert!(safe_name(name.as_bytes()).is_err(), "{name:?}");
        }
        assert!(safe_name(&[b'a'; 201]).is_err());
        assert!(safe_name(b"disk image.raw").is_ok() && safe_name(b"\xff").is_ok());
    }

    #[test]
    fn Paths__are_other_ones_for_each_name_and_no_longer_than_may_be() {
        let all = |name: &[u8]| {
            let last = Path::new("/there").join(OsStr::from_bytes(name));
            let paths = Paths::of(last, false);
            [paths.partial, paths.list, paths.unpacked, paths.old]
        };
        let long = [b'a'; 255];
        let mut other = long;
        other[254] = b'b';
        let names: [&[u8]; 6] = [b"a", b"b", b"\xfe", b"\xff", &long, &other];
        let mut known = std::collections::HashSet::new();
        for path in names.into_iter().flat_map(all) {
            assert!(path.file_name().unwrap().len() <= NAME_BYTES, "{path:?}");
            assert_eq!(path.parent(), Some(Path::new("/there")));
            assert!(known.insert(path));
        }
        assert_eq!(all(b"a")[0], Path::new("/there/.a.zerolane-part"));
    }

    /// A target that is there, replaced by force.
    fn target(directory: &tempfile::TempDir) -> Paths {
        let paths = Paths::of(directory.path().join("target"), true);
        fs::create_dir(&paths.last).unwrap();
        paths
    }

    /// Unpacks a tree with one file that holds `number`.
    fn unpack(paths: &Paths, number: u32) {
        fs::create_dir(&paths.unpacked).unwrap();
        fs::write(paths.unpacked.join("file"), number.to_string()).unwrap();
    }

    fn is_there(paths: &Paths, number: u32) -> bool {
        let read = fs::read_to_string(paths.last.join("file"));
        let beside = fs::read_dir(paths.last.parent().unwrap()).unwrap();
        read.is_ok_and(|it| it == number.to_string()) && beside.count() == 1
    }

    fn never(_: &Path, _: &Path) -> io::Result<bool> {
        Ok(false)
    }

    #[test]
    fn replace_tree__has_one_there_at_any_time() {
        let directory = tempfile::tempdir().unwrap();
        let paths = target(&directory);
        let probes = ["one", "other"].map(|it| directory.path().join(it));
        probes.iter().for_each(|it| fs::create_dir(it).unwrap());
        if !exchange(&probes[0], &probes[1]).unwrap() {
            return eprintln!("skipped: the file system exchanges nothing");
        }
        probes.iter().for_each(|it| fs::remove_dir(it).unwrap());
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let seen = scope.spawn(|| {
                let mut missing = 0;
                while !over.load(Ordering::Relaxed) {
                    missing += u32::from(paths.last.symlink_metadata().is_err());
                }
                missing
            });
            for number in 0..100 {
                unpack(&paths, number);
                replace_tree(&paths).unwrap();
                assert!(is_there(&paths, number), "{number}");
            }
            over.store(true, Ordering::Relaxed);
            assert_eq!(seen.join().unwrap(), 0);
        });
    }

    #[test]
    fn replace_tree__without_exchange_and_whatever_a_crash_left() {
        let directory = tempfile::tempdir().unwrap();
        let paths = target(&directory);
        let leave = || {
            fs::create_dir(&paths.old).unwrap();
            fs::write(paths.old.join("left"), "").unwrap();
        };
        for (number, exchange) in (0..).zip([never, exchange, never]) {
            unpack(&paths, number);
            leave();
            replace_by(&paths, exchange).unwrap();
            assert!(is_there(&paths, number), "{number}");
        }
        // It ended between the two renames.
        fs::rename(&paths.last, &paths.old).unwrap();
        unpack(&paths, 3);
        replace_by(&paths, never).unwrap();
        assert!(is_there(&paths, 3));
    }

    #[test]
    fn replace_tree__leaves_what_is_not_ours() {
        let directory = tempfile::tempdir().unwrap();
        let (paths, theirs) = (target(&directory), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(theirs.path(), &paths.old).unwrap();
        unpack(&paths, 1);
        replace_tree(&paths).unwrap();
        assert!(paths.old.is_symlink() && theirs.path().is_dir());
        assert_eq!(fs::read_to_string(paths.last.join("file")).unwrap(), "1");
    }

    /// A tree without write permission for its owner, such as an installed one.
    #[test]
    fn replace_tree__of_one_with_directories_that_are_read_only() {
        for exchange in [exchange, never] {
            let directory = tempfile::tempdir().unwrap();
            let paths = target(&directory);
            unpack(&paths, 0);
            replace_by(&paths, exchange).unwrap();
            for (number, mode) in [(1, 0o555), (2, 0o500), (3, 0o000)] {
                let sub = paths.last.join("sub");
                fs::create_dir(&sub).unwrap();
                fs::write(sub.join("file"), "").unwrap();
                fs::set_permissions(&sub, fs::Permissions::from_mode(mode)).unwrap();
                unpack(&paths, number);
                replace_by(&paths, exchange).unwrap();
                assert!(is_there(&paths, number), "{mode:o}");
            }
        }
    }

    /// The new tree is in place, and a mount in the old tree is not ours to remove.
    #[test]
    fn replace_tree__succeeds_though_the_one_before_cannot_be_removed() {
        let mount = |command: &str, options: &[&str], at: &Path| {
            let mut command = std::process::Command::new(command);
            let done = command.args(options).arg(at).output();
            done.is_ok_and(|it| it.status.success())
        };
        for exchange in [exchange, never] {
            let directory = tempfile::tempdir().unwrap();
            let paths = target(&directory);
            fs::create_dir(paths.last.join("sub")).unwrap();
            if !mount("mount", &["-t", "tmpfs", "none"], &paths.last.join("sub")) {
                return eprintln!("skipped: this user mounts nothing");
            }
            unpack(&paths, 1);
            let done = replace_by(&paths, exchange);
            let mut left = [&paths.unpacked, &paths.old].into_iter();
            let ended = left.any(|it| mount("umount", &[], &it.join("sub")));
            assert!(ended, "{done:?}");
            done.unwrap();
            assert_eq!(fs::read_to_string(paths.last.join("file")).unwrap(), "1");
        }
    }

    /// On a file system that reports delayed allocation.
    #[test]
    fn replace_tree__is_on_the_disk_before() {
        let is_written = |path: &Path| {
            let shown = std::process::Command::new("filefrag")
                .arg("-v")
                .arg(path)
                .output();
            let shown = String::from_utf8(shown.ok()?.stdout).unwrap();
            shown.contains("eof").then(|| !shown.contains("delalloc"))
        };
        let directory = tempfile::tempdir().unwrap();
        let paths = target(&directory);
        fs::create_dir(&paths.unpacked).unwrap();
        let file = paths.unpacked.join("file");
        // The kernel, or another program, may write it by itself before it is looked at. A new one, for what is cut to nothing
        // is written when it is closed.
        let waits = |_| {
            let _ = fs::remove_file(&file);
            fs::write(&file, vec![1; 100_000]).unwrap();
            is_written(&file) == Some(false)
        };
        if !(0..20).any(waits) {
            return eprintln!("skipped: the file system, or filefrag, does not tell");
        }
        replace_tree(&paths).unwrap();
        assert_eq!(is_written(&paths.last.join("file")), Some(true));
    }
}
