//! Converts addresses between `sockaddr` and Rust, and lists those of the host.

use crate::errno::{Errno, Outcome};
use crate::libfabric::*;
use std::ffi::{CString, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

const V4: usize = size_of::<libc::sockaddr_in>();
const V6: usize = size_of::<libc::sockaddr_in6>();

/// Reads a `sockaddr`.
///
/// # Safety
/// `from` is null or has `length` bytes; with length 0, as much as its family needs.
pub(crate) unsafe fn read(from: *const c_void, length: usize) -> Outcome<SocketAddr> {
    let enough = |needed: usize| length == 0 || length >= needed;
    if from.is_null() || !enough(size_of::<libc::sa_family_t>()) {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller's promise; the family tells the length, and unaligned reads need no alignment.
    unsafe {
        match i32::from(from.cast::<libc::sa_family_t>().read_unaligned()) {
            libc::AF_INET if enough(V4) => {
                let it = from.cast::<libc::sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(u32::from_be(it.sin_addr.s_addr));
                Ok(SocketAddr::from((ip, u16::from_be(it.sin_port))))
            }
            libc::AF_INET6 if enough(V6) => {
                let it = from.cast::<libc::sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(it.sin6_addr.s6_addr);
                let port = u16::from_be(it.sin6_port);
                Ok(SocketAddrV6::new(ip, port, 0, it.sin6_scope_id).into())
            }
            _ => Err(Errno::INVALID),
        }
    }
}

/// The bytes of a `sockaddr`.
pub(crate) fn encode(address: SocketAddr) -> Vec<u8> {
    let port = address.port().to_be_bytes();
    let family = |family: i32| (family as libc::sa_family_t).to_ne_bytes();
    match address {
        SocketAddr::V4(it) => {
            let mut bytes = Vec::with_capacity(V4);
            bytes.extend(family(libc::AF_INET));
            bytes.extend(port);
            bytes.extend(it.ip().octets());
            bytes.resize(V4, 0);
            bytes
        }
        SocketAddr::V6(it) => {
            let mut bytes = Vec::with_capacity(V6);
            bytes.extend(family(libc::AF_INET6));
            bytes.extend(port);
            bytes.extend([0; 4]);
            bytes.extend(it.ip().octets());
            bytes.extend(it.scope_id().to_ne_bytes());
            bytes
        }
    }
}

/// Writes a `sockaddr` as `fi_getname` does: as much as fits, and the length that it has.
///
/// # Safety
/// `length` is null or valid, and `into` is null or has that many bytes.
pub(crate) unsafe fn write(address: SocketAddr, into: *mut c_void, length: *mut usize) -> Outcome {
    let length = crate::object::place(length)?;
    let bytes = encode(address);
    // SAFETY: the caller's promise.
    unsafe {
        let room = length.read();
        length.write(bytes.len());
        if !into.is_null() {
            let count = room.min(bytes.len());
            into.cast::<u8>()
                .copy_from_nonoverlapping(bytes.as_ptr(), count);
        }
        match room < bytes.len() || into.is_null() {
            true => Err(Errno::TOO_SMALL),
            false => Ok(()),
        }
    }
}

/// The format that libfabric calls it.
pub(crate) fn format(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => FI_SOCKADDR_IN,
        SocketAddr::V6(_) => FI_SOCKADDR_IN6,
    }
}

/// An address of this host, and the interface that has it.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub(crate) name: CString,
    pub(crate) ip: IpAddr,
}

/// The addresses of the host that peers can use: those of its networks first, IPv4 first, loopback last.
///
/// # Errors
/// The system does not say.
pub(crate) fn interfaces() -> Outcome<Vec<Interface>> {
    let all = nix::ifaddrs::getifaddrs().map_err(|it| Errno(it as i32 as u32))?;
    let mut found: Vec<_> = all
        .filter(|it| it.flags.contains(nix::net::if_::InterfaceFlags::IFF_UP))
        .filter_map(|it| {
            let address = it.address?;
            let ip = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
                (Some(v4), _) => IpAddr::V4(v4.ip()),
                (_, Some(v6)) => IpAddr::V6(v6.ip()),
                _ => return None,
            };
            let name = CString::new(it.interface_name).ok()?;
            // An address of one link says nothing to a rank of another host.
            let local = matches!(ip, IpAddr::V6(it) if it.is_unicast_link_local());
            (!local).then_some(Interface { name, ip })
        })
        .collect();
    found.sort_by_key(|it| (it.ip.is_loopback(), it.ip.is_ipv6()));
    Ok(found)
}
