//! Names what a stream of a forwarder is for, in its purpose.
//!
//! ```text
//! connect HOST PORT    connect to this address, and pass on
//! listen HOST PORT     listen there as long as the stream is open
//! from NUMBER          a connection to the listener that the stream of this number asked for
//! ```

use std::fmt;
use std::net::IpAddr;

/// A host and a port, to connect to or to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// Longest name of a host (RFC 1035).
const MAX_HOST: usize = 255;

impl Target {
    /// A target, if `host` may be a name or an address.
    pub fn new(host: &str, port: u16) -> Option<Target> {
        let odd = |it: char| it.is_whitespace() || it.is_control() || it == '/';
        let fits = (1..=MAX_HOST).contains(&host.len()) && !host.contains(odd);
        fits.then(|| Target {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Target { host, port } = self;
        match host.parse() {
            Ok(IpAddr::V6(ip)) => write!(f, "[{ip}]:{port}"),
            _ => write!(f, "{host}:{port}"),
        }
    }
}

/// The purpose of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Connect to this address.
    Connect(Target),
    /// Listen on this address.
    Listen(Target),
    /// A connection to the listener that the stream of this number asked for.
    From(u64),
}

impl Request {
    /// Reads a purpose.
    pub fn parse(purpose: &[u8]) -> Option<Request> {
        let words: Vec<&str> = std::str::from_utf8(purpose).ok()?.split(' ').collect();
        match words[..] {
            ["connect", host, port] => Some(Request::Connect(Target::new(host, number(port)?)?)),
            ["listen", host, port] => Some(Request::Listen(Target::new(host, number(port)?)?)),
            ["from", stream] => Some(Request::From(number(stream)?)),
            _ => None,
        }
    }
}

/// A number without a sign, as it is written.
fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    let digits = text.bytes().all(|it| it.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Connect(Target { host, port }) => write!(f, "connect {host} {port}"),
            Request::Listen(Target { host, port }) => write!(f, "listen {host} {port}"),
            Request::From(stream) => write!(f, "from {stream}"),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn Request__is_read_as_written() {
        for request in [
            Request::Connect(Target::new("example.org", 80).unwrap()),
            Request::Listen(Target::new("::", 0).unwrap()),
            Request::From(u64::MAX),
        ] {
            let purpose = request.to_string();
            assert_eq!(Request::parse(purpose.as_bytes()), Some(request));
        }
    }

    #[test]
    fn Request__of_no_meaning_is_none() {
        let long = format!("connect {} 1", "a".repeat(256));
        for purpose in [
            "",
            "connect",
            "connect a",
            "connect a b",
            "connect a 65536",
            "connect a -1",
            "connect a +1",
            "connect  1",
            "connect a/b 1",
            "connect a 1 2",
            "from x",
            "from -1",
            "exec sh 1",
            "connect a\n 1",
            &long,
        ] {
            assert_eq!(Request::parse(purpose.as_bytes()), None, "{purpose:?}");
        }
        assert_eq!(Request::parse(b"connect \xff 1"), None);
    }
}
