//! Answers the socket calls of a program that a trap stops ([`Trap`]), as the library within a program does: static
//! programs and those of Go load none.
//!
//! Here each call comes to another process. It works with a copy of the program's descriptor, which is the same socket;
//! so it binds, connects, listens and accepts for the program, and puts the socket that is connected to the pump at the
//! program's number. Calls that need none of this, the kernel executes. It reads their arguments again, which another
//! thread may have changed; so nothing here decides what a program may do.
//!
//! A call that waits ends for no signal but a fatal one. So what may take long ends here when the thread has a signal:
//! the kernel executes the call then, and interrupts it.

mod accept;
mod connect;
mod process;

use super::call::Runner;
use super::program::{self, address};
use process::Process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, listen, socket, sockopt};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Instant;
use zerolane::trap::{SocketCall, Trap, TrappedCall, socket_option};

/// Calls that are answered at a time, each by a thread; the kernel executes more.
const MAX_CALLS: usize = 1024;
/// Bytes of a thread's stack: nothing here is deep.
const STACK_BYTES: usize = 256 << 10;
/// How often a waiting call looks for signals.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};
/// Gates in the table above which unused ones are removed.
const MAX_GATES: usize = 64;
/// The option that names a socket's network namespace, of `asm-generic/socket.h`.
const SO_NETNS_COOKIE: i32 = 71;

/// Checks that the system lets this process take descriptors of others.
///
/// # Errors
/// It does not, as in some containers.
pub fn check() -> io::Result<()> {
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    pidfd_getfd(&own, own.as_raw_fd(), PidfdGetfdFlags::empty())?;
    Ok(())
}

/// Answers until all programs with the trap have ended. Dropped, the trap makes the calls of those that live fail.
/// `tell` hears once if there is a program that this process may not look into.
///
/// # Errors
/// The system refused something without which nothing works.
pub fn serve(
    trap: &Trap,
    runner: Runner,
    tell: impl Fn(&str) + Send + Sync + 'static,
) -> io::Result<()> {
    let own = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    let supervisor = Arc::new(Supervisor {
        runner,
        tell: Box::new(tell),
        has_told: AtomicBool::new(false),
        network: network(&own),
        calls: AtomicUsize::new(0),
        gates: Mutex::new(HashMap::new()),
    });
    while let Some(call) = trap.next()? {
        supervisor.begin(call);
    }
    Ok(())
}

struct Supervisor {
    runner: Runner,
    tell: Box<dyn Fn(&str) + Send + Sync>,
    has_told: AtomicBool,
    /// The pump's network namespace: it can ask no hosts of another one.
    network: Option<u64>,
    calls: AtomicUsize,
    /// One thread at a time accepts at a listener, known by its inode.
    gates: Mutex<HashMap<u64, Weak<Mutex<()>>>>,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    Ready,
    /// The thread has a signal.
    Signalled,
    Late,
    /// The process has ended.
    Gone,
}

impl Supervisor {
    fn begin(self: &Arc<Supervisor>, call: TrappedCall) {
        let Some(process) = Process::of(&call) else {
            return self.leave(call);
        };
        let socket = match process.descriptor(number(&call)) {
            Ok(it) => it,
            // The kernel says so, too.
            Err(Errno::BADF) => return call.execute(),
            Err(error) => {
                if error == Errno::PERM && !self.has_told.swap(true, Ordering::Relaxed) {
                    let thread = call.thread();
                    (self.tell)(&format!(
                        "process {thread} may not be looked into, and stays TCP"
                    ));
                }
                return self.leave(call);
            }
        };
        if !self.concerns(&call, &socket) {
            return call.execute();
        }
        if self.calls.fetch_add(1, Ordering::Relaxed) >= MAX_CALLS {
            self.calls.fetch_sub(1, Ordering::Relaxed);
            return self.leave(call);
        }
        let supervisor = Arc::clone(self);
        let answer = move || {
            let counted = Counted(&supervisor.calls);
            supervisor.answer(call, &process, &socket);
            drop(counted);
        };
        let thread = thread::Builder::new().name("trapped call".into());
        // Without a thread the call is dropped, and the kernel executes it.
        if thread.stack_size(STACK_BYTES).spawn(answer).is_err() {
            self.calls.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Leaves a call to the kernel that cannot be served.
    fn leave(&self, call: TrappedCall) {
        match call.call() {
            SocketCall::Connect if self.runner.strict => call.finish(Err(libc::ECONNREFUSED)),
            SocketCall::Accept | SocketCall::Accept4 if self.runner.strict => {
                call.finish(Err(libc::ECONNABORTED));
            }
            _ => call.execute(),
        }
    }

    /// Whether there is more to do than the kernel does.
    fn concerns(&self, call: &TrappedCall, socket: &OwnedFd) -> bool {
        let is_near = || network(socket) == self.network;
        match call.call() {
            SocketCall::Bind => sockopt::socket_type(socket) == Ok(SocketType::DGRAM),
            SocketCall::Connect => program::is_tcp(socket) && is_near(),
            SocketCall::Listen => program::takes_tcp(socket) && is_near(),
            SocketCall::Accept | SocketCall::Accept4 => {
                let listens = sockopt::socket_acceptconn(socket) == Ok(true);
                listens && program::takes_tcp(socket) && is_near()
            }
            SocketCall::LocalName | SocketCall::PeerName => {
                program::is_stand_in(&self.runner, socket)
            }
        }
    }

    fn answer(&self, call: TrappedCall, process: &Process, socket: &OwnedFd) {
        match call.call() {
            SocketCall::Bind => {
                if let Some(wanted) = process.address(&call) {
                    program::releases(&self.runner, socket, wanted.port());
                }
                call.execute();
            }
            SocketCall::Listen => match listen(socket, call.argument(1) as i32) {
                Ok(()) => {
                    program::listens(&self.runner, socket);
                    call.finish(Ok(0));
                }
                Err(error) => call.finish(Err(error.raw_os_error())),
            },
            SocketCall::Connect => self.connect(call, process, socket),
            SocketCall::Accept | SocketCall::Accept4 => self.accept(call, process, socket),
            SocketCall::LocalName | SocketCall::PeerName => {
                let Some((local, peer)) = program::names(&self.runner, socket) else {
                    return call.execute();
                };
                let name = match call.call() {
                    SocketCall::LocalName => local,
                    _ => peer,
                };
                let told = tell(&call, process, name, program::is_v6(socket));
                call.finish(told.map(|()| 0));
            }
        }
    }

    /// What a thread must hold to accept at the listener of this inode.
    fn gate(&self, inode: u64) -> Arc<Mutex<()>> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gate) = gates.get(&inode).and_then(Weak::upgrade) {
            return gate;
        }
        if gates.len() >= MAX_GATES {
            gates.retain(|_, it| it.strong_count() > 0);
        }
        let gate = Arc::new(Mutex::new(()));
        gates.insert(inode, Arc::downgrade(&gate));
        gate
    }
}

/// Counts a call until it is dropped, whatever happens.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The descriptor that a call is about, as the program numbers it.
fn number(call: &TrappedCall) -> i32 {
    call.argument(0) as i32
}

/// The network namespace of a socket. `None`: a kernel before Linux 5.14 does not say.
fn network(socket: impl AsFd) -> Option<u64> {
    let mut cookie = [0; 8];
    let len = socket_option(socket, libc::SOL_SOCKET, SO_NETNS_COOKIE, &mut cookie);
    (len.ok() == Some(cookie.len())).then(|| u64::from_ne_bytes(cookie))
}

/// Waits until `socket` is ready, or there is a reason to wait no longer.
fn wait(
    call: &TrappedCall,
    process: &Process,
    socket: &OwnedFd,
    what: PollFlags,
    until: Option<Instant>,
) -> Waited {
    loop {
        let mut look = [PollFd::new(socket, what)];
        match poll(&mut look, Some(&LOOK)) {
            Ok(0) | Err(_) => {}
            Ok(_) => return Waited::Ready,
        }
        if !call.is_waiting() {
            return Waited::Gone;
        }
        if process.is_signalled() {
            return Waited::Signalled;
        }
        if until.is_some_and(|it| it <= Instant::now()) {
            return Waited::Late;
        }
    }
}

/// Writes an address where the second and third arguments say, as `getpeername` does: as much as there is room for, and
/// its whole length.
fn tell(call: &TrappedCall, process: &Process, name: SocketAddr, is_v6: bool) -> Result<(), i32> {
    let (bytes, own) = address::write(name, is_v6);
    let (to, len_at) = (call.argument(1), call.argument(2));
    let mut len = [0; 4];
    let memory = process.memory(call).ok_or(libc::EFAULT)?;
    memory.read(len_at, &mut len).ok_or(libc::EFAULT)?;
    let room = usize::try_from(i32::from_ne_bytes(len)).map_err(|_| libc::EINVAL)?;
    let written = memory.write(to, &bytes[..own.min(room)]);
    let own = (own as u32).to_ne_bytes();
    written
        .and_then(|()| memory.write(len_at, &own))
        .ok_or(libc::EFAULT)
}
