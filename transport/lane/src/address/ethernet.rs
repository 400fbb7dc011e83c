//! Represents raw Ethernet addresses as socket addresses: the link-local IPv6 address that follows from a hardware
//! address (RFC 4291, appendix A), with the interface's index as its scope.
//!
//! If the kernel derives an interface's link-local address in this way, UDP uses the very same address.

use crate::unavailable::NoEthernet;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::LinkAddr;
use std::fmt;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;
use zerolane_wire::discovery::is_neighbour_name;

/// A hardware address.
pub(crate) type Hardware = [u8; 6];

/// The bit of a hardware address's first byte that marks a group of hosts.
const GROUP: u8 = 0x01;
/// The bit that RFC 4291 inverts.
const LOCAL: u8 = 0x02;

/// The place of an end on a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Station {
    /// Index of this host's interface.
    pub(crate) interface: u32,
    /// `None`: the interface's own address.
    pub(crate) hardware: Option<Hardware>,
    /// The port: for a listener, the one that clients ask for.
    pub(crate) port: u16,
}

impl Station {
    /// The station that `address` represents; `None` if it is not such an address.
    pub(crate) fn of(address: SocketAddr) -> Option<Station> {
        let SocketAddr::V6(address) = address else {
            return None;
        };
        let hardware = match address.ip().octets() {
            any if any == [0; 16] => None,
            [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, 0xff, 0xfe, d, e, f] => {
                Some([a ^ LOCAL, b, c, d, e, f])
                    .filter(|it| !is_group(*it))
                    .map(Some)?
            }
            _ => return None,
        };
        (address.scope_id() != 0).then_some(Station {
            interface: address.scope_id(),
            hardware,
            port: address.port(),
        })
    }

    /// The address that represents this station.
    pub(crate) fn address(self) -> SocketAddr {
        let ip = match self.hardware {
            None => Ipv6Addr::UNSPECIFIED,
            Some([a, b, c, d, e, f]) => {
                let [a, low] = [a ^ LOCAL, 0xfe];
                [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, 0xff, low, d, e, f].into()
            }
        };
        SocketAddrV6::new(ip, self.port, 0, self.interface).into()
    }
}

/// An address of raw Ethernet, for [`LaneChoice::Ethernet`](crate::address::LaneChoice::Ethernet): an interface of this host,
/// the hardware address of one on the same segment, and a port. Written `ether:eth0/02:00:00:00:00:01:7411`. Without a
/// hardware address, `ether:eth0:7411`, it is the interface's own, for listening. `ether:eth0/box:7411` is the address
/// of the host that claims the name `box`: anyone on the segment can claim it, and the keys of the connection prove
/// the identity.
///
/// It represents the link-local IPv6 address that follows from the hardware address (RFC 4291, appendix A), with the
/// interface's index as its scope. It is resolved on use.
///
/// ```
/// let address: zerolane_lane::EthernetAddress = "ether:eth0/02:00:00:00:00:01:7411".parse()?;
/// assert_eq!(address.to_string(), "ether:eth0/02:00:00:00:00:01:7411");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EthernetAddress {
    pub(crate) interface: String,
    pub(crate) who: Who,
    pub(crate) port: u16,
}

/// The host of an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    /// The interface itself.
    Own,
    Hardware(Hardware),
    /// A host that claims this name.
    Named(String),
}

impl EthernetAddress {
    /// The address of `hardware`, reached through this host's interface of that name, at `port`; `None`: of the
    /// interface itself.
    pub fn new(
        interface: impl Into<String>,
        hardware: Option<[u8; 6]>,
        port: u16,
    ) -> EthernetAddress {
        EthernetAddress {
            interface: interface.into(),
            who: hardware.map_or(Who::Own, Who::Hardware),
            port,
        }
    }

    /// The address of the host that claims the name `name`, reached through this host's interface of that name, at
    /// `port`. The name is resolved on use.
    pub fn named(
        interface: impl Into<String>,
        name: impl Into<String>,
        port: u16,
    ) -> EthernetAddress {
        EthernetAddress {
            interface: interface.into(),
            who: Who::Named(name.into()),
            port,
        }
    }

    /// The form of `address` with the present name of its interface, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`NoEthernet`]: it is not an address of raw Ethernet, or its interface does not exist.
    pub fn of(address: SocketAddr) -> io::Result<EthernetAddress> {
        let station = Station::of(address).ok_or(NoEthernet::NoAddress)?;
        let mut links = links()?;
        let its = links.find(|(_, link)| link.ifindex() == station.interface as usize);
        let (name, _) =
            its.ok_or_else(|| NoEthernet::NoInterface(format!("number {}", station.interface)))?;
        Ok(EthernetAddress::new(name, station.hardware, station.port))
    }

    /// The name of this host's interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The hardware address, if the address has one.
    pub fn hardware(&self) -> Option<[u8; 6]> {
        match self.who {
            Who::Hardware(hardware) => Some(hardware),
            Who::Own | Who::Named(_) => None,
        }
    }

    /// Length of the prefix of `text` that is an address without its port, `ether:IFACE/MAC` or `ether:IFACE/NAME`, and
    /// that ends the text or precedes a `:`. For texts in which something else follows.
    ///
    /// ```
    /// use zerolane_lane::EthernetAddress;
    /// assert_eq!(EthernetAddress::prefix(b"ether:eth0/02:00:00:00:00:01:path"), Some(28));
    /// assert_eq!(EthernetAddress::prefix(b"ether:eth0/box:path"), Some(14));
    /// assert_eq!(EthernetAddress::prefix(b"ether:a/long/path"), None);
    /// ```
    pub fn prefix(text: &[u8]) -> Option<usize> {
        let rest = text.strip_prefix(SCHEME.as_bytes())?;
        let slash = rest.iter().position(|&it| it == b'/')?;
        let (interface, who) = (&rest[..slash], &rest[slash + 1..]);
        let is_text = |bytes: &[u8], is: fn(&str) -> bool| std::str::from_utf8(bytes).is_ok_and(is);
        let is_hardware = |it: &[u8]| is_text(it, |it| parse_hardware(it).is_some());
        let len = match who.get(..HARDWARE_TEXT) {
            Some(hardware) if is_hardware(hardware) => HARDWARE_TEXT,
            _ => {
                let len = who.iter().position(|&it| it == b':').unwrap_or(who.len());
                is_text(&who[..len], is_neighbour_name).then_some(len)?
            }
        };
        let ends = who.get(len).is_none_or(|&it| it == b':');
        (is_text(interface, is_interface) && ends).then_some(SCHEME.len() + slash + 1 + len)
    }
}

/// The prefix of these addresses in text.
pub(crate) const SCHEME: &str = "ether:";
/// Bytes of a hardware address in text.
const HARDWARE_TEXT: usize = "02:00:00:00:00:01".len();

/// Whether `name` is a valid interface name.
fn is_interface(name: &str) -> bool {
    let whole = (1..16).contains(&name.len()) && name != "." && name != "..";
    whole && !name.contains(|it: char| matches!(it, ':' | '/') || it.is_whitespace())
}

/// The interfaces of the network namespace of the calling thread.
fn links() -> io::Result<impl Iterator<Item = (String, LinkAddr)>> {
    Ok(getifaddrs()?.filter_map(|it| {
        let link = it.address.as_ref()?.as_link_addr().copied();
        Some((it.interface_name, link?))
    }))
}

impl fmt::Display for EthernetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.interface)?;
        match &self.who {
            Who::Own => {}
            Who::Hardware(hardware) => write!(f, "/{}", hardware_text(*hardware))?,
            Who::Named(name) => write!(f, "/{name}")?,
        }
        write!(f, ":{}", self.port)
    }
}

impl FromStr for EthernetAddress {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<EthernetAddress> {
        let parse = || {
            let (where_, port) = text.strip_prefix(SCHEME)?.rsplit_once(':')?;
            let (interface, who) = match where_.split_once('/') {
                None => (where_, Who::Own),
                Some((interface, name)) if is_neighbour_name(name) => {
                    (interface, Who::Named(name.to_owned()))
                }
                Some((interface, hardware)) => {
                    (interface, Who::Hardware(parse_hardware(hardware)?))
                }
            };
            let (interface, port) = (interface.to_owned(), port.parse().ok()?);
            is_interface(&interface).then_some(EthernetAddress {
                interface,
                who,
                port,
            })
        };
        parse().ok_or_else(|| NoEthernet::NoAddress.into())
    }
}

pub(crate) fn hardware_text([a, b, c, d, e, f]: Hardware) -> String {
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

/// Whether it belongs to more than one host.
pub(crate) fn is_group(hardware: Hardware) -> bool {
    hardware[0] & GROUP != 0
}

fn parse_hardware(text: &str) -> Option<Hardware> {
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        let part = parts.next().filter(|it| it.len() == 2)?;
        let digits = part.bytes().all(|it| it.is_ascii_hexdigit());
        *byte = u8::from_str_radix(part, 16).ok().filter(|_| digits)?;
    }
    parts.next().is_none().then_some(bytes)
}

/// The index and hardware address of the Ethernet interface of that name.
///
/// # Errors
/// [`NoEthernet`]: there is none.
pub(crate) fn link(name: &str) -> io::Result<(u32, Option<Hardware>)> {
    let mut none = NoEthernet::NoInterface(name.to_owned());
    for (_, link) in links()?.filter(|it| it.0 == name) {
        if link.hatype() == nix::libc::ARPHRD_ETHER {
            let number = u32::try_from(link.ifindex()).unwrap_or(0);
            return Ok((number, link.addr()));
        }
        none = NoEthernet::OtherKind(name.to_owned());
    }
    Err(none.into())
}

/// Whether `host` is written as an address of raw Ethernet.
pub fn is_ethernet(host: &str) -> bool {
    host.starts_with(SCHEME)
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use std::net::ToSocketAddrs as _;

    #[test]
    fn Station__is_what_its_address_says() {
        let address: SocketAddr = "[fe80::11:22ff:fe33:4455%7]:9".parse().expect("one");
        let station = Station {
            interface: 7,
            hardware: Some([0x02, 0x11, 0x22, 0x33, 0x44, 0x55]),
            port: 9,
        };
        assert_eq!(station.address(), address);
        assert_eq!(Station::of(address), Some(station));
        let any = Station {
            hardware: None,
            ..station
        };
        assert_eq!(Station::of(any.address()), Some(any));
    }

    #[test]
    fn Station__no_other_address_is_one() {
        for other in [
            "127.0.0.1:9",
            "[::1%7]:9",
            "[fe80::1%7]:9",
            "[fd00::11:22ff:fe33:4455%7]:9",
            // Without an interface.
            "[fe80::11:22ff:fe33:4455]:9",
            "[::]:9",
            // A group address.
            "[fe80::311:22ff:fe33:4455%7]:9",
        ] {
            assert_eq!(Station::of(other.parse().expect("one")), None, "{other}");
        }
    }

    #[test]
    fn EthernetAddress__is_read_as_it_is_written() {
        for text in [
            "ether:eth0:0",
            "ether:br-1.7/02:00:00:aB:cd:ef:65535",
            "ether:eth0/box-1.example:9",
        ] {
            let address: EthernetAddress = text.parse().expect("well formed");
            assert_eq!(address.to_string(), text.to_lowercase());
        }
        for text in [
            "",
            "ether:",
            "eth0:9",
            "ether:eth0",
            "ether::9",
            "ether:eth0:65536",
            "ether:eth0/:9",
            "ether:eth0/02:00:00:00:00:9",
            "ether:eth0/02:00:00:00:00:00:00:9",
            "ether:eth0/02:00:00:00:00:+1:9",
            "ether:a-name-of-16-byt:9",
            "ether:a:b:9",
        ] {
            let error = text.parse::<EthernetAddress>().expect_err(text);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn prefix__of_a_whole_address_alone() {
        const WHOLE: &str = "ether:eth0/02:00:00:00:00:01";
        for rest in ["", ":", ":9", ":a/b", ":\u{e9}"] {
            let text = format!("{WHOLE}{rest}");
            let len = EthernetAddress::prefix(text.as_bytes());
            assert_eq!(len, Some(WHOLE.len()), "{text}");
        }
        for other in [
            "ether:eth0",
            "ether:eth0:9",
            "ether:eth0/02:00:00:00:00:01/x",
            "ether:eth0/a/b:",
            "ether:eth0/a b:",
            "ether:eth0/:",
            "ether:9/eth0/02:00:00:00:00:01",
            "ether:./02:00:00:00:00:01",
            "ether:9:eth0/02:00:00:00:00:01",
            "eth0/02:00:00:00:00:01",
        ] {
            let len = EthernetAddress::prefix(other.as_bytes());
            assert_eq!(len, None, "{other}");
        }
        for name in ["ether:eth0/box", "ether:eth0/box:9", "ether:eth0/box:a/b"] {
            assert_eq!(EthernetAddress::prefix(name.as_bytes()), Some(14), "{name}");
        }
        assert_eq!(EthernetAddress::prefix(b"ether:eth0/\xff"), None);
        assert_eq!(EthernetAddress::prefix(b"ether:\xff/box"), None);
    }

    #[test]
    fn of__no_address_and_no_interface_are_told_apart() {
        let of = |address: &str| EthernetAddress::of(address.parse().expect("one"));
        let none = of("127.0.0.1:9").expect_err("no address of Ethernet");
        assert_eq!(none.kind(), io::ErrorKind::InvalidInput);
        let gone = of("[fe80::11:22ff:fe33:4455%2147483647]:9").expect_err("no such interface");
        assert_eq!(gone.kind(), io::ErrorKind::AddrNotAvailable);
        let (_, link) = links()
            .expect("asked")
            .find(|it| it.0 == "lo")
            .expect("an interface");
        let loopback = link.ifindex();
        let found = of(&format!("[fe80::11:22ff:fe33:4455%{loopback}]:9")).expect("there");
        assert_eq!(found.to_string(), "ether:lo/02:11:22:33:44:55:9");
    }

    #[test]
    fn to_socket_addrs__names_what_is_missing() {
        let none = EthernetAddress::new("no-such-one", None, 9).to_socket_addrs();
        let none = none.expect_err("no such interface").to_string();
        assert!(none.contains("no-such-one"), "{none}");
        let loopback = EthernetAddress::new("lo", None, 9).to_socket_addrs();
        let loopback = loopback.expect_err("no Ethernet").to_string();
        assert!(loopback.contains("lo is not Ethernet"), "{loopback}");
    }
}
