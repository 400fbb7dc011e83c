//! Looks into the process whose call waits: its memory, its descriptors, its signals. See proc(5).

use super::number;
use crate::sockets::program::address::{self, ADDRESS_BYTES};
use rustix::fs::{fstat, readlink};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use zerolane::trap::{TrappedCall, change_epoll};

/// Makes a `pidfd` that stands for one thread (Linux 6.9): PIDFD_THREAD.
const THREAD: PidfdFlags = PidfdFlags::from_bits_retain(0o200);

/// Threads that are asked whether their process was stopped.
const MAX_OTHERS: usize = 16;

/// The thread that waits.
#[derive(Debug)]
pub(super) struct Process {
    thread: u32,
    handle: OwnedFd,
}

/// Its memory.
#[derive(Debug)]
pub(super) struct Memory(File);

/// What an epoll set has of a descriptor.
#[derive(Debug)]
pub(super) struct Registration {
    set: OwnedFd,
    events: u32,
    data: u64,
}

impl Process {
    /// `None`: it is gone, or another user's.
    pub(super) fn of(call: &TrappedCall) -> Option<Process> {
        let thread = call.thread();
        let open = |number: u32, flags| {
            pidfd_open(Pid::from_raw(number as i32).ok_or(Errno::SRCH)?, flags)
        };
        let handle = match open(thread, THREAD) {
            Err(Errno::INVAL) => open(leader(thread)?, PidfdFlags::empty()),
            opened => opened,
        };
        let handle = handle.ok()?;
        // Its number was its own until then.
        call.is_waiting().then_some(Process { thread, handle })
    }

    /// A copy of a descriptor.
    pub(super) fn descriptor(&self, number: i32) -> Result<OwnedFd, Errno> {
        pidfd_getfd(&self.handle, number, PidfdGetfdFlags::empty())
    }

    /// Its memory, which stays its own if its number becomes another's.
    pub(super) fn memory(&self, call: &TrappedCall) -> Option<Memory> {
        let path = format!("/proc/{}/mem", self.thread);
        let opened = File::options().read(true).write(true).open(path);
        opened.ok().filter(|_| call.is_waiting()).map(Memory)
    }

    /// The address of which the second argument is the place and the third the length.
    pub(super) fn address(&self, call: &TrappedCall) -> Option<SocketAddr> {
        let mut bytes = [0; ADDRESS_BYTES];
        let len = (call.argument(2) as u32 as usize).min(ADDRESS_BYTES);
        self.memory(call)?
            .read(call.argument(1), &mut bytes[..len])?;
        address::read(&bytes[..len])
    }

    /// Whether the descriptor that the call is about is still `socket`, and then whether `exec` closes it.
    pub(super) fn closes_on_exec(&self, call: &TrappedCall, socket: impl AsFd) -> Option<bool> {
        let info = self.info(number(call))?;
        let field = |name: &str| info.lines().find_map(|it| it.strip_prefix(name));
        let inode: u64 = field("ino:")?.trim().parse().ok()?;
        let flags = u32::from_str_radix(field("flags:")?.trim(), 8).ok()?;
        let is_it = fstat(socket).is_ok_and(|it| it.st_ino == inode) && call.is_waiting();
        is_it.then_some(flags & libc::O_CLOEXEC as u32 != 0)
    }

    /// What the process's epoll sets have of the descriptor that the call is about.
    pub(super) fn registrations(&self, call: &TrappedCall, socket: impl AsFd) -> Vec<Registration> {
        let mut found = Vec::new();
        let Ok(inode) = fstat(socket).map(|it| it.st_ino) else {
            return found;
        };
        let Ok(open) = fs::read_dir(format!("/proc/{}/fd", self.thread)) else {
            return found;
        };
        for entry in open.flatten() {
            let name = entry.file_name();
            let number: Option<i32> = name.to_str().and_then(|it| it.parse().ok());
            let is_set = readlink(entry.path(), Vec::new())
                .is_ok_and(|it| it.as_bytes() == b"anon_inode:[eventpoll]");
            let (true, Some(set)) = (is_set, number) else {
                continue;
            };
            let info = self.info(set).unwrap_or_default();
            let mut targets = info.lines().filter_map(Target::read);
            let target = targets.find(|it| it.number == super::number(call) && it.inode == inode);
            if let (Some(it), Ok(set)) = (target, self.descriptor(set)) {
                found.push(Registration {
                    set,
                    events: it.events,
                    data: it.data,
                });
            }
        }
        found
    }

    /// Whether a signal waits for the thread that it neither blocks nor ignores, or has stopped others of its process.
    pub(super) fn is_signalled(&self) -> bool {
        let status = |thread: &str| {
            let status = fs::read_to_string(format!("/proc/{thread}/status"));
            status.unwrap_or_default()
        };
        let own = self.thread.to_string();
        if is_signalled(&status(&own)) {
            return true;
        }
        let others = fs::read_dir(format!("/proc/{own}/task"));
        let mut others = others.into_iter().flatten().flatten().take(MAX_OTHERS);
        others.any(|it| {
            let status = status(&it.file_name().to_string_lossy());
            status.contains("\nState:\tT")
        })
    }

    fn info(&self, descriptor: i32) -> Option<String> {
        fs::read_to_string(format!("/proc/{}/fdinfo/{descriptor}", self.thread)).ok()
    }
}

impl Memory {
    /// `None`: there is no such memory.
    pub(super) fn read(&self, at: u64, into: &mut [u8]) -> Option<()> {
        self.0.read_exact_at(into, at).ok()
    }

    /// The same.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> Option<()> {
        self.0.write_all_at(bytes, at).ok()
    }
}

impl Registration {
    /// Removes `socket`, which has this number in the program. False: it is not there.
    pub(super) fn remove(&self, number: i32, socket: impl AsFd) -> bool {
        change_epoll(self.set.as_fd(), number, socket.as_fd(), None).is_ok()
    }

    /// Adds what has the number now, with the same event.
    pub(super) fn add(&self, number: i32, socket: impl AsFd) {
        let event = Some((self.events, self.data));
        // It fails if another thread has added it meanwhile.
        let _ = change_epoll(self.set.as_fd(), number, socket.as_fd(), event);
    }
}

/// A line of an epoll set's `fdinfo`.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    number: i32,
    events: u32,
    data: u64,
    inode: u64,
}

impl Target {
    /// `tfd: 5 events: 19 data: ffffffffffffffff pos:0 ino:61af sdev:7`
    fn read(line: &str) -> Option<Target> {
        let field = |name: &str| {
            let (_, rest) = line.split_once(name)?;
            rest.split_whitespace().next()
        };
        Some(Target {
            number: field("tfd:")?.parse().ok()?,
            events: u32::from_str_radix(field("events:")?, 16).ok()?,
            data: u64::from_str_radix(field("data:")?, 16).ok()?,
            inode: u64::from_str_radix(field("ino:")?, 16).ok()?,
        })
    }
}

/// Reads `/proc/THREAD/status`.
fn is_signalled(status: &str) -> bool {
    let set = |name: &str| {
        let value = status.lines().find_map(|it| it.strip_prefix(name));
        value
            .and_then(|it| u64::from_str_radix(it.trim(), 16).ok())
            .unwrap_or(0)
    };
    let waiting = set("SigPnd:") | set("ShdPnd:");
    waiting & !(set("SigBlk:") | set("SigIgn:")) != 0
}

/// The first thread of a thread's process.
fn leader(thread: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let leader = status.lines().find_map(|it| it.strip_prefix("Tgid:"));
    leader?.trim().parse().ok()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn Target__is_read_from_a_line() {
        let line = "tfd:       12 events: 80000019 data: 7f00000000000005  pos:0 ino:61af sdev:8";
        let expected = Target {
            number: 12,
            events: 0x8000_0019,
            data: 0x7f00_0000_0000_0005,
            inode: 0x61af,
        };
        assert_eq!(Target::read(line), Some(expected));
        for wrong in ["", "pos:\t0", "tfd: 1 events: x data: 0 ino:1", "tfd:"] {
            assert_eq!(Target::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn is_signalled__by_what_is_neither_blocked_nor_ignored() {
        let status = |pending: &str, shared: &str, blocked: &str, ignored: &str| {
            format!(
                "Name:\tx\nSigPnd:\t{pending}\nShdPnd:\t{shared}\nSigBlk:\t{blocked}\nSigIgn:\t{ignored}\n"
            )
        };
        assert!(is_signalled(&status("0000000000002000", "0", "0", "0")));
        assert!(is_signalled(&status("0", "2000", "1000", "0")));
        assert!(!is_signalled(&status("2000", "0", "2000", "0")));
        assert!(!is_signalled(&status("0", "2000", "0", "2000")));
        assert!(!is_signalled(""));
    }
}
