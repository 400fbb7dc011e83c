//! Grants that the peer gave in advance: for announcements that this end has not made yet.
//!
//! Each names the announcement that it is for, and is void if one before it meets no receive: then the receive that it
//! gives a place in meets another. It is void, too, if the peer gave it before it heard of such an announcement.

use super::grant::granted;
use super::transfer::{Announcement, Outbound};
use super::{OutboundEvent, OutboundState, Outbox};
use crate::limits::{ANNOUNCE_DELAY, MAX_ADVANCE_GRANTS, MAX_HELD_GRANTS};
use crate::{DropReason, Instant, TransferId};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use zerolane_wire::{ClearToSend, Grant, Profile, Target};

/// Grants in advance.
#[derive(Clone, Debug, Default)]
pub(super) struct AdvanceGrants {
    grants: VecDeque<ClearToSend>,
    /// The latest announcement that meets no receive.
    detour: Option<u32>,
    /// The last one came before its Transfer was to be announced, or hardly later.
    expected: bool,
}

impl AdvanceGrants {
    fn keep(&mut self, cts: &ClearToSend) -> Result<(), DropReason> {
        if self.grants.iter().any(|it| it.sequence == cts.sequence) {
            return Err(DropReason::Duplicate);
        }
        if self.grants.len() >= MAX_ADVANCE_GRANTS {
            return Err(DropReason::Limit);
        }
        self.grants.push_back(*cts);
        Ok(())
    }

    /// Those for announcement `number`, of which those before it have no more use.
    fn take(&mut self, number: u32) -> Vec<ClearToSend> {
        let taken = self.grants.iter().filter(|it| it.d_id == number).copied();
        let taken = taken.collect();
        let is_later = |it: &ClearToSend| (number.wrapping_sub(it.d_id) as i32) < 0;
        self.grants.retain(is_later);
        taken
    }

    /// Announcement `number` meets no receive, or may not.
    pub(super) fn on_detour(&mut self, number: u32) {
        self.grants.clear();
        self.detour = Some(number);
    }

    /// Whether a grant is void of which all announcements below `unheard` were heard.
    fn is_void(&self, unheard: u32) -> bool {
        self.detour
            .is_some_and(|number| unheard.wrapping_sub(number) as i32 <= 0)
    }

    pub(super) fn len(&self) -> usize {
        self.grants.len()
    }
}

impl Outbox {
    /// Takes a grant in advance: for a Transfer to be announced, or for one that was announced meanwhile.
    pub(super) fn grant_in_advance(
        &mut self,
        now: Instant,
        cts: &ClearToSend,
        unheard: u32,
        buffer_log2: u8,
    ) -> Result<(), DropReason> {
        if self.advance.is_void(unheard) {
            return Ok(());
        }
        if cts.d_id.wrapping_sub(self.next_sequence()) as i32 >= 0 {
            return self.advance.keep(cts);
        }
        let is_for = |it: &Outbound| {
            let asks = it.state == OutboundState::Announced && !it.is_eager();
            asks && it.sequence == cts.d_id && it.target == Target::Receive
        };
        let found = self.iter().find(|(_, it)| is_for(it)).map(|(id, _)| id);
        if let Some(id) = found {
            self.claim(now, id, cts, buffer_log2);
        }
        Ok(())
    }

    /// A Transfer was just numbered that no credit lets leave: it may leave as far as it was granted in advance. Says what
    /// is to announce it; `by_train`: its first train may.
    pub(crate) fn claim_advance_grants(
        &mut self,
        now: Instant,
        id: TransferId,
        buffer_log2: u8,
        by_train: bool,
    ) -> Announcement {
        let Some(transfer) = self.get_mut(id) else {
            return Announcement::Sent;
        };
        let number = transfer.sequence;
        transfer.numbered = now;
        if by_train && transfer.target == Target::Receive {
            transfer.announcement = Announcement::Deferred;
        }
        for cts in self.advance.take(number) {
            self.claim(now, id, &cts, buffer_log2);
        }
        let defers = self.advance.expected;
        let Some(transfer) = self.get_mut(id) else {
            return Announcement::Sent;
        };
        if transfer.announcement == Announcement::Deferred && (!defers || transfer.in_advance) {
            transfer.announcement = Announcement::Sent;
        }
        transfer.announcement
    }

    /// An operation announces a Transfer: no grant came before.
    pub(crate) fn announce(&mut self, id: TransferId) {
        if let Some(transfer) = self.transfers.get_mut(&id) {
            self.advance.expected &= transfer.announcement != Announcement::Deferred;
            transfer.announcement = Announcement::Sent;
        }
    }

    fn claim(&mut self, now: Instant, id: TransferId, cts: &ClearToSend, buffer_log2: u8) {
        let Some(transfer) = self.transfers.get_mut(&id) else {
            return;
        };
        let is_whole = cts.grant.is_some_and(|it| {
            it.trains && cts.b_num == 0 && u64::from(it.length) == transfer.span.len
        });
        let Some(cts) = within(cts, transfer.span.len) else {
            return;
        };
        let is_of_receive = transfer.peer == 0 || transfer.peer == cts.s_id;
        let is_new = !transfer.held.contains_key(&cts.b_num);
        let held = granted(transfer, &cts, Profile::Extended, buffer_log2);
        if let Ok(held) = held
            && is_of_receive
            && is_new
            && self.held < MAX_HELD_GRANTS
        {
            (transfer.peer, transfer.in_advance) = (cts.s_id, true);
            transfer.held.insert(cts.b_num, held);
            if is_whole && transfer.announcement == Announcement::Deferred {
                transfer.announcement = Announcement::ByTrain;
            }
            self.advance.expected = is_whole && now - transfer.numbered <= ANNOUNCE_DELAY;
            self.held += 1;
            self.make_ready(cts.sequence, id, cts.b_num);
        }
    }

    /// The peer heard the announcement of a Transfer that was granted in advance to what it calls `peer`.
    pub(crate) fn on_heard(&mut self, id: TransferId, peer: TransferId) {
        if let Some(transfer) = self.transfers.get_mut(&id)
            && transfer.in_advance
            && transfer.peer == peer
        {
            transfer.in_advance = false;
            self.on_event(id, OutboundEvent::Granted);
        }
    }

    /// Forgets what the Transfer of `cts` was granted in advance, if that grants the same anew: another receive met it, or
    /// the same one after all.
    pub(super) fn forget_void(&mut self, cts: &ClearToSend) {
        let id = cts.d_id;
        let Some(transfer) = self.transfers.get_mut(&id).filter(|it| it.in_advance) else {
            return;
        };
        let held = transfer.held.get(&cts.b_num);
        if transfer.peer == cts.s_id && held.is_none_or(|held| held.sequence == cts.sequence) {
            return;
        }
        self.held -= transfer.held.len();
        transfer.held.clear();
        (transfer.peer, transfer.sent, transfer.in_advance) = (0, 0, false);
        self.ready.retain(|entry| entry.1 != id);
        self.repairs.retain(|repair| repair.id != id);
    }
}

/// A grant in advance of at most a receive's length, as far as it lies in a Transfer of `length` bytes, if it does.
fn within(cts: &ClearToSend, length: u64) -> Option<ClearToSend> {
    let grant = cts.grant?;
    let rest = length.checked_sub(grant.transfer_offset)?;
    let length = u64::from(grant.length).min(rest) as u32;
    let grant = Grant {
        length,
        advance: None,
        ..grant
    };
    (length > 0).then_some(ClearToSend {
        grant: Some(grant),
        ..*cts
    })
}
