//! Checks that the system has enough memory left before a large allocation.
//!
//! The kernel charges the pages of a memfd to no process until one maps and touches them. On exhaustion it would kill
//! the processes with the largest charge, and those are other ones.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Shorter allocations skip the check, which takes a tenth of a millisecond.
const ASKED_FROM_BYTES: usize = 1 << 20;

/// Checks that `len` bytes can be taken at once.
///
/// # Errors
/// `OutOfMemory`, with the number of bytes available.
pub(crate) fn check(len: usize) -> io::Result<()> {
    if len < ASKED_FROM_BYTES {
        return Ok(());
    }
    check_against(len, available(|path| fs::read_to_string(path).ok()))
}

/// Passes if `available` is unknown: the system decides.
fn check_against(len: usize, available: Option<u64>) -> io::Result<()> {
    match available {
        Some(left) if left < len as u64 => Err(io::Error::new(
            io::ErrorKind::OutOfMemory,
            format!("cannot allocate {len} bytes: the system has {left} left"),
        )),
        _ => Ok(()),
    }
}

/// Bytes left on the machine and in each memory control group of this process, whichever is least. `read` reads a file.
fn available(read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let of_process = |file: &str| read(Path::new(file)).unwrap_or_default();
    let machine = number_after("MemAvailable:", &of_process("/proc/meminfo")).map(|kib| kib * 1024);
    let (groups, mounts) = (
        of_process("/proc/self/cgroup"),
        of_process("/proc/self/mountinfo"),
    );
    let groups = VERSIONS.iter().flat_map(|version| {
        let directories = version.directories(&groups, &mounts);
        directories
            .into_iter()
            .filter_map(|it| version.left_in(&it, &read))
    });
    machine.into_iter().chain(groups).min()
}

/// One version of the kernel's control group interface.
struct Version {
    filesystem: &'static str,
    /// The controller's name in `/proc/self/cgroup`.
    controller: &'static str,
    limit: &'static str,
    used: &'static str,
    /// Lines of `memory.stat` that count reclaimable memory: the page cache.
    caches: [&'static str; 2],
}

const VERSIONS: [Version; 2] = [
    Version {
        filesystem: "cgroup2",
        controller: "",
        limit: "memory.max",
        used: "memory.current",
        caches: ["inactive_file ", "active_file "],
    },
    Version {
        filesystem: "cgroup",
        controller: "memory",
        limit: "memory.limit_in_bytes",
        used: "memory.usage_in_bytes",
        caches: ["total_inactive_file ", "total_active_file "],
    },
];

impl Version {
    /// The directories of this process's group and of its ancestors, which limit it too. `groups` and `mounts` are
    /// `cgroup` and `mountinfo` of `/proc/self`.
    fn directories(&self, groups: &str, mounts: &str) -> Vec<PathBuf> {
        let own = groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let of_it = parts.next()?.split(',').any(|it| it == self.controller);
            parts.next().filter(|_| of_it)
        });
        let mount = mounts.lines().find_map(|line| {
            let (place, filesystem) = line.split_once(" - ")?;
            let mut place = place.split(' ').skip(3);
            let (root, at) = (place.next()?, place.next()?);
            let mut filesystem = filesystem.split(' ');
            let of_it = filesystem.next()? == self.filesystem
                && filesystem
                    .nth(1)?
                    .split(',')
                    .any(|it| self.controller.is_empty() || it == self.controller);
            of_it.then_some((root, Path::new(at)))
        });
        let (Some(own), Some((root, at))) = (own, mount) else {
            return Vec::new();
        };
        // In a container the group's name may be relative to the host, while the mount shows only a part of the tree.
        let below = Path::new(own).strip_prefix(root).unwrap_or(Path::new(""));
        let innermost = at.join(below);
        let around = innermost.ancestors().take_while(|it| it.starts_with(at));
        around.map(Path::to_owned).collect()
    }

    /// `None` if there is no limit.
    fn left_in(&self, directory: &Path, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
        let number = |file: &str| read(&directory.join(file))?.trim().parse::<u64>().ok();
        let limit = number(self.limit)?;
        let counted = read(&directory.join("memory.stat")).unwrap_or_default();
        let cached = self
            .caches
            .iter()
            .filter_map(|name| number_after(name, &counted));
        let used = number(self.used)?.saturating_sub(cached.sum());
        Some(limit.saturating_sub(used))
    }
}

/// The number in the line of `text` that begins with `name`.
fn number_after(name: &str, text: &str) -> Option<u64> {
    let line = text.lines().find_map(|it| it.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
#[path = "available_tests.rs"]
mod tests;
