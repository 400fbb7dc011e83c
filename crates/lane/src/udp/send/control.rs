//! Sending what is no payload: control operations, messages of the key exchange, path probes.

use super::{Protection, Sender, iovec};
use crate::Account;
use socket2::{SockAddr, Socket};
use std::io;
use std::net::SocketAddr;
use zerolane_core::ControlDatagram;

/// Zeros behind a path probe.
static PADDING: Padding = Padding([0; 65_536]);

/// On pages of its own, so that a probe of any size has few enough fragments.
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

    pub(super) fn control(
        &mut self,
        socket: &Socket,
        datagram: &ControlDatagram,
        account: &mut Account,
    ) -> io::Result<()> {
        self.buffers.iovs.clear();
        match &mut self.protection {
            Protection::Plain => return self.bare_control(socket, datagram, account),
            Protection::Waiting => return Ok(()),
            Protection::Sealed(stage) => match stage.control(datagram) {
                Ok(bytes) => self.buffers.iovs.push(iovec(bytes.as_ptr(), bytes.len())),
                Err(_) => return Ok(()),
            },
        }
        self.send_alone(socket, account)
    }

    /// Sends a control datagram to another address than the peer's.
    pub(in crate::udp) fn send_elsewhere(
        &mut self,
        socket: &Socket,
        datagram: &ControlDatagram,
        to: SocketAddr,
    ) {
        let to = SockAddr::from(to);
        // As good as lost if it cannot be sent.
        let _ = match &mut self.protection {
            Protection::Plain => socket.send_to(datagram.bytes(), &to),
            Protection::Waiting => return,
            Protection::Sealed(stage) => {
                stage.lend();
                let sealed = stage.control(datagram);
                let sent = sealed.map(|bytes| socket.send_to(bytes, &to));
                stage.give_back();
                sent.unwrap_or(Ok(0))
            }
        };
    }

    /// A control datagram as it is, with its padding.
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

    /// Sends the probe that is gathered, with `bytes` in front, without the kernel's copy. `None` if
    /// it is to be sent with it.
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

    /// Sends what is gathered as one datagram that carries no Data.
    fn send_alone(&mut self, socket: &Socket, account: &mut Account) -> io::Result<()> {
        account.tx_control_syscalls += 1;
        account.datagrams_sent += 1;
        self.send_gathered(socket, 0, 0)
    }
}
