//! Answers an unauthenticated peer on the lane by which it came.

use super::ip118_port;
use crate::address::Station;
use crate::any::AnyLane;
use crate::ethernet;
use crate::shm::Visitor;
use crate::socket::{self, PacketAddresses};
use socket2::Socket;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Where an unauthenticated peer is.
pub(super) enum Caller {
    /// Where its datagrams of UDP come from.
    Packet(PacketAddresses),
    /// Where its frames come from.
    Frame(Station),
    /// Where its packets of IP protocol 118 come from.
    Raw(PacketAddresses),
    /// In memory that it shares. `None` once a connection has it.
    Visitor(Option<Box<Visitor>>),
}

impl Caller {
    /// Sends an answer, by the listening `socket`.
    pub(super) fn answer(&mut self, socket: &Socket, bytes: &[u8]) {
        match self {
            Caller::Packet(addresses) => socket::answer(socket, bytes, *addresses),
            Caller::Raw(addresses) => ip118_port::answer(socket, bytes, *addresses),
            // If it cannot be sent, it counts as lost.
            Caller::Frame(from) => drop(ethernet::send(socket, bytes, *from)),
            Caller::Visitor(Some(visitor)) => visitor.answer(bytes),
            Caller::Visitor(None) => {}
        }
    }

    /// The address by which it is counted, if the listener has `local`. In memory it has only the host's.
    pub(super) fn address(&self, local: SocketAddr) -> SocketAddr {
        match (self, local.ip()) {
            (Caller::Packet(addresses) | Caller::Raw(addresses), _) => addresses.peer,
            (Caller::Frame(from), _) => from.address(),
            (Caller::Visitor(_), ip) if !ip.is_unspecified() => {
                let mut address = local;
                address.set_port(0);
                address
            }
            (Caller::Visitor(_), IpAddr::V4(_)) => (Ipv4Addr::LOCALHOST, 0).into(),
            (Caller::Visitor(_), IpAddr::V6(_)) => (Ipv6Addr::LOCALHOST, 0).into(),
        }
    }

    /// Takes back its `lane`, because the connection was refused and the peer must be told.
    pub(super) fn take_back(&mut self, lane: AnyLane) {
        if let AnyLane::SharedMemory(lane, _) = lane {
            *self = Caller::Visitor(Some(Box::new(lane.into_visitor())));
        }
    }
}
