//! Addresses as users write them, with or without a port.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result as Outcome, ensure};

/// `ADDR` or `ADDR:PORT`, an IPv6 address with a port in brackets.
pub(crate) fn parse_listen(text: &str, default_port: u16) -> Result<SocketAddr, String> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    text.parse()
        .or_else(|_| {
            bare.parse::<IpAddr>()
                .map(|ip| SocketAddr::new(ip, default_port))
        })
        .map_err(|_| "not an IP address, with or without a port".into())
}

/// `HOST`, `HOST:PORT`, `IPV6`, `[IPV6]` or `[IPV6]:PORT`: the name or address, and the port.
pub(crate) fn parse_host(text: &str, default_port: u16) -> Result<(String, u16), String> {
    if let Ok(address) = parse_listen(text, default_port) {
        return Ok((address.ip().to_string(), address.port()));
    }
    let (name, port) = match text.split_once(':') {
        None => (text, default_port),
        Some((name, port)) => match port.parse() {
            Ok(port) if port != 0 => (name, port),
            _ => return Err(format!("{port:?} is no port between 1 and 65535")),
        },
    };
    match name.is_empty() {
        true => Err("no host".into()),
        false => Ok((name.to_owned(), port)),
    }
}

/// Where to listen: an address or a name of this host, and a port, 0 for any free one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listen {
    name: String,
    port: u16,
}

impl Listen {
    /// Only this machine can reach it.
    pub(crate) fn loopback(port: u16) -> Listen {
        let name = Ipv4Addr::LOCALHOST.to_string();
        Listen { name, port }
    }

    /// As [`parse_host`], and port 0 besides.
    pub(crate) fn parse(text: &str, default_port: u16) -> Result<Listen, String> {
        let (name, port) = match text.strip_suffix(":0") {
            Some(name) if parse_listen(text, default_port).is_err() => (parse_host(name, 1)?.0, 0),
            _ => parse_host(text, default_port)?,
        };
        Ok(Listen { name, port })
    }

    /// The addresses that it stands for: one, but for names that have several.
    ///
    /// # Errors
    /// There is no such name.
    pub(crate) fn resolve(&self) -> Outcome<Vec<SocketAddr>> {
        let found = (self.name.as_str(), self.port).to_socket_addrs();
        let found: Vec<_> = found
            .with_context(|| format!("cannot find the address of {:?}", self.name))?
            .collect();
        ensure!(!found.is_empty(), "{:?} has no address", self.name);
        Ok(found)
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]:{}", self.name, self.port),
            false => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

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
        ] {
            let listen = Listen::parse(text, 5).unwrap();
            assert_eq!(listen.to_string(), expected, "{text}");
        }
        for bad in ["", ":0", "host:", "host:x", "a:b:0"] {
            assert!(Listen::parse(bad, 5).is_err(), "{bad}");
        }
        let found = Listen::parse("localhost:0", 5).unwrap().resolve().unwrap();
        assert!(
            found
                .iter()
                .all(|it| it.ip().is_loopback() && it.port() == 0)
        );
        let missing = Listen::parse("no-such-host.invalid", 5).unwrap();
        assert!(missing.resolve().is_err());
    }

    #[test]
    fn parse_host__names_and_addresses() {
        for (text, name, port) in [
            ("host", "host", 5),
            ("host:7", "host", 7),
            ("10.0.0.1:7", "10.0.0.1", 7),
            ("::1", "::1", 5),
            ("[::1]:7", "::1", 7),
        ] {
            assert_eq!(parse_host(text, 5), Ok((name.to_owned(), port)), "{text}");
        }
        for bad in ["", ":7", "host:", "host:0", "host:x", "host:70000", "a:b:c"] {
            assert!(parse_host(bad, 5).is_err(), "{bad}");
        }
    }
}
