//! Starts a program whose socket calls wait for this process, by seccomp's user notification: see seccomp_unotify(2).
//!
//! The kernel stops a thread at such a call until the supervisor has answered it, or has told the kernel to execute it.
//! Once the supervisor has seen the call, only a fatal signal interrupts it. The supervisor reads what the call points to
//! from the program's memory. Another thread may change that memory, so the supervisor must not base a decision on it and
//! then let the kernel read it again. If the supervisor ends, these calls fail with ENOSYS.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::{mem, thread};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, socketpair,
};

/// A call that is trapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketCall {
    /// `bind`
    Bind,
    /// `listen`
    Listen,
    /// `accept`
    Accept,
    /// `accept4`
    Accept4,
    /// `connect`
    Connect,
    /// `getsockname`
    LocalName,
    /// `getpeername`
    PeerName,
}

const CALLS: [(libc::c_long, SocketCall); 7] = [
    (libc::SYS_bind, SocketCall::Bind),
    (libc::SYS_listen, SocketCall::Listen),
    (libc::SYS_accept, SocketCall::Accept),
    (libc::SYS_accept4, SocketCall::Accept4),
    (libc::SYS_connect, SocketCall::Connect),
    (libc::SYS_getsockname, SocketCall::LocalName),
    (libc::SYS_getpeername, SocketCall::PeerName),
];

/// The kernel's number of this processor: programs for another one, such as 32-bit programs, call by other numbers.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_003e);
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_00b7);
#[cfg(target_arch = "riscv64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_00f3);
#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64"
)))]
const ARCHITECTURE: Option<u32> = None;

/// Instructions of the filter: two loads, a jump for the processor and for each call, two ends.
const INSTRUCTIONS: usize = CALLS.len() + 5;

/// Why a program was not started.
#[derive(Debug)]
pub enum NotTrapped {
    /// The kernel sets no trap, and why.
    Trap(io::Error),
    /// The program cannot be executed, and why.
    Program(io::Error),
}

impl fmt::Display for NotTrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotTrapped::Trap(error) = self else {
            return f.write_str("cannot execute the program");
        };
        f.write_str(match error.raw_os_error() {
            Some(libc::EINVAL) => "the kernel cannot trap calls of programs: that needs Linux 5.19",
            Some(libc::EBUSY) => "another program traps the calls of this process already: start it outside of that",
            Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => {
                "the system does not allow programs to trap calls: in a container, allow the system call seccomp"
            }
            _ => "cannot trap calls",
        })
    }
}

impl std::error::Error for NotTrapped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let (NotTrapped::Trap(error) | NotTrapped::Program(error)) = self;
        Some(error)
    }
}

/// The supervisor's end of a trap.
#[derive(Debug)]
pub struct Trap {
    listener: Arc<OwnedFd>,
}

impl Trap {
    /// Starts `command`, whose socket calls and those of its children are trapped. They get no new rights by executing
    /// set-user-ID programs.
    ///
    /// `command` must not be started again.
    ///
    /// # Errors
    /// See [`NotTrapped`].
    pub fn spawn(command: &mut Command) -> Result<(Child, Trap), NotTrapped> {
        let unsupported = || NotTrapped::Trap(io::Error::from_raw_os_error(libc::EINVAL));
        let mut filter = filter(ARCHITECTURE.ok_or_else(unsupported)?);
        let pair = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        );
        let (own, theirs) = pair.map_err(|it| NotTrapped::Trap(it.into()))?;
        // SAFETY: between fork and exec the function calls the kernel only; what it refers to is its own.
        unsafe {
            command.pre_exec(move || {
                let listener = set(&mut filter)?;
                send(theirs.as_raw_fd(), listener)
            });
        }
        let started = command.spawn();
        let trap = receive(own.as_fd()).map(|listener| Trap {
            listener: Arc::new(listener),
        });
        match (started, trap) {
            (Ok(child), Ok(trap)) => Ok((child, trap)),
            (Ok(mut child), Err(error)) => {
                // It cannot go on: its calls are never answered.
                let _ = child.kill();
                let _ = child.wait();
                Err(NotTrapped::Trap(error))
            }
            (Err(error), Ok(_)) => Err(NotTrapped::Program(error)),
            (Err(error), Err(_)) => Err(NotTrapped::Trap(error)),
        }
    }

    /// Waits for a call. `None`: all programs with this trap have ended.
    ///
    /// # Errors
    /// The kernel has no memory.
    pub fn next(&self) -> io::Result<Option<TrappedCall>> {
        loop {
            let mut look = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
            match poll(&mut look, PollTimeout::NONE) {
                Ok(_) => {}
                Err(nix::errno::Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let seen = look[0].revents().unwrap_or(PollFlags::POLLHUP);
            if !seen.contains(PollFlags::POLLIN) {
                return Ok(None);
            }
            // SAFETY: zeroes are a valid structure, and what the kernel expects.
            let mut notice: libc::seccomp_notif = unsafe { mem::zeroed() };
            // SAFETY: the structure outlives the call, and has the size that the request names.
            let done = unsafe {
                ioctl(
                    &self.listener,
                    libc::SECCOMP_IOCTL_NOTIF_RECV,
                    &raw mut notice,
                )
            };
            match done {
                Ok(_) => {}
                // A signal, or one that ended the call before it was read.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ENOENT)) => {
                    continue;
                }
                Err(error) => return Err(error),
            }
            let mut known = CALLS.iter();
            let call = known.find(|it| it.0 == libc::c_long::from(notice.data.nr));
            let trapped = TrappedCall {
                listener: Arc::clone(&self.listener),
                id: notice.id,
                thread: notice.pid,
                // The filter reports these alone.
                call: call.map_or(SocketCall::Bind, |it| it.1),
                arguments: notice.data.args,
                is_answered: false,
            };
            return Ok(Some(trapped));
        }
    }
}

/// A call that waits. Dropped without an answer, the kernel executes it.
#[derive(Debug)]
pub struct TrappedCall {
    listener: Arc<OwnedFd>,
    id: u64,
    thread: u32,
    call: SocketCall,
    arguments: [u64; 6],
    is_answered: bool,
}

impl TrappedCall {
    /// Which.
    pub fn call(&self) -> SocketCall {
        self.call
    }

    /// The thread that calls, as this process numbers it; 0: it has no number here.
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// An argument, counted from 0: a number, or an address in the program's memory.
    pub fn argument(&self, index: usize) -> u64 {
        self.arguments[index]
    }

    /// Whether the thread still waits. If so, what was opened of it by number before is its.
    pub fn is_waiting(&self) -> bool {
        let id = self.id;
        // SAFETY: the number outlives the call.
        unsafe {
            ioctl(
                &self.listener,
                libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
                &raw const id,
            )
        }
        .is_ok()
    }

    /// Lets the kernel execute the call.
    pub fn execute(mut self) {
        self.answer_by_kernel();
    }

    /// Ends the call with a value, or with a number of an error.
    pub fn finish(mut self, result: Result<i64, i32>) {
        self.answer(result, 0);
    }

    /// Puts a descriptor in the place of `number` in the program. The call still waits.
    ///
    /// # Errors
    /// The call was interrupted by the end of its process.
    pub fn replace(
        &self,
        number: RawFd,
        descriptor: BorrowedFd<'_>,
        close_on_exec: bool,
    ) -> io::Result<()> {
        let flags = libc::SECCOMP_ADDFD_FLAG_SETFD;
        self.add(number, descriptor, close_on_exec, flags).map(drop)
    }

    /// Gives the program a descriptor, whose number is the value of the call.
    ///
    /// If the program can have no more descriptors, the call fails with the kernel's error.
    pub fn finish_with(mut self, descriptor: BorrowedFd<'_>, close_on_exec: bool) {
        let flags = libc::SECCOMP_ADDFD_FLAG_SEND;
        match self.add(0, descriptor, close_on_exec, flags) {
            Ok(_) => self.is_answered = true,
            Err(error) => self.answer(Err(error.raw_os_error().unwrap_or(libc::EMFILE)), 0),
        }
    }

    fn add(
        &self,
        number: RawFd,
        descriptor: BorrowedFd<'_>,
        close_on_exec: bool,
        flags: libc::c_ulong,
    ) -> io::Result<libc::c_int> {
        let add = libc::seccomp_notif_addfd {
            id: self.id,
            flags: flags as u32,
            srcfd: descriptor.as_raw_fd() as u32,
            newfd: number as u32,
            newfd_flags: if close_on_exec {
                libc::O_CLOEXEC as u32
            } else {
                0
            },
        };
        // SAFETY: the structure outlives the call, and has the size that the request names.
        unsafe {
            ioctl(
                &self.listener,
                libc::SECCOMP_IOCTL_NOTIF_ADDFD,
                &raw const add,
            )
        }
    }

    fn answer_by_kernel(&mut self) {
        self.answer(Ok(0), libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32);
    }

    fn answer(&mut self, result: Result<i64, i32>, flags: u32) {
        self.is_answered = true;
        let answer = libc::seccomp_notif_resp {
            id: self.id,
            val: result.unwrap_or(0),
            error: result.err().map_or(0, |it| -it),
            flags,
        };
        // It fails if the process has ended.
        // SAFETY: the structure outlives the call, and has the size that the request names.
        let _ = unsafe {
            ioctl(
                &self.listener,
                libc::SECCOMP_IOCTL_NOTIF_SEND,
                &raw const answer,
            )
        };
    }
}

impl Drop for TrappedCall {
    fn drop(&mut self) {
        if !self.is_answered {
            self.answer_by_kernel();
        }
    }
}

/// Changes what an epoll set, shared with another process, has of that process's descriptor `number`, which is
/// `descriptor` here: adds it with an event, given as events and data, or removes it.
///
/// A set knows descriptors by number. So a thread gets a table of descriptors of its own for this.
///
/// # Errors
/// The kernel's: the set has or has not this descriptor, or there is no memory.
pub fn change_epoll(
    set: BorrowedFd<'_>,
    number: RawFd,
    descriptor: BorrowedFd<'_>,
    event: Option<(u32, u64)>,
) -> io::Result<()> {
    let (set, descriptor) = (set.as_raw_fd(), descriptor.as_raw_fd());
    let change = move || {
        // SAFETY: descriptors and flags only. From here on the thread's table is its own; nothing in it is closed
        // before the thread ends, and nothing else looks at it.
        unsafe {
            check(libc::unshare(libc::CLONE_FILES))?;
            let set = check(libc::fcntl(set, libc::F_DUPFD_CLOEXEC, number + 1))?;
            check(libc::dup2(descriptor, number))?;
            let (what, (events, data)) = match event {
                Some(it) => (libc::EPOLL_CTL_ADD, it),
                None => (libc::EPOLL_CTL_DEL, (0, 0)),
            };
            let mut event = libc::epoll_event { events, u64: data };
            check(libc::epoll_ctl(set, what, number, &raw mut event)).map(drop)
        }
    };
    // The borrowed descriptors stay open until the thread has ended.
    thread::scope(|scope| {
        let changing = thread::Builder::new().spawn_scoped(scope, change)?;
        changing
            .join()
            .map_err(|_| io::Error::from(io::ErrorKind::Other))?
    })
}

/// The filter: reports the calls, and lets all others through.
fn filter(architecture: u32) -> [libc::sock_filter; INSTRUCTIONS] {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let jump = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let end = (libc::BPF_RET | libc::BPF_K) as u16;
    let instruction = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let calls = CALLS.len() as u8;
    let mut filter = [instruction(end, libc::SECCOMP_RET_ALLOW, 0, 0); INSTRUCTIONS];
    filter[0] = instruction(load, mem::offset_of!(libc::seccomp_data, arch) as u32, 0, 0);
    filter[1] = instruction(jump, architecture, 0, calls + 1);
    filter[2] = instruction(load, mem::offset_of!(libc::seccomp_data, nr) as u32, 0, 0);
    for (index, (number, _)) in CALLS.iter().enumerate() {
        // Over the calls behind it and the end that allows.
        filter[3 + index] = instruction(jump, *number as u32, calls - index as u8, 0);
    }
    filter[INSTRUCTIONS - 1] = instruction(end, libc::SECCOMP_RET_USER_NOTIF, 0, 0);
    filter
}

/// Sets the filter for this thread and what it executes. Calls the kernel only.
fn set(filter: &mut [libc::sock_filter; INSTRUCTIONS]) -> io::Result<RawFd> {
    let program = libc::sock_fprog {
        len: INSTRUCTIONS as u16,
        filter: filter.as_mut_ptr(),
    };
    let flags =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: the program and its instructions outlive the calls.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        let listener = libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program);
        check(listener as libc::c_int)
    }
}

/// Sends a descriptor to the process that this one was forked from. Calls the kernel only.
fn send(socket: RawFd, descriptor: RawFd) -> io::Result<()> {
    const DESCRIPTOR: u32 = size_of::<RawFd>() as u32;
    let mut byte = [0_u8];
    let mut piece = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    // Aligned as the structure at its start.
    let mut control = [0_usize; 8];
    // SAFETY: zeroes are a valid message. The control buffer is longer than a header and a descriptor, and aligned;
    // all that the message names outlives the call.
    unsafe {
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(DESCRIPTOR) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(DESCRIPTOR) as _;
        libc::CMSG_DATA(header)
            .cast::<RawFd>()
            .write_unaligned(descriptor);
        check(libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL) as libc::c_int)
            .map(drop)
    }
}

/// Takes the descriptor that the child has sent.
fn receive(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut pieces = [IoSliceMut::new(&mut byte)];
    let mut control = nix::cmsg_space!(RawFd);
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut pieces, Some(&mut control), flags)?;
    let mut passed = message.cmsgs()?;
    let descriptor = passed.find_map(|it| match it {
        ControlMessageOwned::ScmRights(all) => all.first().copied(),
        _ => None,
    });
    let descriptor = descriptor.ok_or(io::ErrorKind::UnexpectedEof)?;
    // SAFETY: the kernel has just made it, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// # Safety
/// `argument` points to what the request reads and writes.
unsafe fn ioctl<T>(
    listener: &OwnedFd,
    request: libc::Ioctl,
    argument: *const T,
) -> io::Result<libc::c_int> {
    // SAFETY: the caller's.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), request, argument) })
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        0.. => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    /// What the filter returns, executed as the kernel does.
    fn returned(architecture: u32, number: u32) -> u32 {
        let filter = filter(7);
        let (mut at, mut loaded) = (0, 0);
        loop {
            let it = filter[at];
            at += 1;
            match u32::from(it.code) {
                code if code == libc::BPF_RET | libc::BPF_K => return it.k,
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    loaded = if it.k == 4 { architecture } else { number };
                }
                _ => at += usize::from(if loaded == it.k { it.jt } else { it.jf }),
            }
        }
    }

    #[test]
    fn filter__reports_the_calls_and_nothing_else() {
        for (number, _) in CALLS {
            let number = number as u32;
            assert_eq!(
                returned(7, number),
                libc::SECCOMP_RET_USER_NOTIF,
                "{number}"
            );
            assert_eq!(returned(8, number), libc::SECCOMP_RET_ALLOW, "{number}");
        }
        for number in [libc::SYS_read, libc::SYS_socket, libc::SYS_sendmsg] {
            assert_eq!(returned(7, number as u32), libc::SECCOMP_RET_ALLOW);
        }
    }
}
