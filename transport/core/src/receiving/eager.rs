//! Transfers whose payload came with its announcement: what of it is here, where it is kept while no receive
//! is posted for it, and when what is missing is asked for.
//!
//! They stand beside the placement table, for they were not granted: the order of the grants says nothing
//! of when they come, nor they of what was overtaken.

use super::gaps::{Filled, Gaps};
use crate::limits::MAX_EAGER_GAPS;
use crate::{Delivery, DropReason, Instant, Span, TransferId};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use zerolane_wire::{Range, RequestToSend};

/// Where payload is kept that no receive was posted for: in memory of the lane's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Which: what comes later for the same Transfer has the same number.
    pub number: u32,
    /// Bytes that there are going to be.
    pub length: u32,
    /// Where in it the payload starts.
    pub start: u32,
}

/// What the lane is to do with payload that it holds, before it polls events or transmits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldOrder {
    /// The bytes from `start` on belong there: a receive was posted.
    Move {
        /// Which.
        number: u32,
        /// Where in it they start.
        start: u32,
        /// Where they belong, and how many they are.
        to: Span,
    },
    /// It is not needed any more.
    Free(u32),
}

/// A Transfer of which not all is here, or that no receive was posted for.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// Number of its announcement.
    pub(crate) sequence: u32,
    /// The sender's identifier.
    pub(crate) peer: u32,
    length: u32,
    gaps: Gaps,
    /// End of the furthest byte received.
    pub(crate) reached: u32,
    /// It is a message that is nothing else.
    pub(crate) bare: bool,
    pub(crate) delivery: Delivery,
    /// The Transfer that it became, and where that goes; none: it is held.
    taken: Option<(TransferId, Span)>,
    /// When what is missing is asked for, and how often it was in a row.
    due: Instant,
    asked: u32,
}

impl Arrival {
    /// Our identifier of it, 0 while it is held.
    pub(crate) fn id(&self) -> TransferId {
        self.taken.map_or(0, |(id, _)| id)
    }

    /// Bytes that are here.
    pub(crate) fn received(&self) -> u32 {
        self.length - self.gaps.missing()
    }

    /// Ranges that are not.
    pub(crate) fn missing(&self) -> impl Iterator<Item = Range> + '_ {
        ranges(&self.gaps, self.length, true)
    }

    /// When what is missing is to be asked for, unless `most` questions were in vain.
    fn due(&self, most: u32) -> Option<Instant> {
        let waits = self.taken.is_some() || self.asked < most;
        (waits && !self.gaps.is_empty()).then_some(self.due)
    }

    /// Notes that what is missing was asked for, and is asked for again in `wait`.
    pub(crate) fn asked(&mut self, now: Instant, wait: core::time::Duration, most: u32) {
        self.due = now + wait * (1 << self.asked.min(most));
        self.asked = self.asked.saturating_add(1);
    }
}

/// Where a piece of payload goes, and what it brought.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// Bytes received for the first time.
    pub(crate) new_bytes: u32,
    /// Nothing of the Transfer came before.
    pub(crate) first: bool,
    /// The Transfer and the place of the piece; none: it is to be held.
    pub(crate) place: Option<(TransferId, Span)>,
}

/// All of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrivals {
    all: Vec<Arrival>,
    /// Bytes of those that are held.
    held: u64,
    orders: VecDeque<HoldOrder>,
}

impl Arrivals {
    /// A Transfer is announced by its payload, which has not been looked at yet.
    pub(crate) fn begin(&mut self, now: Instant, rts: &RequestToSend) {
        let length = rts.length as u32;
        self.all.push(Arrival {
            sequence: rts.sequence,
            peer: rts.s_id,
            length,
            gaps: Gaps::whole(length),
            reached: 0,
            bare: false,
            delivery: Delivery::Interrupt,
            taken: None,
            due: now,
            asked: 0,
        });
        self.held += rts.length;
    }

    pub(crate) fn get_mut(&mut self, sequence: u32) -> Option<&mut Arrival> {
        self.all.iter_mut().rev().find(|it| it.sequence == sequence)
    }

    /// Bytes that are held, or will be.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// A receive met the Transfer: what is held goes there, and what is still to come, too. Returns how much
    /// is here, and how it is to be delivered.
    pub(crate) fn take(
        &mut self,
        sequence: u32,
        id: TransferId,
        span: Span,
    ) -> Option<(u64, Delivery)> {
        let index = self.all.iter().position(|it| it.sequence == sequence)?;
        let arrival = &mut self.all[index];
        arrival.taken = Some((id, span));
        arrival.asked = 0;
        self.held -= u64::from(arrival.length);
        if arrival.reached > 0 {
            let here = ranges(&arrival.gaps, arrival.length, false);
            let orders = here.map(|it| HoldOrder::Move {
                number: sequence,
                start: it.start,
                to: span.part(u64::from(it.start), u64::from(it.len)),
            });
            self.orders.extend(orders);
            self.orders.push_back(HoldOrder::Free(sequence));
        }
        Some((u64::from(arrival.received()), arrival.delivery))
    }

    /// Takes `len` bytes from `start` on of what `rts` announces.
    pub(crate) fn accept(
        &mut self,
        rts: &RequestToSend,
        start: u32,
        len: u32,
    ) -> Result<Taken, DropReason> {
        let arrival = self.get_mut(rts.sequence).ok_or(DropReason::NoGrant)?;
        if (arrival.peer, u64::from(arrival.length)) != (rts.s_id, rts.length) {
            return Err(DropReason::Unexpected);
        }
        let in_order = arrival.gaps.from(0).is_some_and(|gap| gap.0 == start);
        if arrival.gaps.count() >= MAX_EAGER_GAPS && !in_order {
            return Err(DropReason::Limit);
        }
        let new_bytes = match arrival.gaps.fill(start, start + len) {
            Filled::New(bytes) => bytes,
            Filled::Duplicate => return Err(DropReason::Duplicate),
            Filled::TooFragmented => return Err(DropReason::Limit),
        };
        let first = arrival.reached == 0;
        arrival.reached = arrival.reached.max(start + len);
        let part = |(id, span): (TransferId, Span)| (id, span.part(start.into(), len.into()));
        Ok(Taken {
            new_bytes,
            first,
            place: arrival.taken.map(part),
        })
    }

    /// Payload of announcement `sequence` came: says when what is missing is to be asked for. That is after
    /// `overtaken` if later payload is here, else after `silence`.
    pub(crate) fn set_due(
        &mut self,
        sequence: u32,
        overtaken: Instant,
        silence: Instant,
    ) -> Option<Instant> {
        let arrival = self.get_mut(sequence)?;
        let (first, _) = arrival.gaps.from(0)?;
        let was_asked = arrival.asked > 0;
        arrival.due = match first < arrival.reached {
            _ if was_asked => arrival.due,
            true => overtaken,
            false => silence,
        };
        Some(arrival.due)
    }

    /// What is to be asked for now; `most` is how often, while no receive waits for it.
    pub(crate) fn take_due(&mut self, now: Instant, most: u32) -> Option<&mut Arrival> {
        let is_due = |it: &&mut Arrival| it.due(most).is_some_and(|at| at <= now);
        self.all.iter_mut().find(is_due)
    }

    /// When something is to be asked for next.
    pub(crate) fn next_due(&self, most: u32) -> Option<Instant> {
        self.all.iter().filter_map(|it| it.due(most)).min()
    }

    /// The Transfer is over, or is to be granted after all: what is held of it is freed.
    pub(crate) fn forget(&mut self, sequence: u32) {
        let Some(index) = self.all.iter().position(|it| it.sequence == sequence) else {
            return;
        };
        let arrival = self.all.swap_remove(index);
        if arrival.taken.is_none() {
            self.held -= u64::from(arrival.length);
            if arrival.reached > 0 {
                self.orders.push_back(HoldOrder::Free(sequence));
            }
        }
    }

    /// All of them are over.
    pub(crate) fn clear(&mut self) {
        while let Some(sequence) = self.all.first().map(|it| it.sequence) {
            self.forget(sequence);
        }
    }

    /// What the lane is to do next with what it holds.
    pub(crate) fn next_order(&mut self) -> Option<HoldOrder> {
        self.orders.pop_front()
    }

    /// Stops the program if the counts do not agree, or more is held than `credit`.
    pub(crate) fn assert_bounded(&self, slots: usize, credit: u32) {
        let held = self.all.iter().filter(|it| it.taken.is_none());
        assert_eq!(held.map(|it| u64::from(it.length)).sum::<u64>(), self.held);
        assert!(self.held <= u64::from(credit) && self.all.len() <= slots);
        let gaps = self.all.iter().map(|it| it.gaps.count());
        assert!(gaps.max().is_none_or(|most| most <= MAX_EAGER_GAPS));
    }
}

/// The ranges of a Transfer of `length` bytes that are missing, or those that are not.
fn ranges(gaps: &Gaps, length: u32, missing: bool) -> impl Iterator<Item = Range> + '_ {
    let mut at = 0;
    core::iter::from_fn(move || {
        while at < length {
            let (start, end) = gaps.from(at).unwrap_or((length, length));
            let (from, to) = if missing { (start, end) } else { (at, start) };
            at = end.max(at);
            if from < to {
                return Some(Range {
                    start: from,
                    len: to - from,
                });
            }
        }
        None
    })
}

#[cfg(test)]
#[path = "eager_tests.rs"]
mod tests;
