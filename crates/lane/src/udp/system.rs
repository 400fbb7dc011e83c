//! The kernel's calls of the sending side, in one place: tests put refusals between here and there.

use std::io;
use std::os::fd::RawFd;

/// sendmsg. Returns the bytes taken.
///
/// # Safety
/// All that `message` points to is mapped for the length of the call; with MSG_ZEROCOPY, until the
/// kernel has said that it let go.
pub(super) unsafe fn sendmsg(fd: RawFd, message: &libc::msghdr, flags: i32) -> io::Result<usize> {
    #[cfg(test)]
    if let Some(refusal) = seam::refusal(message, flags) {
        return Err(refusal);
    }
    // SAFETY: the caller's promise.
    result(unsafe { libc::sendmsg(fd, std::ptr::from_ref(message), flags) })
}

/// sendmmsg. Returns the messages taken.
///
/// # Safety
/// As [`sendmsg`], for each of `messages`.
pub(super) unsafe fn sendmmsg(fd: RawFd, messages: &mut [libc::mmsghdr]) -> io::Result<usize> {
    let (start, count) = (messages.as_mut_ptr(), messages.len() as u32);
    // SAFETY: the caller's promise.
    result(unsafe { libc::sendmmsg(fd, start, count, 0) } as isize)
}

/// Takes one message from the socket's error queue.
///
/// # Safety
/// `message` points to a control buffer of msg_controllen bytes that may be written.
pub(super) unsafe fn receive_error(fd: RawFd, message: &mut libc::msghdr) -> io::Result<usize> {
    #[cfg(test)]
    if seam::holds_reports() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the caller's promise.
    result(unsafe { libc::recvmsg(fd, std::ptr::from_mut(message), flags) })
}

fn result(returned: isize) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

/// A kernel with other moods than the one the tests run on. For the calling thread only.
#[cfg(test)]
pub(super) mod seam {
    use std::cell::{Cell, RefCell};
    use std::io;

    /// Which sends are refused.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Sends {
        /// Those to be cut by the kernel.
        Segmented,
        /// Those without a copy.
        Zerocopy,
    }

    thread_local! {
        static REFUSED: RefCell<Vec<(Sends, i32)>> = const { RefCell::new(Vec::new()) };
        static HOLDS_REPORTS: Cell<bool> = const { Cell::new(false) };
        static SAYS_NOT_COPIED: Cell<bool> = const { Cell::new(false) };
    }

    /// The next of these sends is refused so.
    pub(crate) fn refuse(sends: Sends, errno: i32) {
        REFUSED.with_borrow_mut(|all| all.push((sends, errno)));
    }

    /// Refusals that no send has met yet.
    pub(crate) fn refusals_left() -> usize {
        REFUSED.with_borrow(Vec::len)
    }

    /// Refuses no more.
    pub(crate) fn take_back() {
        REFUSED.take();
    }

    /// The kernel keeps what it was lent until told otherwise.
    pub(crate) fn hold_reports(hold: bool) {
        HOLDS_REPORTS.set(hold);
    }

    /// The kernel says that it copied nothing.
    pub(crate) fn say_not_copied(say: bool) {
        SAYS_NOT_COPIED.set(say);
    }

    pub(super) fn refusal(message: &libc::msghdr, flags: i32) -> Option<io::Error> {
        let is = |sends| match sends {
            Sends::Segmented => message.msg_controllen > 0,
            Sends::Zerocopy => flags & libc::MSG_ZEROCOPY != 0,
        };
        REFUSED.with_borrow_mut(|all| {
            let index = all.iter().position(|&(sends, _)| is(sends))?;
            Some(io::Error::from_raw_os_error(all.remove(index).1))
        })
    }

    pub(super) fn holds_reports() -> bool {
        HOLDS_REPORTS.get()
    }

    pub(crate) fn says_not_copied() -> bool {
        SAYS_NOT_COPIED.get()
    }
}
