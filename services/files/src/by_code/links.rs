//! Lists this host's IPv4 networks that have a broadcast address.

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use std::io;
use std::net::Ipv4Addr;

/// An interface's address and network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) address: Ipv4Addr,
    mask: Ipv4Addr,
}

impl Link {
    /// `None`: a network without a broadcast address.
    fn new(address: Ipv4Addr, mask: Ipv4Addr) -> Option<Link> {
        (mask.to_bits().count_ones() <= 30).then_some(Link { address, mask })
    }

    /// The network's broadcast address.
    pub(super) fn broadcast(&self) -> Ipv4Addr {
        self.address | !self.mask
    }

    /// Whether an address belongs to this network.
    pub(super) fn holds(&self, address: Ipv4Addr) -> bool {
        address & self.mask == self.address & self.mask
    }
}

/// The networks of the interfaces with these names; of all that are up, if none is named.
///
/// # Errors
/// There is none, or a named interface does not exist, is not up, or has no IPv4 address.
pub(super) fn links(names: &[String]) -> io::Result<Vec<Link>> {
    let missing = |what: String| io::Error::new(io::ErrorKind::NotFound, what);
    let mut found = Vec::new();
    for it in getifaddrs()? {
        let up = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
        let ipv4 = |address: Option<nix::sys::socket::SockaddrStorage>| {
            Some(address?.as_sockaddr_in()?.ip())
        };
        let (Some(address), Some(mask)) = (ipv4(it.address), ipv4(it.netmask)) else {
            continue;
        };
        let wanted = names.is_empty() || names.contains(&it.interface_name);
        if let Some(link) = Link::new(address, mask)
            && wanted
            && it.flags.contains(up)
        {
            found.push((it.interface_name, link));
        }
    }
    for name in names {
        if !found.iter().any(|(interface, _)| interface == name) {
            return Err(missing(format!(
                "no interface {name} that is up and has an IPv4 address"
            )));
        }
    }
    match found.is_empty() {
        true => Err(missing(
            "no interface that is up and has an IPv4 address".into(),
        )),
        false => Ok(found.into_iter().map(|(_, link)| link).collect()),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn Link__its_network_and_no_other() {
        let link = Link::new([10, 1, 2, 3].into(), [255, 255, 255, 0].into()).unwrap();
        assert_eq!(link.broadcast(), Ipv4Addr::new(10, 1, 2, 255));
        assert!(link.holds([10, 1, 2, 200].into()) && !link.holds([10, 1, 3, 3].into()));
        assert_eq!(Link::new([10, 1, 2, 3].into(), Ipv4Addr::BROADCAST), None);
    }

    #[test]
    fn links__by_name() {
        let lo = links(&["lo".into()]).unwrap();
        assert!(lo.iter().any(|it| it.address == Ipv4Addr::LOCALHOST));
        let missing = links(&["lo".into(), "none".into()]).unwrap_err();
        assert!(
            missing.to_string().contains("no interface none"),
            "{missing}"
        );
    }
}
