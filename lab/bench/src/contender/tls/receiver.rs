//! Receives with rustls's unbuffered interface, which decrypts the many records of one recv in place.
//!
//! The buffered interface reads 4 KiB at a time, or copies once more.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};

use super::super::certificate;
use super::super::socket::Connection;
use super::super::stream::Stream;

/// Largest record on the wire: 16 KiB and what TLS adds to them, bytes.
const RECORD_MAX_BYTES: usize = (16 << 10) + 256;

/// Most bytes received at once. 256 KiB and 1 MiB were as fast, within the noise.
const SPACE_BYTES: usize = 512 << 10;

/// The receiving end of TLS over TCP.
pub(super) struct Receiver {
    tls: UnbufferedServerConnection,
    tcp: Connection,
    /// What was received and not opened yet is at `start..end`.
    space: Vec<u8>,
    start: usize,
    end: usize,
    /// Handshake flights to send.
    outgoing: Vec<u8>,
}

impl Receiver {
    pub(super) fn accept(tcp: Connection) -> Result<Receiver> {
        let mut receiver = Receiver {
            tls: UnbufferedServerConnection::new(Arc::new(certificate::server()?))?,
            tcp,
            space: vec![0; SPACE_BYTES],
            start: 0,
            end: 0,
            outgoing: vec![],
        };
        while receiver.tls.is_handshaking() {
            receiver.step(&mut [])?;
        }
        Ok(receiver)
    }

    /// One step of TLS: opens what is here into `place`, or takes the handshake on, or receives. How much
    /// payload it brought.
    fn step(&mut self, place: &mut [u8]) -> Result<usize> {
        let here = &mut self.space[self.start..self.end];
        let UnbufferedStatus {
            mut discard, state, ..
        } = self.tls.process_tls_records(here);
        let (mut brought, mut needs_input) = (0, false);
        match state? {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    let record = record?;
                    let to = place.get_mut(brought..brought + record.payload.len());
                    to.context("the sender sent more than requested")?
                        .copy_from_slice(record.payload);
                    brought += record.payload.len();
                    discard += record.discard;
                }
            }
            ConnectionState::EncodeTlsData(mut data) => {
                let mut flight = [0; RECORD_MAX_BYTES];
                let len = data.encode(&mut flight)?;
                self.outgoing.extend_from_slice(&flight[..len]);
            }
            ConnectionState::TransmitTlsData(data) => {
                self.tcp.send(&self.outgoing)?;
                self.outgoing.clear();
                data.done();
            }
            ConnectionState::BlockedHandshake => needs_input = true,
            // The handshake is over: there is only payload to wait for, if any is wanted.
            ConnectionState::WriteTraffic(_) => needs_input = !place.is_empty(),
            other => bail!("TLS ended early: {other:?}"),
        }
        self.start += discard;
        if needs_input {
            self.receive_some()?;
        }
        Ok(brought)
    }

    /// One recv behind what is here.
    fn receive_some(&mut self) -> Result<()> {
        if self.start == self.end || self.space.len() - self.end < RECORD_MAX_BYTES {
            self.space.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        ensure!(
            self.end < self.space.len(),
            "a record longer than TLS allows"
        );
        self.end += self.tcp.receive(&mut self.space[self.end..])?;
        Ok(())
    }
}

impl Stream for Receiver {
    fn send_bytes(&self) -> usize {
        1
    }

    fn receive_bytes(&self) -> usize {
        usize::MAX
    }

    /// Says a word, sealed.
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let UnbufferedStatus { state, .. } = self.tls.process_tls_records(&mut []);
        let ConnectionState::WriteTraffic(mut traffic) = state? else {
            bail!("TLS does not let the receiver send")
        };
        let mut sealed = [0; 256];
        let len = traffic.encrypt(bytes, &mut sealed)?;
        self.tcp.send(&sealed[..len])
    }

    fn receive(&mut self, space: &mut [u8]) -> Result<usize> {
        loop {
            match self.step(space)? {
                0 => {}
                brought => return Ok(brought),
            }
        }
    }

    fn syscalls(&self) -> u64 {
        self.tcp.syscalls()
    }
}
