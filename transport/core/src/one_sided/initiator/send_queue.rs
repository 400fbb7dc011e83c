//! Numbers and tracks the Initiator's small operations until the Responder confirms them.
//!
//! These are atomic operations, and puts and messages of one datagram or of several such parts. They are sent in the
//! order of their numbers. The Responder executes in that order and confirms by number, so one number confirms all below
//! it, and a gap sends the Initiator back to it (go-back-N, as in RDMA's reliable connections). "Exactly once" and "in
//! order" thus cost one comparison per operation, without a reordering buffer. Repeating some is cheap: they are small.

use crate::event::TransferError;
use crate::limits::{
    BLACK_HOLE_REPAIRS, MAX_EAGER_DATAGRAMS, MAX_FETCHES, MAX_SMALL, MAX_UNCONFIRMED,
    MAX_UNCONFIRMED_DATAGRAMS, MIN_UNCONFIRMED_DATAGRAMS,
};
use crate::request::{Request, RequestKind};
use crate::time::Instant;
use crate::transfer::TransferId;
use alloc::collections::VecDeque;
use core::time::Duration;
use zerolane_wire::FRAME_HEAD_LEN;

/// Initial window, datagrams.
const FIRST_WINDOW: usize = 64;

/// Marks an operation as part of a longer put, whose last operation reports the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The put.
    pub(crate) of: TransferId,
    /// Bytes of the put behind this operation's.
    pub(crate) rest: u32,
}

/// A numbered operation.
#[derive(Clone, Debug)]
pub(crate) struct SentRequest {
    request: Request,
    part: Option<Part>,
    /// It continues the put of the operation before it.
    continues: bool,
    /// Its share of the window.
    weight: u32,
    outcome: Option<Outcome>,
    /// Cancelled: the failure was reported.
    cancelled: bool,
}

impl SentRequest {
    /// The request that it is, or belongs to.
    fn id(&self) -> TransferId {
        self.part.map_or(self.request.id, |part| part.of)
    }

    /// Whether its outcome ends the request for the user: it is the last operation, or failed.
    fn is_reported(&self) -> bool {
        let failed = matches!(self.outcome, Some(Outcome::Failed(_)));
        !self.cancelled && (self.part.is_none() || failed)
    }

    /// Removes its work. An atomic operation has no memory to release; whether it was executed is unknown.
    fn cancel(&mut self) {
        self.cancelled = true;
        if !matches!(self.request.kind, RequestKind::Fetch { .. }) {
            self.request.kind = RequestKind::Nothing;
        }
    }
}

/// An operation to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbered<'a> {
    pub(crate) number: u32,
    pub(crate) request: &'a Request,
    /// Bytes of its put behind its own.
    pub(crate) rest: u32,
    /// Bytes of its put precede its own.
    pub(crate) continues: bool,
}

/// A completed operation.
#[derive(Clone, Debug)]
pub(crate) struct CompletedRequest {
    /// The request that it is, or belongs to.
    pub(crate) id: TransferId,
    pub(crate) request: Request,
    pub(crate) outcome: Outcome,
    /// Whether the user gets an event.
    pub(crate) reported: bool,
}

/// Outcome of an operation, as the Responder reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Executed.
    Done,
    /// Executed; the word's previous value.
    Value(u64),
    /// Refused.
    Failed(TransferError),
}

/// All pending numbered operations.
#[derive(Clone, Debug)]
pub(crate) struct SendQueue {
    /// Number of the first of `ops`.
    base: u32,
    ops: VecDeque<SentRequest>,
    /// How many of `ops`, from the front, the Responder executed.
    executed: usize,
    /// Index in `ops` of the next operation to send.
    next: usize,
    /// How many of `ops` were sent at least once.
    sent: usize,
    /// Most datagrams in flight.
    window: usize,
    /// Several operations share a datagram.
    shared: bool,
    /// Bytes of the window's datagrams that `ops` occupy.
    occupied: u32,
    fetches: usize,
    /// The Responder lacked room for the first operation not executed: nothing is sent before this time.
    pub(crate) paused: Option<Instant>,
    /// The last refused operation, in case the Responder asks again.
    refused: Option<(TransferId, u32)>,
    /// Time of the last confirmation or repetition.
    pub(crate) moved: Instant,
    /// Consecutive repetitions without an answer.
    pub(crate) tries: u32,
}

impl Default for SendQueue {
    fn default() -> SendQueue {
        SendQueue {
            base: 0,
            ops: VecDeque::new(),
            executed: 0,
            next: 0,
            sent: 0,
            window: FIRST_WINDOW,
            shared: false,
            occupied: 0,
            fetches: 0,
            paused: None,
            refused: None,
            moved: Instant::ZERO,
            tries: 0,
        }
    }
}

impl SendQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Number of the first operation that the Responder is not known to have executed.
    pub(crate) fn unconfirmed(&self) -> u32 {
        self.base.wrapping_add(self.executed as u32)
    }

    /// Sets whether several operations share a datagram from now on.
    pub(crate) fn share(&mut self, shared: bool) {
        self.shared = shared;
    }

    /// Bytes of a datagram that an operation takes; all of them if it has its own.
    fn weight(&self, kind: &RequestKind) -> u32 {
        match kind {
            RequestKind::Fetch { .. } => MAX_SMALL,
            _ if self.shared => (FRAME_HEAD_LEN as u32 + kind.content_len()).min(MAX_SMALL),
            _ => MAX_SMALL,
        }
    }

    /// Whether a request of `count` operations may be numbered.
    pub(crate) fn has_room(&self, kind: &RequestKind, count: usize, max_fetches: usize) -> bool {
        let fetch = matches!(kind, RequestKind::Fetch { .. });
        let bytes = self.window as u32 * MAX_SMALL;
        self.ops.len() + count <= MAX_UNCONFIRMED
            && self.occupied + count as u32 * self.weight(kind) <= bytes
            && (!fetch || self.fetches < max_fetches)
    }

    /// Whether a put of `len` bytes may leave at once as `count` operations. No congestion controller limits them, so
    /// they have half of the window, which confirmations open and losses close. A closed window recovers its initial
    /// size in time.
    pub(crate) fn takes_run(&mut self, count: usize, len: u64) -> bool {
        let takes = self.has_room_for_run(count, len);
        if !takes && self.window < FIRST_WINDOW {
            self.window += 1;
        }
        takes
    }

    /// Whether `count` operations with `len` bytes may leave at once now.
    pub(crate) fn has_room_for_run(&self, count: usize, len: u64) -> bool {
        self.ops.len() + count <= MAX_UNCONFIRMED
            && self.may_hold_run(count, u64::from(self.occupied) + len)
    }

    /// Whether `count` operations with `len` bytes may leave at once as soon as nothing else is pending.
    pub(crate) fn may_hold_run(&self, count: usize, len: u64) -> bool {
        let alone = count as u64 * u64::from(MAX_SMALL);
        let weight = match self.shared {
            true => count as u64 * FRAME_HEAD_LEN as u64 + len,
            false => alone.max(len),
        };
        let most = (self.window / 2).min(MAX_EAGER_DATAGRAMS) as u64;
        self.tries == 0 && weight <= most * u64::from(MAX_SMALL)
    }

    /// The number of the next operation.
    pub(crate) fn next_number(&self) -> u32 {
        self.base.wrapping_add(self.ops.len() as u32)
    }

    /// The values of all operations below this number are here.
    pub(crate) fn confirmed(&self) -> u32 {
        self.base
    }

    /// Adds an operation; returns its number.
    pub(crate) fn push(&mut self, now: Instant, request: Request) -> u32 {
        self.push_part(now, request, None, false)
    }

    /// As [`SendQueue::push`], for an operation that is `part` of a put and `continues` it.
    pub(crate) fn push_part(
        &mut self,
        now: Instant,
        request: Request,
        part: Option<Part>,
        continues: bool,
    ) -> u32 {
        if self.ops.is_empty() {
            self.moved = now;
            self.tries = 0;
        }
        let number = self.next_number();
        let weight = self.weight(&request.kind);
        self.occupied += weight;
        self.fetches += usize::from(matches!(request.kind, RequestKind::Fetch { .. }));
        self.ops.push_back(SentRequest {
            request,
            part,
            continues,
            weight,
            outcome: None,
            cancelled: false,
        });
        number
    }

    /// Whether an operation must be sent now.
    pub(crate) fn has_unsent(&self) -> bool {
        self.next < self.ops.len() && self.paused.is_none()
    }

    /// Whether a sent operation is pending.
    pub(crate) fn awaits(&self) -> bool {
        self.sent > 0 || self.paused.is_some()
    }

    /// When sent operations are repeated if nothing is heard, with a timeout of `wait`.
    pub(crate) fn repeat_at(&self, wait: Duration) -> Instant {
        let wait = wait.saturating_mul(1 << self.tries.min(4));
        self.paused.unwrap_or(self.moved + wait)
    }

    /// The oldest pending operation.
    pub(crate) fn oldest(&self) -> Option<TransferId> {
        self.ops.front().map(SentRequest::id)
    }

    /// Whether more than half a datagram of `room` bytes was repeated in vain.
    pub(crate) fn is_stuck(&self, room: u32) -> bool {
        let repeated = self.ops.range(self.executed..self.sent);
        let lengths = repeated.map(|op| op.request.kind.content_len());
        self.tries >= BLACK_HOLE_REPAIRS && lengths.sum::<u32>() > room / 2
    }

    /// Whether operations of more than `bytes` bytes wait to be sent.
    pub(crate) fn has_unsent_bytes(&self, bytes: u32) -> bool {
        let mut sum = 0;
        self.ops.range(self.next..).any(|it| {
            sum += it.weight;
            sum > bytes
        })
    }

    /// How many operations wait to be sent.
    pub(crate) fn unsent(&self) -> usize {
        self.ops.len() - self.next
    }

    /// Bytes of the pending operations, at most, without the headers of their datagrams.
    pub(crate) fn bytes(&self) -> u32 {
        self.occupied
    }

    /// The next operation to send.
    pub(crate) fn upcoming(&self) -> Option<&Request> {
        self.ops.get(self.next).map(|op| &op.request)
    }

    /// The number of the next operation to send.
    pub(crate) fn next_unsent(&self) -> u32 {
        self.base.wrapping_add(self.next as u32)
    }

    /// Marks the next `count` operations as sent.
    pub(crate) fn take(&mut self, now: Instant, count: usize) {
        if self.sent == 0 {
            self.moved = now;
        }
        self.next += count;
        self.sent = self.sent.max(self.next);
    }

    /// The operations from `first` on that [`SendQueue::take`] took did not leave.
    pub(crate) fn take_back(&mut self, first: u32) {
        self.next = self.next.min(first.wrapping_sub(self.base) as usize);
    }

    /// Whether operation `number` is being repeated.
    pub(crate) fn is_repeat(&self, number: u32) -> bool {
        self.tries > 0 && (number.wrapping_sub(self.base) as usize) < self.sent
    }

    /// The pending operations from `number` on.
    pub(crate) fn from(&self, number: u32) -> impl Iterator<Item = Numbered<'_>> + Clone {
        let index = number.wrapping_sub(self.base) as usize;
        let numbers = (0..).map(move |n: u32| number.wrapping_add(n));
        let operations = self.ops.range(index.min(self.ops.len())..);
        operations.zip(numbers).map(|(op, number)| Numbered {
            number,
            request: &op.request,
            rest: op.part.map_or(0, |part| part.rest),
            continues: op.continues,
        })
    }

    /// The index of the sent operation with that identifier.
    fn position(&self, id: TransferId) -> Option<usize> {
        self.ops
            .iter()
            .take(self.sent)
            .position(|op| op.request.id == id)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = TransferId> + '_ {
        let reported = |op: &&SentRequest| op.is_reported();
        self.ops.iter().filter(reported).map(SentRequest::id)
    }

    /// The Responder executed everything below `expected`. False if that number is impossible.
    pub(crate) fn confirm(&mut self, now: Instant, expected: u32) -> bool {
        let count = expected.wrapping_sub(self.base) as usize;
        if count > self.sent {
            return false;
        }
        if count > self.executed {
            for op in self.ops.iter_mut().take(count).skip(self.executed) {
                if op.outcome.is_none() && !matches!(op.request.kind, RequestKind::Fetch { .. }) {
                    op.outcome = Some(Outcome::Done);
                }
            }
            // One confirmation may be of many datagrams.
            let grown = self.window + (count - self.executed).div_ceil(16);
            self.window = grown.min(MAX_UNCONFIRMED_DATAGRAMS);
            self.executed = count;
            self.next = self.next.max(count);
            self.moved = now;
            self.tries = 0;
            self.paused = None;
        }
        true
    }

    /// Whether operation `number` was executed, or refused.
    pub(crate) fn has_executed(&self, number: u32) -> bool {
        let first_open = self.base.wrapping_add(self.executed as u32);
        number.wrapping_sub(first_open) as i32 <= -1
    }

    /// The full number, from the low half in a peer's operation.
    pub(crate) fn widen(&self, low: u16) -> u32 {
        self.base
            .wrapping_add(u32::from(low.wrapping_sub(self.base as u16)))
    }

    /// The Responder lacks operations: resends from the first one not executed.
    pub(crate) fn go_back(&mut self, now: Instant) {
        // An executed operation whose value is missing is requested again, too.
        let missing = |op: &SentRequest| op.outcome.is_none();
        self.next = self.ops.iter().position(missing).unwrap_or(self.ops.len());
        self.window = (self.window / 2).max(MIN_UNCONFIRMED_DATAGRAMS);
        self.moved = now;
        self.tries = self.tries.saturating_add(1);
        self.paused = None;
    }

    /// The Responder is not ready for operation `id`: waits until `until`.
    pub(crate) fn pause(&mut self, now: Instant, id: TransferId, until: Instant) -> bool {
        let Some(index) = self.position(id) else {
            return false;
        };
        self.confirm(now, self.base.wrapping_add(index as u32));
        self.next = self.next.min(self.executed);
        self.moved = now;
        // It answered, so nothing before was in vain.
        self.tries = 1;
        self.paused = Some(until);
        true
    }

    /// Takes the value of FetchOp `number`. False if it is not awaited.
    pub(crate) fn value(&mut self, now: Instant, number: u32, id: TransferId, value: u64) -> bool {
        let index = number.wrapping_sub(self.base) as usize;
        if !self.awaits_value(number, id) || !self.confirm(now, number.wrapping_add(1)) {
            return false;
        }
        self.ops[index].outcome = Some(Outcome::Value(value));
        self.moved = now;
        true
    }

    /// Whether the value of any FetchOp is awaited.
    pub(crate) fn awaits_values(&self) -> bool {
        self.fetches > 0
    }

    /// Whether the value of FetchOp `number` is awaited.
    pub(crate) fn awaits_value(&self, number: u32, id: TransferId) -> bool {
        let op = self.ops.get(number.wrapping_sub(self.base) as usize);
        let sent = (number.wrapping_sub(self.base) as usize) < self.sent;
        let fetch = |op: &SentRequest| {
            op.request.id == id
                && op.outcome.is_none()
                && matches!(op.request.kind, RequestKind::Fetch { .. })
        };
        sent && op.is_some_and(fetch)
    }

    /// The Responder refused operation `id`. Returns its number, to confirm the refusal.
    pub(crate) fn refuse(
        &mut self,
        now: Instant,
        id: TransferId,
        why: impl FnOnce(&RequestKind) -> TransferError,
    ) -> Option<u32> {
        if let Some((known, number)) = self.refused
            && known == id
        {
            return Some(number);
        }
        let index = self.position(id)?;
        if index < self.executed {
            return None;
        }
        let number = self.base.wrapping_add(index as u32);
        self.confirm(now, number.wrapping_add(1));
        let op = &mut self.ops[index];
        op.outcome = Some(Outcome::Failed(why(&op.request.kind)));
        let whole = op.id();
        self.refused = Some((id, number));
        // The Responder dropped the operations behind it; the remaining parts of a failed put are cancelled.
        self.next = index + 1;
        let rest = self.ops.iter_mut().skip(self.next);
        rest.filter(|op| op.id() == whole)
            .for_each(SentRequest::cancel);
        Some(number)
    }

    /// Removes and returns the next completed operation, in order.
    pub(crate) fn pop(&mut self) -> Option<CompletedRequest> {
        if self.executed == 0 {
            return None;
        }
        let outcome = self.ops.front()?.outcome?;
        let op = self.ops.pop_front()?;
        let (id, reported) = (op.id(), op.is_reported());
        self.base = self.base.wrapping_add(1);
        self.executed -= 1;
        self.next = self.next.saturating_sub(1);
        self.sent = self.sent.saturating_sub(1);
        self.occupied -= op.weight;
        self.fetches -= usize::from(matches!(op.request.kind, RequestKind::Fetch { .. }));
        Some(CompletedRequest {
            id,
            request: op.request,
            outcome,
            reported,
        })
    }

    /// Removes the work of request `id`; its numbers stay. False if there is none.
    pub(crate) fn cancel(&mut self, id: TransferId) -> bool {
        let failed = |op: &SentRequest| matches!(op.outcome, Some(Outcome::Failed(_)));
        let live = |op: &SentRequest| op.id() == id && !op.cancelled && !failed(op);
        let found = self.ops.iter().any(live);
        self.ops
            .iter_mut()
            .filter(|op| live(op))
            .for_each(SentRequest::cancel);
        found
    }

    /// Removes all operations.
    pub(crate) fn clear(&mut self) {
        self.base = self.next_number();
        (self.executed, self.next, self.sent, self.fetches) = (0, 0, 0, 0);
        self.occupied = 0;
        self.ops.clear();
        self.paused = None;
    }

    /// Continues as if `number` operations had been executed before.
    #[cfg(test)]
    pub(crate) fn age(&mut self, number: u32) {
        self.base = number;
    }

    pub(crate) fn assert_bounded(&self) {
        assert!(self.ops.len() <= MAX_UNCONFIRMED && self.fetches <= MAX_FETCHES);
        let weights = self.ops.iter().map(|op| op.weight);
        assert_eq!(self.occupied, weights.sum::<u32>());
        assert!(self.executed <= self.sent && self.sent <= self.ops.len());
        assert!(self.next <= self.ops.len());
    }
}

#[cfg(test)]
#[path = "send_queue_tests.rs"]
mod tests;
