//! Groups hosts by uplink: as the user says, or by the subnets of their addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, UdpSocket};

use crate::error::Error;
use crate::host::Host;

/// How hosts are assigned to racks. A cast orders the hosts of a rack together, so that it crosses each uplink once.
///
/// By default all hosts are in one rack, because addresses do not show how a network is built. A flat network of
/// several subnets would get trees among imaginary racks: deeper ones, with fewer helpers for a late host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Racks(Kind);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Kind {
    /// All are of one.
    #[default]
    One,
    /// Hosts whose addresses share a prefix are in one rack.
    Subnets { ipv4: u8, ipv6: u8 },
    /// The name of a host, and the one of its rack.
    Listed(BTreeMap<String, String>),
}

/// The name by which a list gives the rack of the source.
const SOURCE: &str = "-";

impl Racks {
    /// Puts hosts with the same address prefix into one rack: the first `ipv4` of 32 bits, or `ipv6` of 128. The source
    /// belongs to the rack that contains its own address towards the hosts.
    ///
    /// # Errors
    /// A prefix is longer than an address.
    pub fn subnets(ipv4: u8, ipv6: u8) -> Result<Racks, Error> {
        match ipv4 <= 32 && ipv6 <= 128 {
            true => Ok(Racks(Kind::Subnets { ipv4, ipv6 })),
            false => Err(Error::Racks(format!(
                "a subnet has at most 32 bits of IPv4 and 128 of IPv6, not {ipv4} and {ipv6}"
            ))),
        }
    }

    /// Reads racks from `text`: each line names a host and its rack. `-` is the source, which has a rack of its own if
    /// no line names it. `#` begins a comment.
    ///
    /// # Errors
    /// A line does not have two words, or a host is in two racks.
    pub fn listed(text: &str) -> Result<Racks, Error> {
        let mut racks = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let words = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = words.split_whitespace().collect();
            let wrong = |why: String| Err(Error::Racks(format!("line {}: {why}", index + 1)));
            let (host, rack) = match words[..] {
                [] => continue,
                [host, rack] => (host, rack),
                _ => return wrong("a line is 'HOST RACK'".into()),
            };
            let before = racks.insert(host.to_owned(), rack.to_owned());
            if let Some(before) = before.filter(|it| it != rack) {
                return wrong(format!("{host} is in rack {before} already, not {rack}"));
            }
        }
        Ok(Racks(Kind::Listed(racks)))
    }

    /// Whether each host's rack is known, by the names of the hosts.
    ///
    /// # Errors
    /// The list does not name one of the hosts.
    pub fn check<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
        let Kind::Listed(racks) = &self.0 else {
            return Ok(());
        };
        match names.into_iter().find(|it| listed(racks, it).is_none()) {
            Some(name) => Err(Error::Racks(format!("no line names {name}"))),
            None => Ok(()),
        }
    }

    /// The labels by which the engine knows racks: that of the source, which is 0, and one for each host.
    pub(crate) fn labels(&self, hosts: &[Host]) -> Result<(u32, Vec<u32>), Error> {
        self.check(hosts.iter().map(|it| &*it.name))?;
        let mut numbers = BTreeMap::new();
        if let Some(own) = self.of_source(hosts) {
            numbers.insert(own, 0);
        }
        // Whether the source's rack has others or not, 0 is taken.
        let mut next = 1;
        let labels = hosts.iter().map(|host| {
            let Some(rack) = self.of(host) else {
                return 0;
            };
            *numbers.entry(rack).or_insert_with(|| {
                next += 1;
                next - 1
            })
        });
        Ok((0, labels.collect()))
    }

    /// The name of a host's rack; none, if all are of one or its address is not known.
    fn of(&self, host: &Host) -> Option<String> {
        match &self.0 {
            Kind::One => None,
            Kind::Subnets { ipv4, ipv6 } => {
                let address = first_address(host)?.ip();
                Some(subnet(address, *ipv4, *ipv6).to_string())
            }
            Kind::Listed(racks) => listed(racks, &host.name).cloned(),
        }
    }

    fn of_source(&self, hosts: &[Host]) -> Option<String> {
        match &self.0 {
            Kind::One => None,
            Kind::Listed(racks) => racks.get(SOURCE).cloned(),
            Kind::Subnets { ipv4, ipv6 } => {
                let mut met = BTreeSet::new();
                hosts.iter().find_map(|host| {
                    let (rack, address) = (self.of(host)?, first_address(host)?);
                    // One of each rack is asked for.
                    let own = met.insert(rack.clone()).then(|| own_address(address))??;
                    (subnet(own, *ipv4, *ipv6).to_string() == rack).then_some(rack)
                })
            }
        }
    }
}

/// The address by which a host of several is known to be of a subnet.
fn first_address(host: &Host) -> Option<SocketAddr> {
    host.addresses.as_ref().ok()?.first().copied()
}

/// The rack of a host. Looks for `USER@HOST:PORT`, then for the name without the port, and without the user.
fn listed<'a>(racks: &'a BTreeMap<String, String>, name: &str) -> Option<&'a String> {
    let bare = name.rsplit_once('@').map_or(name, |it| it.1);
    let without_port = match bare.rsplit_once(':') {
        Some((host, _)) if !host.contains(':') || host.ends_with(']') => host,
        _ => bare,
    };
    let inside = without_port.trim_start_matches('[').trim_end_matches(']');
    let names = [name, bare, without_port, inside];
    names.into_iter().find_map(|it| racks.get(it))
}

/// The first address of the subnet that an address belongs to.
fn subnet(address: IpAddr, ipv4: u8, ipv6: u8) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(it) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(ipv4)).unwrap_or(0);
            IpAddr::V4((u32::from(it) & mask).into())
        }
        IpAddr::V6(it) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(ipv6)).unwrap_or(0);
            IpAddr::V6((u128::from(it) & mask).into())
        }
    }
}

/// This end's address towards another, by the routing table. Sends nothing.
fn own_address(towards: SocketAddr) -> Option<IpAddr> {
    let any = match towards {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(towards).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use zerolane::Security;

    use super::*;

    fn hosts(addresses: &[&str]) -> Vec<Host> {
        let host = |it: &&str| Host {
            name: (*it).to_owned(),
            addresses: it
                .parse()
                .map(|it| vec![it])
                .map_err(|_| "it is not known".into()),
            security: Security::default(),
        };
        addresses.iter().map(host).collect()
    }

    #[test]
    fn labels__all_of_one_rack_unless_told() {
        let hosts = hosts(&["10.0.0.1:1", "10.9.0.1:1", "[2001:db8::1]:1"]);
        assert_eq!(Racks::default().labels(&hosts).unwrap(), (0, vec![0; 3]));
    }

    #[test]
    fn labels__hosts_of_a_subnet_are_of_one_rack() {
        // The source reaches loopback from loopback; the others are far from it, wherever this runs.
        let hosts = hosts(&[
            "203.0.113.1:1",
            "127.0.0.1:1",
            "203.0.113.254:2",
            "192.0.2.1:1",
            "[2001:db8:0:1::1]:1",
            "[2001:db8:0:1:ffff::1]:1",
            "[2001:db8:0:2::1]:1",
            "[::ffff:203.0.113.9]:1",
            "nowhere",
        ]);
        let labels = |racks: Result<Racks, Error>| racks.unwrap().labels(&hosts).unwrap().1;
        assert_eq!(labels(Racks::subnets(24, 64)), [1, 0, 1, 2, 3, 3, 4, 1, 0]);
        assert_eq!(labels(Racks::subnets(32, 128)), [1, 0, 2, 3, 4, 5, 6, 7, 0]);
        let all = labels(Racks::subnets(0, 0));
        assert!(all[..4].iter().all(|it| *it == 0), "{all:?}");
        assert!(Racks::subnets(33, 64).is_err() && Racks::subnets(24, 129).is_err());
    }

    #[test]
    fn labels__as_a_list_says() {
        let list = "# a comment\nn1 left\nn2:99 right # its port\n\n- right\nn3 left\n";
        let racks = Racks::listed(list).unwrap();
        let labels = |names: &[&str]| racks.labels(&hosts(names)).map(|it| it.1);
        let all = labels(&["n1", "n2:99", "n3:9184", "root@n1:22"]);
        assert_eq!(all.unwrap(), [1, 0, 1, 1]);
        let unknown = labels(&["n1", "n2"]).unwrap_err().to_string();
        assert_eq!(unknown, "racks: no line names n2");
        let addresses = Racks::listed("2001:db8::1 a\n10.0.0.1 b").unwrap();
        let all = hosts(&["[2001:db8::1]:7", "2001:db8::1", "10.0.0.1:7"]);
        assert_eq!(addresses.labels(&all).unwrap(), (0, vec![1, 1, 2]));
    }

    #[test]
    fn listed__what_is_no_list_is_said_in_words() {
        for (text, words) in [
            ("n1", "racks: line 1: a line is 'HOST RACK'"),
            ("\nn1 a b", "racks: line 2: a line is 'HOST RACK'"),
            (
                "n1 a\nn1 b",
                "racks: line 2: n1 is in rack a already, not b",
            ),
        ] {
            assert_eq!(Racks::listed(text).unwrap_err().to_string(), words);
        }
        assert!(Racks::listed("n1 a\nn1 a").is_ok());
    }
}
