//! Talks with the runner, over a local socket for each call.

use crate::real;
use libc::{c_int, c_void, sa_family_t, sockaddr_un, socklen_t};
use std::mem::{offset_of, size_of, zeroed};
use std::sync::OnceLock;
use zerolane_streams::sockets::call::{ANSWER_BYTES, Answer, Call, NAME_BYTES, Runner, VARIABLE};

/// How long the runner may take to answer. It waits for other hosts for milliseconds; a stopped runner must not block the
/// program forever.
const RUNNER_WITHIN_SECONDS: i64 = 10;

/// The runner, if the environment named one when the library was loaded.
static RUNNER: OnceLock<Runner> = OnceLock::new();

/// The runner.
pub(crate) fn runner() -> Option<&'static Runner> {
    RUNNER.get()
}

/// Reads the environment, before the program can change it, and tells the runner that the library is there.
extern "C" fn begin() {
    real::find_all();
    let Ok(name) = std::ffi::CString::new(VARIABLE) else {
        return;
    };
    // SAFETY: the name ends with a zero byte; no other thread runs yet.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return;
    }
    // SAFETY: an environment variable ends with a zero byte.
    let value = unsafe { std::ffi::CStr::from_ptr(value) };
    if let Some(runner) = Runner::parse(value.to_bytes())
        && RUNNER.set(runner).is_ok()
        && let Some(talk) = Talk::begin(&runner)
    {
        talk.ask(Call::Hello);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// A conversation with the runner.
pub(crate) struct Talk {
    socket: c_int,
    runner: Runner,
}

impl Talk {
    /// Calls the runner. `None`: it is gone, or this process has no descriptor left.
    pub(crate) fn begin(runner: &Runner) -> Option<Talk> {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers.
        let socket = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
        if socket < 0 {
            return None;
        }
        let talk = Talk {
            socket,
            runner: *runner,
        };
        let patience = libc::timeval {
            tv_sec: RUNNER_WITHIN_SECONDS,
            tv_usec: 0,
        };
        for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            // SAFETY: the value outlives the call and has the length given.
            unsafe {
                libc::setsockopt(
                    socket,
                    libc::SOL_SOCKET,
                    option,
                    (&raw const patience).cast::<c_void>(),
                    size_of::<libc::timeval>() as socklen_t,
                );
            }
        }
        // SAFETY: zeroes are a valid address structure.
        let mut address: sockaddr_un = unsafe { zeroed() };
        address.sun_family = libc::AF_UNIX as sa_family_t;
        // An abstract name begins with a zero byte.
        for (place, byte) in address.sun_path[1..].iter_mut().zip(runner.name()) {
            *place = byte as libc::c_char;
        }
        let len = offset_of!(sockaddr_un, sun_path) + 1 + NAME_BYTES;
        // SAFETY: the structure outlives the call and is longer than `len`.
        let connected =
            unsafe { real::connect::call(socket, (&raw const address).cast(), len as socklen_t) };
        (connected == 0).then_some(talk)
    }

    /// Says `call`, and returns the answer.
    pub(crate) fn ask(&self, call: Call) -> Option<Answer> {
        let packet = call.write(&self.runner.secret);
        let sent = again(|| {
            // SAFETY: the packet outlives the call.
            unsafe {
                libc::send(
                    self.socket,
                    packet.as_ptr().cast(),
                    packet.len(),
                    libc::MSG_NOSIGNAL,
                )
            }
        });
        if sent != packet.len() as isize {
            return None;
        }
        self.answer()
    }

    /// Says `call` and gives a copy of `descriptor`.
    pub(crate) fn give(&self, call: Call, descriptor: c_int) -> Option<Answer> {
        const DESCRIPTOR: u32 = size_of::<c_int>() as u32;
        let packet = call.write(&self.runner.secret);
        let mut piece = libc::iovec {
            iov_base: packet.as_ptr().cast_mut().cast(),
            iov_len: packet.len(),
        };
        // Aligned as the structure at its start.
        let mut control = [0_usize; 8];
        // SAFETY: zeroes are a valid message.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: pure arithmetic.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(DESCRIPTOR) } as _;
        // SAFETY: the control buffer is longer than a header and a descriptor, and aligned.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(DESCRIPTOR) as _;
            libc::CMSG_DATA(header)
                .cast::<c_int>()
                .write_unaligned(descriptor);
        }
        let sent = again(|| {
            // SAFETY: all that the message names outlives the call.
            unsafe { libc::sendmsg(self.socket, &raw const message, libc::MSG_NOSIGNAL) }
        });
        if sent != packet.len() as isize {
            return None;
        }
        self.answer()
    }

    fn answer(&self) -> Option<Answer> {
        let mut packet = [0_u8; ANSWER_BYTES];
        let len = again(|| {
            // SAFETY: the packet is writable for its length.
            unsafe { libc::recv(self.socket, packet.as_mut_ptr().cast(), packet.len(), 0) }
        });
        let len = usize::try_from(len).ok()?;
        Answer::read(&packet[..len])
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        // SAFETY: this conversation owns the descriptor.
        unsafe { libc::close(self.socket) };
    }
}

/// Repeats a system call that a signal interrupted.
fn again(mut call: impl FnMut() -> isize) -> isize {
    loop {
        let done = call();
        if done >= 0 || errno() != libc::EINTR {
            return done;
        }
    }
}

/// The error of the last call that failed.
pub(crate) fn errno() -> c_int {
    // SAFETY: the C library's variable of this thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the error that the program reads.
pub(crate) fn set_errno(error: c_int) {
    // SAFETY: the C library's variable of this thread.
    unsafe { *libc::__errno_location() = error }
}
