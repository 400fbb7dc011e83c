//! Sends datagrams without payload: control operations, messages of the key exchange, path probes.

use super::sealing::{STAGE, seal_operation};
use super::{Protection, Sender};
use crate::account::Account;
use crate::datagram::message::{iovec, is_full};
use crate::lane::Turn;
use socket2::{SockAddr, Socket};
use std::io;
use std::net::SocketAddr;
use zerolane_core::{ControlDatagram, Transmit};
use zerolane_wire::{Controls, MAX_CONTROLS};

/// Zeros for the padding of a path probe.
static PADDING: Padding = Padding([0; 65_536]);

/// Page-aligned, so that a probe of any size has few enough fragments.
#[repr(C, align(4096))]
struct Padding([u8; 65_536]);

impl Sender {
    pub(super) fn handshake(
        &mut self,
        socket: &Socket,
        message: &[u8],
        account: &mut Account,
    ) -> io::Result<()> {
        self.buffers.iovs.clear();
        self.buffers
            .iovs
            .push(iovec(message.as_ptr(), message.len()));
        self.send_alone(socket, account)
    }

    /// Sends `first` and the control operations that follow it in one datagram, if the peer accepts that: a confirmation
    /// and the grant of the next receive cost both ends one datagram. The transmission after these is held for the next
    /// burst of this turn; `last`: there is no such burst, and the core is asked for nothing more.
    pub(super) fn controls(
        &mut self,
        socket: &Socket,
        (first, last): (&ControlDatagram, bool),
        turn: &mut Turn<'_>,
    ) -> io::Result<()> {
        let mut joined = [0; MAX_CONTROLS];
        let mut len = 0;
        let mut add = |it: &ControlDatagram| {
            let fits = it.pad_to == 0 && Controls::takes(len, it.bytes());
            if fits {
                len = Controls::push(&mut joined, len, it.bytes());
            }
            fits
        };
        let mut together = std::mem::take(&mut self.buffers.controls);
        together.clear();
        together.push(*first);
        let mut behind = None;
        // Frames of raw Ethernet are checked in the peer's driver, which knows single operations.
        let joins = !last && self.output.frames().is_none() && turn.core.sends_frames();
        if joins && add(first) {
            loop {
                match self.next(turn) {
                    Some(Transmit::Control(it)) if add(&it) => together.push(it),
                    other => {
                        behind = other;
                        break;
                    }
                }
            }
        }
        let outcome = match together.len() {
            1 => self.control(socket, first.bytes(), first.pad_to, turn.account),
            _ => self.control(socket, &joined[..len], 0, turn.account),
        };
        let full = outcome.as_ref().is_err_and(is_full);
        match behind {
            // As when these operations are refused themselves.
            Some(Transmit::Operations(it)) if full => turn.core.take_back(&it),
            Some(other) => self.held.push_front(other),
            None => {}
        }
        if full {
            // The caller holds the first one.
            for it in together[1..].iter().rev() {
                self.held.push_front(Transmit::Control(*it));
            }
        }
        self.buffers.controls = together;
        outcome
    }

    fn control(
        &mut self,
        socket: &Socket,
        bytes: &[u8],
        pad_to: usize,
        account: &mut Account,
    ) -> io::Result<()> {
        self.buffers.iovs.clear();
        match &mut self.protection {
            Protection::Plain => return self.bare_control(socket, bytes, pad_to, account),
            Protection::Sealed(keys) => {
                let stage = &mut self.buffers.stage;
                match seal_operation(keys, bytes, pad_to, stage) {
                    Ok(len) => self.buffers.iovs.push(iovec(stage.as_ptr(), len)),
                    Err(_) => return Ok(()),
                }
            }
        }
        self.send_alone(socket, account)
    }

    /// Sends a control datagram to another address than the peer's.
    pub(in crate::datagram) fn send_elsewhere(
        &mut self,
        socket: &Socket,
        datagram: &ControlDatagram,
        to: SocketAddr,
    ) {
        let to = SockAddr::from(to);
        // If it cannot be sent, it counts as lost.
        let _ = match &mut self.protection {
            Protection::Plain => socket.send_to(datagram.bytes(), &to),
            Protection::Sealed(keys) => {
                let mut room = vec![0; STAGE];
                let sealed = seal_operation(keys, datagram.bytes(), datagram.pad_to, &mut room);
                sealed.map_or(Ok(0), |len| socket.send_to(&room[..len], &to))
            }
        };
    }

    /// Prepares an unsealed control datagram, with its padding.
    fn bare_control(
        &mut self,
        socket: &Socket,
        bytes: &[u8],
        pad_to: usize,
        account: &mut Account,
    ) -> io::Result<()> {
        let padding = pad_to.saturating_sub(bytes.len());
        self.buffers.iovs.push(iovec(bytes.as_ptr(), bytes.len()));
        if padding > 0 {
            let padding = padding.min(PADDING.0.len());
            self.buffers.iovs.push(iovec(PADDING.0.as_ptr(), padding));
            if let Some(outcome) = self.lend_probe(socket, bytes, account) {
                return outcome;
            }
        }
        self.send_alone(socket, account)
    }

    /// Sends the gathered probe, with `bytes` in front, without the kernel's copy. `None` if it must be sent with a
    /// copy.
    fn lend_probe(
        &mut self,
        socket: &Socket,
        bytes: &[u8],
        account: &mut Account,
    ) -> Option<io::Result<()>> {
        let own = self.zerocopy_tracker.probe(bytes)?;
        account.tx_control_syscalls += 1;
        self.buffers.iovs[0] = iovec(own.0.as_ptr().cast(), bytes.len());
        let outcome = self.lend(socket, 0, own, None);
        match outcome {
            Some(_) => account.datagrams_sent += 1,
            None => self.buffers.iovs[0] = iovec(bytes.as_ptr(), bytes.len()),
        }
        outcome
    }

    /// Sends the gathered pieces as one datagram that carries no Data.
    fn send_alone(&mut self, socket: &Socket, account: &mut Account) -> io::Result<()> {
        account.tx_control_syscalls += 1;
        account.datagrams_sent += 1;
        self.send_gathered(socket, 0, 0)
    }
}
