//! Parses where a server that a login starts must listen: an address, and a range of ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result, ensure};

use crate::address::parse_host;

/// Most ports in a range; all may be tried.
const MOST_PORTS: u16 = 1024;

/// `[ADDR][:PORT[-PORT]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    /// Name or address, without brackets; `None` means the address where the login came in.
    name: Option<String>,
    first: u16,
    last: u16,
}

/// Checks an argument that the other end will parse.
pub(crate) fn check(text: &str) -> Result<String, String> {
    Ports::parse(text).map(|_| text.to_owned())
}

impl Ports {
    /// Any free port.
    pub(crate) const ANY: Ports = Ports {
        name: None,
        first: 0,
        last: 0,
    };

    pub(crate) fn parse(text: &str) -> Result<Ports, String> {
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.len() > 256 {
            return Err("not of the form [ADDR][:PORT[-PORT]]".into());
        }
        let is_address = text.parse::<Ipv6Addr>().is_ok();
        let split = text
            .rsplit_once(':')
            .filter(|(_, ports)| !is_address && !ports.ends_with(']'));
        let (name, first, last) = match split {
            None => (text, 0, 0),
            Some((name, ports)) => {
                let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
                let port = |text: &str| match text.parse() {
                    Ok(port) if port != 0 && text.bytes().all(|it| it.is_ascii_digit()) => Ok(port),
                    _ => Err(format!("{text:?} is no port between 1 and 65535")),
                };
                (name, port(first)?, port(last)?)
            }
        };
        if first > last || last - first >= MOST_PORTS {
            return Err(format!(
                "a range of ports has its lower end first, and at most {MOST_PORTS}"
            ));
        }
        let name = match name {
            "" => None,
            name => Some(parse_host(name, 1)?.0),
        };
        Ok(Ports { name, first, last })
    }

    /// The addresses to try, in order. `arrived` is the address where the login came in, if known.
    ///
    /// # Errors
    /// The name does not exist.
    pub(crate) fn resolve(&self, arrived: Option<&str>) -> Result<Vec<SocketAddr>> {
        let name = self.name.as_deref().or(arrived);
        let hosts: Vec<SocketAddr> = match name {
            Some(name) => {
                let found = (name, 0).to_socket_addrs();
                let found =
                    found.with_context(|| format!("cannot find the address of {name:?}"))?;
                found.collect()
            }
            None => {
                let all: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
                all.map(|ip| SocketAddr::new(ip, 0)).into()
            }
        };
        let ports = self.first..=self.last;
        let at = |host: &SocketAddr, port| {
            let mut address = *host;
            address.set_port(port);
            address
        };
        let all: Vec<_> = hosts
            .iter()
            .flat_map(|host| ports.clone().map(move |port| at(host, port)))
            .collect();
        ensure!(
            !all.is_empty(),
            "{:?} has no address",
            name.unwrap_or_default()
        );
        Ok(all)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn parse__addresses_and_ranges() {
        for (text, name, first, last) in [
            ("", None, 0, 0),
            (":60000", None, 60000, 60000),
            (":60000-60010", None, 60000, 60010),
            ("192.0.2.1", Some("192.0.2.1"), 0, 0),
            ("192.0.2.1:7-8", Some("192.0.2.1"), 7, 8),
            ("::1", Some("::1"), 0, 0),
            ("[::1]", Some("::1"), 0, 0),
            ("[::1]:7", Some("::1"), 7, 7),
            ("far:7", Some("far"), 7, 7),
        ] {
            let name = name.map(str::to_owned);
            assert_eq!(
                Ports::parse(text),
                Ok(Ports { name, first, last }),
                "{text}"
            );
        }
        for bad in [
            ":", ":0", ":x", ":8-7", ":1-2000", ":70000", ":+7", "a b", "a:b:c", ":7-", "[::1",
            "a\n",
        ] {
            assert!(Ports::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn resolve__every_port_in_order() {
        let of = |text: &str, arrived| Ports::parse(text).unwrap().resolve(arrived).unwrap();
        let all = |texts: &[&str]| {
            texts
                .iter()
                .map(|it| it.parse().unwrap())
                .collect::<Vec<SocketAddr>>()
        };
        assert_eq!(
            of(":7-8", Some("192.0.2.1")),
            all(&["192.0.2.1:7", "192.0.2.1:8"])
        );
        assert_eq!(of("192.0.2.2:7", Some("192.0.2.1")), all(&["192.0.2.2:7"]));
        assert_eq!(of("", None), all(&["[::]:0", "0.0.0.0:0"]));
        assert!(
            Ports::parse("no-such-host.invalid")
                .unwrap()
                .resolve(None)
                .is_err()
        );
    }
}
