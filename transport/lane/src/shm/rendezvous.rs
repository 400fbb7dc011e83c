//! How two processes of one host and one user find each other: by a socket in a directory that is that user's alone, named
//! after the network namespace and the address that is listened on, or by a name that both ends are told.

use super::mapping::Shared;
use super::peer::credentials;
use crate::own_address::is_own;
use core::fmt;
use nix::sys::socket::{ControlMessage, MsgFlags, UnixCredentials, sendmsg};
use nix::unistd::geteuid;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread::sleep;
use std::time::{Duration, Instant};
use zerolane_wire::discovery::is_neighbour_name;

/// What the Initiator says with the memory that it passes: a name, and the version of what lies in the memory.
const HELLO: [u8; 8] = *b"zl-shm\x00\x04";
/// Descriptors of which more are not looked at: one is right.
const MAX_PASSED: usize = 4;
/// Initiators that may wait to be accepted, where the system permits as many (`net.core.somaxconn`). Each has passed a
/// descriptor that nobody has taken, of which the kernel lets a user have as many as open files.
pub(super) const BACKLOG: i32 = 512;
/// How long a listener waits for others that take a name in the same directory. One needs some system calls.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);

/// A name by which processes of one user and one kernel meet whatever their network namespaces and addresses: those of
/// containers that have one directory of the rendezvous mounted. One listener at a time has it.
///
/// 1 to 63 letters, digits, `-`, `_` and `.`, of which the first is a letter or a digit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RendezvousName(String);

/// What is no [`RendezvousName`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRendezvousName;

impl fmt::Display for BadRendezvousName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("1 to 63 letters, digits, '-', '_' and '.', of which the first is no sign")
    }
}

impl std::error::Error for BadRendezvousName {}

impl FromStr for RendezvousName {
    type Err = BadRendezvousName;

    fn from_str(text: &str) -> Result<RendezvousName, BadRendezvousName> {
        match is_neighbour_name(text) {
            true => Ok(RendezvousName(text.to_owned())),
            false => Err(BadRendezvousName),
        }
    }
}

impl RendezvousName {
    /// The name of its socket: that of an address begins with a digit and holds no such sign.
    fn socket(&self) -> String {
        format!("+{}", self.0)
    }
}

/// Why there is no shared memory with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoSharedMemory {
    /// The options name a cipher, and nothing is enciphered in shared memory.
    Cipher,
    /// The address is none of this network namespace.
    NotHere,
    /// Nothing listens for it there: another user's program, one that was told not to, or none.
    NoListener,
    /// The options ask for several paths, and in shared memory there is one.
    Paths,
    /// The directory by which processes meet is not there, or not this user's alone.
    Directory,
    /// What listens is another user's.
    OtherUser,
    /// As many processes wait at the listener as may.
    Crowded,
    /// The listener did not look at this process within 1 s, or half of [`Options::connect_timeout`](crate::Options::connect_timeout)
    /// if that is less: others have its places, or it looks at nobody.
    NotLetIn,
    /// The listener turned this process away.
    TurnedAway,
    /// The system has no memory or descriptor left for it, or lacks what it needs.
    System,
}

impl fmt::Display for NoSharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoSharedMemory::Cipher => "the options name a cipher, and in shared memory nothing is enciphered",
            NoSharedMemory::NotHere => "the address is none of this network namespace",
            NoSharedMemory::NoListener => "nothing of this user listens for it at the address",
            NoSharedMemory::Directory => {
                "the directory by which processes meet (zerolane in XDG_RUNTIME_DIR or /run/user/UID, else \
                 /tmp/zerolane-UID) is not there, or not this user's alone"
            }
            NoSharedMemory::Paths => "the options ask for several paths, and in shared memory there is one",
            NoSharedMemory::Crowded => "as many processes wait at the listener as may",
            NoSharedMemory::NotLetIn => "the listener did not look at this process in time",
            NoSharedMemory::TurnedAway => "the listener turned this process away",
            NoSharedMemory::OtherUser => "what listens at the address is another user's",
            NoSharedMemory::System => "the system has no memory or descriptor left for it",
        })
    }
}

impl NoSharedMemory {
    /// Why a listener could not make its rendezvous.
    pub(crate) fn without_rendezvous() -> NoSharedMemory {
        match directory() {
            Err(_) => NoSharedMemory::Directory,
            Ok(_) => NoSharedMemory::System,
        }
    }
}

impl From<NoSharedMemory> for io::Error {
    fn from(why: NoSharedMemory) -> io::Error {
        let why = format!("no shared memory with the peer: {why}");
        io::Error::new(io::ErrorKind::Unsupported, why)
    }
}

/// The directory by which this user's processes meet, made if it is not there.
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

/// Makes `directory` if it is not there, and checks that it is this user's alone, and no link.
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

/// The name of the socket that goes with `address` in this network namespace.
fn name(address: SocketAddr) -> io::Result<String> {
    // A thread may have another than its process.
    let namespace = fs::metadata("/proc/thread-self/ns/net")?.ino();
    Ok(format!("{namespace}-{}-{}", address.ip(), address.port()))
}

fn unix_socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Keeps other listeners from taking a name in `directory`: until it is unlocked.
///
/// # Errors
/// Another one does so for too long, as one that is stopped.
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

/// A socket that listens at `path`, and its inode. To be called with the directory locked: a name that refuses is
/// otherwise of one that was bound and does not listen yet, or of one that took it meanwhile.
///
/// # Errors
/// Another one listens there.
fn take_name(path: &Path) -> io::Result<(Socket, u64)> {
    let at = SockAddr::unix(path)?;
    let socket = unix_socket()?;
    if let Err(error) = socket.bind(&at) {
        // That of a process which ended without taking it away refuses.
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

/// Where a listener meets Initiators of its host. The name goes with it.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    socket: Socket,
    path: PathBuf,
    inode: u64,
    process: crate::Process,
}

impl Rendezvous {
    /// Of a listener that has `address`, or is met by `named`.
    ///
    /// # Errors
    /// The directory is not this user's alone, or the name is another's that lives.
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
        // A child that another thread forked meanwhile has the descriptor as well, and would hold on to it.
        held.unlock()?;
        let (socket, inode) = taken?;
        Ok(Rendezvous {
            socket,
            inode,
            path,
            process: crate::Process::current(),
        })
    }

    /// The next process that has come, if it is of the same user.
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

#[cfg(test)]
impl Rendezvous {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// As where the process ends without a word.
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
            // Else the next listener finds that it refuses.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether the process at the other end of `socket` is of this process's user.
pub(super) fn same_user(socket: &Socket) -> io::Result<Option<UnixCredentials>> {
    let peer = credentials(socket.as_fd())?;
    Ok((peer.uid() == geteuid().as_raw()).then_some(peer))
}

/// A socket to what listens at `address`, or is met by `named`, if that is of this host and this user.
///
/// # Errors
/// Why not.
pub(super) fn meet(
    address: SocketAddr,
    named: Option<&RendezvousName>,
) -> Result<(Socket, UnixCredentials), NoSharedMemory> {
    if let Some(named) = named {
        let directory = directory().map_err(|_| NoSharedMemory::Directory)?;
        return meet_one(&directory, &named.socket())?.ok_or(NoSharedMemory::NoListener);
    }
    if !is_own(address.ip()) {
        return Err(NoSharedMemory::NotHere);
    }
    let directory = directory().map_err(|_| NoSharedMemory::Directory)?;
    meet_in(&directory, address)
}

pub(super) fn meet_in(
    directory: &Path,
    address: SocketAddr,
) -> Result<(Socket, UnixCredentials), NoSharedMemory> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    for ip in [address.ip(), any] {
        let name = name((ip, address.port()).into()).map_err(|_| NoSharedMemory::System)?;
        if let Some(met) = meet_one(directory, &name)? {
            return Ok(met);
        }
    }
    Err(NoSharedMemory::NoListener)
}

/// A socket to what listens by that name. `None` if nothing does.
fn meet_one(
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
        // It does not wait for room.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(NoSharedMemory::Crowded),
        Err(_) => Ok(None),
    }
}

/// Passes the memory that the two are to share.
pub(super) fn pass_shared(socket: &Socket, memory: &OwnedFd) -> io::Result<()> {
    pass(socket, &HELLO, memory.as_fd())
}

/// Passes `memory` to the process at the other end, with bytes that say what it is.
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

/// What was read of the socket.
pub(super) struct Read {
    /// Bytes; none where the other end is closed.
    pub(super) len: usize,
    /// The descriptors that came with them: of one message at most, which ends what is read.
    pub(super) passed: Vec<OwnedFd>,
    /// There was no descriptor left for what was passed.
    lost: bool,
}

/// Reads what came into `said`, with the descriptors that were passed.
///
/// Not by nix, which gives none where more came than there was room for, or than the process may have: those that the
/// kernel made would stay open.
///
/// # Errors
/// `EAGAIN`: nothing came.
pub(super) fn read(socket: &Socket, said: &mut [u8]) -> nix::Result<Read> {
    let mut piece = libc::iovec {
        iov_base: said.as_mut_ptr().cast(),
        iov_len: said.len(),
    };
    let mut room = [0u64; ROOM.div_ceil(8)];
    // SAFETY: of numbers and pointers alone, for which zeros are right.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = room.as_mut_ptr().cast();
    message.msg_controllen = ROOM;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the message names a piece and control space of ours, as long as they are.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let len = nix::Error::result(len)? as usize;
    // SAFETY: the kernel just wrote the message's control.
    let passed = unsafe { descriptors(&message) };
    Ok(Read {
        len,
        lost: passed.is_empty() && message.msg_flags & libc::MSG_CTRUNC != 0,
        passed,
    })
}

/// Bytes of control of a message that passes [`MAX_PASSED`] descriptors.
// SAFETY: a sum.
const ROOM: usize = unsafe { libc::CMSG_SPACE((MAX_PASSED * size_of::<RawFd>()) as u32) } as usize;

/// Owns the descriptors that `message` passed.
///
/// # Safety
/// The kernel wrote its control, and nobody has looked at it.
unsafe fn descriptors(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut passed = Vec::new();
    // SAFETY: the macros walk well-formed control within its length, and its descriptors were made for us alone: each is
    // closed unless it is kept.
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

/// Takes the memory that was passed and maps it. `None` if nothing came yet.
///
/// # Errors
/// Something else came, or the process is gone.
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
