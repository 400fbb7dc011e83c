//! Parses how users name files: a local path, or `[USER@]HOST[:PORT]:PATH`.

use crate::escape::escape;
use crate::limits::DEFAULT_PORT;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;
use zerolane::lanes::is_ethernet;
use zerolane::options::EthernetAddress;

/// The location of a file.
///
/// | written | means |
/// |---|---|
/// | `HOST:PATH` | PATH below the directory that HOST serves, on [`DEFAULT_PORT`] |
/// | `HOST:PORT:PATH` | the same on PORT |
/// | `[IPV6]:PATH`, `[IPV6]:PORT:PATH` | an IPv6 address needs its brackets |
/// | `ether:IFACE/MAC:PATH`, `ether:IFACE/MAC:PORT:PATH` | a host of the same segment, by raw Ethernet: an [`EthernetAddress`]; MAC may be its name |
/// | `USER@HOST:PATH` | PATH as USER can reach it there, over ssh: absolute, or from USER's home; PORT is ssh's |
/// | `HOST:~/PATH` | the same as `HOST:PATH` |
/// | anything else | a local path |
///
/// The first `:` decides, unless a `/` comes before it: `./a:b` is local. A remote PATH that begins with digits and a
/// `:` is written `HOST:./1:x`. A path at a host called `ether` that looks like an address of raw Ethernet, with one
/// `/`, is written `ether:./a/b`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A path on this machine.
    Local(PathBuf),
    /// A path below the directory that a host serves, or a path that a user there can reach. Bytes, because names need
    /// not be UTF-8.
    Remote(Host, Vec<u8>),
}

/// A host, and how to reach its file service: at a port, or by logging in as a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The user as whom a server is started there.
    pub user: Option<String>,
    /// Name or address, without brackets; for raw Ethernet, the address without its port.
    pub name: String,
    /// The UDP port of the running server, or the port for logins. `None`: the default.
    pub port: Option<u16>,
}

impl Host {
    /// A host whose file service listens on `port`.
    pub fn new(name: impl Into<String>, port: u16) -> Host {
        Host {
            user: None,
            name: name.into(),
            port: Some(port),
        }
    }

    /// The UDP port of the running server.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(DEFAULT_PORT)
    }
}

impl From<SocketAddr> for Host {
    fn from(address: SocketAddr) -> Host {
        let name = match address {
            SocketAddr::V6(it) if it.scope_id() != 0 => format!("{}%{}", it.ip(), it.scope_id()),
            _ => address.ip().to_string(),
        };
        Host::new(name, address.port())
    }
}

/// As in a location: with the port, unless it is the default of a login.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match self.name.contains(':') && !is_ethernet(&self.name) {
            true => write!(f, "[{}]", self.name)?,
            false => f.write_str(&self.name)?,
        }
        match (&self.user, self.port) {
            (Some(_), None) => Ok(()),
            _ => write!(f, ":{}", self.port()),
        }
    }
}

/// Why a text is not a [`Location`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// The part before or after `@` is empty.
    #[error(
        "USER@HOST:PATH needs both a user and a host (write a local name with '@' and ':' as ./NAME)"
    )]
    NoUser,
    /// The part before the first `:` is empty.
    #[error("no host before ':' (write a local name that begins with ':' as ./:name)")]
    NoHost,
    /// An address of raw Ethernet without a path.
    #[error(
        "a path must follow an address of raw Ethernet: ether:IFACE/MAC:PATH (write a path of a host called ether as ether:./PATH)"
    )]
    NoPath,
    /// `[` without `]:`, or an IPv6 address without either.
    #[error("write an IPv6 address as [ADDRESS]:PATH")]
    Brackets,
    /// An address that needs an interface (such as link-local), without one.
    #[error("a link-local address needs its interface: [{0}%eth0]:PATH")]
    Scope(Ipv6Addr),
    /// The host's name is not UTF-8.
    #[error("the host's name is not UTF-8")]
    HostName,
    /// The port is not a valid number.
    #[error("not a port number between 1 and 65535: {0}")]
    Port(String),
}

impl Location {
    /// Parses `text` by the table at [`Location`].
    ///
    /// # Errors
    /// A [`LocationError`] for a host or port that is not valid.
    ///
    /// ```
    /// use zerolane_files::Location;
    /// let there = Location::parse("server:backup/db".as_ref())?;
    /// assert!(matches!(there, Location::Remote(host, path) if host.name == "server" && path == b"backup/db"));
    /// # Ok::<(), zerolane_files::LocationError>(())
    /// ```
    pub fn parse(text: &OsStr) -> Result<Location, LocationError> {
        let bytes = text.as_bytes();
        let (user, bytes) = split_user(bytes);
        let Some((host, rest)) = split_host(bytes)? else {
            return Ok(Location::Local(PathBuf::from(text)));
        };
        if user.is_some_and(<[u8]>::is_empty) || (user.is_some() && host.is_empty()) {
            return Err(LocationError::NoUser);
        }
        if begins_with_address(bytes) {
            return Err(LocationError::Brackets);
        }
        if host.is_empty() {
            return Err(LocationError::NoHost);
        }
        if let Some(address) = as_address(host).filter(Ipv6Addr::is_unicast_link_local) {
            return Err(LocationError::Scope(address));
        }
        let text = |bytes: &[u8]| {
            let text = std::str::from_utf8(bytes).map(str::to_owned);
            text.map_err(|_| LocationError::HostName)
        };
        let (port, path) = split_port(rest)?;
        let host = Host {
            user: user.map(text).transpose()?,
            name: text(host)?,
            port,
        };
        Ok(Location::Remote(host, from_home(path).to_vec()))
    }
}

impl FromStr for Location {
    type Err = LocationError;
    fn from_str(text: &str) -> Result<Location, LocationError> {
        Location::parse(text.as_ref())
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Local(path) => f.write_str(&escape(path.as_os_str().as_bytes())),
            Location::Remote(host, path) => write!(f, "{host}:{}", escape(path)),
        }
    }
}

fn as_address(bytes: &[u8]) -> Option<Ipv6Addr> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// Whether the text up to one of the `:`, or all of it, is an IPv6 address.
fn begins_with_address(bytes: &[u8]) -> bool {
    let longest = bytes.len().min(LONGEST_ADDRESS + 1);
    let mut ends = (2..=longest).filter(|&end| bytes.get(end).is_none_or(|&b| b == b':'));
    ends.any(|end| as_address(&bytes[..end]).is_some())
}

/// Longest text of an IPv6 address, bytes.
const LONGEST_ADDRESS: usize = "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255".len();

/// Splits at the last `@` before the first `:` or `/`. A `[` begins an address, which may have an `@` in its scope.
fn split_user(bytes: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let end = bytes.iter().position(|b| b":/[".contains(b));
    let found = bytes[..end.unwrap_or(0)].iter().rposition(|&b| b == b'@');
    match found {
        Some(at) => (Some(&bytes[..at]), &bytes[at + 1..]),
        None => (None, bytes),
    }
}

/// Removes a leading `~`, which stands for the directory where relative paths begin anyway.
fn from_home(path: &[u8]) -> &[u8] {
    match path.strip_prefix(b"~") {
        Some(rest) if rest.is_empty() || rest[0] == b'/' => {
            let slashes = rest.iter().take_while(|&&b| b == b'/').count();
            &rest[slashes..]
        }
        _ => path,
    }
}

/// A host's name and the text after its `:`.
type HostAndRest<'t> = (&'t [u8], &'t [u8]);

/// Splits off the host; `None` if the text is a local path.
fn split_host(bytes: &[u8]) -> Result<Option<HostAndRest<'_>>, LocationError> {
    if bytes.first() == Some(&b'[') {
        let end = bytes
            .windows(2)
            .position(|w| w == b"]:")
            .ok_or(LocationError::Brackets)?;
        return Ok(Some((&bytes[1..end], &bytes[end + 2..])));
    }
    if let Some(end) = EthernetAddress::prefix(bytes) {
        let (host, rest) = bytes.split_at(end);
        let rest = rest.strip_prefix(b":").ok_or(LocationError::NoPath)?;
        return Ok(Some((host, rest)));
    }
    let first = bytes.iter().position(|&b| b == b':' || b == b'/');
    Ok(first
        .filter(|&at| bytes[at] == b':')
        .map(|at| (&bytes[..at], &bytes[at + 1..])))
}

/// The port, if the text begins with digits and a `:`, and the path.
fn split_port(rest: &[u8]) -> Result<(Option<u16>, &[u8]), LocationError> {
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    if digits == 0 || rest.get(digits) != Some(&b':') {
        return Ok((None, rest));
    }
    let text = String::from_utf8_lossy(&rest[..digits]);
    match text.parse() {
        Ok(port) if port != 0 => Ok((Some(port), &rest[digits + 1..])),
        _ => Err(LocationError::Port(text.into_owned())),
    }
}

impl From<Location> for OsString {
    fn from(location: Location) -> OsString {
        match location {
            Location::Local(path) => path.into_os_string(),
            Location::Remote(host, path) => {
                let mut text = format!("{host}:").into_bytes();
                text.extend(path);
                OsString::from_vec(text)
            }
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn remote(name: &str, port: u16, path: &[u8]) -> Location {
        let mut host = Host::new(name, port);
        host.port = host.port.filter(|&port| port != DEFAULT_PORT);
        Location::Remote(host, path.to_vec())
    }

    #[test]
    fn parse__as_a_user() {
        for (text, user, name, port, path) in [
            ("me@host:a", "me", "host", None, &b"a"[..]),
            ("me@host:/a/b", "me", "host", None, b"/a/b"),
            ("me@host:", "me", "host", None, b""),
            ("me@host:2222:a", "me", "host", Some(2222), b"a"),
            ("me@realm@host:a", "me@realm", "host", None, b"a"),
            ("me@[::1]:a", "me", "::1", None, b"a"),
            ("me@[::1]:22:a", "me", "::1", Some(22), b"a"),
            ("-oX@host:a", "-oX", "host", None, b"a"),
        ] {
            let (user, name) = (Some(user.to_owned()), name.to_owned());
            let expected = Location::Remote(Host { user, name, port }, path.to_vec());
            assert_eq!(text.parse(), Ok(expected.clone()), "{text}");
            assert_eq!(
                Location::parse(&OsString::from(expected.clone())),
                Ok(expected)
            );
        }
        for text in ["@host:a", "me@:a"] {
            assert_eq!(
                text.parse::<Location>(),
                Err(LocationError::NoUser),
                "{text}"
            );
        }
        for text in ["me@host", "dir/me@host:a", "me@dir/x:y"] {
            assert_eq!(text.parse(), Ok(Location::Local(text.into())), "{text}");
        }
    }

    #[test]
    fn parse__a_tilde_is_where_paths_begin() {
        for (text, path) in [
            ("h:~", &b""[..]),
            ("h:~/", b""),
            ("h:~//a", b"a"),
            ("h:~a", b"~a"),
            ("h:./~", b"./~"),
            ("h:a/~", b"a/~"),
        ] {
            assert_eq!(text.parse(), Ok(remote("h", DEFAULT_PORT, path)), "{text}");
        }
    }

    #[test]
    fn parse__remote() {
        for (text, expected) in [
            ("host:", remote("host", DEFAULT_PORT, b"")),
            ("host:a/b", remote("host", DEFAULT_PORT, b"a/b")),
            ("host:7000:a", remote("host", 7000, b"a")),
            ("host:7000:", remote("host", 7000, b"")),
            ("host:7000", remote("host", DEFAULT_PORT, b"7000")),
            ("host:./7000:a", remote("host", DEFAULT_PORT, b"./7000:a")),
            ("10.0.0.1:x:y", remote("10.0.0.1", DEFAULT_PORT, b"x:y")),
            ("[::1]:x", remote("::1", DEFAULT_PORT, b"x")),
            ("[fe80::1%eth0]:7000:x", remote("fe80::1%eth0", 7000, b"x")),
            ("ether:a/b/c", remote("ether", DEFAULT_PORT, b"a/b/c")),
            ("ether:./a/b", remote("ether", DEFAULT_PORT, b"./a/b")),
            (
                "ether:eth0/box:a",
                remote("ether:eth0/box", DEFAULT_PORT, b"a"),
            ),
            ("ether:eth0/box:7:a", remote("ether:eth0/box", 7, b"a")),
            ("ether:7:a/b", remote("ether", 7, b"a/b")),
        ] {
            assert_eq!(text.parse(), Ok(expected.clone()), "{text}");
            // Printed and parsed again, it is the same location, with the port.
            let Location::Remote(host, path) = &expected else {
                panic!("{text} is remote");
            };
            let again = Host::new(host.name.clone(), host.port());
            let again = Location::Remote(again, path.clone());
            assert_eq!(Location::parse(&OsString::from(expected)), Ok(again));
        }
    }

    #[test]
    fn parse__of_raw_ethernet() {
        const HOST: &str = "ether:eth0/02:00:00:00:00:01";
        for (rest, port, path) in [
            (":", DEFAULT_PORT, &b""[..]),
            (":a:b/c", DEFAULT_PORT, b"a:b/c"),
            (":7000:a", 7000, b"a"),
            (":~/a", DEFAULT_PORT, b"a"),
        ] {
            let text = format!("{HOST}{rest}");
            let expected = remote(HOST, port, path);
            assert_eq!(text.parse(), Ok(expected.clone()), "{text}");
            let Location::Remote(host, _) = &expected else {
                panic!("{text} is remote");
            };
            assert_eq!(host.to_string(), format!("{HOST}:{port}"));
        }
        for bare in [HOST, "ether:eth0/box"] {
            assert_eq!(bare.parse::<Location>(), Err(LocationError::NoPath));
        }
        let other = remote("ether", DEFAULT_PORT, b"./eth0/02:00:00:00:00:01:x");
        assert_eq!("ether:./eth0/02:00:00:00:00:01:x".parse(), Ok(other));
    }

    #[test]
    fn parse__local() {
        for text in ["a", "./a:b", "/a:b", "dir/x:y", "", "a b"] {
            assert_eq!(text.parse(), Ok(Location::Local(text.into())), "{text}");
        }
    }

    #[test]
    fn parse__errors() {
        assert_eq!(":x".parse::<Location>(), Err(LocationError::NoHost));
        assert_eq!("[]:x".parse::<Location>(), Err(LocationError::NoHost));
        for bare in [
            "[::1",
            "fd99::2:",
            "fd99::2:a/b",
            "fd99::2",
            "::1:x",
            "fe80::1:",
        ] {
            assert_eq!(
                bare.parse::<Location>(),
                Err(LocationError::Brackets),
                "{bare}"
            );
        }
        let link_local = "fe80::1".parse().unwrap();
        for text in ["[fe80::1]:x", "[fe80::1]:7000:x"] {
            assert_eq!(
                text.parse::<Location>(),
                Err(LocationError::Scope(link_local))
            );
        }
        assert_eq!(
            "h:0:x".parse::<Location>(),
            Err(LocationError::Port("0".into()))
        );
        assert_eq!(
            "h:65536:x".parse::<Location>(),
            Err(LocationError::Port("65536".into()))
        );
    }

    #[test]
    fn Host__of_an_address_has_its_interface() {
        for (address, name) in [
            ("[fe80::1%7]:9", "fe80::1%7"),
            ("[2001:db8::1]:9", "2001:db8::1"),
            ("192.0.2.1:9", "192.0.2.1"),
        ] {
            let host = Host::from(address.parse::<SocketAddr>().unwrap());
            assert_eq!(host, Host::new(name, 9));
        }
    }

    #[test]
    fn parse__remote_path_not_utf8() {
        let text = OsString::from_vec(b"h:\xff".to_vec());
        assert_eq!(
            Location::parse(&text),
            Ok(remote("h", DEFAULT_PORT, b"\xff"))
        );
    }
}
