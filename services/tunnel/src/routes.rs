//! Finds the peer with the longest prefix of an address, for both directions.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address and the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// An address of the network.
    pub address: IpAddr,
    /// Bits of the prefix.
    pub len: u8,
}

impl Prefix {
    /// The network of this address alone.
    pub fn of_host(address: IpAddr) -> Prefix {
        let len = if address.is_ipv4() { 32 } else { 128 };
        Prefix { address, len }
    }

    /// The first address of the network.
    pub fn first(self) -> IpAddr {
        match self.address {
            IpAddr::V4(it) => Ipv4Addr::from_bits(masked_v4(it.to_bits(), self.len)).into(),
            IpAddr::V6(it) => Ipv6Addr::from_bits(masked_v6(it.to_bits(), self.len)).into(),
        }
    }
}

/// Networks and the peers behind them. By length, longest first: a lookup costs one probe for each length in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    v4: BTreeMap<u8, HashMap<u32, usize>>,
    v6: BTreeMap<u8, HashMap<u128, usize>>,
}

impl Routes {
    /// Adds a network of `peer`. Returns the peer that had it before.
    pub(crate) fn add(&mut self, network: Prefix, peer: usize) -> Option<usize> {
        let len = network.len;
        match network.address {
            IpAddr::V4(it) => {
                let networks = self.v4.entry(len).or_default();
                networks.insert(masked_v4(it.to_bits(), len), peer)
            }
            IpAddr::V6(it) => {
                let networks = self.v6.entry(len).or_default();
                networks.insert(masked_v6(it.to_bits(), len), peer)
            }
        }
    }

    /// The peer with the longest prefix of `address`.
    pub(crate) fn find(&self, address: IpAddr) -> Option<usize> {
        match address {
            IpAddr::V4(it) => {
                let mut longest = self.v4.iter().rev();
                longest.find_map(|(&len, all)| all.get(&masked_v4(it.to_bits(), len)).copied())
            }
            IpAddr::V6(it) => {
                let mut longest = self.v6.iter().rev();
                longest.find_map(|(&len, all)| all.get(&masked_v6(it.to_bits(), len)).copied())
            }
        }
    }
}

fn masked_v4(bits: u32, len: u8) -> u32 {
    bits & u32::MAX
        .checked_shl(32 - u32::from(len.min(32)))
        .unwrap_or(0)
}

fn masked_v6(bits: u128, len: u8) -> u128 {
    bits & u128::MAX
        .checked_shl(128 - u32::from(len.min(128)))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn routes(list: &[(&str, u8, usize)]) -> Routes {
        let mut routes = Routes::default();
        for &(address, len, peer) in list {
            let address = address.parse().unwrap();
            assert_eq!(routes.add(Prefix { address, len }, peer), None);
        }
        routes
    }

    #[test]
    fn find__the_longest_prefix() {
        let it = routes(&[
            ("0.0.0.0", 0, 1),
            ("10.0.0.0", 8, 2),
            ("10.1.2.3", 16, 3),
            ("10.1.2.3", 32, 4),
            ("fd00::", 8, 5),
            ("fd00::1", 128, 6),
        ]);
        for (address, peer) in [
            ("10.1.2.3", Some(4)),
            ("10.1.2.4", Some(3)),
            ("10.2.2.3", Some(2)),
            ("11.1.2.3", Some(1)),
            ("fd00::1", Some(6)),
            ("fd00::2", Some(5)),
            ("fe80::2", None),
        ] {
            assert_eq!(it.find(address.parse().unwrap()), peer, "{address}");
        }
    }

    #[test]
    fn add__the_last_peer_has_a_network() {
        let mut it = routes(&[("10.0.0.0", 8, 1)]);
        let address = "10.9.9.9".parse().unwrap();
        assert_eq!(it.add(Prefix { address, len: 8 }, 2), Some(1));
        assert_eq!(it.find(address), Some(2));
    }
}
