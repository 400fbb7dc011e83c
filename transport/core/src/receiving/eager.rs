//! Tracks eager Transfers as their payload arrives: holds it until a receive is posted, and asks for missing ranges.
//!
//! They are separate from the placement table because they were not granted. The order of the grants implies nothing
//! about their arrival, nor their arrival about overtaken payload.

use super::gaps::{Filled, Gaps};
use crate::counters::DropReason;
use crate::limits::MAX_EAGER_GAPS;
use crate::span::Span;
use crate::time::Instant;
use crate::transfer::{Delivery, TransferId};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use zerolane_wire::{Range, RequestToSend};

/// A place in the lane's own memory for payload without a posted receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Identifies the Transfer: later payload of it has the same number.
    pub number: u32,
    /// Length of the whole Transfer, bytes.
    pub length: u32,
    /// Offset of this payload in it, bytes.
    pub start: u32,
}

/// An order for payload that the lane holds, to be obeyed before it polls events or transmits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldOrder {
    /// Move the bytes from `start` on to `to`: a receive was posted.
    Move {
        /// The held Transfer.
        number: u32,
        /// Offset in it, bytes.
        start: u32,
        /// Their place and length.
        to: Span,
    },
    /// Free it.
    Free(u32),
}

/// A Transfer that is incomplete or has no posted receive.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// Number of its announcement.
    pub(crate) sequence: u32,
    /// The sender's identifier.
    pub(crate) peer: u32,
    length: u32,
    gaps: Gaps,
    /// End of the furthest received byte.
    pub(crate) reached: u32,
    /// It is a bare message.
    pub(crate) bare: bool,
    pub(crate) delivery: Delivery,
    /// Its identifier and destination once matched; none: it is held.
    taken: Option<(TransferId, Span)>,
    /// When to ask for missing ranges, and how often that was done in a row.
    due: Instant,
    asked: u32,
}

impl Arrival {
    /// This end's identifier of it, 0 while it is held.
    pub(crate) fn id(&self) -> TransferId {
        self.taken.map_or(0, |(id, _)| id)
    }

    /// Received bytes.
    pub(crate) fn received(&self) -> u32 {
        self.length - self.gaps.missing()
    }

    /// Missing ranges.
    pub(crate) fn missing(&self) -> impl Iterator<Item = Range> + '_ {
        ranges(&self.gaps, self.length, true)
    }

    /// When to ask for missing ranges, unless `most` questions had no answer.
    fn due(&self, most: u32) -> Option<Instant> {
        let waits = self.taken.is_some() || self.asked < most;
        (waits && !self.gaps.is_empty()).then_some(self.due)
    }

    /// Notes that missing ranges were requested. The next request is due in `wait`.
    pub(crate) fn asked(&mut self, now: Instant, wait: core::time::Duration, most: u32) {
        self.due = now + wait * (1 << self.asked.min(most));
        self.asked = self.asked.saturating_add(1);
    }
}

/// Destination and effect of a piece of payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// Bytes received for the first time.
    pub(crate) new_bytes: u32,
    /// It is the first piece of its Transfer.
    pub(crate) first: bool,
    /// The Transfer and the destination of the piece; none: it must be held.
    pub(crate) place: Option<(TransferId, Span)>,
}

/// All eager Transfers of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrivals {
    all: Vec<Arrival>,
    /// Held bytes.
    held: u64,
    orders: VecDeque<HoldOrder>,
}

impl Arrivals {
    /// A Transfer is announced by its payload, which is not yet processed.
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

    /// Bytes that are or will be held.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// A receive matched the Transfer: held and future payload goes there. Returns the bytes received, and the delivery
    /// mode.
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

    /// Takes `len` bytes from `start` on of the Transfer that `rts` announces.
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

    /// Payload of announcement `sequence` came: schedules the request for missing ranges. That is after `overtaken` if
    /// later payload is here, otherwise after `silence`.
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

    /// A Transfer whose missing ranges must be requested now. `most` bounds the requests while no receive waits for it.
    pub(crate) fn take_due(&mut self, now: Instant, most: u32) -> Option<&mut Arrival> {
        let is_due = |it: &&mut Arrival| it.due(most).is_some_and(|at| at <= now);
        self.all.iter_mut().find(is_due)
    }

    /// When the next request is due.
    pub(crate) fn next_due(&self, most: u32) -> Option<Instant> {
        self.all.iter().filter_map(|it| it.due(most)).min()
    }

    /// The Transfer is over, or must be granted after all: frees what is held of it.
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

    /// Clears all: the connection is over.
    pub(crate) fn clear(&mut self) {
        while let Some(sequence) = self.all.first().map(|it| it.sequence) {
            self.forget(sequence);
        }
    }

    /// The lane's next order.
    pub(crate) fn next_order(&mut self) -> Option<HoldOrder> {
        self.orders.pop_front()
    }

    /// Panics if the counts disagree, or more than `credit` is held.
    pub(crate) fn assert_bounded(&self, slots: usize, credit: u32) {
        let held = self.all.iter().filter(|it| it.taken.is_none());
        assert_eq!(held.map(|it| u64::from(it.length)).sum::<u64>(), self.held);
        assert!(self.held <= u64::from(credit) && self.all.len() <= slots);
        let gaps = self.all.iter().map(|it| it.gaps.count());
        assert!(gaps.max().is_none_or(|most| most <= MAX_EAGER_GAPS));
    }
}

/// The missing, or else the received, ranges of a Transfer of `length` bytes.
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
