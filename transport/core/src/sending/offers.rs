//! Matches the peer's Reads with offered memory, in the order of the Reads' numbers.

use crate::span::Span;
use crate::transfer::{Delivery, TransferId};
use alloc::collections::{BTreeMap, VecDeque};
use zerolane_wire::RequestToReceive;

/// Memory offered to the peer's next Read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) id: TransferId,
    pub(crate) span: Span,
    pub(crate) delivery: Delivery,
}

/// Classification of a Request_To_Receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadRequest {
    /// Stored until it matches an offer.
    Kept,
    /// It already matched an offer, or was cancelled.
    Old,
    /// More than the slots hold.
    TooMany,
}

/// Unmatched offers and Reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Offers {
    pub(crate) queue: VecDeque<Offer>,
    /// Reads by number; `None` for cancelled ones.
    wanted: BTreeMap<u32, Option<RequestToReceive>>,
    /// Number of the Read that the next offer matches.
    next: u32,
}

impl Offers {
    /// Takes a Read; at most `slots` are stored.
    pub(crate) fn want(&mut self, it: &RequestToReceive, slots: u16) -> ReadRequest {
        self.keep(it.sequence, Some(*it), slots)
    }

    /// The peer cancelled Read `number`, whether it was heard or not.
    pub(crate) fn take_back(&mut self, number: u32, slots: u16) -> ReadRequest {
        let kept = self.keep(number, None, slots);
        self.skip_taken_back();
        kept
    }

    fn keep(&mut self, number: u32, request: Option<RequestToReceive>, slots: u16) -> ReadRequest {
        let ahead = number.wrapping_sub(self.next);
        if ahead > u32::MAX / 2 {
            return ReadRequest::Old;
        }
        if ahead >= u32::from(slots) {
            return ReadRequest::TooMany;
        }
        if request.is_some() && self.wanted.get(&number) == Some(&None) {
            return ReadRequest::Old;
        }
        self.wanted.insert(number, request);
        ReadRequest::Kept
    }

    fn skip_taken_back(&mut self) {
        while self.wanted.get(&self.next) == Some(&None) {
            self.wanted.remove(&self.next);
            self.next = self.next.wrapping_add(1);
        }
    }

    /// The next Read, and the offer that it matches.
    pub(crate) fn match_next(&mut self) -> Option<(RequestToReceive, Offer)> {
        self.skip_taken_back();
        let wanted = (*self.wanted.get(&self.next)?)?;
        let offer = self.queue.pop_front()?;
        self.wanted.remove(&self.next);
        self.next = self.next.wrapping_add(1);
        Some((wanted, offer))
    }

    /// Whether Read `number` waits for an offer.
    pub(crate) fn waits(&self, number: u32) -> bool {
        matches!(self.wanted.get(&number), Some(Some(_)))
    }

    /// Panics if the state that the peer controls grew beyond its limits.
    pub(crate) fn assert_bounded(&self, slots: u16) {
        assert!(self.wanted.len() <= usize::from(slots));
    }

    /// Continues as if `number` Reads had been matched before.
    #[cfg(test)]
    pub(crate) fn age(&mut self, number: u32) {
        self.next = number;
    }
}

#[cfg(test)]
#[path = "offers_tests.rs"]
mod tests;
