//! Gives the interface its addresses, MTU and routes, by netlink.

use crate::config::{Prefix, Table};
use crate::limits::MAX_PACKET;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use std::io;
use std::net::IpAddr;

/// Most datagrams of one answer.
const MAX_ANSWER: usize = 64;

/// The kernel refused to change an interface.
#[derive(Debug, thiserror::Error)]
#[error("{asked}: {error}")]
pub struct NetworkError {
    /// What was asked for.
    pub asked: String,
    /// The kernel's answer.
    pub error: io::Error,
}

/// An interface of this network namespace.
#[derive(Debug)]
pub struct Network {
    socket: Socket,
    name: String,
    index: u32,
}

impl Network {
    /// Finds interface `name`.
    ///
    /// # Errors
    /// There is none.
    pub fn of(name: &str) -> Result<Network, NetworkError> {
        let failed = |error| NetworkError {
            asked: format!("find {name}"),
            error,
        };
        let socket = connect().map_err(failed)?;
        let mut network = Network {
            socket,
            name: name.to_owned(),
            index: 0,
        };
        let mut link = LinkMessage::default();
        link.attributes = vec![LinkAttribute::IfName(name.to_owned())];
        let answers = network.ask(
            format!("find {name}"),
            RouteNetlinkMessage::GetLink(link),
            0,
        )?;
        let index = answers.iter().find_map(|it| match it {
            RouteNetlinkMessage::NewLink(link) => Some(link.header.index),
            _ => None,
        });
        network.index = index.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        Ok(network)
    }

    /// Sets the MTU and the longest packet left uncut, and takes the interface up.
    ///
    /// # Errors
    /// The kernel refuses the MTU, or CAP_NET_ADMIN is missing.
    pub fn set_up(&self, mtu: u32) -> Result<(), NetworkError> {
        let asked = format!("set {} up with an MTU of {mtu}", self.name);
        let mut link = self.link(vec![LinkAttribute::Mtu(mtu)]);
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        self.ask(asked, RouteNetlinkMessage::SetLink(link), 0)?;
        // A kernel that refuses cuts at 64 KiB, and the longest packets are dropped.
        let longest = self.link(vec![LinkAttribute::GsoMaxSize(MAX_PACKET as u32)]);
        let asked = format!("limit packets of {}", self.name);
        let _ = self.ask(asked, RouteNetlinkMessage::SetLink(longest), 0);
        Ok(())
    }

    /// Gives the interface an address.
    ///
    /// # Errors
    /// Another interface has it in a way that the kernel does not permit, or CAP_NET_ADMIN is missing.
    pub fn add_address(&self, it: Prefix) -> Result<(), NetworkError> {
        let asked = format!("give {} the address {}/{}", self.name, it.address, it.len);
        let mut message = AddressMessage::default();
        message.header.family = family(it.address);
        message.header.prefix_len = it.len;
        message.header.index = self.index;
        if it.address.is_ipv6() {
            // No neighbour can have it, and programs can bind it at once.
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        message.attributes = vec![
            AddressAttribute::Local(it.address),
            AddressAttribute::Address(it.address),
        ];
        let message = RouteNetlinkMessage::NewAddress(message);
        self.ask(asked, message, NLM_F_CREATE | NLM_F_REPLACE)
            .map(drop)
    }

    /// Routes a network into the interface.
    ///
    /// # Errors
    /// The kernel refuses, or CAP_NET_ADMIN is missing.
    pub fn add_route(&self, it: Prefix, table: Table) -> Result<(), NetworkError> {
        let table = match table {
            Table::Off => return Ok(()),
            Table::Main => u32::from(RouteHeader::RT_TABLE_MAIN),
            Table::Number(number) => number,
        };
        let asked = format!("route {}/{} to {}", it.address, it.len, self.name);
        let mut route = RouteMessage::default();
        route.header.address_family = family(it.address);
        route.header.destination_prefix_length = it.len;
        route.header.table = u8::try_from(table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
        route.header.protocol = RouteProtocol::Boot;
        route.header.scope = RouteScope::Link;
        route.header.kind = RouteType::Unicast;
        route.attributes = vec![
            RouteAttribute::Destination(it.first().into()),
            RouteAttribute::Oif(self.index),
            RouteAttribute::Table(table),
        ];
        let message = RouteNetlinkMessage::NewRoute(route);
        self.ask(asked, message, NLM_F_CREATE | NLM_F_REPLACE)
            .map(drop)
    }

    fn link(&self, attributes: Vec<LinkAttribute>) -> LinkMessage {
        let mut link = LinkMessage::default();
        link.header.index = self.index;
        link.attributes = attributes;
        link
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn ask(
        &self,
        asked: String,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Vec<RouteNetlinkMessage>, NetworkError> {
        self.request(message, flags)
            .map_err(|error| NetworkError { asked, error })
    }

    fn request(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        let payload = NetlinkPayload::from(message);
        let mut request = NetlinkMessage::new(NetlinkHeader::default(), payload);
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut answers = vec![];
        for _ in 0..MAX_ANSWER {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = &datagram[..];
            while !rest.is_empty() {
                let message = NetlinkMessage::deserialize(rest).map_err(io::Error::other)?;
                match message.payload {
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(it) if it.code.is_none() => return Ok(answers),
                    NetlinkPayload::Error(it) => return Err(it.to_io()),
                    NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                    _ => {}
                }
                // Messages begin at multiples of 4 bytes.
                let len = (message.header.length as usize).next_multiple_of(4);
                rest = rest.get(len.max(4)..).unwrap_or_default();
            }
        }
        Err(io::Error::other("the answer has no end"))
    }
}

fn connect() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

pub(crate) fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
