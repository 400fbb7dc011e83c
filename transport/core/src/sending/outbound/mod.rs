//! Tracks outgoing Transfers from announcement to confirmation.
//!
//! The receiver grants them Block by Block. Payload leaves in the order of the grants, and is repaired where the
//! receiver reports loss.

mod advance;
mod burst;
mod credit;
mod grant;
mod repair;
mod state;
mod transfer;

pub(crate) use self::burst::{BareMessage, Cut, NextBurst, Shape};
pub(crate) use self::repair::{LossReport, Lost, without};
pub(crate) use self::state::OutboundEvent;
pub(crate) use self::state::OutboundState;
pub(crate) use self::transfer::{Announcement, Outbound};
use alloc::vec::Vec;
use smallvec::{SmallVec, smallvec};

use self::advance::AdvanceGrants;
use self::credit::Credit;
use self::repair::{Repair, Stuck};
use self::transfer::Held;
use crate::limits::{MAX_ADVANCE_GRANTS, MAX_HELD_GRANTS, MAX_REPAIRS};
use crate::sending::sent_log::SentLog;
use crate::slot_window::SlotWindow;
use crate::span::Span;
use crate::time::Instant;
use crate::transfer::{Delivery, TransferId};
use alloc::collections::{BTreeMap, VecDeque};
use zerolane_wire::{Eager, Reason, Target};

/// An announcement number without a Transfer: for the payload of a message that was cancelled before it was announced,
/// for which the peer waits; or for the end of sending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Withdrawn {
    pub(crate) id: TransferId,
    pub(crate) why: Withdrawal,
}

/// Why the number has no Transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withdrawal {
    /// The payload of message `number` was cancelled.
    Payload { number: u32, reason: Reason },
    /// Nothing that follows matches a receive, and no message comes from operation `number` on.
    Finished { number: u32 },
}

/// All outgoing Transfers of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    transfers: BTreeMap<TransferId, Outbound>,
    queued: VecDeque<TransferId>,
    withdrawn: VecDeque<Withdrawn>,
    /// Granted Blocks with unsent bytes, in the order of the grants.
    ready: VecDeque<(u32, TransferId, u32)>,
    /// Eager Transfers with unsent bytes, in the order of their announcements.
    eager: VecDeque<TransferId>,
    credit: Credit,
    advance: AdvanceGrants,
    /// Advance grants for the payload of messages, by operation number.
    message_advance: AdvanceGrants,
    repairs: VecDeque<Repair>,
    window: SlotWindow,
    held: usize,
    /// Transfers into regions of the peer.
    puts: usize,
    /// One per path.
    pub(crate) sent_logs: SmallVec<[SentLog; 1]>,
    stuck: Stuck,
}

impl Outbox {
    pub(crate) fn new() -> Outbox {
        Outbox {
            transfers: BTreeMap::new(),
            queued: VecDeque::new(),
            withdrawn: VecDeque::new(),
            ready: VecDeque::new(),
            eager: VecDeque::new(),
            credit: Credit::default(),
            advance: AdvanceGrants::default(),
            message_advance: AdvanceGrants::default(),
            repairs: VecDeque::new(),
            window: SlotWindow::default(),
            held: 0,
            puts: 0,
            sent_logs: smallvec![SentLog::new()],
            stuck: Stuck::default(),
        }
    }

    /// Whether a Put is in flight.
    pub(crate) fn is_putting(&self) -> bool {
        self.puts > 0
    }

    /// Whether a Transfer waits for an announcement number.
    pub(crate) fn has_unnumbered(&self) -> bool {
        !self.queued.is_empty() || !self.withdrawn.is_empty()
    }

    /// Whether a Transfer for a target that `is_such` waits for a slot to be announced.
    pub(crate) fn is_to_announce(&self, is_such: impl Fn(Target) -> bool) -> bool {
        let mut queued = self.queued.iter().filter_map(|id| self.transfers.get(id));
        queued.any(|it| is_such(it.target))
    }

    /// The number that the next announcement gets.
    pub(crate) fn next_sequence(&self) -> u32 {
        self.window.next()
    }

    /// Transfers that are not over, or whose end the peer does not know.
    pub(crate) fn len(&self) -> usize {
        self.transfers.len() + self.withdrawn.len()
    }

    pub(crate) fn ids(&self) -> Vec<TransferId> {
        self.transfers.keys().copied().collect()
    }

    pub(crate) fn get(&self, id: TransferId) -> Option<&Outbound> {
        self.transfers.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: TransferId) -> Option<&mut Outbound> {
        self.transfers.get_mut(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (TransferId, &Outbound)> {
        self.transfers.iter().map(|(&id, it)| (id, it))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (TransferId, &mut Outbound)> {
        self.transfers.iter_mut().map(|(&id, it)| (id, it))
    }

    /// The Transfers announced under a number for which `is_named` holds.
    pub(crate) fn announced(&self, is_named: impl Fn(u32) -> bool) -> Vec<TransferId> {
        let named = |it: &Outbound| it.state != OutboundState::Queued && is_named(it.sequence);
        let all = self.iter().filter(|(_, it)| named(it));
        all.map(|(id, _)| id).collect()
    }

    pub(crate) fn post(&mut self, id: TransferId, span: Span, delivery: Delivery, target: Target) {
        let transfer = Outbound {
            span,
            delivery,
            state: OutboundState::Queued,
            target,
            sequence: 0,
            peer: 0,
            tries: 0,
            resend_at: Instant::ZERO,
            eager: None,
            in_advance: false,
            since: match target {
                Target::Message(_) => self.message_advance.since(),
                _ => None,
            },
            announcement: Announcement::Sent,
            numbered: Instant::ZERO,
            held: BTreeMap::new(),
            first_open: 0,
            classic_start: None,
            sent: 0,
        };
        self.puts += usize::from(matches!(target, Target::Region(..)));
        self.transfers.insert(id, transfer);
        self.queued.push_back(id);
    }

    /// Queues a withdrawal, to be ended under a number of its own.
    pub(crate) fn withdraw(&mut self, it: Withdrawn) {
        self.withdrawn.push_back(it);
    }

    /// The next withdrawal and its number, if the peer's `slots` leave room.
    pub(crate) fn number_withdrawn(&mut self, slots: u16) -> Option<(Withdrawn, u32)> {
        self.withdrawn.front()?;
        let sequence = self.window.open(slots)?;
        self.advance.on_detour(sequence);
        Some((self.withdrawn.pop_front()?, sequence))
    }

    /// Drops the withdrawals without numbers.
    pub(crate) fn forget_withdrawn(&mut self) {
        self.withdrawn.clear();
    }

    /// The next Transfer to announce, if the peer's `slots` leave room.
    pub(crate) fn announce_next(&mut self, slots: u16) -> Option<TransferId> {
        while self
            .queued
            .front()
            .is_some_and(|id| !self.transfers.contains_key(id))
        {
            self.queued.pop_front();
        }
        let &id = self.queued.front()?;
        let transfer = self.transfers.get_mut(&id)?;
        let state = transfer.state.step(OutboundEvent::SlotFree)?;
        transfer.sequence = self.window.open(slots)?;
        transfer.state = state;
        if transfer.target != Target::Receive {
            self.advance.on_detour(transfer.sequence);
        }
        self.queued.pop_front();
        Some(id)
    }

    /// Makes a Transfer that was just announced eager, if the limits of `peer` permit. Returns whether they do.
    pub(crate) fn begin_eagerly(&mut self, id: TransferId, peer: Eager) -> bool {
        let Some(transfer) = self.transfers.get_mut(&id) else {
            return false;
        };
        let len = transfer.span.len;
        if len == 0
            || len > u64::from(peer.limit)
            || matches!(transfer.target, Target::Region(..))
            || !self.credit.take(transfer.sequence, len as u32, peer.credit)
        {
            return false;
        }
        transfer.eager = Some(Held::eager(len as u32));
        self.eager.push_back(id);
        true
    }

    /// Whether eager payload waits to be sent.
    pub(crate) fn has_eager(&self) -> bool {
        !self.eager.is_empty()
    }

    /// Whether the first byte of Transfer `id` is the next eager payload to leave.
    pub(crate) fn is_next(&self, id: TransferId) -> bool {
        let unsent = |it: &Outbound| it.sent == 0;
        self.eager.front() == Some(&id) && self.get(id).is_some_and(unsent)
    }

    /// Applies `event`; if it ends the Transfer, removes and returns it. Its announcement keeps its slot until
    /// [`Outbox::resolve`].
    pub(crate) fn on_event(&mut self, id: TransferId, event: OutboundEvent) -> Option<Outbound> {
        let transfer = self.transfers.get_mut(&id)?;
        let was_announced = transfer.state != OutboundState::Queued;
        transfer.state = transfer.state.step(event)?;
        if transfer.state != OutboundState::Ended {
            return None;
        }
        let transfer = self.transfers.remove(&id)?;
        self.held -= transfer.held.len();
        if event == OutboundEvent::Cancelled && was_announced {
            // Whether a receive matched it is unknown here.
            self.advance.on_detour(transfer.sequence);
        }
        self.puts -= usize::from(matches!(transfer.target, Target::Region(..)));
        self.ready.retain(|entry| entry.1 != id);
        self.eager.retain(|&other| other != id);
        self.repairs.retain(|repair| repair.id != id);
        Some(transfer)
    }

    /// The peer knows that announcement `sequence` is over: its slot is free, and so is its credit.
    pub(crate) fn resolve(&mut self, sequence: u32) {
        self.credit.give_back(sequence);
        self.window.resolve(sequence);
    }

    /// Continues as if `number` Transfers had been announced before.
    #[cfg(test)]
    pub(crate) fn age(&mut self, number: u32) {
        self.window.age(number);
    }

    pub(crate) fn has_data(&self) -> bool {
        !self.ready.is_empty() || !self.repairs.is_empty() || !self.eager.is_empty()
    }

    /// Panics if the state that the peer controls grew beyond its limits.
    pub(crate) fn assert_bounded(&self) {
        let held: usize = self.transfers.values().map(|it| it.held.len()).sum();
        assert!(held == self.held && held <= MAX_HELD_GRANTS);
        let most = crate::limits::MAX_FLIGHT;
        assert!(self.sent_logs.iter().all(|it| it.len() <= most));
        assert!(self.eager.len() <= self.transfers.len());
        let in_advance = [&self.advance, &self.message_advance];
        assert!(in_advance.iter().all(|it| it.len() <= MAX_ADVANCE_GRANTS));
        assert!(self.repairs.len() <= MAX_REPAIRS && self.ready.len() <= MAX_HELD_GRANTS);
    }
}

#[cfg(test)]
#[path = "../outbound_tests.rs"]
mod tests;
