//! Where a path beyond the first begins and ends, and how users write it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Where a path beyond the first begins and ends. As text it is `LOCAL=PEER`, two addresses with or without a port, of which
/// either may be left out: `192.0.2.1=192.0.2.2`, `[2001:db8::1]:0=`.
///
/// ```
/// use zerolane_lane::PathAddresses;
/// let path: PathAddresses = "192.0.2.1=192.0.2.2:9181".parse()?;
/// assert_eq!(path.local, Some("192.0.2.1:0".parse()?));
/// assert_eq!(path.peer, Some("192.0.2.2:9181".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PathAddresses {
    /// Our address: that of the interface to use, with port 0 for any. `None`: what the system chooses, and a port of
    /// its own.
    pub local: Option<SocketAddr>,
    /// An address of the peer, and the port that it listens on; port 0: that of the first path. `None`: the address of the
    /// first path, too.
    pub peer: Option<SocketAddr>,
}

impl PathAddresses {
    /// The peer's address of this path, if that of the first is `first`.
    pub(crate) fn to(&self, first: SocketAddr) -> SocketAddr {
        match self.peer {
            None => first,
            Some(peer) if peer.port() == 0 => SocketAddr::new(peer.ip(), first.port()),
            Some(peer) => peer,
        }
    }
}

/// Why a text names no path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadPath {
    /// Nothing parts the two addresses.
    NoSign,
    /// This is no address.
    NoAddress(String),
    /// One is of IPv4, and the other of IPv6.
    Families,
    /// One is an address of raw Ethernet.
    Ethernet,
}

impl fmt::Display for BadPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadPath::NoSign => f.write_str(
                "a path is LOCAL=PEER, such as 192.0.2.1=192.0.2.2; what is left out is as for the first path",
            ),
            BadPath::NoAddress(text) => write!(
                f,
                "{text:?} is no IP address, with or without a port: those of this host are what `ip address` shows"
            ),
            BadPath::Families => {
                f.write_str("one address is of IPv4 and the other of IPv6: take both of one kind")
            }
            BadPath::Ethernet => {
                f.write_str("raw Ethernet has one path: take the IP addresses of the interfaces")
            }
        }
    }
}

impl std::error::Error for BadPath {}

impl FromStr for PathAddresses {
    type Err = BadPath;

    fn from_str(text: &str) -> Result<PathAddresses, BadPath> {
        if crate::is_ethernet(text) || text.contains("=ether:") {
            return Err(BadPath::Ethernet);
        }
        let (local, peer) = text.split_once('=').ok_or(BadPath::NoSign)?;
        let (local, peer) = (address(local)?, address(peer)?);
        match (local, peer) {
            (Some(local), Some(peer)) if local.is_ipv4() != peer.is_ipv4() => {
                Err(BadPath::Families)
            }
            _ => Ok(PathAddresses { local, peer }),
        }
    }
}

/// An address with or without a port, if it is not left out.
fn address(text: &str) -> Result<Option<SocketAddr>, BadPath> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let bare = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let ip = bare.unwrap_or(text).parse::<IpAddr>();
    let with_port = |ip| SocketAddr::new(ip, 0);
    let address = ip.map(with_port).or_else(|_| text.parse());
    let no_address = |_| BadPath::NoAddress(text.to_owned());
    address.map(Some).map_err(no_address)
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn path(local: Option<&str>, peer: Option<&str>) -> Result<PathAddresses, BadPath> {
        let of = |text: &str| text.parse().expect("an address");
        Ok(PathAddresses {
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
            ("192.0.2.1=host", "\"host\" is no IP address"),
            ("192.0.2.1=192.0.2.2=", "no IP address"),
            ("192.0.2.1:99999=", "no IP address"),
            ("192.0.2.1=2001:db8::1", "both of one kind"),
            ("ether:eth0=", "raw Ethernet has one path"),
        ] {
            let error = text.parse::<PathAddresses>().expect_err(text);
            assert!(error.to_string().contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn to__a_port_that_is_left_out_is_that_of_the_first_path() {
        let first = "192.0.2.9:9181".parse().expect("an address");
        for (text, to) in [
            ("=", "192.0.2.9:9181"),
            ("=192.0.2.2", "192.0.2.2:9181"),
            ("=192.0.2.2:5", "192.0.2.2:5"),
        ] {
            let path: PathAddresses = text.parse().expect("a path");
            assert_eq!(path.to(first), to.parse().expect("an address"), "{text}");
        }
    }
}
