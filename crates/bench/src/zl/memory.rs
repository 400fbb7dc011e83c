//! From the sender's buffer straight to the receiver's, a lap at a time.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use zerolane::Connection;

use super::super::cpu::Meter;
use super::super::mover::{Buffer, Run};
use super::super::protocol::Measured;
use super::pieces::Pieces;
use super::{DONE, GO, Listener, PATIENCE, await_word, measured, open, options};
use zerolane_cli::exit::Exit;

/// Pieces of a buffer.
const PIECES: usize = 4;

/// Waits for the next piece whose Transfer is over; its number.
fn wait(pieces: &mut Pieces, connection: &mut Connection) -> Result<usize> {
    let completion = connection.wait(PATIENCE)?.context("the peer stalled")?;
    pieces.take_back(completion)
}

/// Receives all laps into `buffer`.
pub(crate) fn receive(listener: Listener, run: &Run<'_>, buffer: &mut Buffer) -> Result<Measured> {
    let mut connection = listener.accept(run.job.token)?;
    let mut pieces = Pieces::cut(buffer, PIECES)?;
    let mut laps = vec![0; pieces.count()];
    post_receives(&mut connection, &mut pieces, run.laps)?;
    connection.send(&[GO])?;
    let before = connection.account();
    let meter = Meter::start(run.core);
    while !pieces.none_under_way() {
        let piece = wait(&mut pieces, &mut connection)?;
        if let Some(region) = pieces.get(piece) {
            run.pattern
                .check_stamps(region, pieces.base(piece), laps[piece])
                .context(Exit::Corrupt)?;
        }
        laps[piece] += 1;
        post_receives(&mut connection, &mut pieces, run.laps)?;
    }
    let (seconds, cpu) = meter.stop();
    let after = connection.account();
    connection.send(&[DONE])?;
    connection.close()?;
    pieces.join(buffer)?;
    Ok(measured(run.bytes, seconds, cpu, &before, &after))
}

fn post_receives(connection: &mut Connection, pieces: &mut Pieces, laps: u64) -> Result<()> {
    while let Some((piece, _, region)) = pieces.take_turn(laps) {
        pieces.posted(connection.post_recv(region)?, piece);
    }
    Ok(())
}

/// Sends all laps from `buffer`.
pub(crate) fn send(to: SocketAddr, run: &Run<'_>, buffer: &mut Buffer) -> Result<Measured> {
    let mut connection = open(to, run.job.token, &options(run.job.security))?;
    let mut pieces = Pieces::cut(buffer, PIECES)?;
    await_word(&mut connection, GO)?;
    let before = connection.account();
    let meter = Meter::start(run.core);
    loop {
        while let Some((piece, lap, mut region)) = pieces.take_turn(run.laps) {
            run.pattern.stamp(&mut region, pieces.base(piece), lap);
            pieces.posted(connection.post_send(region)?, piece);
        }
        if pieces.none_under_way() {
            break;
        }
        wait(&mut pieces, &mut connection)?;
    }
    // What is still under way costs this core too: wait until it is there.
    await_word(&mut connection, DONE)?;
    let (seconds, cpu) = meter.stop();
    let after = connection.account();
    connection.close()?;
    pieces.join(buffer)?;
    Ok(measured(run.bytes, seconds, cpu, &before, &after))
}
