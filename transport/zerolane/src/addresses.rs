//! Resolves the addresses that a program gives, in any form.

use crate::error::{Error, Result};
use std::io;
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs as _,
};
use zerolane_lane::{EthernetAddress, LaneChoice, resolve, resolve_host};

/// Addresses to listen on or to connect to, in any form: a text `HOST:PORT` as for [`resolve`](crate::lanes::resolve),
/// where an IPv6 address of one link may have the name of its interface (`[fe80::1%eth0]:9181`); a host and a port;
/// [`SocketAddr`]s and parts of them; an [`EthernetAddress`](crate::options::EthernetAddress). A name may have several
/// addresses: they are tried in order.
pub trait ToAddresses: sealed::Sealed {
    /// The addresses for `lane`, in order. May ask a name server, and block while it answers.
    ///
    /// # Errors
    /// `InvalidInput`: it is not an address, and why; or the host or interface does not exist.
    fn addresses(&self, lane: LaneChoice) -> io::Result<Vec<SocketAddr>>;
}

mod sealed {
    pub trait Sealed {}
}

/// # Errors
/// There is no address.
pub(crate) fn resolved(from: impl ToAddresses, lane: LaneChoice) -> Result<Vec<SocketAddr>> {
    let found = from.addresses(lane).map_err(Error::Address)?;
    match found.is_empty() {
        true => Err(Error::NoAddress),
        false => Ok(found),
    }
}

/// Implements [`ToAddresses`] for types, by a function of a reference and the lane.
macro_rules! addresses {
    ($($type:ty),+ => $of:expr) => {
        $(
            impl sealed::Sealed for $type {}
            impl ToAddresses for $type {
                fn addresses(&self, lane: LaneChoice) -> io::Result<Vec<SocketAddr>> {
                    let of: fn(&$type, LaneChoice) -> io::Result<Vec<SocketAddr>> = $of;
                    of(self, lane)
                }
            }
        )+
    };
}

addresses!(str => resolve);
addresses!(String => |it, lane| resolve(it, lane));
addresses!((&str, u16) => |it, lane| resolve_host(it.0, it.1, lane));
addresses!((String, u16) => |it, lane| resolve_host(&it.0, it.1, lane));
addresses!(SocketAddr => |it, _| Ok(vec![*it]));
addresses!(
    SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16)
    => |it, _| Ok(vec![(*it).into()])
);
addresses!([SocketAddr], Vec<SocketAddr> => |it, _| Ok(it.to_vec()));
addresses!(EthernetAddress => |it, _| Ok(it.to_socket_addrs()?.collect()));

impl<T: ToAddresses + ?Sized> sealed::Sealed for &T {}

impl<T: ToAddresses + ?Sized> ToAddresses for &T {
    fn addresses(&self, lane: LaneChoice) -> io::Result<Vec<SocketAddr>> {
        (**self).addresses(lane)
    }
}

#[cfg(test)]
#[path = "addresses_tests.rs"]
mod tests;
