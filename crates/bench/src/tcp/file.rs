//! From the sender's file to the receiver's: the read/write loop that a careful
//! programmer writes first.

use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};

use super::super::cpu::Meter;
use super::super::mover::FileRun;
use super::super::protocol::Measured;
use super::{Connection, DONE, GO, Listener};

/// Receives the file into `run.path`, which must not exist yet.
pub(crate) fn receive(listener: Listener, run: &FileRun<'_>) -> Result<Measured> {
    let mut connection = listener.accept(run.job.token, &run.job.tcp)?;
    let mut file = File::create_new(&run.path)?;
    let mut chunk = vec![0; run.job.tcp.recv_bytes];
    connection.say(GO)?;
    let meter = Meter::start(run.core);
    let mut left = run.bytes;
    while left > 0 {
        let want = usize::try_from(left).map_or(chunk.len(), |left| left.min(chunk.len()));
        let got = connection.recv_some(&mut chunk[..want])?;
        file.write_all(&chunk[..got]).context("writing the copy")?;
        connection.syscalls += 1;
        left -= got as u64;
    }
    let (seconds, cpu) = meter.stop();
    connection.say(DONE)?;
    Ok(Measured::new(run.bytes, seconds, cpu, connection.syscalls))
}

/// Sends the file at `run.path`.
pub(crate) fn send(to: SocketAddr, run: &FileRun<'_>) -> Result<Measured> {
    let mut connection = Connection::open(to, run.job.token, &run.job.tcp)?;
    let mut file = File::open(&run.path)?;
    let mut chunk = vec![0; run.job.tcp.send_bytes];
    connection.await_word(GO)?;
    let meter = Meter::start(run.core);
    let mut left = run.bytes;
    while left > 0 {
        let got = file.read(&mut chunk).context("reading the file")?;
        ensure!(got > 0, "the file is {left} bytes shorter than it was");
        connection.syscalls += 1;
        connection.send_all(&chunk[..got])?;
        left = left.saturating_sub(got as u64);
    }
    connection.await_word(DONE)?;
    let (seconds, cpu) = meter.stop();
    Ok(Measured::new(run.bytes, seconds, cpu, connection.syscalls))
}
