//! Addresses as users write them, with or without a port.

use std::net::{IpAddr, SocketAddr};

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
