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

/// Most control datagrams in one system call.
const MAX_TOGETHER: usize = 8;

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

    /// Sends `first` in one call with the control datagrams of the same length that follow it: a confirmation and the
    /// grant of the next receive cost the peer one read of its socket. The transmission after these is held for the
    /// next burst of this turn; `last`: there is no such burst, and the core is asked for nothing more.
    pub(super) fn controls(
        &mut self,
        socket: &Socket,
        (first, last): (&ControlDatagram, bool),
        turn: &mut Turn<'_>,
    ) -> io::Result<()> {
        let mut together = std::mem::take(&mut self.buffers.controls);
        together.clear();
        together.push(*first);
        let len = first.bytes().len();
        let mut behind = None;
        while self.gso && !last && first.pad_to == 0 && together.len() < MAX_TOGETHER {
            match self.next(turn) {
                Some(Transmit::Control(it)) if it.pad_to == 0 && it.bytes().len() == len => {
                    together.push(it);
                }
                other => {
                    behind = other;
                    break;
                }
            }
        }
        let outcome = match &together[..] {
            [one] => self.control(socket, one, turn.account),
            all => self.send_together(socket, all, turn),
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

    /// Sends control datagrams of one length.
    fn send_together(
        &mut self,
        socket: &Socket,
        all: &[ControlDatagram],
        turn: &mut Turn<'_>,
    ) -> io::Result<()> {
        let len = all[0].bytes().len();
        self.buffers.iovs.clear();
        let segment = match &mut self.protection {
            Protection::Plain => {
                let bytes = all.iter().map(ControlDatagram::bytes);
                self.buffers
                    .iovs
                    .extend(bytes.map(|it| iovec(it.as_ptr(), it.len())));
                len
            }
            Protection::Sealed(keys) => {
                let mut end = 0;
                for it in all {
                    let place = &mut self.buffers.stage[end..];
                    match seal_operation(keys, it.bytes(), 0, place) {
                        Ok(len) => end += len,
                        Err(_) => return Ok(()),
                    }
                }
                let start = self.buffers.stage.as_ptr();
                self.buffers.iovs.push(iovec(start, end));
                end / all.len()
            }
        };
        turn.account.tx_control_syscalls += 1;
        turn.account.datagrams_sent += all.len() as u64;
        self.send_cut(socket, segment, turn.account)
    }

    fn control(
        &mut self,
        socket: &Socket,
        datagram: &ControlDatagram,
        account: &mut Account,
    ) -> io::Result<()> {
        self.buffers.iovs.clear();
        match &mut self.protection {
            Protection::Plain => return self.bare_control(socket, datagram, account),
            Protection::Sealed(keys) => {
                let stage = &mut self.buffers.stage;
                match seal_operation(keys, datagram.bytes(), datagram.pad_to, stage) {
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
        datagram: &ControlDatagram,
        account: &mut Account,
    ) -> io::Result<()> {
        let bytes = datagram.bytes();
        let padding = datagram.pad_to.saturating_sub(bytes.len());
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
