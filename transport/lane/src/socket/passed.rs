//! Takes descriptors that a service manager opened for this process and passed to it: socket activation, as in
//! sd_listen_fds(3).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// The first passed descriptor. The others follow.
const FIRST: RawFd = 3;

/// The descriptors that were passed to this process when it started, in order. Each is a duplicate that this process's
/// own children do not inherit. There are none unless `LISTEN_PID` names this process. Call this before the process
/// opens files of its own, because their numbers could be among the promised ones. The kind of each descriptor is not
/// checked: see [`Listener::adopt`](crate::listener::Listener::adopt).
///
/// # Errors
/// `LISTEN_FDS` is not a number, or promises more descriptors than there are.
pub fn passed_sockets() -> io::Result<Vec<OwnedFd>> {
    let variable = |name| std::env::var_os(name).map(|it| it.to_string_lossy().into_owned());
    let pid = std::process::id();
    let count = count(variable("LISTEN_PID"), variable("LISTEN_FDS"), pid)?;
    let end = FIRST + RawFd::from(count);
    (FIRST..end).map(|fd| duplicate(fd, end)).collect()
}

/// Number of descriptors that the variables promise to the process `own`.
fn count(pid: Option<String>, fds: Option<String>, own: u32) -> io::Result<u16> {
    let (Some(pid), Some(fds)) = (pid, fds) else {
        return Ok(0);
    };
    if pid.parse() != Ok(own) {
        // They were meant for another process, whose environment this one inherited.
        return Ok(0);
    }
    fds.parse()
        .map_err(|_| wrong(format!("LISTEN_FDS={fds:?} is not a number of descriptors")))
}

/// A duplicate of `fd` with a number of at least `least`.
fn duplicate(fd: RawFd, least: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the calls touch no memory of ours, and the descriptor stays open, whatever it refers to.
    let new = unsafe {
        libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, least)
    };
    if new < 0 {
        let why = io::Error::last_os_error();
        return Err(wrong(format!("LISTEN_FDS promises descriptor {fd}: {why}")));
    }
    // SAFETY: the kernel has just made the descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}

fn wrong(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn count__only_what_is_this_process_s() {
        let count = |pid: &str, fds: &str| {
            let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            count(given(pid), given(fds), 7).ok()
        };
        for (pid, fds, expected) in [
            ("", "", Some(0)),
            ("7", "", Some(0)),
            ("", "1", Some(0)),
            ("8", "1", Some(0)),
            ("x", "1", Some(0)),
            ("8", "x", Some(0)),
            ("7", "0", Some(0)),
            ("7", "1", Some(1)),
            ("7", "3", Some(3)),
            ("7", "x", None),
            ("7", "-1", None),
            ("7", "99999999999", None),
        ] {
            assert_eq!(count(pid, fds), expected, "{pid:?} {fds:?}");
        }
    }

    #[test]
    fn duplicate__of_nothing_is_named() {
        let why = duplicate(RawFd::MAX, FIRST)
            .expect_err("not open")
            .to_string();
        assert!(why.contains("promises descriptor 2147483647: "), "{why}");
    }
}
