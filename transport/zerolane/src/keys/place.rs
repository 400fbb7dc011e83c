//! Parses the addresses that the owner of a key may have a forwarder connect to or listen on.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Longest name of a host, bytes (RFC 1035).
const MAX_HOST: usize = 255;

/// A host and a port, `*` for any of either: `web:80`, `[2001:db8::1]:22`, `127.0.0.1:*`, `*:443`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    host: Option<String>,
    port: Option<u16>,
}

impl Place {
    /// Whether this is `host` at `port`. Names are compared as they are written, in any case of letters, and not resolved:
    /// a name's addresses are other places.
    pub fn covers(&self, host: &str, port: u16) -> bool {
        let host_fits = self.host.as_deref().is_none_or(|own| same_host(own, host));
        host_fits && self.port.is_none_or(|own| own == port)
    }
}

fn same_host(one: &str, other: &str) -> bool {
    match (one.parse::<IpAddr>(), other.parse::<IpAddr>()) {
        (Ok(one), Ok(other)) => one == other,
        (Err(_), Err(_)) => one.eq_ignore_ascii_case(other),
        _ => false,
    }
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Place, &'static str> {
        const WRONG: &str =
            "expected HOST:PORT, with [brackets] around an IPv6 address and * for any host or port";
        let (host, port) = text.rsplit_once(':').ok_or(WRONG)?;
        let host = match host.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            Some(ip) => Some(
                ip.parse::<std::net::Ipv6Addr>()
                    .map_err(|_| WRONG)?
                    .to_string(),
            ),
            None if host == "*" => None,
            None if host.contains(':') => return Err(WRONG),
            None => Some(host.to_owned()),
        };
        let is_odd = |it: char| it.is_whitespace() || it.is_control() || "*,/[]#=".contains(it);
        let fits = |it: &String| (1..=MAX_HOST).contains(&it.len()) && !it.contains(is_odd);
        if host.as_ref().is_some_and(|it| !fits(it)) {
            return Err(WRONG);
        }
        let port = match port {
            "*" => None,
            port if port.bytes().all(|it| it.is_ascii_digit()) => {
                Some(port.parse().map_err(|_| WRONG)?)
            }
            _ => return Err(WRONG),
        };
        Ok(Place { host, port })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.as_deref() {
            None => f.write_str("*")?,
            Some(ip) if ip.contains(':') => write!(f, "[{ip}]")?,
            Some(host) => f.write_str(host)?,
        }
        match self.port {
            None => f.write_str(":*"),
            Some(port) => write!(f, ":{port}"),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn Place__covers_what_it_names_and_nothing_else() {
        for (place, host, port, covered) in [
            ("web:80", "web", 80, true),
            ("web:80", "WEB", 80, true),
            ("web:80", "web", 81, false),
            ("web:80", "web.example", 80, false),
            ("web:80", "192.0.2.1", 80, false),
            ("web:*", "web", 1, true),
            ("*:443", "anything", 443, true),
            ("*:443", "::1", 443, true),
            ("*:443", "anything", 80, false),
            ("*:*", "x", 0, true),
            ("127.0.0.1:22", "127.0.0.1", 22, true),
            ("127.0.0.1:22", "localhost", 22, false),
            ("localhost:22", "127.0.0.1", 22, false),
            ("[::1]:22", "::1", 22, true),
            ("[::1]:22", "0:0:0:0:0:0:0:1", 22, true),
            ("[::1]:22", "::2", 22, false),
        ] {
            let it: Place = place.parse().unwrap();
            assert_eq!(it.covers(host, port), covered, "{place} {host} {port}");
            assert_eq!(it.to_string(), place);
        }
    }

    #[test]
    fn Place__of_another_form_is_refused() {
        for text in [
            "",
            ":",
            "web",
            ":80",
            "web:",
            "web:65536",
            "web:-1",
            "web:+1",
            "web:http",
            "a b:1",
            "::1:22",
            "[web]:1",
            "[::1]",
            "*",
            "w*:1",
            "*.example:1",
            "web:8*",
            "a,b:1",
            "a/b:1",
        ] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
