//! Grants in advance: Blocks of receives whose Transfers are not announced yet.
//!
//! A stream of Transfers that are short for their path would wait a round trip each: announcement there, grant back.
//! Receives meet announcements in order, so the destination knows which announcement a posted receive is going to meet,
//! if none comes between that meets something else. It grants to that number, and the source, which numbers its
//! announcements itself, knows whether one came between: then it drops the grant. The destination finds out when it
//! hears that announcement, and grants anew.

use super::{Inbox, Posted, TransferId};
use crate::Instant;
use crate::limits::MAX_ADVANCE_GRANTS;
use crate::receiving::inbound::Geometry;
use crate::receiving::placement::GrantedBlock;
use zerolane_wire::RequestToSend;

impl Inbox {
    /// Grants the next Block of a receive that no announcement met, if there is room that no announced Transfer wants,
    /// and if the last Transfer that met a receive was longer than what needs no grant. Returns the number of the grant.
    pub(crate) fn grant_in_advance(&mut self, now: Instant, geometry: &Geometry) -> Option<u32> {
        if self.ungranted > 0 || self.finished.is_some() || !self.grants.has_room() {
            return None;
        }
        let index = self.next_in_advance()?;
        let Posted {
            id,
            span,
            granted,
            blocks,
        } = self.posted[index];
        let at = span.offset + granted;
        let rest = span.len.min(self.usual) - granted;
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
        let posted = &mut self.posted[index];
        (posted.granted, posted.blocks) = (granted + len, blocks + 1);
        Some(sequence)
    }

    /// The first receive that has room to be granted in advance, if its announcement was not heard: one that was, before
    /// those that come before it, may meet something else.
    fn next_in_advance(&self) -> Option<usize> {
        let most = MAX_ADVANCE_GRANTS.min(usize::from(self.limit));
        let wanted = |it: &Posted| it.granted < it.span.len.min(self.usual);
        let index = self.posted.iter().take(most).position(wanted)?;
        let heard = (0..=index).any(|it| self.is_heard(self.number_of(it)));
        (!heard).then_some(index)
    }

    /// The announcement that the receive at `index` meets, if all before it meet receives.
    fn number_of(&self, index: usize) -> u32 {
        self.next_match.wrapping_add(index as u32)
    }

    /// The number of the announcement that receive `id` was granted to, and that of the first one not heard.
    pub(super) fn granted_to(&self, id: TransferId) -> Option<(u32, u32)> {
        let index = self.posted.iter().position(|it| it.id == id)?;
        Some((self.number_of(index), self.next_match))
    }

    /// The number of the announcement that receive `id` was granted to, and the length of its Block 0.
    pub(crate) fn granted_as_one(&self, id: TransferId) -> Option<(u32, u64)> {
        let (number, _) = self.granted_to(id)?;
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
        let Some(index) = self.posted.iter().position(|it| it.id == id) else {
            return false;
        };
        self.revoke_advance_grants(index);
        self.posted.remove(index);
        true
    }

    /// The receives from `index` on meet other announcements than they were granted to.
    pub(crate) fn revoke_advance_grants(&mut self, index: usize) {
        for posted in self.posted.iter_mut().skip(index) {
            if posted.blocks > 0 {
                self.grants.revoke_transfer(posted.id);
                (posted.granted, posted.blocks) = (0, 0);
            }
        }
    }
}
