//! From the sender's buffer straight to the receiver's, a lap at a time.
//!
//! The buffer is cut into pieces, each a Transfer of its own, so that while one
//! piece is confirmed, checked and stamped anew the next ones are under way:
//! what a user with one buffer does to keep the wire busy.

use std::collections::HashMap;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use zerolane::{Connection, Region, TransferId};

use super::super::cpu::Meter;
use super::super::mover::{Buffer, Run};
use super::super::protocol::Measured;
use super::{DONE, GO, Listener, PATIENCE, await_word, measured, open, options};
use crate::exit::Exit;

/// Pieces of a buffer.
const PIECES: usize = 4;
/// A piece's length is a multiple of this.
const GRAIN: usize = 64 << 10;

/// The buffer, cut. Both ends post the pieces in turn, lap by lap, so that the n-th receive gets
/// the n-th send; a piece that is back before its turn waits.
struct Pieces {
    /// By piece; `None` while it is posted.
    here: Vec<Option<Region>>,
    /// Which piece each Transfer under way carries.
    posted: HashMap<TransferId, usize>,
    /// Posted so far, all laps.
    turn: u64,
    len: usize,
}

impl Pieces {
    fn cut(buffer: &mut Buffer) -> Result<Pieces> {
        let len = buffer.len().div_ceil(PIECES).next_multiple_of(GRAIN);
        let mut rest = std::mem::replace(buffer, Region::anonymous(0)?);
        let mut here = Vec::new();
        while !rest.is_empty() {
            let next = rest.split_off(len.min(rest.len()));
            here.push(Some(std::mem::replace(&mut rest, next)));
        }
        Ok(Pieces {
            here,
            posted: HashMap::new(),
            turn: 0,
            len,
        })
    }

    /// Puts the buffer together again.
    fn join(self, buffer: &mut Buffer) -> Result<()> {
        for region in self.here.into_iter().flatten() {
            if buffer.is_empty() {
                *buffer = region;
            } else {
                ensure!(
                    buffer.unsplit(region).is_ok(),
                    "the pieces do not fit together"
                );
            }
        }
        Ok(())
    }

    /// The piece whose turn it is, if it is here and has a turn left: its number and its lap.
    fn take_turn(&mut self, laps: u64) -> Option<(usize, u64, Region)> {
        let count = self.here.len() as u64;
        let (piece, lap) = ((self.turn % count) as usize, self.turn / count);
        if lap == laps {
            return None;
        }
        let region = self.here[piece].take()?;
        self.turn += 1;
        Some((piece, lap, region))
    }

    /// Waits for the next piece whose Transfer is over; its number.
    fn wait(&mut self, connection: &mut Connection) -> Result<usize> {
        let completion = connection.wait(PATIENCE)?.context("the peer stalled")?;
        let piece = self
            .posted
            .remove(&completion.id)
            .context("a Transfer of nobody")?;
        completion.result?;
        self.here[piece] = Some(completion.into_region());
        Ok(piece)
    }
}

/// Receives all laps into `buffer`.
pub(crate) fn receive(listener: Listener, run: &Run<'_>, buffer: &mut Buffer) -> Result<Measured> {
    let mut connection = listener.accept(run.job.token)?;
    let mut pieces = Pieces::cut(buffer)?;
    let mut laps = vec![0; pieces.here.len()];
    post_receives(&mut connection, &mut pieces, run.laps)?;
    connection.send(&[GO])?;
    let before = connection.account();
    let meter = Meter::start(run.core);
    while !pieces.posted.is_empty() {
        let piece = pieces.wait(&mut connection)?;
        if let Some(region) = &pieces.here[piece] {
            run.pattern
                .check_stamps(region, piece * pieces.len, laps[piece])
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
        pieces.posted.insert(connection.post_recv(region)?, piece);
    }
    Ok(())
}

/// Sends all laps from `buffer`.
pub(crate) fn send(to: SocketAddr, run: &Run<'_>, buffer: &mut Buffer) -> Result<Measured> {
    let mut connection = open(to, run.job.token, &options())?;
    let mut pieces = Pieces::cut(buffer)?;
    await_word(&mut connection, GO)?;
    let before = connection.account();
    let meter = Meter::start(run.core);
    loop {
        while let Some((piece, lap, mut region)) = pieces.take_turn(run.laps) {
            run.pattern.stamp(&mut region, piece * pieces.len, lap);
            pieces.posted.insert(connection.post_send(region)?, piece);
        }
        if pieces.posted.is_empty() {
            break;
        }
        pieces.wait(&mut connection)?;
    }
    // What is still under way costs this core too: wait until it is there.
    await_word(&mut connection, DONE)?;
    let (seconds, cpu) = meter.stop();
    let after = connection.account();
    connection.close()?;
    pieces.join(buffer)?;
    Ok(measured(run.bytes, seconds, cpu, &before, &after))
}
