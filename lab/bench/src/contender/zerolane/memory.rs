//! Sends a buffer over and over, from the sender's memory straight into the receiver's.
//!
//! The buffer is cut into pieces, each a Transfer. While one piece is confirmed, checked and stamped again, the next ones
//! are in flight: a user with one buffer keeps the wire busy this way.

use anyhow::{Context, Result, ensure};
use zerolane::Region;
use zerolane_cli::exit::Exit;

use super::turns::{Content, Direction, Turns};
use crate::content::pattern::Pattern;
use crate::content::stage::Stage;
use crate::job::Laps;

/// A piece's length is a multiple of this.
const GRAIN: usize = 64 << 10;

/// A piece is at least so long, if the buffer is: each costs its announcement and its confirmation.
const LEAST: usize = 128 << 10;

/// The pieces of a buffer.
pub(crate) struct Pieces<S> {
    pub(crate) stage: S,
    count: u64,
    /// Of each but the last, bytes.
    len: usize,
    /// Pieces that came.
    taken: u64,
}

impl<S: Stage> Pieces<S> {
    /// At most `count` pieces of equal length, but for the last. What is sent is as the stage has it before its
    /// first lap.
    pub(crate) fn cut(
        direction: Direction,
        buffer: Region,
        count: usize,
        laps: &Laps,
        stage: S,
    ) -> Turns<Pieces<S>> {
        let len = buffer
            .len()
            .div_ceil(count)
            .max(LEAST)
            .next_multiple_of(GRAIN);
        Pieces::of_length(direction, buffer, len, laps, stage)
    }

    /// Pieces of this length, but for the last.
    pub(crate) fn of_length(
        direction: Direction,
        buffer: Region,
        len: usize,
        laps: &Laps,
        stage: S,
    ) -> Turns<Pieces<S>> {
        let mut rest = buffer;
        let mut regions = Vec::new();
        while !rest.is_empty() {
            let next = rest.split_off(len.min(rest.len()));
            regions.push(std::mem::replace(&mut rest, next));
        }
        let count = regions.len() as u64;
        let pieces = Pieces {
            stage,
            count,
            len,
            taken: 0,
        };
        Turns::new(direction, pieces, regions, laps.laps.saturating_mul(count))
    }

    /// Where a turn's piece begins in the buffer, and its lap.
    fn place(&self, turn: u64) -> (usize, u64) {
        let piece = (turn % self.count) as usize;
        (piece * self.len, turn / self.count)
    }
}

impl<S: Stage> Content for Pieces<S> {
    fn fill(&mut self, turn: u64, region: &mut Region) -> Result<()> {
        let (base, lap) = self.place(turn);
        self.stage.fill(region, base, lap)
    }

    fn take(&mut self, turn: u64, bytes: &[u8]) -> Result<()> {
        let (base, lap) = self.place(turn);
        self.taken += 1;
        self.stage.take(bytes, base, lap)
    }
}

impl<S: Stage> Turns<Pieces<S>> {
    /// Puts the buffer together again.
    pub(crate) fn join(self) -> Result<Region> {
        let mut pieces = self.into_parts().1.into_iter();
        let mut buffer = pieces.next().context("no pieces")?;
        for piece in pieces {
            let whole = buffer.unsplit(piece).is_ok();
            ensure!(whole, "the pieces do not fit together");
        }
        Ok(buffer)
    }

    /// Checks every word of the last lap that was received, which must be whole; the buffer.
    pub(crate) fn check_last_lap(self, pattern: &Pattern) -> Result<Region> {
        let Pieces { count, taken, .. } = self.content;
        ensure!(
            taken > 0 && taken.is_multiple_of(count),
            "the sender stopped within a lap"
        );
        let buffer = self.join()?;
        let checked = pattern.check_all(&buffer, taken / count - 1);
        checked.context(Exit::Corrupt)?;
        Ok(buffer)
    }
}
