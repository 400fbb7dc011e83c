//! Puts a socket that is connected to the runner in the place of a TCP connection.

use crate::real;
use crate::registered::{self, Where};
use libc::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};
use zerolane_streams::sockets::call::{Answer, Call, Runner};
use zerolane_streams::sockets::program::{Talk, stand_in};

/// A descriptor of the program, unless its number is none.
///
/// # Safety
/// As for [`BorrowedFd::borrow_raw`]. A program may close it meanwhile: then the kernel refuses what is done with it.
pub(crate) unsafe fn borrowed<'fd>(number: c_int) -> Option<BorrowedFd<'fd>> {
    // SAFETY: the caller's.
    (number >= 0).then(|| unsafe { BorrowedFd::borrow_raw(number) })
}

/// Gives the runner the connection of `socket`, and makes `socket` a connection to the runner. False: it is unchanged.
pub(crate) fn hand_over(runner: &Runner, talk: &Talk, socket: c_int) -> bool {
    let found = registered::find(socket);
    // SAFETY: the program uses it in this call.
    let (Some(theirs), false) = (unsafe { borrowed(socket) }, matches!(found, Where::Unclear))
    else {
        return false;
    };
    let Some((own, port)) = stand_in(runner, theirs) else {
        return false;
    };
    // SAFETY: no pointers.
    let descriptor_flags = unsafe { libc::fcntl(socket, libc::F_GETFD) };
    if descriptor_flags < 0 || talk.give(Call::Take(port), theirs) != Some(Answer::Go) {
        return false;
    }
    let close_on_exec = match descriptor_flags & libc::FD_CLOEXEC {
        0 => 0,
        _ => libc::O_CLOEXEC,
    };
    if let Where::In(set, mut event) = found {
        // The runner keeps the connection open, so the set would keep it.
        // SAFETY: the event outlives the call.
        unsafe { real::epoll_ctl::call(set, libc::EPOLL_CTL_DEL, socket, &raw mut event) };
    }
    // SAFETY: descriptors only. It cannot fail: both are open, and differ.
    unsafe { libc::dup3(own.as_raw_fd(), socket, close_on_exec) };
    if let Where::In(set, mut event) = found {
        // SAFETY: the event outlives the call.
        unsafe { real::epoll_ctl::call(set, libc::EPOLL_CTL_ADD, socket, &raw mut event) };
    }
    true
}
