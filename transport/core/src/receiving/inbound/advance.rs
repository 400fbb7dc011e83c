//! Grants in advance: Blocks of receives whose Transfers are not announced yet.
//!
//! A stream of Transfers that are short for their path would wait a round trip each: announcement there, grant back.
//! Receives meet announcements in order, so the destination knows which announcement a posted receive is going to meet,
//! if none comes between that meets something else. It grants to that number, and the source, which numbers its
//! announcements itself, knows whether one came between: then it drops the grant. The destination finds out when it
//! hears that announcement, and grants anew.
//!
//! Receives of messages meet those in the order of the operations, so it is the same for their payload by the numbers of
//! the operations, of which all are to be messages.

use super::{Inbox, Posted, TransferId};
use crate::Instant;
use crate::limits::MAX_ADVANCE_GRANTS;
use crate::receiving::inbound::Geometry;
use crate::receiving::placement::GrantedBlock;
use alloc::collections::VecDeque;
use zerolane_wire::{Advance, RequestToSend};

/// Receives that something is to meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// Announcements meet them.
    Receives,
    /// The payload of messages does.
    Messages,
}

impl Inbox {
    /// Grants the next Block of a receive that nothing met, if there is room that no announced Transfer wants, and if the
    /// last Transfer that met one was longer than what needs no grant. Returns the number of the grant.
    pub(crate) fn grant_in_advance(
        &mut self,
        now: Instant,
        queue: Queue,
        geometry: &Geometry,
    ) -> Option<u32> {
        let held = self.grants.reserved();
        if self.ungranted > 0 || self.finished.is_some() || held >= MAX_ADVANCE_GRANTS {
            return None;
        }
        if !self.grants.has_room() {
            return None;
        }
        let usual = match queue {
            Queue::Receives => self.usual,
            Queue::Messages => self.messages.usual,
        };
        let index = self.next_in_advance(queue, usual)?;
        let Posted {
            id,
            span,
            granted,
            blocks,
        } = self.queue(queue)[index];
        let at = span.offset + granted;
        let rest = span.len.min(usual) - granted;
        let len = geometry.next_len(at, rest);
        let reserved = self.grants.reserved_bytes() + len;
        let window = u64::from(geometry.window);
        // Announced Transfers find half of the window at least.
        if reserved > window / 2 || reserved + self.grants.outstanding() > window {
            return None;
        }
        let part = span.part(granted, len);
        let sequence = self.grants.grant(now, id, blocks, part, granted);
        self.grants.reserve(sequence);
        self.offer_trains(sequence, geometry);
        let posted = &mut self.queue(queue)[index];
        (posted.granted, posted.blocks) = (granted + len, blocks + 1);
        Some(sequence)
    }

    fn queue(&mut self, queue: Queue) -> &mut VecDeque<Posted> {
        match queue {
            Queue::Receives => &mut self.posted,
            Queue::Messages => &mut self.messages.posted,
        }
    }

    /// The first receive that has room to be granted in advance, if its announcement was not heard: one that was, before
    /// those that come before it, may meet something else.
    fn next_in_advance(&mut self, queue: Queue, usual: u64) -> Option<usize> {
        let most = usize::from(self.limit);
        let wanted = |it: &Posted| it.granted < it.span.len.min(usual);
        let index = self.queue(queue).iter().take(most).position(wanted)?;
        let heard = |it| self.is_heard(self.number_of(it));
        // The announcement of a message's payload says nothing of what comes before it.
        let may = queue == Queue::Messages || !(0..=index).any(heard);
        may.then_some(index)
    }

    /// The announcement that the receive at `index` meets, if all before it meet receives.
    fn number_of(&self, index: usize) -> u32 {
        self.next_match.wrapping_add(index as u32)
    }

    /// The number that receive `id` was granted to: that of an announcement, or of a message.
    pub(super) fn granted_to(&self, id: TransferId) -> Option<(u32, Advance)> {
        match self.posted.iter().position(|it| it.id == id) {
            Some(index) => {
                let unheard = Advance::Announcement(self.next_match);
                Some((self.number_of(index), unheard))
            }
            None => self.messages.granted_to(id),
        }
    }

    /// The number of the announcement that receive `id` was granted to, and the length of its Block 0.
    pub(crate) fn granted_as_one(&self, id: TransferId) -> Option<(u32, u64)> {
        let index = self.posted.iter().position(|it| it.id == id)?;
        let number = self.number_of(index);
        let is_first = |it: &GrantedBlock| it.transfer == id && it.b_num == 0;
        let block = self.grants.iter().find(|(_, it)| is_first(it));
        block.map(|(_, it)| (number, it.span.len))
    }

    /// What was granted to `posted` in advance is part of the Transfer that it met, as far as that goes.
    pub(super) fn claim(&mut self, now: Instant, posted: &Posted, rts: &RequestToSend) {
        if posted.blocks == 0 {
            return;
        }
        self.grants.claim(now, posted.id, rts.length);
        let granted = posted.granted.min(rts.length);
        let of_it = self
            .grants
            .iter()
            .filter(|(_, it)| it.transfer == posted.id);
        let missing: u64 = of_it.map(|(_, it)| u64::from(it.gaps.missing())).sum();
        let Some(transfer) = self.transfers.get_mut(&posted.id) else {
            return;
        };
        (transfer.granted, transfer.next_b_num) = (granted, posted.blocks);
        transfer.received = granted - missing;
        transfer.in_advance = true;
        self.ungranted -= granted;
        if granted == rts.length {
            self.granting.retain(|&id| id != posted.id);
        }
    }

    /// Whether something else is received, or to be.
    pub(crate) fn has_more(&self) -> bool {
        !self.transfers.is_empty() || !self.posted.is_empty()
    }

    /// Takes back a receive that nothing met. False if it is none.
    pub(crate) fn take_posted(&mut self, id: TransferId) -> bool {
        for queue in [Queue::Receives, Queue::Messages] {
            let index = self.queue(queue).iter().position(|it| it.id == id);
            if let Some(index) = index {
                self.revoke_advance_grants(queue, index);
                self.queue(queue).remove(index);
                return true;
            }
        }
        false
    }

    /// The receives from `index` on meet something else than they were granted to.
    pub(crate) fn revoke_advance_grants(&mut self, queue: Queue, index: usize) {
        let posted = match queue {
            Queue::Receives => &mut self.posted,
            Queue::Messages => &mut self.messages.posted,
        };
        for posted in posted.iter_mut().skip(index) {
            if posted.blocks > 0 {
                self.grants.revoke_transfer(posted.id);
                (posted.granted, posted.blocks) = (0, 0);
            }
        }
    }

    /// All grants in advance, of whatever is to come, end.
    pub(crate) fn revoke_all_advance_grants(&mut self) {
        self.revoke_advance_grants(Queue::Receives, 0);
        self.revoke_advance_grants(Queue::Messages, 0);
    }
}
