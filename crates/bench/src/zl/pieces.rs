//! A buffer cut into pieces, each a Transfer of its own, so that while one
//! piece is confirmed, checked and stamped anew the next ones are under way:
//! what a user with one buffer does to keep the wire busy.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use zerolane::{Completion, Region, TransferId};

use super::super::mover::Buffer;

/// A piece's length is a multiple of this.
const GRAIN: usize = 64 << 10;

/// The buffer, cut. Both ends post the pieces in turn, lap by lap, so that the
/// n-th receive gets the n-th send; a piece that is back before its turn waits.
pub(crate) struct Pieces {
    /// By piece; `None` while it is posted.
    here: Vec<Option<Region>>,
    /// Which piece each Transfer under way carries.
    under_way: HashMap<TransferId, usize>,
    /// Posted so far, all laps.
    turn: u64,
    len: usize,
}

impl Pieces {
    /// At most `count` pieces of equal length, but for the last.
    pub(crate) fn cut(buffer: &mut Buffer, count: usize) -> Result<Pieces> {
        let len = buffer.len().div_ceil(count).next_multiple_of(GRAIN);
        let mut rest = std::mem::replace(buffer, Region::anonymous(0)?);
        let mut here = Vec::new();
        while !rest.is_empty() {
            let next = rest.split_off(len.min(rest.len()));
            here.push(Some(std::mem::replace(&mut rest, next)));
        }
        Ok(Pieces {
            here,
            under_way: HashMap::new(),
            turn: 0,
            len,
        })
    }

    /// Puts the buffer together again.
    pub(crate) fn join(self, buffer: &mut Buffer) -> Result<()> {
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

    pub(crate) fn count(&self) -> usize {
        self.here.len()
    }

    /// Where a piece begins in the buffer, bytes.
    pub(crate) fn base(&self, piece: usize) -> usize {
        piece * self.len
    }

    /// A piece that is here.
    pub(crate) fn get(&self, piece: usize) -> Option<&Region> {
        self.here[piece].as_ref()
    }

    pub(crate) fn none_under_way(&self) -> bool {
        self.under_way.is_empty()
    }

    /// The piece whose turn it is, if it is here and has a turn left: its number and its lap.
    pub(crate) fn take_turn(&mut self, laps: u64) -> Option<(usize, u64, Region)> {
        let count = self.here.len() as u64;
        let (piece, lap) = ((self.turn % count) as usize, self.turn / count);
        if lap == laps {
            return None;
        }
        let region = self.here[piece].take()?;
        self.turn += 1;
        Some((piece, lap, region))
    }

    /// The piece is under way as this Transfer.
    pub(crate) fn posted(&mut self, id: TransferId, piece: usize) {
        self.under_way.insert(id, piece);
    }

    /// Laps that were begun.
    pub(crate) fn laps_begun(&self) -> u64 {
        self.turn.div_ceil(self.here.len() as u64)
    }

    /// Takes back the piece of a Transfer that is over, well or not; its number.
    pub(crate) fn take_back(&mut self, completion: Completion) -> Result<usize> {
        let piece = self
            .under_way
            .remove(&completion.id)
            .context("a Transfer of nobody")?;
        let result = completion.result;
        self.here[piece] = Some(completion.into_region());
        result?;
        Ok(piece)
    }
}
