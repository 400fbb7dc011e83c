//! Names namespaces, as `ip netns` does, and removes those whose maker is dead.
//!
//! `zl-PREFIX-PID-SERIAL-LABEL`, for example `zl-demo-4711-0-a`: the process that
//! made it, and a number that is unique within that process. The label is `a` or `b` in a pair, `r` for a router
//! between them; `hub`, `h1`, `h2` and so on in a star.
//!
//! A namespace has a name as long as a file of that name stands for it: `/proc/PID/ns/net` of a process in it, mounted over an
//! empty file.

use super::error::{Error, Result};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::Pid;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, io, process, thread};

/// Where `ip netns` keeps its names.
pub(super) const NETNS_DIR: &str = "/run/netns";

/// No option, no source and no type of a file system, where a mount needs none.
const NONE: Option<&str> = None;

const SCHEME: &str = "zl";

/// Longest prefix: with a label it makes a device name, of at most 15 bytes.
const MAX_PREFIX_BYTES: usize = 8;

/// What the namespaces of one topology have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    prefix: String,
    pid: u32,
    serial: u32,
}

impl Names {
    /// A name that this process has not used yet.
    pub(super) fn unique(prefix: &str) -> Result<Self> {
        static NEXT_SERIAL: AtomicU32 = AtomicU32::new(0);
        if !is_prefix(prefix) {
            return Err(Error::BadPrefix(prefix.to_owned()));
        }
        Ok(Self {
            prefix: prefix.to_owned(),
            pid: process::id(),
            serial: NEXT_SERIAL.fetch_add(1, Ordering::Relaxed),
        })
    }

    pub(super) fn namespace(&self, label: &str) -> String {
        let Self {
            prefix,
            pid,
            serial,
        } = self;
        format!("{SCHEME}-{prefix}-{pid}-{serial}-{label}")
    }

    pub(super) fn device(&self, label: &str) -> String {
        format!("{}-{label}", self.prefix)
    }
}

/// Removes the namespaces of our naming scheme whose maker no longer runs, for
/// example because it was killed, and returns their names.
///
/// Namespaces of running processes stay, and so do those of a dead process
/// whose pid is in use again. Processes still running inside are not ended:
/// they keep the nameless namespace until they end. Do not call this where
/// processes that this one cannot see share `/run/netns`.
///
/// # Errors
/// [`Error::NotPermitted`] without the rights to remove one.
pub fn sweep_stale() -> Result<Vec<String>> {
    let mut removed = Vec::new();
    for name in names_in_use()? {
        if maker_of(&name).is_some_and(|pid| !is_running(pid)) {
            match remove(&name) {
                Ok(()) => removed.push(name),
                // Another process swept it at the same time.
                Err(_) if !path_of(&name).exists() => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(removed)
}

/// Where the file of this name is.
pub(super) fn path_of(name: &str) -> PathBuf {
    Path::new(NETNS_DIR).join(name)
}

/// Makes a namespace of this name, of which there must be none.
pub(super) fn create(name: &str) -> Result<()> {
    let error = |error| Error::io(format!("make namespace {name}"), error);
    share_directory().map_err(error)?;
    let path = path_of(name);
    let mut options = OpenOptions::new();
    let empty = options.read(true).create_new(true).write(true).mode(0o444);
    drop(empty.open(&path).map_err(error)?);
    // The thread moves into the new namespace, and ends there.
    let named = thread::scope(|scope| scope.spawn(|| name_new_namespace(&path)).join());
    let named = named.unwrap_or_else(|_| Err(io::Error::other("the thread failed")));
    named
        .inspect_err(|_| drop(fs::remove_file(&path)))
        .map_err(error)
}

fn name_new_namespace(path: &Path) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let own = "/proc/thread-self/ns/net";
    Ok(mount(Some(own), path, NONE, MsFlags::MS_BIND, NONE)?)
}

/// Makes the directory of the names and has its mounts shared, as `ip netns` does: mount namespaces that begin later see
/// names go, and hold no namespace whose name was removed. Only a mount can be shared, so the directory is mounted over
/// itself.
fn share_directory() -> io::Result<()> {
    fs::create_dir_all(NETNS_DIR)?;
    // Of two processes that mount it over itself one would hide the names of the other.
    let directory = File::open(NETNS_DIR)?;
    directory.lock()?;
    let share = || {
        mount(
            NONE,
            NETNS_DIR,
            NONE,
            MsFlags::MS_SHARED | MsFlags::MS_REC,
            NONE,
        )
    };
    match share() {
        Err(Errno::EINVAL) => {
            let over_itself = MsFlags::MS_BIND | MsFlags::MS_REC;
            mount(Some(NETNS_DIR), NETNS_DIR, NONE, over_itself, NONE)?;
            Ok(share()?)
        }
        shared => Ok(shared?),
    }
}

/// Takes the name from a namespace, which ends when no process, socket or other name holds it.
pub(super) fn remove(name: &str) -> Result<()> {
    let path = path_of(name);
    // Nothing is mounted there if its maker was killed too early.
    let unmounted = match umount2(&path, MntFlags::MNT_DETACH) {
        Err(Errno::EINVAL) => Ok(()),
        unmounted => unmounted,
    };
    unmounted
        .map_err(io::Error::from)
        .and_then(|()| fs::remove_file(&path))
        .map_err(|error| Error::io(format!("remove namespace {name}"), error))
}

/// The processes in a namespace, not this one.
pub(super) fn processes(name: &str) -> Result<Vec<Pid>> {
    let number = |path: &Path| fs::metadata(path).map(|it| (it.dev(), it.ino()));
    let there = number(&path_of(name))
        .map_err(|error| Error::io(format!("inspect namespace {name}"), error))?;
    let entries = fs::read_dir("/proc").map_err(|error| Error::io("list processes", error))?;
    let is_there = |pid: &i32| {
        // It may have ended meanwhile.
        number(Path::new(&format!("/proc/{pid}/ns/net"))).is_ok_and(|it| it == there)
    };
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(is_there)
        .map(Pid::from_raw)
        .filter(|&pid| pid != Pid::this())
        .collect())
}

pub(super) fn names_in_use() -> Result<Vec<String>> {
    let entries = match fs::read_dir(NETNS_DIR) {
        Ok(entries) => entries,
        // No named namespace was made since boot.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io(format!("list {NETNS_DIR}"), error)),
    };
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect())
}

/// The pid in a name of our scheme; `None` for all other names.
pub(super) fn maker_of(name: &str) -> Option<u32> {
    let parts: Vec<&str> = name.split('-').collect();
    let &[SCHEME, prefix, pid, serial, label] = parts.as_slice() else {
        return None;
    };
    let _: u32 = serial.parse().ok()?;
    (is_prefix(prefix) && is_label(label)).then(|| pid.parse().ok())?
}

fn is_label(label: &str) -> bool {
    let is_host = |label: &str| {
        let number = label.strip_prefix('h');
        number.is_some_and(|number| number.parse::<u8>().is_ok())
    };
    matches!(label, "a" | "b" | "r" | "hub") || is_host(label)
}

fn is_running(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn is_prefix(prefix: &str) -> bool {
    (1..=MAX_PREFIX_BYTES).contains(&prefix.len())
        && prefix
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]

    use super::*;

    #[test]
    fn maker_of__own_name_gives_own_pid() {
        let name = Names::unique("x1").expect("good prefix");
        for label in ["a", "b", "r", "hub", "h1", "h64"] {
            assert_eq!(maker_of(&name.namespace(label)), Some(process::id()));
        }
    }

    #[test]
    fn maker_of__foreign_names_have_no_maker() {
        for name in [
            "",
            "zl",
            "blue",
            "zl-demo-12-0",
            "zl-demo-12-0-c",
            "zl-demo-12-0-h",
            "zl-demo-12-0-hx",
            "zl-demo-12-0-a-b",
            "zl-demo-x-0-a",
            "zl-demo-12-x-a",
            "zl-Demo-12-0-a",
            "zl--12-0-a",
            "other-demo-12-0-a",
        ] {
            assert_eq!(maker_of(name), None, "{name}");
        }
    }

    #[test]
    fn unique__names_differ_within_a_process() {
        let one = Names::unique("x").expect("good prefix");
        let two = Names::unique("x").expect("good prefix");
        assert_ne!(one.namespace("a"), two.namespace("a"));
        assert_ne!(one.namespace("a"), one.namespace("b"));
    }

    #[test]
    fn unique__bad_prefixes_are_refused() {
        for prefix in ["", "ninechars", "a-b", "A", "a b", "../x", "é"] {
            assert!(
                matches!(Names::unique(prefix), Err(Error::BadPrefix(_))),
                "{prefix}"
            );
        }
    }

    #[test]
    fn device__fits_the_kernels_limit() {
        let name = Names::unique("abcdefgh").expect("good prefix");
        assert!(name.device("h255").len() <= 15);
        assert_ne!(name.device("a"), name.device("b"));
    }
}
