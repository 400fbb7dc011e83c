//! An address of the peer, or of ours, changes in the middle of things: a NAT forgot the old one, or
//! the machine moved.
//!
//! Ports and keys make a connection, not addresses. What comes from another address with this
//! connection's key, the lane shows to [`Connection::on_stray`]. That address is believed if the peer
//! is silent at the old one, and who answers there knows the connection's ports and keys and a number
//! that was sent there and nowhere else. Who may speak for the peer beyond that, the lane decides
//! before it shows anything: protected datagrams are opened first.

use super::Connection;
use crate::timers::Timer;
use crate::transmit::ControlDatagram;
use crate::{Instant, Life};
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
pub enum Stray {
    /// Nothing.
    Nothing,
    /// This is to be sent to where it came from.
    Ask(ControlDatagram),
    /// The peer is there now: everything is to be sent there.
    Moved,
}

impl Connection {
    /// Whether the peer has been silent for so long that it may be elsewhere.
    pub fn is_peer_silent(&self, now: Instant) -> bool {
        self.life == Life::Established && now - self.heard > self.recovery.patience()
    }

    /// A datagram, or at least its first 72 bytes, with our key came `from` an address that is not the
    /// peer's. `nonce` is a number that nobody can guess.
    pub fn on_stray(
        &mut self,
        now: Instant,
        from: SocketAddr,
        nonce: u32,
        datagram: &[u8],
    ) -> Stray {
        let ours = |it: &Header| it.d_port == self.route.s_port && it.d_key == self.entropy.key;
        let known = Header::parse(datagram).is_ok_and(|header| ours(&header));
        if !known || !self.is_peer_silent(now) {
            return Stray::Nothing;
        }
        match self.candidate {
            Some(it) if it.address == from && is_answer(datagram, it.nonce) => {
                self.peer_moved(now);
                Stray::Moved
            }
            // One question at a time, to whomever.
            Some(it) if now - it.asked < self.recovery.patience() => Stray::Nothing,
            _ => {
                self.candidate = Some(Candidate {
                    address: from,
                    nonce,
                    asked: now,
                });
                Stray::Ask(self.question(nonce))
            }
        }
    }

    fn question(&mut self, sync: u32) -> ControlDatagram {
        self.counters.control_sent += 1;
        let nop = Nop {
            send_state: true,
            sync,
            ..Nop::default()
        };
        let packet = Packet {
            route: self.route,
            operation: Operation::Nop(nop),
        };
        ControlDatagram::new(&packet, 0)
    }

    fn peer_moved(&mut self, now: Instant) {
        self.candidate = None;
        self.heard(now);
        self.on_new_path(now);
    }

    /// The way to the peer is another from here on: an end has a new address. If it is ours, and the
    /// last word of ours was lost, the peer has nowhere to ask for it: it hears from us at once.
    pub fn on_new_path(&mut self, now: Instant) {
        self.ping(now);
        self.counters.moves += 1;
        self.recovery.forget();
        self.congestion.on_new_path(None);
        self.marks.forget();
        self.outbox.flight.give_up();
        // What waited long for answers need not wait for the end of that.
        for timer in [Timer::Payload, Timer::Confirmation, Timer::Probe] {
            if self.timers.runs(timer) {
                self.timers.set(timer, now);
            }
        }
    }
}

fn is_answer(datagram: &[u8], nonce: u32) -> bool {
    let packet = Packet::parse(datagram);
    packet.is_ok_and(|it| match it.operation {
        Operation::Nop(nop) => nop.reply && nop.sync == nonce,
        _ => false,
    })
}
