//! Sets up experiments: threads of this process, and sockets of two hosts.

use std::net::IpAddr;
use std::os::fd::AsFd;

use anyhow::Result;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;
use socket2::SockRef;

pub(super) use crate::harness::link::Host;
use crate::harness::link::Link;

/// Two hosts and a core for each.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) link: &'a Link,
    /// Of the sender and of the receiver.
    pub(crate) cores: [usize; 2],
}

impl Place<'_> {
    pub(super) fn address(&self, host: Host) -> IpAddr {
        self.link.address(host)
    }

    /// What `make` makes on this host: a socket stays there.
    pub(super) fn within<T: Send>(
        &self,
        host: Host,
        make: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        self.link.within(host, make)
    }
}

/// Sets a socket's receive buffer to `bytes`, or to the most that this user may have.
pub(super) fn large_buffer(socket: &impl AsFd, bytes: usize) -> Result<()> {
    if setsockopt(socket, RcvBufForce, &bytes).is_err() {
        SockRef::from(socket).set_recv_buffer_size(bytes)?;
    }
    Ok(())
}
