//! Parses and prints addresses as users write them, with or without a port.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context, Result as Outcome, ensure};
use zerolane::lanes::{is_ethernet, resolve_host};
use zerolane::options::{EthernetAddress, LaneChoice};

/// Parses `ADDR` or `ADDR:PORT`; an IPv6 address with a port is in brackets.
fn parse_listen(text: &str, default_port: u16) -> Result<SocketAddr, String> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    text.parse()
        .or_else(|_| {
            bare.parse::<IpAddr>()
                .map(|ip| SocketAddr::new(ip, default_port))
        })
        .map_err(|_| "not an IP address, with or without a port".into())
}

/// Parses `HOST`, `HOST:PORT`, `IPV6`, `[IPV6]` or `[IPV6]:PORT` into the name or address, and the port. A link-local
/// address carries its interface after a `%`. `ether:IFACE/MAC` and `ether:IFACE/NAME` are raw Ethernet addresses.
pub(crate) fn parse_host(text: &str, default_port: u16) -> Result<(String, u16), String> {
    if let Some((address, port)) = of_ethernet(text) {
        let port = port.map_or(Ok(default_port), parse_port)?;
        return Ok((address.to_owned(), port));
    }
    if let Some((address, port)) = with_interface(text) {
        let port = port.map_or(Ok(default_port), parse_port)?;
        return Ok((address.to_owned(), port));
    }
    if let Ok(address) = parse_listen(text, default_port) {
        return match address.ip() {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => Err(format!(
                "a link-local address needs its interface: [{ip}%eth0]"
            )),
            ip => Ok((ip.to_string(), address.port())),
        };
    }
    let (name, port) = match text.split_once(':') {
        None => (text, default_port),
        Some((name, port)) => (name, parse_port(port)?),
    };
    match name.is_empty() {
        true => Err("no host".into()),
        false => Ok((name.to_owned(), port)),
    }
}

/// Splits `IPV6%IF`, `[IPV6%IF]` or `[IPV6%IF]:PORT`, which only the resolver understands, into address and port.
fn with_interface(text: &str) -> Option<(&str, Option<&str>)> {
    let (address, port) = match text.strip_prefix('[') {
        None => (text, None),
        Some(inside) => match inside.split_once(']')? {
            (address, "") => (address, None),
            (address, rest) => (address, Some(rest.strip_prefix(':')?)),
        },
    };
    let (ip, _) = address.split_once('%')?;
    ip.parse::<Ipv6Addr>().is_ok().then_some((address, port))
}

/// Splits `ether:IFACE/MAC` or `ether:IFACE/NAME`, with or without `:PORT`, into address and port.
fn of_ethernet(text: &str) -> Option<(&str, Option<&str>)> {
    let (address, port) = text.split_at(EthernetAddress::prefix(text.as_bytes())?);
    Some((address, port.strip_prefix(':')))
}

/// Formats a host and a port so that [`parse_host`] reads them back.
pub(crate) fn shown(name: &str, port: u16) -> String {
    match name.contains(':') && !is_ethernet(name) {
        true => format!("[{name}]:{port}"),
        false => format!("{name}:{port}"),
    }
}

/// Formats the address of a connection over `lane` as users write it.
pub(crate) fn address_shown(address: SocketAddr, lane: LaneChoice) -> String {
    let ethernet = (lane == LaneChoice::Ethernet).then(|| EthernetAddress::of(address));
    match ethernet {
        Some(Ok(address)) => address.to_string(),
        _ => address.to_string(),
    }
}

fn parse_port(text: &str) -> Result<u16, String> {
    let port = text.parse().ok().filter(|&port| port != 0);
    port.ok_or_else(|| format!("{text:?} is no port between 1 and 65535"))
}

/// Where to listen: an address, an interface or a name of this host, and a port; port 0 means any free one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listen {
    name: String,
    port: u16,
}

impl Listen {
    /// Listens on loopback, which only this machine can reach.
    pub(crate) fn loopback(port: u16) -> Listen {
        let name = Ipv4Addr::LOCALHOST.to_string();
        Listen { name, port }
    }

    /// Parses what [`parse_host`] accepts, and also port 0. For raw Ethernet, `ether:IFACE` is enough.
    pub(crate) fn parse(text: &str, default_port: u16) -> Result<Listen, String> {
        if is_ethernet(text) {
            return Listen::parse_ethernet(text, default_port);
        }
        let (name, port) = match text.strip_suffix(":0") {
            Some(name) if with_interface(text).is_some() || parse_listen(text, 1).is_err() => {
                (parse_host(name, 1)?.0, 0)
            }
            _ => parse_host(text, default_port)?,
        };
        Ok(Listen { name, port })
    }

    fn parse_ethernet(text: &str, default_port: u16) -> Result<Listen, String> {
        let (name, port) = of_ethernet(text).unwrap_or_else(|| {
            let colon = text.rmatch_indices(':').next();
            match colon.filter(|(at, _)| text[..*at].contains(':')) {
                Some((at, _)) => (&text[..at], Some(&text[at + 1..])),
                None => (text, None),
            }
        });
        let port = match port {
            Some("0") => 0,
            port => port.map_or(Ok(default_port), parse_port)?,
        };
        let is_address = shown(name, port).parse::<EthernetAddress>();
        let is_own = is_address.is_ok_and(|it| it.hardware().is_some() || !name.contains('/'));
        if !is_own {
            return Err("no interface: ether:IFACE or ether:IFACE:PORT is wanted".into());
        }
        let name = name.to_owned();
        Ok(Listen { name, port })
    }

    /// The name or address, without its port.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The name or address, and the port.
    pub(crate) fn place(&self) -> (&str, u16) {
        (&self.name, self.port)
    }

    /// Resolves the name for `lane`: one address, or several if the name has several.
    ///
    /// # Errors
    /// The name or interface does not exist.
    pub(crate) fn resolve(&self, lane: LaneChoice) -> Outcome<Vec<SocketAddr>> {
        let found = resolve_host(&self.name, self.port, lane);
        let found = found.with_context(|| format!("cannot find the address of {:?}", self.name))?;
        ensure!(!found.is_empty(), "{:?} has no address", self.name);
        Ok(found)
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.name, self.port))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const NO_INTERFACE: &str = "a link-local address needs its interface: [fe80::1%eth0]";

    #[test]
    fn parse_listen__with_and_without_port() {
        for (text, expected) in [
            ("10.0.0.1", "10.0.0.1:9181"),
            ("10.0.0.1:7", "10.0.0.1:7"),
            ("::1", "[::1]:9181"),
            ("[::1]", "[::1]:9181"),
            ("[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(
                parse_listen(text, 9181),
                Ok(expected.parse().unwrap()),
                "{text}"
            );
        }
        assert!(parse_listen("host", 9181).is_err());
    }

    #[test]
    fn Listen__addresses_and_names() {
        for (text, expected) in [
            ("10.0.0.1", "10.0.0.1:5"),
            ("10.0.0.1:0", "10.0.0.1:0"),
            ("::1", "[::1]:5"),
            ("[::1]:0", "[::1]:0"),
            ("localhost", "localhost:5"),
            ("localhost:7", "localhost:7"),
            ("localhost:0", "localhost:0"),
            ("fe80::1%eth0", "[fe80::1%eth0]:5"),
            ("[fe80::1%eth0]:0", "[fe80::1%eth0]:0"),
            ("[fe80::1%2]:0", "[fe80::1%2]:0"),
        ] {
            let listen = Listen::parse(text, 5).unwrap();
            assert_eq!(listen.to_string(), expected, "{text}");
        }
        for bad in ["", ":0", "host:", "host:x", "a:b:0"] {
            assert!(Listen::parse(bad, 5).is_err(), "{bad}");
        }
        for bad in ["fe80::1", "[fe80::1]", "[fe80::1]:0", "[fe80::1]:7"] {
            assert_eq!(Listen::parse(bad, 5), Err(NO_INTERFACE.into()), "{bad}");
        }
        let resolve = |text| Listen::parse(text, 5).unwrap().resolve(LaneChoice::Udp);
        let found = resolve("localhost:0").unwrap();
        assert!(
            found
                .iter()
                .all(|it| it.ip().is_loopback() && it.port() == 0)
        );
        assert!(resolve("no-such-host.invalid").is_err());
    }

    #[test]
    fn Listen__interfaces() {
        for (text, expected) in [
            ("ether:eth0", "ether:eth0:5"),
            ("ether:eth0:0", "ether:eth0:0"),
            ("ether:br-1.7:7", "ether:br-1.7:7"),
            (
                "ether:eth0/02:00:00:00:00:01",
                "ether:eth0/02:00:00:00:00:01:5",
            ),
            (
                "ether:eth0/02:00:00:00:00:01:0",
                "ether:eth0/02:00:00:00:00:01:0",
            ),
        ] {
            let listen = Listen::parse(text, 5).unwrap();
            assert_eq!(listen.to_string(), expected, "{text}");
        }
        for bad in [
            "ether:",
            "ether::7",
            "ether:eth0:x",
            "ether:eth0/x",
            "ether:eth0:70000",
        ] {
            assert!(Listen::parse(bad, 5).is_err(), "{bad}");
        }
    }

    #[test]
    fn parse_host__names_and_addresses() {
        for (text, name, port) in [
            ("host", "host", 5),
            ("host:7", "host", 7),
            ("10.0.0.1:7", "10.0.0.1", 7),
            ("::1", "::1", 5),
            ("[::1]:7", "::1", 7),
            ("fe80::1%eth0", "fe80::1%eth0", 5),
            ("[fe80::1%eth0]", "fe80::1%eth0", 5),
            ("[fe80::1%2]:7", "fe80::1%2", 7),
            (
                "ether:eth0/02:00:00:00:00:01",
                "ether:eth0/02:00:00:00:00:01",
                5,
            ),
            (
                "ether:eth0/02:00:00:00:00:01:7",
                "ether:eth0/02:00:00:00:00:01",
                7,
            ),
            ("ether:eth0/box", "ether:eth0/box", 5),
            ("ether:eth0/box:7", "ether:eth0/box", 7),
        ] {
            assert_eq!(parse_host(text, 5), Ok((name.to_owned(), port)), "{text}");
        }
        for bad in [
            "",
            ":7",
            "host:",
            "host:0",
            "host:x",
            "host:70000",
            "a:b:c",
            "[fe80::1%2]:0",
            "[fe80::1%2]7",
            "x%2:y",
            "ether:eth0/02:00:00:00:00:01:",
            "ether:eth0/02:00:00:00:00:01:0",
            "ether:eth0/x y",
            "ether:eth0/x/y:7",
        ] {
            assert!(parse_host(bad, 5).is_err(), "{bad}");
        }
        for bad in ["fe80::1", "[fe80::1]", "[fe80::1]:7"] {
            assert_eq!(parse_host(bad, 5), Err(NO_INTERFACE.into()), "{bad}");
        }
    }
}
