//! Checks whether an address belongs to this host, in the network namespace of the calling thread.
//!
//! A successful bind proves nothing: with `net.ipv4.ip_nonlocal_bind`, as on hosts that take over each other's
//! addresses, a socket can be bound to any address.

use nix::ifaddrs::getifaddrs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Whether `ip` belongs to this host: datagrams to it do not leave the host.
///
/// Never true of link-local addresses: without an interface they name no host.
pub(crate) fn is_own(ip: IpAddr) -> bool {
    is_own_by(ip, interfaces, source_to)
}

fn is_own_by(
    ip: IpAddr,
    interfaces: impl FnOnce() -> Vec<IpAddr>,
    source_to: impl FnOnce(IpAddr) -> Option<IpAddr>,
) -> bool {
    let ip = ip.to_canonical();
    let is_link_local = matches!(ip, IpAddr::V6(it) if it.is_unicast_link_local());
    if ip.is_unspecified() || ip.is_multicast() || is_link_local {
        return false;
    }
    ip.is_loopback() || source_to(ip) == Some(ip) || interfaces().contains(&ip)
}

/// The addresses of all interfaces; none if the kernel does not list them.
fn interfaces() -> Vec<IpAddr> {
    let all = getifaddrs().into_iter().flatten();
    let ip = |it: nix::ifaddrs::InterfaceAddress| {
        let address = it.address?;
        let v4 = address.as_sockaddr_in().map(|it| IpAddr::V4(it.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|it| it.ip().into()))
    };
    all.filter_map(ip).collect()
}

/// The source address of datagrams to `ip`: `ip` itself if a local route leads there, even if no interface has it. For
/// an address of an interface it may be another of the same interface.
fn source_to(ip: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // Connecting sends nothing. Any port but 0 will do.
    socket.connect((ip, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// With two addresses on one interface, and a local route to a network.
    fn is_own_there(text: &str) -> bool {
        let interfaces = || {
            ["192.0.2.1", "192.0.2.2", "2001:db8::1", "fe80::1"]
                .map(ip)
                .to_vec()
        };
        let source_to = |to: IpAddr| match to {
            IpAddr::V4(it) if it.octets().starts_with(&[198, 51, 100]) => Some(to),
            IpAddr::V4(_) => Some(ip("192.0.2.1")),
            IpAddr::V6(_) => Some(ip("2001:db8::1")),
        };
        is_own_by(ip(text), interfaces, source_to)
    }

    #[test]
    fn is_own__addresses_of_interfaces_and_of_local_routes_and_loopback() {
        let own = [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "192.0.2.1",
            "192.0.2.2",
            "::ffff:192.0.2.2",
            "2001:db8::1",
            "198.51.100.7",
        ];
        for text in own {
            assert!(is_own_there(text), "{text}");
        }
        let others = [
            "192.0.2.3",
            "203.0.113.1",
            "2001:db8::2",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "fe80::1",
        ];
        for text in others {
            assert!(!is_own_there(text), "{text}");
        }
    }

    #[test]
    fn is_own__asks_the_kernel() {
        assert!(is_own(ip("127.0.0.1")) && is_own(ip("127.1.2.3")));
        // Reserved for examples (RFC 5737).
        assert!(!is_own(ip("192.0.2.1")));
        for it in interfaces() {
            let is_link_local = matches!(it, IpAddr::V6(it) if it.is_unicast_link_local());
            assert!(is_own(it) || is_link_local, "{it}");
        }
    }
}
