//! The Responder's side of small operations: executes each number once, in order, keeps what the
//! Initiator has to be told, and confirms in batches.
//!
//! An operation that is refused keeps its number until the Initiator is known to have heard of the
//! refusal, for a confirmation of any later number would say that it was done. That costs a round
//! trip for each error, and nothing otherwise.

use crate::context::Refusal;
use crate::limits::{CONFIRM_DELAY, CONFIRM_EVERY, MAX_FETCHES};
use crate::{Instant, TransferId};
use alloc::collections::VecDeque;
use core::time::Duration;

/// What to do with a numbered operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SequenceCheck {
    /// It is its turn.
    Expected,
    /// It was executed before.
    Duplicate,
    /// It was refused, and the Initiator may not have heard.
    Refused(TransferId, Refusal),
    /// One before it is missing.
    Ahead,
}

/// What the operation expected would need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotReady {
    /// A posted receive.
    Receive,
    /// Room to tell of it.
    Room,
}

/// A value that the Initiator has to confirm.
#[derive(Clone, Copy, Debug)]
struct Fetched {
    number: u32,
    id: TransferId,
    value: u64,
}

/// What was executed, and what of it the Initiator knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Responder {
    expected: u32,
    values: VecDeque<Fetched>,
    /// What is refused, and why.
    refusal: Option<(TransferId, Refusal)>,
    /// Operations executed and not confirmed.
    owed: u32,
    /// When they are confirmed at the latest.
    due: Option<Instant>,
    /// Something before `expected` arrived again, or `expected` is asked for: answer at once.
    ack_now: bool,
    /// Number that was asked for last, and when.
    asked: Option<(u32, Instant)>,
    /// Why the operation expected waits; its Initiator was told.
    pub(crate) not_ready: Option<NotReady>,
}

impl Responder {
    /// Everything numbered below this was executed.
    pub(crate) fn expected(&self) -> u32 {
        self.expected
    }

    /// Judges an operation by its number. `ask`: the Initiator wants an answer.
    pub(crate) fn admit(&mut self, now: Instant, number: u32, ask: bool) -> SequenceCheck {
        let ahead = number.wrapping_sub(self.expected);
        if ahead > u32::MAX / 2 {
            self.owe(now, 0);
            self.ack_now = true;
            return SequenceCheck::Duplicate;
        }
        match self.refusal {
            Some((id, why)) if ahead == 0 || ask => return SequenceCheck::Refused(id, why),
            Some(_) => return SequenceCheck::Ahead,
            None => {}
        }
        if ahead == 0 {
            self.ack_now |= ask;
            return SequenceCheck::Expected;
        }
        SequenceCheck::Ahead
    }

    /// Whether the Initiator is to be asked for what is missing: once for each gap, and again if it
    /// presses later than what it sends in answer takes to come, `rtt`.
    pub(crate) fn ask(&mut self, now: Instant, ask: bool, rtt: Duration) -> bool {
        if self.not_ready.is_some() || self.refusal.is_some() {
            return false;
        }
        let again = matches!(self.asked, Some((number, at))
            if number == self.expected && !(ask && now >= at + rtt));
        if !again {
            self.asked = Some((self.expected, now));
        }
        !again
    }

    /// The operation expected was executed.
    pub(crate) fn executed(&mut self, now: Instant) {
        self.expected = self.expected.wrapping_add(1);
        self.not_ready = None;
        self.owe(now, 1);
    }

    /// The operation expected was executed and brought `value`.
    pub(crate) fn fetched(&mut self, now: Instant, id: TransferId, value: u64) {
        self.values.push_back(Fetched {
            number: self.expected,
            id,
            value,
        });
        self.executed(now);
    }

    /// The operation expected is refused.
    pub(crate) fn refuse(&mut self, id: TransferId, why: Refusal) {
        self.refusal = Some((id, why));
    }

    /// Whether a refusal waits to be confirmed.
    pub(crate) fn is_refusing(&self) -> bool {
        self.refusal.is_some()
    }

    /// Whether another value can be kept, once those below `confirmed` are forgotten.
    pub(crate) fn has_room(&mut self, confirmed: u32) -> bool {
        self.forget_below(confirmed);
        self.values.len() < MAX_FETCHES
    }

    fn forget_below(&mut self, number: u32) {
        let below = |it: &Fetched| it.number.wrapping_sub(number) > u32::MAX / 2;
        while self.values.front().is_some_and(below) {
            self.values.pop_front();
        }
    }

    /// The value that FetchOp `number` brought, if it is remembered.
    pub(crate) fn value(&self, number: u32, id: TransferId) -> Option<u64> {
        let mut kept = self.values.iter();
        let found = kept.find(|it| it.number == number && it.id == id)?;
        Some(found.value)
    }

    /// The Initiator knows how operation `number` ended. False if that says nothing new.
    pub(crate) fn outcome_known(&mut self, now: Instant, number: u32) -> bool {
        let before = self.values.len();
        // Of that one only: a repeat may tell of a refusal, with values before it still unknown.
        self.values.retain(|it| it.number != number);
        if self.refusal.is_some() && number == self.expected {
            self.refusal = None;
            self.executed(now);
            return true;
        }
        before != self.values.len()
    }

    fn owe(&mut self, now: Instant, count: u32) {
        self.owed += count;
        self.due.get_or_insert(now + CONFIRM_DELAY);
    }

    /// When a confirmation is due, if one is.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether a confirmation is to leave now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.ack_now || self.owed >= CONFIRM_EVERY || self.due.is_some_and(|at| at <= now)
    }

    /// Confirms at the next opportunity what there is to confirm.
    pub(crate) fn ask_ack(&mut self) {
        self.ack_now |= self.due.is_some();
    }

    /// All that was executed is confirmed, by whatever just left.
    pub(crate) fn confirmed(&mut self) {
        (self.owed, self.due, self.ack_now) = (0, None, false);
    }

    /// As if `number` operations had been executed before.
    #[cfg(test)]
    pub(crate) fn age(&mut self, number: u32) {
        self.expected = number;
    }

    pub(crate) fn assert_bounded(&self) {
        assert!(self.values.len() <= MAX_FETCHES);
    }
}

#[cfg(test)]
#[path = "responder_tests.rs"]
mod tests;
