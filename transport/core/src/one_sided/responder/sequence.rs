//! Orders the Initiator's numbered operations at the Responder: executes each once, in order, and confirms in batches.
//!
//! A refused operation keeps its number until the Initiator is known to have heard of the refusal, because a
//! confirmation of any later number would confirm it. That costs a round trip per error, and nothing otherwise.

use crate::context::Refusal;
use crate::limits::{CONFIRM_DELAY, CONFIRM_EVERY, MAX_CONFIRM_DELAY, MAX_FETCHES};
use crate::time::Instant;
use crate::transfer::TransferId;
use alloc::collections::VecDeque;
use core::time::Duration;

/// Verdict on a numbered operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SequenceCheck {
    /// It is next in order.
    Expected,
    /// It was executed before.
    Duplicate,
    /// It was refused, and the Initiator may not have heard of that.
    Refused(TransferId, Refusal),
    /// An earlier operation is missing.
    Ahead,
}

/// The resource that the expected operation lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotReady {
    /// A posted receive.
    Receive,
    /// Room for its event, or a program that has taken the connection.
    Room,
}

/// A value that the Initiator must confirm.
#[derive(Clone, Copy, Debug)]
struct Fetched {
    number: u32,
    id: TransferId,
    value: u64,
}

/// Executed operations, and what the Initiator knows of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sequence {
    expected: u32,
    values: VecDeque<Fetched>,
    /// The refused operation, and the reason.
    refusal: Option<(TransferId, Refusal)>,
    /// Operations executed but not confirmed.
    owed: u32,
    /// Latest time of their confirmation.
    due: Option<Instant>,
    /// When the first of them was executed.
    since: Option<Instant>,
    /// An operation before `expected` arrived again, or an answer is requested: answer at once.
    ack_now: bool,
    /// Number last requested from the Initiator, and when.
    asked: Option<(u32, Instant)>,
    /// The resource that the expected operation lacks; its Initiator was told.
    pub(crate) not_ready: Option<NotReady>,
}

impl Sequence {
    /// All operations below this number were executed.
    pub(crate) fn expected(&self) -> u32 {
        self.expected
    }

    /// Checks an operation by its number. `ask`: the Initiator wants an answer.
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

    /// Whether operation `number` is next in order, and would be executed.
    pub(crate) fn is_next(&self, number: u32) -> bool {
        number == self.expected && self.refusal.is_none()
    }

    /// Whether to request missing operations from the Initiator: once per gap, and again if it still asks after its
    /// answer is due, a round trip `rtt` later.
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

    /// The expected operation was executed.
    pub(crate) fn executed(&mut self, now: Instant) {
        self.expected = self.expected.wrapping_add(1);
        self.not_ready = None;
        self.owe(now, 1);
    }

    /// The expected operation was executed, with result `value`.
    pub(crate) fn fetched(&mut self, now: Instant, id: TransferId, value: u64) {
        self.values.push_back(Fetched {
            number: self.expected,
            id,
            value,
        });
        self.executed(now);
    }

    /// The expected operation was refused.
    pub(crate) fn refuse(&mut self, id: TransferId, why: Refusal) {
        self.refusal = Some((id, why));
    }

    /// Whether a refusal is unconfirmed: it is the answer to every operation meanwhile.
    pub(crate) fn is_refusing(&self) -> bool {
        self.refusal.is_some()
    }

    /// Whether another value can be stored, once those below `confirmed` are dropped.
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

    /// The result of FetchOp `number`, if it is still stored.
    pub(crate) fn value(&self, number: u32, id: TransferId) -> Option<u64> {
        let mut kept = self.values.iter();
        let found = kept.find(|it| it.number == number && it.id == id)?;
        Some(found.value)
    }

    /// The Initiator knows the outcome of operation `number`. False if that is not new.
    pub(crate) fn outcome_known(&mut self, now: Instant, number: u32) -> bool {
        let before = self.values.len();
        // Drops this value alone: a repeat may confirm a refusal while earlier values are still unknown.
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
        let since = *self.since.get_or_insert(now);
        self.due = Some((now + CONFIRM_DELAY).min(since + MAX_CONFIRM_DELAY));
    }

    /// When a confirmation is due, if one is.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether a confirmation must leave now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.ack_now || self.owed >= CONFIRM_EVERY || self.due.is_some_and(|at| at <= now)
    }

    /// Confirms everything at the next opportunity.
    pub(crate) fn ask_ack(&mut self) {
        self.ack_now |= self.due.is_some();
    }

    /// A departing operation confirmed everything executed.
    pub(crate) fn confirmed(&mut self) {
        (self.owed, self.due, self.since) = (0, None, None);
        self.ack_now = false;
    }

    /// Continues as if `number` operations had been executed before.
    #[cfg(test)]
    pub(crate) fn age(&mut self, number: u32) {
        self.expected = number;
    }

    pub(crate) fn assert_bounded(&self) {
        assert!(self.values.len() <= MAX_FETCHES);
    }
}

#[cfg(test)]
#[path = "sequence_tests.rs"]
mod tests;
