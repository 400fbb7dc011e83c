//! Lets two processes of one host and one user find each other: by a socket in a directory of that user alone, named
//! after the network namespace and the listening address, or by a name given to both ends.

use super::mapping::Shared;
use super::peer::credentials;
use crate::address::{RendezvousName, is_own};
use crate::unavailable::NoSharedMemory;
use nix::sys::socket::{ControlMessage, MsgFlags, UnixCredentials, sendmsg};
use nix::unistd::geteuid;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The Initiator's message with the memory that it passes: a name, and the version of the memory's layout.
const HELLO: [u8; 8] = *b"zl-shm\x00\x04";
/// Most descriptors read from one message: one is right.
const MAX_PASSED: usize = 4;
/// Most Initiators that wait to be accepted, if the system permits as many (`net.core.somaxconn`). Each has passed a
/// descriptor that no process has received yet; the kernel lets a user have as many of these as open files.
pub(super) const BACKLOG: i32 = 512;
/// How long a listener waits while others take a name in the same directory. Taking one needs some system calls.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);

/// This user's rendezvous directory, which is made if it does not exist.
pub(super) fn directory() -> io::Result<PathBuf> {
    let user = geteuid();
    let own = PathBuf::from(format!("/run/user/{user}"));
    let base = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|it| it.is_absolute())
        .or_else(|| own.is_dir().then_some(own));
    let directory = match base {
        Some(base) => base.join("zerolane"),
        None => PathBuf::from(format!("/tmp/zerolane-{user}")),
    };
    check_own(&directory)?;
    Ok(directory)
}

/// Makes `directory` if it does not exist, and checks that it belongs to this user alone and is not a symbolic link.
pub(super) fn check_own(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(directory)?;
    let own = found.uid() == geteuid().as_raw() && found.mode() & 0o7777 == 0o700;
    if !found.is_dir() || !own {
        let why = format!("{} is not this user's alone", directory.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(())
}

/// The name of the socket for `address` in this network namespace.
fn name(address: SocketAddr) -> io::Result<String> {
    // A thread may be in another one than its process.
    let namespace = fs::metadata("/proc/thread-self/ns/net")?.ino();
    Ok(format!("{namespace}-{}-{}", address.ip(), address.port()))
}

fn unix_socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Keeps other listeners from taking a name in `directory`, until it is unlocked.
///
/// # Errors
/// Another process holds the lock for too long, for example because it is stopped.
pub(super) fn lock(directory: &Path) -> io::Result<File> {
    let held = File::open(directory)?;
    let end = Instant::now() + PATIENCE;
    loop {
        match held.try_lock() {
            Ok(()) => return Ok(held),
            Err(TryLockError::WouldBlock) if Instant::now() < end => sleep(PAUSE),
            Err(error) => return Err(error.into()),
        }
    }
}

/// A socket that listens at `path`, and its inode. Call it with the directory locked. Otherwise a name that refuses
/// connections could belong to a socket that was bound and does not listen yet, or to a listener that took it
/// meanwhile.
///
/// # Errors
/// Another listener is there.
fn take_name(path: &Path) -> io::Result<(Socket, u64)> {
    let at = SockAddr::unix(path)?;
    let socket = unix_socket()?;
    if let Err(error) = socket.bind(&at) {
        // The socket of a process that ended without removing it refuses.
        let met = unix_socket()?.connect(&at);
        let lives = met.map_or_else(|it| it.kind() == io::ErrorKind::WouldBlock, |()| true);
        if error.kind() != io::ErrorKind::AddrInUse || lives {
            return Err(error);
        }
        fs::remove_file(path)?;
        socket.bind(&at)?;
    }
    socket.listen(BACKLOG)?;
    Ok((socket, fs::symlink_metadata(path)?.ino()))
}

/// The place where a listener meets Initiators of its host. Dropping it removes the name.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    socket: Socket,
    path: PathBuf,
    inode: u64,
    process: crate::threads::Process,
}

impl Rendezvous {
    /// The rendezvous of a listener at `address`, or under the name `named`.
    ///
    /// # Errors
    /// The directory does not belong to this user alone, or the name belongs to a live listener.
    pub(crate) fn listen(
        address: SocketAddr,
        named: Option<&RendezvousName>,
    ) -> io::Result<Rendezvous> {
        Rendezvous::listen_in(&directory()?, address, named)
    }

    pub(super) fn listen_in(
        directory: &Path,
        address: SocketAddr,
        named: Option<&RendezvousName>,
    ) -> io::Result<Rendezvous> {
        let path = directory.join(match named {
            Some(named) => named.socket(),
            None => name(address)?,
        });
        let held = lock(directory)?;
        let taken = take_name(&path);
        // A child that another thread forked meanwhile has the descriptor as well, and would hold the lock.
        held.unlock()?;
        let (socket, inode) = taken?;
        Ok(Rendezvous {
            socket,
            inode,
            path,
            process: crate::threads::Process::current(),
        })
    }

    /// The next process that has come, if it belongs to the same user.
    pub(super) fn accept(&self) -> io::Result<Option<Socket>> {
        let socket = match self.socket.accept() {
            Ok((socket, _)) => socket,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        socket.set_nonblocking(true)?;
        Ok(Some(socket))
    }
}

/// Why a listener could not make its rendezvous.
pub(crate) fn without_rendezvous() -> NoSharedMemory {
    match directory() {
        Err(_) => NoSharedMemory::Directory,
        Ok(_) => NoSharedMemory::System,
    }
}

#[cfg(test)]
impl Rendezvous {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// As when the process ends without cleaning up.
    pub(super) fn abandon(mut self) {
        self.inode = 0;
    }
}

impl AsFd for Rendezvous {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        let ours = || fs::symlink_metadata(&self.path).is_ok_and(|it| it.ino() == self.inode);
        if self.process.is_current() && ours() {
            // Otherwise the next listener finds that it refuses.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The credentials of the process at the other end of `socket`, if it belongs to this process's user.
pub(super) fn same_user(socket: &Socket) -> io::Result<Option<UnixCredentials>> {
    let peer = credentials(socket.as_fd())?;
    Ok((peer.uid() == geteuid().as_raw()).then_some(peer))
}

/// A socket to the listener at `address`, or with the name `named`, if it belongs to this host and this user.
///
/// # Errors
/// Why there is none.
pub(super) fn connect(
    address: SocketAddr,
    named: Option<&RendezvousName>,
) -> Result<(Socket, UnixCredentials), NoSharedMemory> {
    if let Some(named) = named {
        let directory = directory().map_err(|_| NoSharedMemory::Directory)?;
        return connect_one(&directory, &named.socket())?.ok_or(NoSharedMemory::NoListener);
    }
    if !is_own(address.ip()) {
        return Err(NoSharedMemory::NotLocal);
    }
    let directory = directory().map_err(|_| NoSharedMemory::Directory)?;
    connect_in(&directory, address)
}

pub(super) fn connect_in(
    directory: &Path,
    address: SocketAddr,
) -> Result<(Socket, UnixCredentials), NoSharedMemory> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    for ip in [address.ip(), any] {
        let name = name((ip, address.port()).into()).map_err(|_| NoSharedMemory::System)?;
        if let Some(found) = connect_one(directory, &name)? {
            return Ok(found);
        }
    }
    Err(NoSharedMemory::NoListener)
}

/// A socket to the listener of that name. `None` if there is none.
fn connect_one(
    directory: &Path,
    name: &str,
) -> Result<Option<(Socket, UnixCredentials)>, NoSharedMemory> {
    let system = |_| NoSharedMemory::System;
    let at = SockAddr::unix(directory.join(name)).map_err(|_| NoSharedMemory::Directory)?;
    let socket = unix_socket().map_err(system)?;
    match socket.connect(&at) {
        Ok(()) => {
            let peer = same_user(&socket).map_err(system)?;
            Ok(Some((socket, peer.ok_or(NoSharedMemory::OtherUser)?)))
        }
        // The call does not wait for room.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(NoSharedMemory::QueueFull),
        Err(_) => Ok(None),
    }
}

/// Passes the memory that the two will share.
pub(super) fn pass_shared(socket: &Socket, memory: &OwnedFd) -> io::Result<()> {
    pass(socket, &HELLO, memory.as_fd())
}

/// Passes `memory` to the process at the other end, with bytes that describe it.
pub(super) fn pass(socket: &Socket, said: &[u8], memory: BorrowedFd<'_>) -> io::Result<()> {
    let passed = [memory.as_raw_fd()];
    let control = [ControlMessage::ScmRights(&passed)];
    let iov = [IoSlice::new(said)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    let sent = sendmsg::<()>(socket.as_raw_fd(), &iov, &control, flags, None)?;
    match sent == said.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// The result of a read from the socket.
pub(super) struct Read {
    /// Number of bytes; 0 if the other end is closed.
    pub(super) len: usize,
    /// The descriptors that came with them: of one message at most, which ends the read.
    pub(super) passed: Vec<OwnedFd>,
    /// There was no descriptor left for one that was passed.
    lost: bool,
}

/// Reads bytes into `said`, with the descriptors that were passed.
///
/// Does not use nix, which returns no descriptors if more came than fit or than the process may have: those that the
/// kernel made would stay open.
///
/// # Errors
/// `EAGAIN`: nothing has arrived.
pub(super) fn read(socket: &Socket, said: &mut [u8]) -> nix::Result<Read> {
    let mut piece = libc::iovec {
        iov_base: said.as_mut_ptr().cast(),
        iov_len: said.len(),
    };
    let mut room = [0u64; ROOM.div_ceil(8)];
    // SAFETY: msghdr consists of integers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = room.as_mut_ptr().cast();
    message.msg_controllen = ROOM;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the message names a piece and control space of ours, with their lengths.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let len = nix::Error::result(len)? as usize;
    // SAFETY: the kernel has just written the message's control.
    let passed = unsafe { descriptors(&message) };
    Ok(Read {
        len,
        lost: passed.is_empty() && message.msg_flags & libc::MSG_CTRUNC != 0,
        passed,
    })
}

/// Bytes of control of a message that passes [`MAX_PASSED`] descriptors.
// SAFETY: CMSG_SPACE only computes a sum.
const ROOM: usize = unsafe { libc::CMSG_SPACE((MAX_PASSED * size_of::<RawFd>()) as u32) } as usize;

/// Takes ownership of the descriptors that `message` passed.
///
/// # Safety
/// The kernel wrote the control of `message`, and no code has taken its descriptors.
unsafe fn descriptors(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut passed = Vec::new();
    // SAFETY: the macros walk well-formed control within its length. Its descriptors were made for this process and
    // have no other owner: each is closed unless it is kept.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(it) = header.as_ref() {
            if (it.cmsg_level, it.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let len = it.cmsg_len - libc::CMSG_LEN(0) as usize;
                let first = libc::CMSG_DATA(header).cast::<RawFd>();
                for index in 0..len / size_of::<RawFd>() {
                    passed.push(OwnedFd::from_raw_fd(first.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    passed
}

/// Receives the memory that was passed, and maps it. `None` if nothing has arrived yet.
///
/// # Errors
/// Something else arrived, or the process is gone.
pub(super) fn take(socket: &Socket) -> io::Result<Option<Shared>> {
    let mut said = [0; HELLO.len()];
    let read = match read(socket, &mut said) {
        Err(nix::Error::EAGAIN) => return Ok(None),
        other => other?,
    };
    if read.lost {
        return Err(nix::Error::EMFILE.into());
    }
    match &read.passed[..] {
        [memory] if said[..read.len] == HELLO => Shared::open(memory).map(Some),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
