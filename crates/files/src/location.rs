//! How a user names a file: a local path, or `HOST[:PORT]:PATH`.

use crate::escape::escape;
use crate::limits::DEFAULT_PORT;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;

/// Where a file is.
///
/// | written | means |
/// |---|---|
/// | `HOST:PATH` | PATH below the directory that HOST serves, on [`DEFAULT_PORT`] |
/// | `HOST:PORT:PATH` | the same on PORT |
/// | `[IPV6]:PATH`, `[IPV6]:PORT:PATH` | an IPv6 address needs its brackets |
/// | anything else | a local path |
///
/// The first `:` decides, unless a `/` stands before it: `./a:b` is local. A remote PATH that
/// itself begins with digits and a `:` is written `HOST:./1:x`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A path on this machine.
    Local(PathBuf),
    /// A path below the directory that a host serves. Bytes: names need not be UTF-8.
    Remote(Host, Vec<u8>),
}

/// A host and the port its file service listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name or address, without brackets.
    pub name: String,
    /// UDP port.
    pub port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]:{}", self.name, self.port),
            false => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

/// Why a text is not a [`Location`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// Nothing before the first `:`.
    #[error("no host before ':' (a local name that begins so is written ./:name)")]
    NoHost,
    /// `[` without `]:`.
    #[error("an IPv6 address is written [ADDRESS]:PATH")]
    Brackets,
    /// The host's name is not UTF-8.
    #[error("the host's name is not UTF-8")]
    HostName,
    /// Digits that are no port.
    #[error("no port number between 1 and 65535: {0}")]
    Port(String),
}

impl Location {
    /// Reads `text` as the table at [`Location`] says.
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
        let Some((host, rest)) = split_host(bytes)? else {
            return Ok(Location::Local(PathBuf::from(text)));
        };
        if host.is_empty() {
            return Err(LocationError::NoHost);
        }
        let name = std::str::from_utf8(host)
            .map_err(|_| LocationError::HostName)?
            .to_owned();
        let (port, path) = split_port(rest)?;
        Ok(Location::Remote(Host { name, port }, path.to_vec()))
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

/// A host's name and what follows its `:`.
type HostAndRest<'t> = (&'t [u8], &'t [u8]);

/// `None` if the text is a local path.
fn split_host(bytes: &[u8]) -> Result<Option<HostAndRest<'_>>, LocationError> {
    if bytes.first() == Some(&b'[') {
        let end = bytes
            .windows(2)
            .position(|w| w == b"]:")
            .ok_or(LocationError::Brackets)?;
        return Ok(Some((&bytes[1..end], &bytes[end + 2..])));
    }
    let first = bytes.iter().position(|&b| b == b':' || b == b'/');
    Ok(first
        .filter(|&at| bytes[at] == b':')
        .map(|at| (&bytes[..at], &bytes[at + 1..])))
}

/// The port, if digits and a `:` come first, and the path.
fn split_port(rest: &[u8]) -> Result<(u16, &[u8]), LocationError> {
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    if digits == 0 || rest.get(digits) != Some(&b':') {
        return Ok((DEFAULT_PORT, rest));
    }
    let text = String::from_utf8_lossy(&rest[..digits]);
    match text.parse() {
        Ok(port) if port != 0 => Ok((port, &rest[digits + 1..])),
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
        Location::Remote(
            Host {
                name: name.into(),
                port,
            },
            path.to_vec(),
        )
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
        ] {
            assert_eq!(text.parse(), Ok(expected.clone()), "{text}");
            // Its text is read as the same location.
            assert_eq!(
                Location::parse(&OsString::from(expected.clone())),
                Ok(expected)
            );
        }
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
        assert_eq!("[::1".parse::<Location>(), Err(LocationError::Brackets));
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
    fn parse__remote_path_not_utf8() {
        let text = OsString::from_vec(b"h:\xff".to_vec());
        assert_eq!(
            Location::parse(&text),
            Ok(remote("h", DEFAULT_PORT, b"\xff"))
        );
    }
}
