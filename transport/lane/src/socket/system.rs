//! Makes the sending side's system calls in one place, so that tests can inject errors.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// sendmsg. Returns the bytes taken.
///
/// # Safety
/// All memory that `message` points to is mapped for the length of the call; with MSG_ZEROCOPY, until the kernel has
/// reported its release.
pub(crate) unsafe fn sendmsg(fd: RawFd, message: &libc::msghdr, flags: i32) -> io::Result<usize> {
    #[cfg(test)]
    if let Some(refusal) = seam::refusal(message, flags) {
        return Err(refusal);
    }
    // SAFETY: the caller's promise.
    result(unsafe { libc::sendmsg(fd, std::ptr::from_ref(message), flags) })
}

/// send: sendmsg of one piece, for which the kernel reads less. Returns the bytes taken.
///
/// # Safety
/// `piece` is mapped for the length of the call.
pub(crate) unsafe fn send(fd: RawFd, piece: &libc::iovec) -> io::Result<usize> {
    // SAFETY: the caller's promise.
    result(unsafe { libc::send(fd, piece.iov_base, piece.iov_len, 0) })
}

/// sendmmsg. Returns the messages taken.
///
/// # Safety
/// As [`sendmsg`], for each of `messages`.
pub(crate) unsafe fn sendmmsg(fd: RawFd, messages: &mut [libc::mmsghdr]) -> io::Result<usize> {
    let (start, count) = (messages.as_mut_ptr(), messages.len() as u32);
    // SAFETY: the caller's promise.
    result(unsafe { libc::sendmmsg(fd, start, count, 0) } as isize)
}

/// Takes one message from the socket's error queue.
///
/// # Safety
/// `message` points to a control buffer of msg_controllen bytes that may be written.
pub(crate) unsafe fn receive_error(fd: RawFd, message: &mut libc::msghdr) -> io::Result<usize> {
    #[cfg(test)]
    if seam::holds_reports() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the caller's promise.
    result(unsafe { libc::recvmsg(fd, std::ptr::from_mut(message), flags) })
}

/// A pipe that holds a train at any page offset: its read end and its write end.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array is ours and as large as the call fills.
    result(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } as isize)?;
    // SAFETY: the kernel has just opened both, and nothing else owns them.
    let pipe: (OwnedFd, OwnedFd) = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) }).into();
    // SAFETY: the call touches no memory of ours.
    result(unsafe { libc::fcntl(pipe.1.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE) } as isize)?;
    Ok(pipe)
}

/// Bytes that a pipe holds if each of its pages is full: it uses one for each piece of a page, and a train with its end
/// has 17 pieces.
const PIPE: i32 = 32 * 4096;

/// Sends `pieces`, one after the other, by reference, through an empty pipe.
///
/// # Errors
/// Not all of the bytes were taken. Some may be in the pipe, and some may have left, as the start of a train without an
/// end.
///
/// # Safety
/// The memory of `pieces` stays mapped for the call. The kernel itself keeps its pages, even after they are no longer
/// ours.
pub(crate) unsafe fn give(
    pieces: &[libc::iovec],
    (read, write): &(OwnedFd, OwnedFd),
    socket: RawFd,
) -> io::Result<()> {
    #[cfg(test)]
    if let Some(refusal) = seam::refusal_to_give() {
        return Err(refusal);
    }
    let flags = libc::SPLICE_F_NONBLOCK;
    // SAFETY: the caller's promise; the kernel reads the iovecs only during the call.
    let filled =
        result(unsafe { libc::vmsplice(write.as_raw_fd(), pieces.as_ptr(), pieces.len(), flags) })?;
    if filled != pieces.iter().map(|it| it.iov_len).sum() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let none = std::ptr::null_mut();
    // SAFETY: without offsets the call touches no memory of ours except that which the pipe refers to.
    let sent =
        result(unsafe { libc::splice(read.as_raw_fd(), none, socket, none, filled, flags) })?;
    match sent == filled {
        true => Ok(()),
        false => {
            // Otherwise the next send would continue it.
            let off = 0i32;
            let (len, name) = (size_of::<i32>() as libc::socklen_t, libc::UDP_CORK);
            // SAFETY: the option value is an int that lives across the call.
            unsafe { libc::setsockopt(socket, libc::SOL_UDP, name, (&raw const off).cast(), len) };
            Err(io::ErrorKind::WouldBlock.into())
        }
    }
}

fn result(returned: isize) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

/// Makes the kernel seem to behave differently from the one that the tests run on, for the calling thread only.
#[cfg(test)]
pub(crate) mod seam {
    use std::cell::{Cell, RefCell};
    use std::io;

    /// The kind of send to refuse.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Sends {
        /// Sends of bulk that the kernel should segment.
        Segmented,
        /// Sends of several control datagrams.
        Together,
        /// Sends without a copy.
        Zerocopy,
        /// Sends of memory that is given.
        Given,
    }

    /// Longest data sent together that still counts as control, in bytes.
    const LEAST_BULK: usize = 2048;

    thread_local! {
        static REFUSED: RefCell<Vec<(Sends, i32)>> = const { RefCell::new(Vec::new()) };
        static HOLDS_REPORTS: Cell<bool> = const { Cell::new(false) };
        static SAYS_NOT_COPIED: Cell<bool> = const { Cell::new(false) };
        static MEASURES: Cell<bool> = const { Cell::new(false) };
    }

    /// Refuses the next send of this kind with `errno`.
    pub(crate) fn refuse(sends: Sends, errno: i32) {
        REFUSED.with_borrow_mut(|all| all.push((sends, errno)));
    }

    /// Refusals that no send has met yet.
    pub(crate) fn refusals_left() -> usize {
        REFUSED.with_borrow(Vec::len)
    }

    /// Cancels the refusals.
    pub(crate) fn take_back() {
        REFUSED.take();
    }

    /// Makes the kernel keep lent memory until told otherwise.
    pub(crate) fn hold_reports(hold: bool) {
        HOLDS_REPORTS.set(hold);
    }

    /// Whether measurement decides if trains are given or copied. Otherwise, in tests, they are given, so that results
    /// depend on no clock.
    pub(crate) fn measure(measures: bool) {
        MEASURES.set(measures);
    }

    pub(crate) fn always_gives() -> bool {
        !MEASURES.get()
    }

    /// Makes the kernel report that it copied nothing.
    pub(crate) fn say_not_copied(say: bool) {
        SAYS_NOT_COPIED.set(say);
    }

    pub(crate) fn refusal(message: &libc::msghdr, flags: i32) -> Option<io::Error> {
        // SAFETY: the caller's promise: msg_iov points to msg_iovlen iovecs.
        let pieces = unsafe { std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen) };
        let len: usize = pieces.iter().map(|it| it.iov_len).sum();
        let is = |sends| match sends {
            Sends::Segmented => message.msg_controllen > 0 && len > LEAST_BULK,
            Sends::Together => message.msg_controllen > 0 && len <= LEAST_BULK,
            Sends::Zerocopy => flags & libc::MSG_ZEROCOPY != 0,
            Sends::Given => false,
        };
        REFUSED.with_borrow_mut(|all| {
            let index = all.iter().position(|&(sends, _)| is(sends))?;
            Some(io::Error::from_raw_os_error(all.remove(index).1))
        })
    }

    pub(crate) fn refusal_to_give() -> Option<io::Error> {
        REFUSED.with_borrow_mut(|all| {
            let index = all.iter().position(|&(sends, _)| sends == Sends::Given)?;
            Some(io::Error::from_raw_os_error(all.remove(index).1))
        })
    }

    pub(crate) fn holds_reports() -> bool {
        HOLDS_REPORTS.get()
    }

    pub(crate) fn says_not_copied() -> bool {
        SAYS_NOT_COPIED.get()
    }
}
