//! Addresses as users write them, of whichever lane.

use super::address::{EthernetAddress, Station, Who, is_ethernet, link};
use super::{NoEthernet, discovery};
use crate::{LaneChoice, scoped};
use std::fs::File;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::option;

/// Looks for the interface in the network namespace of the calling thread; a name is asked for on its segment, which takes up to a
/// second.
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

/// The addresses of `text` for `lane`: `HOST:PORT`, an IPv6 address in brackets, or one of raw Ethernet (see [`EthernetAddress`]). A
/// link-local address has its interface behind it: `[fe80::1%eth0]:9181`. A name is looked up, which may take a while.
///
/// # Errors
/// [`NoEthernet::OtherLane`]; or `text` is no address, or what it names is not there.
pub fn resolve(text: &str, lane: LaneChoice) -> io::Result<Vec<SocketAddr>> {
    match is_ethernet(text) {
        true if lane != LaneChoice::Ethernet => Err(NoEthernet::OtherLane.into()),
        true => Ok(text
            .parse::<EthernetAddress>()?
            .to_socket_addrs()?
            .collect()),
        false => match scoped::read(text)? {
            Some(it) if it.port.is_some() => Ok(vec![it.address().into()]),
            _ => looked_up(text.to_socket_addrs()),
        },
    }
}

/// The same for a host apart from its port: a name, an address, or one of raw Ethernet without its port.
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
            _ => looked_up((host, port).to_socket_addrs()),
        },
    }
}

/// What the system's resolver found. Without descriptors it says that the name is not known.
fn looked_up(found: io::Result<impl Iterator<Item = SocketAddr>>) -> io::Result<Vec<SocketAddr>> {
    found
        .map(Iterator::collect)
        .map_err(|error| no_descriptors().unwrap_or(error))
}

/// Descriptors that a resolver has open at once: its files, a socket for each of some name servers.
const RESOLVER_DESCRIPTORS: usize = 8;

/// The error of the system if it gives no more descriptors.
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
        assert!(resolve("127.0.0.1", LaneChoice::Udp).is_err());
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
