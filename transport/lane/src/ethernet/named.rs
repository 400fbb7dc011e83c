//! Resolves addresses as users write them, for any lane.

use super::discovery;
use crate::address::ethernet::{EthernetAddress, Station, Who, is_ethernet, link};
use crate::address::{LaneChoice, scoped};
use crate::unavailable::NoEthernet;
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::option;

/// Looks up the interface in the network namespace of the calling thread. A name is resolved by a question on its
/// segment, which takes up to a second.
impl ToSocketAddrs for EthernetAddress {
    type Iter = option::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        let (interface, own) = link(&self.interface)?;
        let hardware = match &self.who {
            Who::Own => own,
            Who::Hardware(hardware) => Some(*hardware),
            Who::Named(name) => Some(discovery::resolve(&self.interface, name)?),
        };
        let station = Station {
            interface,
            hardware,
            port: self.port,
        };
        Ok(Some(station.address()).into_iter())
    }
}

/// The addresses of `text` for `lane`: `HOST:PORT`, an IPv6 address in brackets, or one of raw Ethernet (see
/// [`EthernetAddress`]). A link-local address includes its interface: `[fe80::1%eth0]:9181`. Resolving a name may take
/// some time.
///
/// # Errors
/// [`NoEthernet::OtherLane`]; `InvalidInput`: `text` is not an address, and why; or the host or interface does not
/// exist.
pub fn resolve(text: &str, lane: LaneChoice) -> io::Result<Vec<SocketAddr>> {
    match is_ethernet(text) {
        true if lane != LaneChoice::Ethernet => Err(NoEthernet::OtherLane.into()),
        true => Ok(text
            .parse::<EthernetAddress>()?
            .to_socket_addrs()?
            .collect()),
        false => match scoped::read(text)? {
            Some(it) if it.port.is_some() => Ok(vec![it.address().into()]),
            _ => match text.parse::<SocketAddr>() {
                Ok(address) => Ok(vec![address]),
                Err(_) => split(text).and_then(|(host, port)| look_up(host, port)),
            },
        },
    }
}

/// Host and port of `HOST:PORT`; an IPv6 address comes without its brackets.
///
/// # Errors
/// `InvalidInput`: the mistake in the text.
fn split(text: &str) -> io::Result<(&str, u16)> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
    if let Ok(IpAddr::V6(_)) = text.parse() {
        return Err(wrong(format!(
            "{text:?} has no port: an address is [{text}]:PORT"
        )));
    }
    let Some((host, port)) = text.rsplit_once(':').filter(|it| !it.1.ends_with(']')) else {
        return Err(wrong(format!(
            "{text:?} has no port: an address is HOST:PORT"
        )));
    };
    let Ok(port) = port.parse() else {
        return Err(wrong(format!(
            "{port:?} in {text:?} is not a port: expected 0 to 65535"
        )));
    };
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    match bare.unwrap_or(host) {
        "" => Err(wrong(format!(
            "{text:?} has no host: an address is HOST:PORT"
        ))),
        host => Ok((host, port)),
    }
}

/// Does the same for a host separate from its port: a name, an address, or one of raw Ethernet without its port.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_host(host: &str, port: u16, lane: LaneChoice) -> io::Result<Vec<SocketAddr>> {
    match is_ethernet(host) {
        true => resolve(&format!("{host}:{port}"), lane),
        false => match scoped::read(host)? {
            Some(it) if it.port.is_none() => {
                let mut address = it.address();
                address.set_port(port);
                Ok(vec![address.into()])
            }
            _ => look_up(host, port),
        },
    }
}

/// The result of the system's resolver. Without free descriptors the resolver claims that the name is unknown.
fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("host {host:?}: {error}"));
    match (host, port).to_socket_addrs() {
        Ok(found) => Ok(found.collect()),
        Err(error) => Err(no_descriptors().unwrap_or_else(|| named(error))),
    }
}

/// Descriptors that a resolver has open at once: its files, and a socket for each of several name servers.
const RESOLVER_DESCRIPTORS: usize = 8;

/// The system's error if it has no free descriptors.
fn no_descriptors() -> Option<io::Error> {
    let opened = (0..RESOLVER_DESCRIPTORS).map(|_| File::open("/dev/null"));
    let error = opened.collect::<io::Result<Vec<_>>>().err()?;
    let errno = error.raw_os_error();
    matches!(errno, Some(libc::EMFILE | libc::ENFILE)).then_some(error)
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn resolve__of_hosts_is_what_the_system_says() {
        let expected = vec![SocketAddr::from(([127, 0, 0, 1], 9))];
        for lane in [LaneChoice::Udp, LaneChoice::Ethernet] {
            assert_eq!(resolve("127.0.0.1:9", lane).expect("one"), expected);
            assert_eq!(resolve_host("127.0.0.1", 9, lane).expect("one"), expected);
        }
        let six = resolve("[::1]:9", LaneChoice::Udp).expect("one");
        assert_eq!(six, ["[::1]:9".parse().expect("an address")]);
    }

    #[test]
    fn resolve__of_what_is_no_address_says_what_is_wrong() {
        for (text, words) in [
            ("127.0.0.1", "no port: an address is HOST:PORT"),
            ("", "no port: an address is HOST:PORT"),
            ("::1", "no port: an address is [::1]:PORT"),
            ("[::1]", "no port: an address is HOST:PORT"),
            (
                "host:65536",
                "\"65536\" in \"host:65536\" is not a port: expected 0 to 65535",
            ),
            ("host:", "\"\" in \"host:\" is not a port"),
            (":7411", "no host"),
        ] {
            let error = resolve(text, LaneChoice::Udp).expect_err(text);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
        let error = resolve("no-such-host.invalid:9", LaneChoice::Udp).expect_err("no host");
        assert_ne!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        assert!(
            error
                .to_string()
                .contains("host \"no-such-host.invalid\": "),
            "{error}"
        );
    }

    #[test]
    fn resolve__link_local_with_its_interface() {
        let loopback = nix::net::if_::if_nametoindex("lo").expect("an interface");
        for text in [
            "[fe80::1%lo]:9".to_owned(),
            format!("[fe80::1%{loopback}]:9"),
        ] {
            let found = resolve(&text, LaneChoice::Udp).expect("there");
            let [SocketAddr::V6(found)] = found[..] else {
                panic!("{found:?}");
            };
            assert_eq!((found.port(), found.scope_id()), (9, loopback));
        }
        let host = resolve_host("fe80::1%lo", 9, LaneChoice::Udp).expect("there");
        assert_eq!(
            host,
            resolve("[fe80::1%lo]:9", LaneChoice::Udp).expect("there")
        );
        let gone = resolve("[fe80::1%no-such-one]:9", LaneChoice::Udp);
        assert!(
            gone.expect_err("no interface")
                .to_string()
                .contains("no-such-one")
        );
        assert!(resolve("[fe80::1%lo]", LaneChoice::Udp).is_err(), "no port");
    }

    #[test]
    fn resolve__raw_ethernet_is_for_its_lane_alone() {
        const HOST: &str = "ether:no-such-one/02:00:00:00:00:01";
        for lane in [LaneChoice::Udp, LaneChoice::Best, LaneChoice::SharedMemory] {
            for error in [
                resolve(&format!("{HOST}:9"), lane),
                resolve_host(HOST, 9, lane),
            ] {
                let error = error.expect_err("another lane").to_string();
                assert!(error.contains("raw Ethernet"), "{error}");
            }
        }
        let error = resolve_host(HOST, 9, LaneChoice::Ethernet).expect_err("no interface");
        assert!(error.to_string().contains("no-such-one"), "{error}");
        assert!(is_ethernet(HOST) && !is_ethernet("ethernet.example"));
    }
}
