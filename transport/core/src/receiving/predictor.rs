//! Predicts the placement of a stream that another transport carries, for measurements.

use super::forecast::Forecast;
use super::placement::PlacementTable;
use crate::counters::DropReason;
use crate::span::{RegionId, Span};
use crate::time::Instant;
use crate::transmit::split;
use zerolane_wire::{Header, Op};

/// The region of the stream: a byte's offset is its position.
const REGION: RegionId = RegionId {
    index: 0,
    generation: 0,
};
/// The Transfer that represents the whole stream.
const TRANSFER: u32 = 1;
/// Blocks granted at a time: the one being received, the next, and one incomplete Block behind. Earlier incomplete
/// Blocks are given up, so that holes take little memory.
const MAX_BLOCKS: usize = 3;
/// log2 of the receiver's buffers: no boundary cuts an STU within the 4 GiB of a Block.
const BUFFER_LOG2: u8 = 32;

/// Predicts what a receiver would that granted all of a stream, Block by Block, and knows only the position and length
/// of each STU. Uses the placement table of every [`Connection`](crate::Connection). For tools that measure how often
/// the forecast would have held for recorded traffic.
///
/// ```
/// use zerolane_core::{Forecast, Predictor};
/// let mut stream = Predictor::new(0, 1 << 20);
/// stream.on_data(0, 1448, 1448, true)?;
/// let mut forecast = Forecast::default();
/// stream.forecast(2, &mut forecast);
/// let next = forecast.runs().next().unwrap();
/// assert_eq!((next.span.offset, next.span.len, next.stu), (1448, 2 * 1448, 1448));
/// # Ok::<(), zerolane_core::DropReason>(())
/// ```
#[derive(Clone, Debug)]
pub struct Predictor {
    grants: PlacementTable,
    /// Bytes of a Block.
    block: u32,
    /// Number of the next Block to grant.
    b_num: u32,
    /// End of the granted bytes.
    granted: u64,
    /// Payload of an STU, learned from arrivals; 0 before the first.
    stu: u32,
}

impl Predictor {
    /// For the stream that begins at `position`, granted in Blocks of `block` bytes, at least 1.
    pub fn new(position: u64, block: u32) -> Predictor {
        let mut predictor = Predictor {
            grants: PlacementTable::new(BUFFER_LOG2),
            block: block.max(1),
            b_num: 0,
            granted: position,
            stu: 0,
        };
        predictor.grant_up_to(position);
        predictor
    }

    /// Payload of an STU as far as known, bytes; 0 before the first arrival.
    pub fn stu(&self) -> u32 {
        self.stu
    }

    /// Predicts the next `stus` STUs: spans whose offset is the position in the stream. Empty until a size is known.
    pub fn forecast(&self, stus: u32, out: &mut Forecast) {
        out.clear();
        if self.stu > 0 {
            self.grants.forecast(self.stu, stus, out);
        }
    }

    /// Takes `len` bytes at `position`, in STUs of `stu` bytes; `more` follow in the same Transfer, as far as is known.
    ///
    /// # Errors
    /// As for Data on a connection: not granted, a duplicate, or too many gaps. If the sender does not repeat the
    /// payload, [`Predictor::restart`] continues.
    pub fn on_data(
        &mut self,
        position: u64,
        len: u32,
        stu: u32,
        more: bool,
    ) -> Result<(), DropReason> {
        let (mut at, mut rest) = (position, len);
        while rest > 0 {
            let (sequence, header, room) = self.find(at).ok_or(DropReason::NoGrant)?;
            let part = rest.min(room);
            let claim = self.grants.claim(&header, part)?;
            let accepted = self.grants.accept(Instant::ZERO, claim)?;
            if accepted.shows_size(len, stu, more) {
                self.stu = stu;
            }
            if accepted.block_complete {
                self.grants.revoke(sequence);
            }
            at += u64::from(part);
            rest -= part;
            self.grant_up_to(at);
        }
        Ok(())
    }

    /// Gives up missing bytes: the stream continues at `position`.
    pub fn restart(&mut self, position: u64) {
        self.grants.revoke_transfer(TRANSFER);
        self.granted = position;
        self.grant_up_to(position);
    }

    /// The grant that contains `position`, the header of Data for it, and the bytes up to the grant's end.
    fn find(&self, position: u64) -> Option<(u32, Header, u32)> {
        let (sequence, block) = self.grants.iter().find(|(_, it)| {
            let span = it.span;
            (span.offset..span.end()).contains(&position)
        })?;
        let (bufx, offset) = split(position, BUFFER_LOG2);
        let header = Header {
            b_id: block.mx,
            b_num: block.b_num,
            d_id: TRANSFER,
            bufx,
            offset,
            ..Header::new(Op::Data)
        };
        Some((sequence, header, (block.span.end() - position) as u32))
    }

    /// Keeps at least one Block granted behind `position`.
    fn grant_up_to(&mut self, position: u64) {
        while self.granted.saturating_sub(position) <= u64::from(self.block) {
            if self.grants.iter().count() == MAX_BLOCKS {
                self.give_up_first();
            }
            let len = u64::from(self.block);
            let span = Span {
                region: REGION,
                offset: self.granted,
                len,
            };
            let b_num = self.b_num;
            self.grants
                .grant(Instant::ZERO, TRANSFER, b_num, span, span.offset);
            self.b_num = b_num.wrapping_add(1);
            self.granted += len;
        }
    }

    fn give_up_first(&mut self) {
        let first = self.grants.iter().next().map(|(sequence, _)| sequence);
        if let Some(first) = first {
            self.grants.revoke(first);
        }
    }
}

#[cfg(test)]
#[path = "predictor_tests.rs"]
mod tests;
