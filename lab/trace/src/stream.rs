//! Tracks the positions of one flow's payload, and their order of arrival.
//!
//! Only the skipped bytes, when they arrive, show whether a gap was a loss or a reordering. Each packet therefore waits in a
//! short queue until that is decided.

use crate::limits::{MAX_GAPS, MAX_STEP_BYTES, ORIGIN, REORDERING_PACKETS};
use crate::packet::{Piece, Position};
use crate::tally::Cause;
use std::collections::VecDeque;

/// How a packet stands to what its stream had before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// It continues it.
    Next,
    /// Something in front of it is missing.
    Ahead,
    /// What was in front of it came shortly after.
    Overtook,
    /// It came shortly after what it belongs in front of.
    Late,
    /// It came long after that, or was there before: sent again.
    Again,
}

impl Order {
    /// Why what came so was not where it was expected; `None` if it was.
    pub(crate) fn cause(self) -> Option<Cause> {
        match self {
            Order::Next => None,
            Order::Overtook | Order::Late => Some(Cause::Reordered),
            Order::Ahead | Order::Again => Some(Cause::Lost),
        }
    }
}

/// A packet with payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) time: u64,
    /// Number of the packet at its host.
    pub(crate) at_host: u64,
    /// Where in the stream it belongs.
    pub(crate) position: u64,
    /// Payload, bytes.
    pub(crate) len: u32,
    /// Bytes of headers, IP's and up.
    pub(crate) header: u32,
    /// Large, as the paper has it.
    pub(crate) large: bool,
    pub(crate) piece: Piece,
    /// The first of its stream.
    pub(crate) begins: bool,
    pub(crate) order: Order,
    /// What came between this one and the one before it, at the host.
    pub(crate) between: Option<Cause>,
    /// A packet of the flow without payload came since the one before it.
    pub(crate) after_control: bool,
}

impl Arrival {
    /// One past its last byte.
    pub(crate) fn end(&self) -> u64 {
        self.position + u64::from(self.len)
    }
}

/// A missing range.
#[derive(Clone, Copy, Debug)]
struct Gap {
    start: u64,
    end: u64,
    /// Number of the packet that passed over it.
    number: u64,
}

/// The stream of one flow.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Number of the byte at the position [`ORIGIN`], where bytes are numbered.
    base: Option<u32>,
    /// One past the furthest byte.
    next: u64,
    gaps: VecDeque<Gap>,
    /// Packets with payload so far.
    count: u64,
    /// The last of them, whose order may still change.
    line: VecDeque<Arrival>,
    /// A datagram has begun whose last fragment has not come.
    unfinished: bool,
    /// Nothing of it has come.
    fresh: bool,
}

impl Default for Stream {
    fn default() -> Stream {
        Stream {
            base: None,
            next: ORIGIN,
            gaps: VecDeque::new(),
            count: 0,
            line: VecDeque::new(),
            unfinished: false,
            fresh: true,
        }
    }
}

impl Stream {
    /// Where payload at `position` belongs that begins a datagram. True if the stream begins there, for the first time or
    /// anew.
    pub(crate) fn locate(&mut self, position: Position) -> (u64, bool) {
        let Position::Sequence { number, begins } = position else {
            // Part of the previous datagram is missing, of unknown length.
            let missing = u64::from(self.unfinished);
            return (self.next + missing, self.fresh);
        };
        let known = self.base.filter(|_| !begins);
        let near = known.and_then(|base| {
            // The one that is closest to what is expected.
            let expected = base.wrapping_add((self.next - ORIGIN) as u32);
            let step = i64::from(number.wrapping_sub(expected) as i32);
            let near = step.unsigned_abs() <= MAX_STEP_BYTES;
            self.next.checked_add_signed(step).filter(|_| near)
        });
        let position = near.unwrap_or_else(|| self.begin_at(number));
        (position, self.fresh)
    }

    /// A packet without payload: one that opens a connection says where that begins.
    pub(crate) fn note_control(&mut self, position: Position) {
        if let Position::Sequence { begins: true, .. } = position {
            self.locate(position);
        }
    }

    /// The byte of this number is the first of a new stream, behind all of the old one.
    fn begin_at(&mut self, number: u32) -> u64 {
        self.base = Some(number.wrapping_sub((self.next - ORIGIN) as u32));
        self.gaps.clear();
        self.fresh = true;
        self.next
    }

    /// Takes the next packet, in whatever order. Those whose order is decided go to `decided`.
    pub(crate) fn take(&mut self, mut arrival: Arrival, decided: impl FnMut(Arrival)) {
        arrival.order = self.order_of(&arrival);
        self.unfinished = match arrival.piece {
            Piece::First => true,
            Piece::Middle => self.unfinished,
            Piece::Whole | Piece::Last => false,
        };
        self.next = self.next.max(arrival.end());
        self.count += 1;
        self.fresh = false;
        self.line.push_back(arrival);
        self.decide(REORDERING_PACKETS as usize - 1, decided);
    }

    /// Hands on all that waits.
    pub(crate) fn flush(&mut self, decided: impl FnMut(Arrival)) {
        self.decide(0, decided);
    }

    fn decide(&mut self, keep: usize, decided: impl FnMut(Arrival)) {
        let many = self.line.len().saturating_sub(keep);
        self.line.drain(..many).for_each(decided);
    }

    fn order_of(&mut self, arrival: &Arrival) -> Order {
        let (start, end) = (arrival.position, arrival.end());
        if start == self.next || arrival.begins {
            return Order::Next;
        }
        if start > self.next {
            if self.gaps.len() == MAX_GAPS {
                self.gaps.pop_front();
            }
            self.gaps.push_back(Gap {
                start: self.next,
                end: start,
                number: self.count,
            });
            return Order::Ahead;
        }
        let filled = self
            .gaps
            .iter()
            .position(|it| start < it.end && it.start < end);
        let Some(index) = filled else {
            return Order::Again;
        };
        let gap = &mut self.gaps[index];
        let late = self.count - gap.number < REORDERING_PACKETS;
        let number = gap.number;
        // What is left of it is behind this, or in front of it: never both, or close enough.
        if start <= gap.start {
            gap.start = end.min(gap.end);
        } else {
            gap.end = start;
        }
        if gap.start >= gap.end {
            self.gaps.remove(index);
        }
        if !late {
            return Order::Again;
        }
        let back = (self.count - number) as usize;
        let overtaker = self.line.len().checked_sub(back);
        if let Some(arrival) = overtaker.and_then(|at| self.line.get_mut(at)) {
            arrival.order = Order::Overtook;
        }
        Order::Late
    }
}
