//! Grants Blocks to posted receives in advance, before their Transfers are announced.
//!
//! Each Transfer of a stream that is short for its path would wait a round trip: announcement there, grant back.
//! Receives match announcements in order. So the destination knows which announcement a posted receive will match,
//! provided that no announcement with another target comes before it. It grants to that number. The source numbers its
//! announcements itself, so it knows whether one came between, and then drops the grant. The destination notices when
//! it hears that announcement, and grants anew.
//!
//! Receives of messages match them in the order of the operations. The same scheme grants their payload by operation
//! numbers, provided that all these operations are messages.

use super::{Inbox, Posted, TransferId};
use crate::limits::MAX_ADVANCE_GRANTS;
use crate::receiving::inbound::Geometry;
use crate::receiving::placement::GrantedBlock;
use crate::time::Instant;
use alloc::collections::VecDeque;
use zerolane_wire::{Advance, RequestToSend};

/// Receives that still lack a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// Matched by announcements.
    Receives,
    /// Matched by the payload of messages.
    Messages,
}

impl Inbox {
    /// Grants the next Block of an unmatched receive. There must be room that no announced Transfer wants, and the last
    /// matched Transfer must have needed a grant. Returns the number of the grant.
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
        // Announced Transfers keep at least half of the window.
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

    /// The first receive with room for an advance grant, if its announcement was not heard. An announcement heard
    /// before earlier ones may match another receive.
    fn next_in_advance(&mut self, queue: Queue, usual: u64) -> Option<usize> {
        let most = usize::from(self.limit);
        let wanted = |it: &Posted| it.granted < it.span.len.min(usual);
        let index = self.queue(queue).iter().take(most).position(wanted)?;
        let heard = |it| self.is_heard(self.number_of(it));
        // The announcement of a message's payload implies nothing about earlier ones.
        let may = queue == Queue::Messages || !(0..=index).any(heard);
        may.then_some(index)
    }

    /// The announcement that the receive at `index` matches, if all before it match receives.
    fn number_of(&self, index: usize) -> u32 {
        self.next_match.wrapping_add(index as u32)
    }

    /// The number to which receive `id` was granted: of an announcement, or of a message.
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

    /// Makes the advance grants of `posted` part of the Transfer that it matched, as far as that reaches.
    pub(super) fn adopt_grants(&mut self, now: Instant, posted: &Posted, rts: &RequestToSend) {
        if posted.blocks == 0 {
            return;
        }
        self.grants.expect_reserved(now, posted.id, rts.length);
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

    /// Whether another Transfer is being received, or will be.
    pub(crate) fn has_more(&self) -> bool {
        !self.transfers.is_empty() || !self.posted.is_empty()
    }

    /// Removes an unmatched receive. False if there is none.
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

    /// Revokes the advance grants of the receives from `index` on, which now match other numbers.
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

    /// Revokes all advance grants.
    pub(crate) fn revoke_all_advance_grants(&mut self) {
        self.revoke_advance_grants(Queue::Receives, 0);
        self.revoke_advance_grants(Queue::Messages, 0);
    }
}
