//! From the sender's buffer straight to the receiver's, a lap at a time.
//!
//! The buffer is cut into pieces, each a Transfer of its own, so that while one
//! piece is confirmed, checked and stamped anew the next ones are under way:
//! what a user with one buffer does to keep the wire busy.

use std::collections::VecDeque;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use zerolane::{Completion, Connection, Region};

use super::super::cpu::Meter;
use super::super::mover::{Buffer, Run};
use super::super::protocol::Measured;
use super::{DONE, GO, Listener, PATIENCE, await_word, measured, open};
use crate::exit::Exit;

/// Pieces of a buffer.
const PIECES: usize = 4;
/// A piece's length is a multiple of this.
const GRAIN: usize = 64 << 10;

/// The buffer, cut.
struct Pieces {
    free: VecDeque<(usize, Region)>,
    len: usize,
}

impl Pieces {
    fn cut(buffer: &mut Buffer) -> Result<Pieces> {
        let piece = buffer.len().div_ceil(PIECES).next_multiple_of(GRAIN);
        let mut rest = std::mem::replace(buffer, Region::anonymous(0)?);
        let (mut free, mut base) = (VecDeque::new(), 0);
        while rest.len() > 0 {
            let next = rest.split_off(piece.min(rest.len()));
            free.push_back((base, rest));
            base += free.back().map_or(0, |(_, region)| region.len());
            rest = next;
        }
        Ok(Pieces { free, len: piece })
    }

    /// Puts the buffer together again.
    fn join(mut self, buffer: &mut Buffer) -> Result<()> {
        self.free.make_contiguous().sort_by_key(|&(base, _)| base);
        for (_, region) in self.free {
            if buffer.is_empty() {
                *buffer = region;
            } else {
                ensure!(buffer.unsplit(region).is_ok(), "the pieces do not fit together");
            }
        }
        Ok(())
    }
}

/// Receives all laps into `buffer`.
pub(crate) fn receive(listener: Listener, run: &Run<'_>, buffer: &mut Buffer) -> Result<Measured> {
    let mut connection = listener.accept(run.job)?;
    let mut pieces = Pieces::cut(buffer)?;
    let count = pieces.free.len() as u64;
    let mut bases = VecDeque::new();
    while let Some((base, region)) = pieces.free.pop_front() {
        bases.push_back(base);
        connection.post_recv(region)?;
    }
    connection.send(&[GO])?;
    let before = connection.account();
    let meter = Meter::start(run.core);
    for index in 0..run.laps * count {
        let (lap, last_lap) = (index / count, run.laps - 1);
        let base = bases.pop_front().context("no piece is posted")?;
        let region = next(&mut connection)?;
        run.pattern
            .check_stamps(&region, base, lap)
            .context(Exit::Corrupt)?;
        if lap < last_lap {
            bases.push_back(base);
            connection.post_recv(region)?;
        } else {
            pieces.free.push_back((base, region));
        }
    }
    let (seconds, cpu) = meter.stop();
    let after = connection.account();
    connection.send(&[DONE])?;
    connection.close()?;
    pieces.join(buffer)?;
    Ok(measured(run.bytes, seconds, cpu, &before, &after))
}

/// Sends all laps from `buffer`.
pub(crate) fn send(to: SocketAddr, run: &Run<'_>, buffer: &mut Buffer) -> Result<Measured> {
    let mut connection = open(to, run.job)?;
    let mut pieces = Pieces::cut(buffer)?;
    await_word(&mut connection, GO)?;
    let before = connection.account();
    let meter = Meter::start(run.core);
    let mut flying = VecDeque::new();
    for lap in 0..run.laps {
        for piece in 0..run.pattern.len().div_ceil(pieces.len) {
            let (base, mut region) = match pieces.free.pop_front() {
                Some(free) => free,
                None => (flying.pop_front().context("nothing is under way")?, next(&mut connection)?),
            };
            debug_assert_eq!(base, piece * pieces.len);
            run.pattern.stamp(&mut region, base, lap);
            connection.post_send(region)?;
            flying.push_back(base);
        }
    }
    while let Some(base) = flying.pop_front() {
        pieces.free.push_back((base, next(&mut connection)?));
    }
    // What is still under way costs this core too: wait until it is there.
    await_word(&mut connection, DONE)?;
    let (seconds, cpu) = meter.stop();
    let after = connection.account();
    connection.close()?;
    pieces.join(buffer)?;
    Ok(measured(run.bytes, seconds, cpu, &before, &after))
}

/// The region of the next completion, in the order of posting: Transfers are granted, and so
/// complete, one after the other.
fn next(connection: &mut Connection) -> Result<Region> {
    let completion: Completion = connection.wait(PATIENCE)?.context("the peer stalled")?;
    completion.result?;
    Ok(completion.into_region())
}
