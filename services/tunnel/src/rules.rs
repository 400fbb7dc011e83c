//! Routes all addresses through a peer, and keeps the tunnel's own datagrams out, by rules of the kernel.
//!
//! As wg-quick does it, a default route goes into a table of the interface's own, after the main table without its
//! default routes. Datagrams of the tunnel go by the whole main table: wg-quick knows them by a mark, which costs
//! CAP_NET_ADMIN for each socket; here addresses and ports tell them, so a later socket needs no right.
//!
//! The kernel removes the table's routes with the interface, however the process ends. Rules stay if the process is
//! killed, and do nothing then: their table is empty, and the main table follows. The next tunnel removes them.

use crate::network::{Network, NetworkError, family};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::route::{RouteHeader, RouteProtocol};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage, RulePortRange};
use netlink_packet_route::{AddressFamily, IpProtocol, RouteNetlinkMessage};
use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Marks rules of tunnels, as `ip rule` shows it: a number that no routing daemon has.
const OF_TUNNELS: RouteProtocol = RouteProtocol::Other(157);
/// Tables of tunnels: this, and the number of the interface.
const TABLES: u32 = 0x5a00_0000;
/// The first priority of rules of tunnels; the main table has 32,766.
const FIRST: u32 = 20_000;
/// Each interface has three priorities of its own, unless their numbers are this far apart.
const INTERFACES: u32 = 4_000;

/// The rules of an interface, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Rules {
    network: Network,
    families: Vec<AddressFamily>,
    made: Vec<RuleMessage>,
    /// Peers whose datagrams go by the main table.
    outside: HashSet<SocketAddr>,
}

impl Rules {
    /// No rules yet. Removes those of interfaces that are gone.
    pub(crate) fn new(network: Network) -> Result<Rules, NetworkError> {
        let mut links = HashSet::new();
        let asked = "list the interfaces".to_owned();
        let list = RouteNetlinkMessage::GetLink(LinkMessage::default());
        for answer in network.ask(asked, list, NLM_F_DUMP)? {
            if let RouteNetlinkMessage::NewLink(link) = answer
                && link.header.index != network.index()
            {
                links.insert(first_priority(link.header.index));
            }
        }
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut all = RuleMessage::default();
            all.header.family = family;
            let list = RouteNetlinkMessage::GetRule(all);
            // A kernel without this family, or without rules, has none.
            let found = network.ask("list the rules".to_owned(), list, NLM_F_DUMP);
            for answer in found.unwrap_or_default() {
                if let RouteNetlinkMessage::NewRule(rule) = answer
                    && is_stale(&rule, &links)
                {
                    let asked = "remove a rule of a tunnel that is gone".to_owned();
                    network.ask(asked, RouteNetlinkMessage::DelRule(rule), 0)?;
                }
            }
        }
        Ok(Rules {
            network,
            families: vec![],
            made: vec![],
            outside: HashSet::new(),
        })
    }

    /// The table for default routes of the interface.
    pub(crate) fn table(&self) -> u32 {
        TABLES | self.network.index()
    }

    /// Sends what the main table has only a default route for to the table of the interface, in the family of `route`;
    /// except datagrams from the UDP port `port`.
    pub(crate) fn add_default(
        &mut self,
        route: IpAddr,
        port: Option<u16>,
    ) -> Result<(), NetworkError> {
        let family = family(route);
        if self.families.contains(&family) {
            return Ok(());
        }
        let main = u32::from(RouteHeader::RT_TABLE_MAIN);
        let without_default = vec![RuleAttribute::SuppressPrefixLen(0)];
        self.add(family, 0, main, without_default)?;
        if let Some(port) = port {
            let port = RulePortRange {
                start: port,
                end: port,
            };
            self.add_outside(family, vec![RuleAttribute::SourcePortRange(port)])?;
        }
        self.add(family, 2, self.table(), vec![])?;
        self.families.push(family);
        Ok(())
    }

    /// Sends datagrams to this peer by the main table.
    pub(crate) fn add_peer(&mut self, peer: SocketAddr) -> Result<(), NetworkError> {
        let address = peer.ip().to_canonical();
        let family = family(address);
        let peer = SocketAddr::new(address, peer.port());
        if !self.families.contains(&family) || self.outside.contains(&peer) {
            return Ok(());
        }
        let port = RulePortRange {
            start: peer.port(),
            end: peer.port(),
        };
        let to = vec![
            RuleAttribute::Destination(address),
            RuleAttribute::DestinationPortRange(port),
        ];
        self.add_outside(family, to)?;
        self.outside.insert(peer);
        Ok(())
    }

    /// Only datagrams that a program of this host sends: what it forwards belongs to others.
    fn add_outside(
        &mut self,
        family: AddressFamily,
        mut which: Vec<RuleAttribute>,
    ) -> Result<(), NetworkError> {
        which.push(RuleAttribute::Iifname("lo".to_owned()));
        which.push(RuleAttribute::IpProtocol(IpProtocol::Udp));
        self.add(family, 1, u32::from(RouteHeader::RT_TABLE_MAIN), which)
    }

    fn add(
        &mut self,
        family: AddressFamily,
        place: u32,
        table: u32,
        mut attributes: Vec<RuleAttribute>,
    ) -> Result<(), NetworkError> {
        let mut rule = RuleMessage::default();
        rule.header.family = family;
        rule.header.action = RuleAction::ToTable;
        rule.header.table = u8::try_from(table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
        for attribute in &attributes {
            match attribute {
                RuleAttribute::Destination(IpAddr::V4(_)) => {
                    rule.header.dst_len = Ipv4Addr::BITS as u8;
                }
                RuleAttribute::Destination(IpAddr::V6(_)) => {
                    rule.header.dst_len = Ipv6Addr::BITS as u8;
                }
                _ => {}
            }
        }
        attributes.push(RuleAttribute::Table(table));
        attributes.push(RuleAttribute::Protocol(OF_TUNNELS));
        let priority = first_priority(self.network.index()) + place;
        attributes.push(RuleAttribute::Priority(priority));
        rule.attributes = attributes;
        let asked = "add a rule for a default route".to_owned();
        let message = RouteNetlinkMessage::NewRule(rule.clone());
        self.network
            .ask(asked, message, NLM_F_CREATE | NLM_F_EXCL)?;
        self.made.push(rule);
        Ok(())
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        for rule in self.made.drain(..).rev() {
            // One that stays does nothing without the interface.
            let asked = "remove a rule".to_owned();
            let _ = self
                .network
                .ask(asked, RouteNetlinkMessage::DelRule(rule), 0);
        }
    }
}

fn first_priority(index: u32) -> u32 {
    FIRST + 3 * (index % INTERFACES)
}

/// Whether a rule is one of a tunnel, and of none of the interfaces whose first priorities are `links`.
fn is_stale(rule: &RuleMessage, links: &HashSet<u32>) -> bool {
    let priority = rule.attributes.iter().find_map(|it| match it {
        RuleAttribute::Priority(priority) => Some(*priority),
        _ => None,
    });
    let of_tunnel = rule
        .attributes
        .contains(&RuleAttribute::Protocol(OF_TUNNELS));
    let first = priority.and_then(|it| Some(it - it.checked_sub(FIRST)? % 3));
    of_tunnel && first.is_some_and(|it| !links.contains(&it))
}

/// The addresses of HOST:PORT at present: none if there is no such host.
pub(crate) fn addresses(host: &str) -> Vec<SocketAddr> {
    let found: io::Result<Vec<_>> =
        std::net::ToSocketAddrs::to_socket_addrs(host).map(Vec::from_iter);
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn is_stale__of_a_tunnel_without_its_interface() {
        let rule = |protocol, priority| {
            let mut rule = RuleMessage::default();
            rule.attributes = vec![
                RuleAttribute::Protocol(protocol),
                RuleAttribute::Priority(priority),
            ];
            rule
        };
        let links = HashSet::from([first_priority(2), first_priority(7)]);
        for index in 1..9 {
            for place in 0..3 {
                let priority = first_priority(index) + place;
                let stale = is_stale(&rule(OF_TUNNELS, priority), &links);
                assert_eq!(stale, index != 2 && index != 7, "{index} {place}");
                assert!(!is_stale(&rule(RouteProtocol::Static, priority), &links));
            }
        }
        assert!(!is_stale(&rule(OF_TUNNELS, FIRST - 1), &links));
    }
}
