//! Makes connections of unauthenticated peers, or tells them why not.

use super::Listener;
use super::caller::Caller;
use super::error::{is_exhausted, reachable};
use crate::any::AnyLane;
use crate::datagram::{DatagramLane, PeerMigration, ethernet, ip118, udp};
use crate::driver::Driver;
use crate::entropy;
use crate::seal::security;
use crate::shm::{Ends, ShmLane};
use crate::socket::PacketAddresses;
use std::io;
use std::net::SocketAddr;
use zerolane_core::Entropy;
use zerolane_handshake::{Admitted, Exchange, Origin, Reply, Session, refuse_hello};
use zerolane_wire::handshake::HandshakeMessage;
use zerolane_wire::{Operation, Packet, PrivateData, Reason};

/// Whether an unauthenticated peer becomes a connection.
#[allow(clippy::large_enum_variant, reason = "it is taken apart at once")]
enum Admittance {
    /// Yes, by this lane.
    By(AnyLane),
    /// No: there are as many connections as may be, or a resource of the system is exhausted.
    Busy,
    /// No: it cannot be reached.
    Unreachable,
}

impl Listener {
    /// Handles a datagram of an unauthenticated peer: the peer becomes a connection, or gets an answer, or neither.
    ///
    /// # Errors
    /// The system gave no random numbers, or no socket for another reason than exhaustion.
    pub(super) fn consider(
        &mut self,
        datagram: &[u8],
        caller: &mut Caller,
    ) -> io::Result<Option<Driver<AnyLane>>> {
        match (&mut self.gate, HandshakeMessage::is(datagram)) {
            (Some(_), true) => self.knock(datagram, caller),
            (None, false) => self.request(datagram, caller),
            (Some(_), false) => {
                self.counters.refused += 1;
                let packet = Packet::parse(datagram).ok();
                let reject = |packet| zerolane_core::reject(&packet, Reason::ProtectionRequired);
                if let Some(rejection) = packet.and_then(reject) {
                    let (bytes, len) = rejection.emit();
                    caller.answer(&self.socket, &bytes[..len]);
                }
                Ok(None)
            }
            (None, true) => {
                self.counters.refused += 1;
                if let Some(refusal) = refuse_hello(datagram, Reason::PlainOnly) {
                    caller.answer(&self.socket, refusal.bytes());
                }
                Ok(None)
            }
        }
    }

    /// Handles a message of the key exchange.
    fn knock(
        &mut self,
        datagram: &[u8],
        caller: &mut Caller,
    ) -> io::Result<Option<Driver<AnyLane>>> {
        let peer = caller.address(self.port.local());
        let Some(gate) = &mut self.gate else {
            return Ok(None);
        };
        let now = self.clock.now();
        match security::with_random(|draw| gate.take(now, peer, datagram, draw))? {
            Reply::Nothing => {
                self.counters.refused += 1;
                Ok(None)
            }
            Reply::Send(reply) => {
                caller.answer(&self.socket, reply.bytes());
                Ok(None)
            }
            Reply::Admit(admitted) => self.admit(*admitted, caller),
        }
    }

    /// Makes a connection of a peer whose key is proved, or tells it why not.
    fn admit(
        &mut self,
        admitted: Admitted,
        caller: &mut Caller,
    ) -> io::Result<Option<Driver<AnyLane>>> {
        let Admitted {
            session,
            request,
            private_data,
            trusted,
            finish,
        } = admitted;
        let peer = caller.address(self.port.local());
        if !trusted {
            self.untrusted.note(session.peer, peer);
            let rejection = zerolane_core::reject(&request, Reason::Denied);
            self.refuse(rejection, Some(session), caller);
            return Ok(None);
        }
        let entropy = self.entropy()?;
        let lane = match self.let_in(caller, entropy.key)? {
            Admittance::By(lane) => lane,
            Admittance::Unreachable => return Ok(None),
            Admittance::Busy => {
                let rejection = zerolane_core::reject(&request, Reason::Busy);
                self.refuse(rejection, Some(session), caller);
                return Ok(None);
            }
        };
        let config = lane.config(&self.options);
        let made = Driver::try_new(lane, &self.options, |now| {
            let made = zerolane_core::Connection::admit(now, config, entropy, &request)?;
            Ok(made.with_peer_data(private_data))
        });
        match made {
            Ok(mut driver) => {
                let exchange = Exchange::admitted(finish);
                Ok(driver.lane_mut().admit(exchange, session).then_some(driver))
            }
            Err((rejection, lane)) => {
                caller.take_back(lane);
                self.refuse(rejection, Some(session), caller);
                Ok(None)
            }
        }
    }

    /// Handles a Request_Connection without protection.
    fn request(
        &mut self,
        datagram: &[u8],
        caller: &mut Caller,
    ) -> io::Result<Option<Driver<AnyLane>>> {
        let packet = Packet::parse(datagram);
        let Ok(packet @ Packet { operation, .. }) = &packet else {
            self.counters.refused += 1;
            return Ok(None);
        };
        let Operation::RequestConnection(request) = operation else {
            self.counters.refused += 1;
            return Ok(None);
        };
        let peer = caller.address(self.port.local());
        if self.remembered.has(peer, request.s_key) {
            return Ok(None);
        }
        let entropy = self.entropy()?;
        let lane = match self.let_in(caller, entropy.key)? {
            Admittance::By(lane) => lane,
            Admittance::Unreachable => return Ok(None),
            Admittance::Busy => {
                self.refuse(zerolane_core::reject(packet, Reason::Busy), None, caller);
                return Ok(None);
            }
        };
        let config = lane.config(&self.options);
        let made = Driver::try_new(lane, &self.options, |now| {
            let made = zerolane_core::listen(now, config, entropy, packet)?;
            Ok(made.with_peer_data(PrivateData::of(datagram)))
        });
        match made {
            Ok(driver) => {
                self.remembered.note(peer, request.s_key);
                Ok(Some(driver))
            }
            Err((rejection, lane)) => {
                caller.take_back(lane);
                self.refuse(rejection, None, caller);
                Ok(None)
            }
        }
    }

    /// Random numbers for a connection, with a key that differs from all those on its ports and its device.
    fn entropy(&self) -> io::Result<Entropy> {
        let ports = [Some(&self.port), self.udp_port()];
        let device = self.options.lane.device.as_ref();
        entropy::distinct(entropy::draw, |key| {
            ports.iter().flatten().any(|it| it.is_taken(key))
                || device.is_some_and(|it| it.is_taken(key))
        })
    }

    /// A lane to an unauthenticated peer, with this end's key `key`, if there may be one more connection.
    fn let_in(&mut self, caller: &mut Caller, key: u32) -> io::Result<Admittance> {
        if self.is_full(caller.address(self.port.local())) {
            return Ok(Admittance::Busy);
        }
        match self.lane(caller, key) {
            Ok(lane) => Ok(lane.map_or(Admittance::Unreachable, Admittance::By)),
            Err(error) if is_exhausted(&error) => {
                self.counters.exhausted += 1;
                Ok(Admittance::Busy)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the limits forbid one more connection with `peer`; counts the refusal.
    fn is_full(&mut self, peer: SocketAddr) -> bool {
        let (all, of_origin) = self.port.connections(Origin::of(peer.ip()));
        let full = all >= self.options.listen.max_connections;
        let full_of_origin = of_origin >= self.options.listen.max_connections_of_origin;
        self.counters.full += u64::from(full);
        self.counters.full_of_origin += u64::from(full_of_origin && !full);
        full || full_of_origin
    }

    /// A lane to an unauthenticated peer, with this end's key `key`; `None` if it cannot be reached.
    fn lane(&self, caller: &mut Caller, key: u32) -> io::Result<Option<AnyLane>> {
        let peer = caller.address(self.port.local());
        match caller {
            Caller::Packet(addresses) => {
                let lane = self.udp_lane(*addresses, key)?;
                Ok(lane.map(|it| AnyLane::Datagram(it, None)))
            }
            Caller::Frame(from) => {
                let lane =
                    ethernet::accepted(&self.port, *from, key, self.udp_port(), &self.options)?;
                Ok(Some(AnyLane::Datagram(lane, None)))
            }
            Caller::Raw(addresses) => {
                let lane = ip118::accepted(&self.port, *addresses, key, &self.options);
                reachable(lane.map(|it| AnyLane::Datagram(it, None)))
            }
            Caller::Visitor(visitor) => Ok(visitor.take().map(|visitor| {
                if let Some(host) = &self.host {
                    // It belongs to the connection alone from now on.
                    host.leave(&visitor);
                }
                let mut local = peer;
                local.set_port(self.port.local().port());
                let port_slot = self.port.register(key, peer);
                let ends = Ends { local, peer };
                let lane = ShmLane::accepted(*visitor, ends, port_slot, &self.options);
                AnyLane::SharedMemory(lane, None)
            })),
        }
    }

    /// A lane with a socket of its own to a peer, with this end's key `key`; `None` if the peer cannot be reached. It
    /// sends from the address that the peer called, and is bound to that address if the system would choose another.
    fn udp_lane(&self, addresses: PacketAddresses, key: u32) -> io::Result<Option<DatagramLane>> {
        let local = self.port.local();
        let lane = self.lane_at(local, addresses.peer, key)?;
        let here = lane.as_ref().and_then(DatagramLane::local_addr);
        match addresses.called(local) {
            Some(called) if here.is_some_and(|it| it.ip() != called.ip()) => {
                drop(lane);
                self.lane_at(called, addresses.peer, key)
            }
            _ => Ok(lane),
        }
    }

    fn lane_at(
        &self,
        local: SocketAddr,
        peer: SocketAddr,
        key: u32,
    ) -> io::Result<Option<DatagramLane>> {
        let socket = self.port.join(local, self.options.flow.receive_buffer)?;
        let roam = PeerMigration::new(&self.port, local, key, peer);
        reachable(udp::over(socket, peer, roam, &self.options))
    }

    /// Tells an unauthenticated peer why not, with the keys of `session` if there is one.
    fn refuse(&mut self, rejection: Option<Packet>, session: Option<Session>, caller: &mut Caller) {
        self.counters.refused += 1;
        let Some(rejection) = rejection else {
            return;
        };
        match (session, &caller) {
            // Shared memory is never sealed.
            (Some(session), Caller::Packet(_) | Caller::Frame(_) | Caller::Raw(_)) => {
                if let Some(bytes) = udp::sealed(session, &rejection) {
                    caller.answer(&self.socket, &bytes);
                }
            }
            _ => {
                let (bytes, len) = rejection.emit();
                caller.answer(&self.socket, &bytes[..len]);
            }
        }
    }
}
