//! The sender: rustls's buffered interface, which seals a piece record by record and hands all of them to
//! one writev.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use anyhow::{Result, ensure};
use rustls::ClientConnection;

use crate::certificate::{self, NAME};
use crate::cpu::Meter;
use crate::mover::Run;
use crate::protocol::Measured;
use crate::tcp::{Connection, DONE, GO, stalled};

/// Most payload sealed before it is written, which is 16 records: what fits the cache. 64 KiB were measured to
/// be as fast, 1 MiB took half as long again.
const BATCH_BYTES: usize = 256 << 10;

struct Sender {
    tls: ClientConnection,
    stream: TcpStream,
    syscalls: u64,
}

impl Sender {
    fn open(to: SocketAddr, run: &Run<'_>) -> Result<Sender> {
        let stream = Connection::open(to, run.job.token, &run.job.tcp)?.into_stream();
        let name = NAME.try_into()?;
        let mut tls = ClientConnection::new(Arc::new(certificate::client()?), name)?;
        tls.set_buffer_limit(None);
        let mut sender = Sender {
            tls,
            stream,
            syscalls: 0,
        };
        sender.tls.complete_io(&mut sender.stream)?;
        Ok(sender)
    }

    fn await_word(&mut self, word: u8) -> Result<()> {
        let mut heard = [0];
        let mut stream = rustls::Stream::new(&mut self.tls, &mut self.stream);
        stream.read_exact(&mut heard).map_err(stalled)?;
        ensure!(
            heard == [word],
            "the receiver said {:?} instead of {:?}",
            heard[0] as char,
            word as char
        );
        Ok(())
    }

    fn send_all(&mut self, piece: &[u8]) -> Result<()> {
        self.tls.writer().write_all(piece)?;
        while self.tls.wants_write() {
            self.syscalls += 1;
            match self.tls.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(stalled(error)),
            }
        }
        Ok(())
    }
}

/// Sends all laps from `buffer`.
pub(crate) fn send(to: SocketAddr, run: &Run<'_>, buffer: &mut [u8]) -> Result<Measured> {
    let mut sender = Sender::open(to, run)?;
    sender.await_word(GO)?;
    let meter = Meter::start(run.core);
    for lap in 0..run.laps {
        let mut base = 0;
        for piece in buffer.chunks_mut(BATCH_BYTES) {
            run.pattern.stamp(piece, base, lap);
            sender.send_all(piece)?;
            base += piece.len();
        }
    }
    // What is still in the socket costs this core too: wait until it is there.
    sender.await_word(DONE)?;
    let (seconds, cpu) = meter.stop();
    Ok(Measured::new(run.bytes, seconds, cpu, sender.syscalls))
}
