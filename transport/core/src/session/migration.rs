//! Validates a new address of the peer when datagrams come from one: a NAT rebound, or a machine moved.
//!
//! Ports and keys identify a connection, not addresses. The lane passes a datagram with this connection's key from
//! another address to [`Connection::on_new_address`](crate::Connection::on_new_address). The address is believed if the
//! peer is silent at the old one, and the host there knows the connection's ports and keys and a nonce that was sent
//! only there. The lane does any further authentication first: it opens protected datagrams before it passes them in.

use super::Session;
use crate::context::Context;
use crate::limits::MIN_RTO;
use crate::time::Instant;
use crate::transmit::ControlDatagram;
use core::net::SocketAddr;
use zerolane_wire::{Header, Nop, Operation, Packet};

/// A possible new address of the peer, which was sent a question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    address: SocketAddr,
    /// The nonce that the answer must repeat.
    nonce: u32,
    asked: Instant,
}

/// Consequence of a datagram from an address other than the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathValidation {
    /// Nothing follows.
    Ignored,
    /// Send this to the datagram's source address.
    Challenge(ControlDatagram),
    /// The peer is there now: send everything there.
    Validated,
}

impl Session {
    /// Whether the peer has been silent long enough to have moved.
    pub(crate) fn is_peer_silent(&self, cx: &Context, now: Instant) -> bool {
        let silence = now - self.heard;
        // Called at every turn that receives nothing. The first two checks are cheap; patience, which is never less
        // than `MIN_RTO`, is slower to compute.
        silence > MIN_RTO && self.is_established() && silence > cx.recovery.patience()
    }

    /// A datagram with our key came `from` an address other than the peer's.
    pub(crate) fn on_new_address(
        &mut self,
        cx: &mut Context,
        from: SocketAddr,
        nonce: u32,
        datagram: &[u8],
    ) -> PathValidation {
        let ours = |it: &Header| self.owns(cx, it.d_port, it.d_key);
        let known = Header::parse(datagram).is_ok_and(|header| ours(&header));
        if !known || !self.is_peer_silent(cx, cx.now) {
            return PathValidation::Ignored;
        }
        match self.candidate {
            Some(it) if it.address == from && is_answer(datagram, it.nonce) => {
                self.candidate = None;
                self.on_heard(cx);
                PathValidation::Validated
            }
            // One question at a time, to whatever address.
            Some(it) if cx.now - it.asked < cx.recovery.patience() => PathValidation::Ignored,
            _ => {
                self.candidate = Some(Candidate {
                    address: from,
                    nonce,
                    asked: cx.now,
                });
                PathValidation::Challenge(question(cx, nonce))
            }
        }
    }
}

fn question(cx: &mut Context, sync: u32) -> ControlDatagram {
    cx.counters.control_sent += 1;
    let packet = Packet {
        route: cx.route,
        operation: Operation::Nop(Nop {
            send_state: true,
            sync,
            ..Nop::default()
        }),
    };
    ControlDatagram::new(&packet, 0)
}

fn is_answer(datagram: &[u8], nonce: u32) -> bool {
    let packet = Packet::parse(datagram);
    packet.is_ok_and(|it| match it.operation {
        Operation::Nop(nop) => nop.reply && nop.sync == nonce,
        _ => false,
    })
}
