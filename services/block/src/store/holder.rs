//! Finds the process that holds the lock of a file, for error messages.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{major, minor};

/// A process that has a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) process: u32,
    /// The program that it runs, if that can be read.
    program: Option<String>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.process)?;
        match &self.program {
            Some(program) => write!(f, " ({program})"),
            None => Ok(()),
        }
    }
}

/// The process that has `file` locked. `None` where the kernel does not show it, as in another PID namespace.
pub(super) fn holder_of(file: &File) -> Option<Holder> {
    let file = file.metadata().ok()?;
    let device = (major(file.dev()), minor(file.dev()));
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let process = process_in(&locks, device, file.ino())?;
    let program = fs::read_to_string(format!("/proc/{process}/comm")).ok();
    Some(Holder {
        process,
        program: program.map(|it| it.trim_end().to_owned()),
    })
}

/// Lines are `1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF`; those that wait have an arrow behind the number.
fn process_in(locks: &str, (major, minor): (u32, u32), inode: u64) -> Option<u32> {
    let wanted = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_flock = words.next()? == "FLOCK";
        let (process, place) = (words.nth(2)?, words.next()?);
        let is_it = is_flock && place == wanted;
        // Zero: a process of another namespace.
        let process = process.parse().ok().filter(|&it| it != 0);
        process.filter(|_| is_it)
    })
}

#[cfg(test)]
#[path = "holder_tests.rs"]
mod tests;
