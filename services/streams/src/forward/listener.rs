//! Listens on TCP addresses and UNIX sockets.

use super::request::Target;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, sockopt};
use std::fmt;
use std::fs;
use std::io;
use std::net::{TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

/// Where a forwarder listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A host or address, and a port.
    Tcp(Target),
    /// The path of a UNIX socket.
    Unix(PathBuf),
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(target) => target.fmt(f),
            Listen::Unix(path) => path.display().fmt(f),
        }
    }
}

/// A listening socket. A UNIX socket's file is removed when it is dropped.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    path: Option<PathBuf>,
    /// Where it listens, with the port that the system chose.
    pub(super) shown: String,
}

impl Listener {
    pub(super) fn bind(on: &Listen) -> io::Result<Listener> {
        match on {
            Listen::Tcp(Target { host, port }) => {
                let addresses = (&host[..], *port).to_socket_addrs()?;
                let socket = TcpListener::bind(&addresses.collect::<Vec<_>>()[..])?;
                socket.set_nonblocking(true)?;
                let shown = socket.local_addr()?.to_string();
                let (socket, path) = (socket.into(), None);
                Ok(Listener {
                    socket,
                    path,
                    shown,
                })
            }
            Listen::Unix(path) => {
                remove_stale(path)?;
                let socket = UnixListener::bind(path)?;
                socket.set_nonblocking(true)?;
                let shown = path.display().to_string();
                let (socket, path) = (socket.into(), Some(path.clone()));
                Ok(Listener {
                    socket,
                    path,
                    shown,
                })
            }
        }
    }

    /// The next connection; `None`: there is none.
    pub(super) fn accept(&self) -> io::Result<Option<OwnedFd>> {
        match accept_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(socket) => {
                let _ = sockopt::set_tcp_nodelay(&socket, true);
                Ok(Some(socket))
            }
            Err(Errno::AGAIN) => Ok(None),
            // The client has left.
            Err(Errno::CONNABORTED | Errno::INTR) => self.accept(),
            Err(error) => Err(error.into()),
        }
    }
}

/// Removes the socket of a program that has ended: nothing accepts there.
fn remove_stale(path: &PathBuf) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    match found.file_type().is_socket() && UnixStream::connect(path).is_err() {
        true => fs::remove_file(path),
        false => Err(io::ErrorKind::AddrInUse.into()),
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
