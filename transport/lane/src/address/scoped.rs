//! Parses an IPv6 address with an interface after a `%`, which the standard library accepts only as a number.

use nix::net::if_::if_nametoindex;
use std::io;
use std::net::{Ipv6Addr, SocketAddrV6};

/// A parsed address of one link.
pub(crate) struct Scoped {
    ip: Ipv6Addr,
    interface: u32,
    pub(crate) port: Option<u16>,
}

impl Scoped {
    /// The address, with port 0 if the text has none.
    pub(crate) fn address(&self) -> SocketAddrV6 {
        SocketAddrV6::new(self.ip, self.port.unwrap_or(0), 0, self.interface)
    }
}

/// Parses `ADDRESS%INTERFACE`, `[ADDRESS%INTERFACE]` or `[ADDRESS%INTERFACE]:PORT`, with the interface's name or index.
/// Looks up the interface in the network namespace of the calling thread. `None` if `text` is not such an address.
///
/// # Errors
/// The interface does not exist.
pub(crate) fn read(text: &str) -> io::Result<Option<Scoped>> {
    let Some((ip, interface, port)) = split(text) else {
        return Ok(None);
    };
    let interface = match interface.parse() {
        Ok(number) => number,
        Err(_) => if_nametoindex(interface).map_err(|_| {
            let what = format!("no interface {interface}: `ip link` lists the interfaces");
            io::Error::new(io::ErrorKind::AddrNotAvailable, what)
        })?,
    };
    Ok(Some(Scoped {
        ip,
        interface,
        port,
    }))
}

fn split(text: &str) -> Option<(Ipv6Addr, &str, Option<u16>)> {
    let (address, port) = match text.strip_prefix('[') {
        None => (text, None),
        Some(inside) => match inside.split_once(']')? {
            (address, "") => (address, None),
            (address, rest) => (address, Some(rest.strip_prefix(':')?.parse().ok()?)),
        },
    };
    let (ip, interface) = address.split_once('%')?;
    let ip = ip.parse().ok().filter(|_| !interface.is_empty())?;
    Some((ip, interface, port))
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn read__by_name_and_by_number() {
        let loopback = if_nametoindex("lo").expect("an interface");
        for (text, number, port) in [
            ("fe80::1%lo", loopback, None),
            ("[fe80::1%lo]", loopback, None),
            ("[fe80::1%lo]:9181", loopback, Some(9181)),
            ("[fe80::1%7]:0", 7, Some(0)),
        ] {
            let read = read(text).expect("there").expect("such an address");
            let address = SocketAddrV6::new(
                "fe80::1".parse().expect("one"),
                port.unwrap_or(0),
                0,
                number,
            );
            assert_eq!((read.address(), read.port), (address, port), "{text}");
        }
    }

    #[test]
    fn read__nothing_else() {
        for text in [
            "",
            "fe80::1",
            "[fe80::1]:9181",
            "[fe80::1%lo]9181",
            "[fe80::1%lo]:65536",
            "[fe80::1%lo",
            "fe80::1%",
            "host%lo",
            "192.0.2.1%lo",
        ] {
            assert!(
                read(text).expect("no interface is asked for").is_none(),
                "{text}"
            );
        }
        let gone = read("[fe80::1%no-such-one]:9")
            .map(|_| ())
            .expect_err("no interface");
        assert!(
            gone.to_string().contains("no interface no-such-one"),
            "{gone}"
        );
    }
}
