//! From the sender's file to the receiver's through a ring of buffers small enough to stay in the
//! cache: read into one while the others are on their way.
//!
//! Mapping both files instead saves a copy at each end and loses: the page faults of a file that
//! is written for the first time cost more than the copy (`docs/performance.md`).

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};
use zerolane::{Connection, Region};

use super::super::cpu::Meter;
use super::super::mover::FileRun;
use super::super::protocol::Measured;
use super::{DONE, GO, Listener, PATIENCE, await_word, measured, open, options};

/// What is read, sent as one Transfer and written, at a time.
const PIECE: usize = 512 << 10;
/// Pieces under way.
const AHEAD: usize = 4;

/// Length of the piece that starts at `at`.
fn piece_len(at: u64, bytes: u64) -> usize {
    usize::try_from(bytes - at).map_or(PIECE, |left| left.min(PIECE))
}

/// Receives the file into `run.path`, which must not exist yet.
pub(crate) fn receive(listener: Listener, run: &FileRun<'_>) -> Result<Measured> {
    let mut connection = listener.accept(run.job.token)?;
    let file = File::create_new(&run.path)?;
    let mut asked = 0;
    for _ in 0..AHEAD {
        asked += post(&mut connection, Region::anonymous(PIECE)?, asked, run.bytes)?;
    }
    connection.send(&[GO])?;
    let before = connection.account();
    let meter = Meter::start(run.core);
    let (mut written, mut writes) = (0, 0);
    while written < run.bytes {
        let completion = connection.wait(PATIENCE)?.context("the sender stalled")?;
        let got = completion.result?;
        let piece = completion.into_region();
        file.write_all_at(&piece[..got], written)
            .context("writing the copy")?;
        written += got as u64;
        writes += 1;
        asked += post(&mut connection, piece, asked, run.bytes)?;
    }
    let (seconds, cpu) = meter.stop();
    let after = connection.account();
    connection.send(&[DONE])?;
    connection.close()?;
    let measured = measured(run.bytes, seconds, cpu, &before, &after);
    Ok(Measured {
        syscalls: measured.syscalls + writes,
        ..measured
    })
}

/// Posts `piece` for the bytes from `at`, if there are any; how many they are.
fn post(connection: &mut Connection, piece: Region, at: u64, bytes: u64) -> Result<u64> {
    let len = piece_len(at, bytes);
    if len > 0 {
        connection.post_recv(piece)?;
    }
    Ok(len as u64)
}

/// Sends the file at `run.path`.
pub(crate) fn send(to: SocketAddr, run: &FileRun<'_>) -> Result<Measured> {
    let mut connection = open(to, run.job.token, &options(run.job.security))?;
    let file = File::open(&run.path)?;
    let mut free = (0..AHEAD)
        .map(|_| Region::anonymous(PIECE))
        .collect::<Result<Vec<_>, _>>()?;
    await_word(&mut connection, GO)?;
    let before = connection.account();
    let meter = Meter::start(run.core);
    let (mut at, mut reads) = (0, 0);
    while at < run.bytes {
        let mut piece = match free.pop() {
            Some(piece) => piece,
            None => sent(&mut connection)?,
        };
        let len = piece_len(at, run.bytes);
        let rest = piece.split_off(len);
        file.read_exact_at(&mut piece, at)
            .context("the file is shorter than it was")?;
        connection.post_send(piece)?;
        drop(rest);
        at += len as u64;
        reads += 1;
        // What was granted meanwhile leaves while the next piece is read.
        if let Some(completion) = connection.poll()? {
            completion.result?;
            free.push(completion.into_region());
        }
    }
    while connection.in_flight() > 0 {
        sent(&mut connection)?;
    }
    await_word(&mut connection, DONE)?;
    let (seconds, cpu) = meter.stop();
    let after = connection.account();
    connection.close()?;
    let measured = measured(run.bytes, seconds, cpu, &before, &after);
    Ok(Measured {
        syscalls: measured.syscalls + reads,
        ..measured
    })
}

/// The memory of the next piece that was sent.
fn sent(connection: &mut Connection) -> Result<Region> {
    let completion = connection.wait(PATIENCE)?.context("the receiver stalled")?;
    completion.result?;
    Ok(completion.into_region())
}
