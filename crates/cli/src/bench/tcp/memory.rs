//! From the sender's buffer straight to the receiver's, a lap at a time.

use std::net::SocketAddr;

use anyhow::{Context, Result};

use super::super::cpu::Meter;
use super::super::mover::Run;
use super::super::pattern::WORD;
use super::super::protocol::Measured;
use super::{Connection, DONE, GO, Listener};
use crate::exit::Exit;

/// Receives all laps into `buffer`.
pub(crate) fn receive(listener: Listener, run: &Run<'_>, buffer: &mut [u8]) -> Result<Measured> {
    let mut connection = listener.accept(run.job)?;
    connection.say(GO)?;
    let meter = Meter::start(run.core);
    for lap in 0..run.laps {
        receive_lap(&mut connection, run, buffer, lap)?;
    }
    let (seconds, cpu) = meter.stop();
    connection.say(DONE)?;
    Ok(Measured::new(run.bytes, seconds, cpu, connection.syscalls))
}

fn receive_lap(
    connection: &mut Connection,
    run: &Run<'_>,
    buffer: &mut [u8],
    lap: u64,
) -> Result<()> {
    let mut filled = 0;
    let mut checked = 0;
    while filled < buffer.len() {
        let end = buffer.len().min(filled + run.job.tcp.recv_bytes);
        filled += connection.recv_some(&mut buffer[filled..end])?;
        let whole = filled / WORD * WORD;
        run.pattern
            .check_stamps(&buffer[checked..whole], checked, lap)
            .context(Exit::Corrupt)?;
        checked = whole;
    }
    Ok(())
}

/// Sends all laps from `buffer`.
pub(crate) fn send(to: SocketAddr, run: &Run<'_>, buffer: &mut [u8]) -> Result<Measured> {
    let mut connection = Connection::open(to, run.job)?;
    connection.await_word(GO)?;
    let meter = Meter::start(run.core);
    for lap in 0..run.laps {
        let mut base = 0;
        for piece in buffer.chunks_mut(run.job.tcp.send_bytes) {
            run.pattern.stamp(piece, base, lap);
            connection.send_all(piece)?;
            base += piece.len();
        }
    }
    // What is still in the socket costs this core too: wait until it is there.
    connection.await_word(DONE)?;
    let (seconds, cpu) = meter.stop();
    Ok(Measured::new(run.bytes, seconds, cpu, connection.syscalls))
}
