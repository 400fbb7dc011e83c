//! Reads and writes the addresses of C.

use libc::{AF_INET, AF_INET6, c_int, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Reads an address.
///
/// # Safety
/// `address` is null, or points to `len` readable bytes.
pub(crate) unsafe fn read(address: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    if address.is_null() || (len as usize) < size_of::<sa_family_t>() {
        return None;
    }
    // SAFETY: the family is within `len` bytes, which the caller vouches for; any alignment is allowed.
    let family = unsafe { (&raw const (*address).sa_family).read_unaligned() };
    match c_int::from(family) {
        AF_INET if len as usize >= size_of::<sockaddr_in>() => {
            // SAFETY: `len` covers the structure.
            let it = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(it.sin_addr.s_addr));
            Some(SocketAddr::new(ip.into(), u16::from_be(it.sin_port)))
        }
        AF_INET6 if len as usize >= size_of::<sockaddr_in6>() => {
            // SAFETY: `len` covers the structure.
            let it = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(it.sin6_addr.s6_addr);
            let port = u16::from_be(it.sin6_port);
            Some(SocketAddrV6::new(ip, port, 0, it.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// An address in the form that a socket of a family has.
#[repr(C)]
pub(crate) union Raw {
    v4: sockaddr_in,
    v6: sockaddr_in6,
}

impl Raw {
    /// The structure and its length. A socket of IPv6 has IPv4 addresses mapped.
    pub(crate) fn of(address: SocketAddr, is_v6: bool) -> (Raw, socklen_t) {
        let ip = match (address.ip(), is_v6) {
            (IpAddr::V4(ip), true) => IpAddr::V6(ip.to_ipv6_mapped()),
            (ip, true) => ip,
            (ip, false) => ip.to_canonical(),
        };
        let scope = match address {
            SocketAddr::V6(it) => it.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        let port = address.port().to_be();
        match ip {
            IpAddr::V4(ip) => {
                let v4 = sockaddr_in {
                    sin_family: AF_INET as sa_family_t,
                    sin_port: port,
                    sin_addr: libc::in_addr {
                        s_addr: ip.to_bits().to_be(),
                    },
                    sin_zero: [0; 8],
                };
                (Raw { v4 }, size_of::<sockaddr_in>() as socklen_t)
            }
            IpAddr::V6(ip) => {
                let v6 = sockaddr_in6 {
                    sin6_family: AF_INET6 as sa_family_t,
                    sin6_port: port,
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr {
                        s6_addr: ip.octets(),
                    },
                    sin6_scope_id: scope,
                };
                (Raw { v6 }, size_of::<sockaddr_in6>() as socklen_t)
            }
        }
    }

    pub(crate) fn pointer(&self) -> *const sockaddr {
        (&raw const *self).cast()
    }

    /// Writes the structure as `getpeername` does: as much as there is room for, and its whole length.
    ///
    /// # Safety
    /// `len` points to the length of the writable memory at `address`.
    pub(crate) unsafe fn write(&self, own: socklen_t, address: *mut sockaddr, len: *mut socklen_t) {
        // SAFETY: the caller vouches for both pointers; this structure has `own` bytes.
        unsafe {
            let room = (*len).min(own) as usize;
            std::ptr::copy_nonoverlapping(self.pointer().cast::<u8>(), address.cast::<u8>(), room);
            *len = own;
        }
    }
}

/// Asks a function like `getsockname` for an address.
pub(crate) fn ask(get: impl FnOnce(*mut sockaddr, *mut socklen_t) -> c_int) -> Option<SocketAddr> {
    let mut storage = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut len = size_of::<libc::sockaddr_storage>() as socklen_t;
    let address = storage.as_mut_ptr().cast::<sockaddr>();
    match get(address, &mut len) {
        // SAFETY: the storage is as long as any address, and was zeroed.
        0 => unsafe { read(address, len) },
        _ => None,
    }
}
