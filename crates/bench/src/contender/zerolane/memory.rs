//! Buffers, sent over and over from the sender's memory straight to the receiver's.
//!
//! A buffer is cut into pieces, each a Transfer of its own, so that while one piece is confirmed, checked and
//! stamped anew the next ones are in flight: what a user with one buffer does to keep the wire busy.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use zerolane::{Completion, Connection, Region, TransferId};
use zerolane_cli::exit::Exit;

use super::turns::Turns;
use crate::content::pattern::Pattern;
use crate::job::Laps;

/// A piece's length is a multiple of this.
const GRAIN: usize = 64 << 10;

/// The buffer, cut. Both ends post the pieces in turn, lap by lap, so that the n-th receive gets the n-th send;
/// a piece that is back before its turn waits.
pub(crate) struct Pieces {
    /// By piece; `None` while it is posted.
    here: Vec<Option<Region>>,
    /// Which piece each Transfer in flight carries.
    posted: HashMap<TransferId, usize>,
    /// Posted so far, all laps.
    turn: u64,
    /// Laps that are to be begun.
    laps: u64,
    len: usize,
    pattern: Pattern,
}

impl Pieces {
    /// At most `count` pieces of equal length, but for the last.
    fn cut(buffer: Region, count: usize, laps: &Laps) -> Pieces {
        let len = buffer.len().div_ceil(count).next_multiple_of(GRAIN);
        let mut rest = buffer;
        let mut here = Vec::new();
        while !rest.is_empty() {
            let next = rest.split_off(len.min(rest.len()));
            here.push(Some(std::mem::replace(&mut rest, next)));
        }
        Pieces {
            here,
            posted: HashMap::new(),
            turn: 0,
            laps: laps.laps,
            len,
            pattern: laps.pattern(),
        }
    }

    /// Puts the buffer together again.
    pub(crate) fn join(self) -> Result<Region> {
        let mut pieces = self.here.into_iter().flatten();
        let mut buffer = pieces.next().context("no pieces")?;
        for piece in pieces {
            let whole = buffer.unsplit(piece).is_ok();
            ensure!(whole, "the pieces do not fit together");
        }
        Ok(buffer)
    }

    /// Begins no further laps.
    pub(crate) fn end_with_this_lap(&mut self) {
        self.laps = self.turn.div_ceil(self.here.len() as u64);
    }

    /// The piece whose turn it is, if it is here and has a turn left: its number and its lap.
    fn next(&mut self) -> Option<(usize, u64, Region)> {
        let count = self.here.len() as u64;
        let (piece, lap) = ((self.turn % count) as usize, self.turn / count);
        if lap == self.laps {
            return None;
        }
        Some((piece, lap, self.here[piece].take()?))
    }

    /// The next piece is in flight as this Transfer.
    fn posted(&mut self, id: TransferId, piece: usize) {
        self.turn += 1;
        self.posted.insert(id, piece);
    }

    /// Takes back the piece of a Transfer that is over, well or not; its number.
    fn take_back(&mut self, completion: Completion) -> Result<usize> {
        let piece = self.posted.remove(&completion.id);
        let piece = piece.context("a Transfer of nobody")?;
        let result = completion.result;
        self.here[piece] = Some(completion.into_region());
        result?;
        Ok(piece)
    }
}

/// The sender's pieces.
pub(crate) struct Outgoing(pub(crate) Pieces);

impl Outgoing {
    /// `buffer` is as the pattern has it before its first lap.
    pub(crate) fn new(buffer: Region, count: usize, laps: &Laps) -> Outgoing {
        Outgoing(Pieces::cut(buffer, count, laps))
    }
}

impl Turns for Outgoing {
    fn post(&mut self, connection: &mut Connection) -> Result<bool> {
        let Outgoing(pieces) = self;
        let Some((piece, lap, mut region)) = pieces.next() else {
            return Ok(false);
        };
        pieces.pattern.stamp(&mut region, piece * pieces.len, lap);
        pieces.posted(connection.post_send(region)?, piece);
        Ok(true)
    }

    fn take_back(&mut self, completion: Completion) -> Result<()> {
        self.0.take_back(completion).map(drop)
    }

    fn is_idle(&self) -> bool {
        self.0.posted.is_empty()
    }
}

/// What is checked of each piece when it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Stamps,
    EveryWord,
}

/// The receiver's pieces.
pub(crate) struct Incoming {
    pieces: Pieces,
    check: Check,
    /// By piece: laps that came.
    laps: Vec<u64>,
}

impl Incoming {
    pub(crate) fn new(buffer: Region, count: usize, laps: &Laps, check: Check) -> Incoming {
        let pieces = Pieces::cut(buffer, count, laps);
        Incoming {
            laps: vec![0; pieces.here.len()],
            pieces,
            check,
        }
    }

    /// Checks every word of the last lap, which must be whole; the buffer.
    pub(crate) fn finish(self) -> Result<Region> {
        let (last, pattern) = (self.laps[0], self.pieces.pattern);
        ensure!(
            last > 0 && self.laps.iter().all(|&laps| laps == last),
            "the sender stopped in the middle of a lap"
        );
        let buffer = self.pieces.join()?;
        let whole = pattern.check_all(&buffer, last - 1);
        whole.context(Exit::Corrupt)?;
        Ok(buffer)
    }
}

impl Turns for Incoming {
    fn post(&mut self, connection: &mut Connection) -> Result<bool> {
        let Some((piece, _, region)) = self.pieces.next() else {
            return Ok(false);
        };
        match connection.post_recv(region) {
            Ok(id) => self.pieces.posted(id, piece),
            Err(refused) => {
                self.pieces.here[piece] = Some(refused.memory);
                return Err(refused.reason.into());
            }
        }
        Ok(true)
    }

    fn take_back(&mut self, completion: Completion) -> Result<()> {
        let piece = self.pieces.take_back(completion)?;
        let (pattern, base) = (self.pieces.pattern, piece * self.pieces.len);
        let region = self.pieces.here[piece].as_ref();
        let region = region.context("the piece is here")?;
        let checked = match self.check {
            Check::Stamps => pattern.check_stamps(region, base, self.laps[piece]),
            Check::EveryWord => pattern.check(region, base, self.laps[piece]),
        };
        checked.context(Exit::Corrupt)?;
        self.laps[piece] += 1;
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.pieces.posted.is_empty()
    }
}
