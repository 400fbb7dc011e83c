//! Parses and prints the two ends of a path beyond the first, and names the reasons why a path fails.

use crate::address::{EthernetAddress, Station, is_ethernet, scoped};
use crate::unavailable::NoEthernet;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// The two ends of a path beyond the first. As text it is `LOCAL=PEER`.
///
/// Over UDP these are two addresses with or without a port, of which either may be omitted: `192.0.2.1=192.0.2.2`,
/// `[2001:db8::1]:0=`, `fe80::1%eth0=fe80::2%eth0`. Over raw Ethernet they are an interface of this host, which may be
/// omitted because the other side repeats it, and after it the hardware address of the peer's interface:
/// `ether:eth1=ether:eth1/02:00:00:00:00:01`. The interface is looked up when the text is parsed, in the network
/// namespace of the calling thread. A port is allowed there as in other such addresses, and has no effect: frames find
/// the connection by its key.
///
/// ```
/// use zerolane_lane::PathAddresses;
/// let path: PathAddresses = "192.0.2.1=192.0.2.2:9181".parse()?;
/// let PathAddresses::Udp { local, peer } = path else { unreachable!() };
/// assert_eq!(local, Some("192.0.2.1:0".parse()?));
/// assert_eq!(peer, Some("192.0.2.2:9181".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathAddresses {
    /// Over UDP. If the first path is over raw Ethernet, the peer must accept such paths:
    /// [`PathOptions::udp`](crate::options::PathOptions::udp).
    Udp {
        /// This end's address: that of the interface to use, with port 0 for any port. `None`: an address of the
        /// system's choice, with a new port.
        local: Option<SocketAddr>,
        /// An address of the peer, and its listening port; port 0: the port of the first path. `None`: the address of
        /// the first path as well, which does not exist if that path is over raw Ethernet ([`NoPath::NoAddress`](crate::unavailable::NoPath::NoAddress)).
        peer: Option<SocketAddr>,
    },
    /// Over raw Ethernet, to a peer that accepts such paths: the connection was opened over raw Ethernet, or the peer
    /// has [`PathOptions::ethernet`](crate::options::PathOptions::ethernet). Needs CAP_NET_RAW.
    Ethernet {
        /// Index of this host's interface.
        interface: u32,
        /// Hardware address of the peer's interface, on the same segment.
        peer: [u8; 6],
    },
}

/// Over UDP, from another port to the address of the first path.
impl Default for PathAddresses {
    fn default() -> PathAddresses {
        PathAddresses::Udp {
            local: None,
            peer: None,
        }
    }
}

impl PathAddresses {
    /// The peer's address of a path over raw Ethernet, in the form that
    /// [`max_ethernet_datagram`](crate::datagram::max_ethernet_datagram) takes.
    pub fn ethernet_peer(&self) -> Option<SocketAddr> {
        match *self {
            PathAddresses::Udp { .. } => None,
            PathAddresses::Ethernet { interface, peer } => {
                let station = Station {
                    interface,
                    hardware: Some(peer),
                    port: 0,
                };
                Some(station.address())
            }
        }
    }
}

/// The same form that is parsed. An interface that does not exist is printed as its index.
impl fmt::Display for PathAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            PathAddresses::Udp { local, peer } => {
                let shown = |it: Option<SocketAddr>| it.map_or(String::new(), |it| it.to_string());
                write!(f, "{}={}", shown(local), shown(peer))
            }
            PathAddresses::Ethernet { interface, peer } => {
                let named = self.ethernet_peer().map(EthernetAddress::of);
                let number = || EthernetAddress::new(interface.to_string(), Some(peer), 0);
                let address = named.and_then(Result::ok).unwrap_or_else(number);
                write!(f, "={address}")
            }
        }
    }
}

/// Why a text names no path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadPath {
    /// There is no separator between the two addresses.
    NoSign,
    /// This is not an address.
    NoAddress(String),
    /// One address is IPv4 and the other IPv6.
    Families,
    /// One address is of raw Ethernet, but the two do not form a path over it.
    Ethernet,
    /// The interface does not exist, or is not Ethernet.
    Interface(NoEthernet),
}

impl fmt::Display for BadPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadPath::NoSign => f.write_str(
                "a path is LOCAL=PEER, such as 192.0.2.1=192.0.2.2; a part left out is as for the first path",
            ),
            BadPath::NoAddress(text) => write!(
                f,
                "{text:?} is not an IP address, with or without a port: `ip address` lists those of this host"
            ),
            BadPath::Families => {
                f.write_str("one address is IPv4 and the other IPv6: use one family for both")
            }
            BadPath::Ethernet => f.write_str(
                "a path over raw Ethernet is ether:IFACE=ether:IFACE/MAC, such as ether:eth1=ether:eth1/02:00:00:00:00:01: an \
                 interface of this host, in both places if not left out in the first, and the hardware address of the peer's",
            ),
            BadPath::Interface(why) => write!(f, "{why}: `ip link` lists the interfaces"),
        }
    }
}

impl std::error::Error for BadPath {}

impl FromStr for PathAddresses {
    type Err = BadPath;

    fn from_str(text: &str) -> Result<PathAddresses, BadPath> {
        let (local, peer) = text.split_once('=').ok_or(BadPath::NoSign)?;
        let (local, peer) = (local.trim(), peer.trim());
        if is_ethernet(local) || is_ethernet(peer) {
            return over_ethernet(local, peer);
        }
        let (local, peer) = (address(local)?, address(peer)?);
        match (local, peer) {
            (Some(local), Some(peer)) if local.is_ipv4() != peer.is_ipv4() => {
                Err(BadPath::Families)
            }
            _ => Ok(PathAddresses::Udp { local, peer }),
        }
    }
}

/// A path over raw Ethernet from an interface, which may be omitted, to a hardware address reached through it.
fn over_ethernet(local: &str, peer: &str) -> Result<PathAddresses, BadPath> {
    let station = |text: &str| {
        // An address without a port gets port 0.
        let with_port = format!("{text}:0").parse::<EthernetAddress>();
        let address = with_port.or_else(|_| text.parse());
        address.map_err(|_| BadPath::Ethernet)
    };
    let to = station(peer)?;
    let hardware = to.hardware().ok_or(BadPath::Ethernet)?;
    if !local.is_empty() {
        let from = station(local)?;
        // The local side must name no hardware address.
        if from.interface() != to.interface() || local.contains('/') {
            return Err(BadPath::Ethernet);
        }
    }
    let none = || NoEthernet::NoInterface(to.interface().to_owned());
    let found = to.to_socket_addrs().map_err(|error| why(&error, none()))?;
    let stations = found.filter_map(Station::of);
    let of_peer = stations
        .into_iter()
        .find(|it| it.hardware == Some(hardware));
    // Without it, more than one host could match.
    let station = of_peer.ok_or(BadPath::Ethernet)?;
    Ok(PathAddresses::Ethernet {
        interface: station.interface,
        peer: hardware,
    })
}

/// The reason in `error`, if it concerns raw Ethernet; else `none`.
fn why(error: &io::Error, none: NoEthernet) -> BadPath {
    let why = error
        .get_ref()
        .and_then(|it| it.downcast_ref::<NoEthernet>());
    BadPath::Interface(why.cloned().unwrap_or(none))
}

/// An address with or without a port, or `None` if it is omitted.
fn address(text: &str) -> Result<Option<SocketAddr>, BadPath> {
    if text.is_empty() {
        return Ok(None);
    }
    let bare = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let ip = bare.unwrap_or(text).parse::<IpAddr>();
    let with_port = |ip| SocketAddr::new(ip, 0);
    let address = ip.ok().map(with_port).or_else(|| text.parse().ok());
    let scoped = || scoped::read(text).ok()?.map(|it| it.address().into());
    let no_address = || BadPath::NoAddress(text.to_owned());
    address.or_else(scoped).map(Some).ok_or_else(no_address)
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use crate::unavailable::NoPath;

    fn path(local: Option<&str>, peer: Option<&str>) -> Result<PathAddresses, BadPath> {
        let of = |text: &str| text.parse().expect("an address");
        Ok(PathAddresses::Udp {
            local: local.map(of),
            peer: peer.map(of),
        })
    }

    #[test]
    fn from_str__two_addresses_either_of_which_may_be_left_out() {
        let v6 = "[2001:db8::1]:0";
        for (text, local, peer) in [
            (
                "192.0.2.1=192.0.2.2",
                Some("192.0.2.1:0"),
                Some("192.0.2.2:0"),
            ),
            (
                "192.0.2.1:7=192.0.2.2:9181",
                Some("192.0.2.1:7"),
                Some("192.0.2.2:9181"),
            ),
            ("2001:db8::1=", Some(v6), None),
            ("[2001:db8::1]=[2001:db8::1]:0", Some(v6), Some(v6)),
            (" = 192.0.2.2", None, Some("192.0.2.2:0")),
            (
                "fe80::1%7=[fe80::2%7]:9181",
                Some("[fe80::1%7]:0"),
                Some("[fe80::2%7]:9181"),
            ),
            ("=", None, None),
        ] {
            assert_eq!(text.parse(), path(local, peer), "{text}");
        }
    }

    #[test]
    fn from_str__what_is_none_says_what_to_do() {
        for (text, says) in [
            ("", "LOCAL=PEER"),
            ("192.0.2.1", "LOCAL=PEER"),
            ("eth0=192.0.2.2", "`ip address`"),
            ("192.0.2.1=host", "\"host\" is not an IP address"),
            ("192.0.2.1=192.0.2.2=", "not an IP address"),
            ("192.0.2.1:99999=", "not an IP address"),
            ("192.0.2.1=2001:db8::1", "one family for both"),
            ("ether:eth0=", "ether:IFACE=ether:IFACE/MAC"),
            ("ether:eth0=192.0.2.2", "ether:IFACE=ether:IFACE/MAC"),
            ("192.0.2.1=ether:eth0/02:00:00:00:00:01", "in both places"),
            ("=ether:eth0", "hardware address of the peer's"),
            ("=ether:eth0/box", "hardware address of the peer's"),
            ("=ether:eth0/02:00:00:00:00:01:x", "ether:IFACE/MAC"),
            ("ether:eth1=ether:eth0/02:00:00:00:00:01", "in both places"),
            (
                "ether:eth0/02:00:00:00:00:02=ether:eth0/02:00:00:00:00:01",
                "an interface of this host",
            ),
            (
                "=ether:no-such-one/02:00:00:00:00:01",
                "no interface no-such-one",
            ),
            ("=ether:lo/02:00:00:00:00:01", "lo is not Ethernet"),
            ("=ether:lo/02:00:00:00:00:01:7411", "lo is not Ethernet"),
            ("ether:lo=ether:lo/02:00:00:00:00:01", "`ip link`"),
        ] {
            let error = text.parse::<PathAddresses>().expect_err(text);
            assert!(error.to_string().contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn Display__is_read_as_the_same() {
        for text in [
            "192.0.2.1:7=192.0.2.2:9181",
            "[2001:db8::1]:0=",
            "[fe80::1%7]:0=[fe80::2%7]:9181",
            "=",
        ] {
            let path: PathAddresses = text.parse().expect("a path");
            assert_eq!(path.to_string(), text);
        }
        let gone = PathAddresses::Ethernet {
            interface: 2_147_483_647,
            peer: [2, 0, 0, 0, 0, 1],
        };
        assert_eq!(gone.to_string(), "=ether:2147483647/02:00:00:00:00:01:0");
    }

    #[test]
    fn NoPath__is_what_the_system_or_raw_ethernet_says() {
        for (error, why, says) in [
            (
                NoEthernet::NotPermitted.into(),
                NoPath::NotPermitted,
                "setcap cap_net_raw+ep",
            ),
            (NoEthernet::Gone.into(), NoPath::NoInterface, "is gone"),
            (
                io::Error::from_raw_os_error(libc::EADDRNOTAVAIL),
                NoPath::Refused(libc::EADDRNOTAVAIL),
                "Cannot assign requested address",
            ),
            (
                io::Error::other("no"),
                NoPath::Refused(0),
                "refuses the path",
            ),
        ] {
            assert_eq!(NoPath::from(error), why);
            assert!(why.to_string().contains(says), "{why}");
        }
    }
}
