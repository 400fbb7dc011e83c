//! An address of the peer, or of ours, changes in the middle of things: a NAT forgot the old one, or
//! the machine moved.
//!
//! Ports and keys make a connection, not addresses. What comes from another address with this
//! connection's key, the lane shows to [`Connection::on_unmatched`](crate::Connection::on_unmatched). That
//! address is believed if the peer is silent at the old one, and what answers there knows the
//! connection's ports and keys and a number that was sent there and nowhere else. What may speak for
//! the peer beyond that, the lane decides before it shows anything: protected datagrams are opened
//! first.

use super::Session;
use crate::Instant;
use crate::context::Context;
use crate::limits::MIN_RTO;
use crate::transmit::ControlDatagram;
use core::net::SocketAddr;
use zerolane_wire::{Header, Nop, Operation, Packet};

/// A new address of the peer that was asked whether the peer is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    address: SocketAddr,
    /// What the answer has to repeat.
    nonce: u32,
    asked: Instant,
}

/// What follows from a datagram that came from another address than the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathValidation {
    /// Nothing follows.
    Ignored,
    /// This is to be sent to where it came from.
    Challenge(ControlDatagram),
    /// The peer is there now: everything is to be sent there.
    Validated,
}

impl Session {
    /// Whether the peer has been silent for so long that it may be elsewhere.
    pub(crate) fn is_peer_silent(&self, cx: &Context, now: Instant) -> bool {
        let silence = now - self.heard;
        // Asked at every turn that receives nothing: patience, which is never less, takes longer to find.
        silence > MIN_RTO && self.is_established() && silence > cx.recovery.patience()
    }

    /// A datagram with our key came `from` an address that is not the peer's.
    pub(crate) fn on_unmatched(
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
            // One question at a time, wherever it goes.
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
