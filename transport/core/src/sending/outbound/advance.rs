//! Stores advance grants, which come before this end announces their Transfers, and applies them when it does.
//!
//! Each names the announcement that it is for. It is void if an earlier announcement matches no receive, because the
//! granted receive then matches another one. It is also void if the peer sent it before it heard of such an
//! announcement. Grants for the payload of messages name operations, and are void if an earlier operation is no
//! message.

use super::grant::granted;
use super::transfer::{Announcement, Outbound};
use super::{OutboundEvent, OutboundState, Outbox};
use crate::counters::DropReason;
use crate::limits::{ANNOUNCE_DELAY, MAX_ADVANCE_GRANTS, MAX_HELD_GRANTS};
use crate::time::Instant;
use crate::transfer::TransferId;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use zerolane_wire::{Advance, ClearToSend, Grant, Profile, Target};

/// Advance grants.
#[derive(Clone, Debug, Default)]
pub(super) struct AdvanceGrants {
    grants: VecDeque<ClearToSend>,
    /// The number behind the latest that matches no receive.
    since: Option<u32>,
    /// The last advance grant came before the announcement was due, or hardly later.
    expected: bool,
}

impl AdvanceGrants {
    fn keep(&mut self, cts: &ClearToSend) -> Result<(), DropReason> {
        // A number matches one receive, and a Block has one place: of two different grants, the peer has ended the
        // older one.
        let excludes = |it: &ClearToSend| {
            it.d_id == cts.d_id && (it.s_id != cts.s_id || it.b_num == cts.b_num)
        };
        let is_older = |it: &ClearToSend| is_before(it.sequence, cts.sequence);
        if self.grants.iter().any(|it| excludes(it) && !is_older(it)) {
            return Err(DropReason::Duplicate);
        }
        self.grants.retain(|it| !excludes(it));
        if self.grants.len() >= MAX_ADVANCE_GRANTS {
            return Err(DropReason::Limit);
        }
        self.grants.push_back(*cts);
        Ok(())
    }

    /// Removes and returns the grants for `number`. Those for earlier numbers are dropped.
    fn take(&mut self, number: u32) -> Vec<ClearToSend> {
        let taken = self.grants.iter().filter(|it| it.d_id == number).copied();
        let taken = taken.collect();
        self.grants.retain(|it| is_before(number, it.d_id));
        taken
    }

    /// `number` matches no receive, or may not.
    pub(super) fn on_detour(&mut self, number: u32) {
        self.grants.retain(|it| is_before(it.d_id, number));
        let next = number.wrapping_add(1);
        if self.since.is_none_or(|since| is_before(since, next)) {
            self.since = Some(next);
        }
    }

    /// Numbers assigned now follow this one, and every number between matches a receive.
    pub(super) fn since(&self) -> Option<u32> {
        self.since
    }

    pub(super) fn len(&self) -> usize {
        self.grants.len()
    }
}

impl Outbox {
    /// Takes an advance grant, for a future Transfer or for one announced meanwhile. `operation`: the number of this
    /// end's next operation.
    pub(crate) fn grant_in_advance(
        &mut self,
        now: Instant,
        cts: &ClearToSend,
        advance: Advance,
        operation: u32,
        buffer_log2: u8,
    ) -> Result<(), DropReason> {
        let number = cts.d_id;
        let (grants, next, unheard) = match advance {
            Advance::Announcement(unheard) => (&mut self.advance, self.window.next(), unheard),
            Advance::Message(unheard) => (&mut self.message_advance, operation, unheard),
        };
        let is_void = |since: Option<u32>| since.is_some_and(|it| is_before(unheard, it));
        if !is_before(number, next) {
            return match is_void(grants.since) {
                true => Ok(()),
                false => grants.keep(cts),
            };
        }
        let is_for = |it: &&Outbound| match advance {
            Advance::Announcement(_) => {
                let numbered = it.state != OutboundState::Queued && it.sequence == number;
                numbered && it.target == Target::Receive
            }
            Advance::Message(_) => it.target == Target::Message(number),
        };
        let mut all = self.transfers.iter();
        let found = all.find(|(_, it)| is_for(it)).map(|(&id, it)| (id, it));
        let Some((id, transfer)) = found.filter(|(_, it)| !is_void(it.since)) else {
            return Ok(());
        };
        match transfer.state {
            OutboundState::Queued => self.message_advance.keep(cts),
            OutboundState::Announced | OutboundState::Waiting if !transfer.is_eager() => {
                self.take_advance_grant(now, id, cts, buffer_log2);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Operation `number` is no message.
    pub(crate) fn on_no_message(&mut self, number: u32) {
        self.message_advance.on_detour(number);
    }

    /// Applies the advance grants of a Transfer that was just numbered and lacks eager credit. Returns what announces
    /// it; with `by_train`, its first train may.
    pub(crate) fn take_advance_grants(
        &mut self,
        now: Instant,
        id: TransferId,
        buffer_log2: u8,
        by_train: bool,
    ) -> Announcement {
        let Some(transfer) = self.transfers.get_mut(&id) else {
            return Announcement::Sent;
        };
        transfer.numbered = now;
        let granted = match transfer.target {
            Target::Receive => {
                transfer.since = self.advance.since();
                if by_train {
                    transfer.announcement = Announcement::Deferred;
                }
                self.advance.take(transfer.sequence)
            }
            Target::Message(number) => self.message_advance.take(number),
            Target::Read(_) | Target::Region(..) => Vec::new(),
        };
        for cts in granted {
            self.take_advance_grant(now, id, &cts, buffer_log2);
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

    fn take_advance_grant(
        &mut self,
        now: Instant,
        id: TransferId,
        cts: &ClearToSend,
        buffer_log2: u8,
    ) {
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
        let before = transfer.held.get(&cts.b_num).map(|it| it.sequence);
        let is_new = before.is_none_or(|it| is_before(it, cts.sequence));
        let held = granted(transfer, &cts, Profile::Extended, buffer_log2);
        if let Ok(held) = held
            && is_of_receive
            && is_new
            && self.held < MAX_HELD_GRANTS
        {
            self.forget_block(id, cts.b_num);
            let Some(transfer) = self.transfers.get_mut(&id) else {
                return;
            };
            (transfer.peer, transfer.in_advance) = (cts.s_id, true);
            transfer.held.insert(cts.b_num, held);
            if is_whole && transfer.announcement == Announcement::Deferred {
                transfer.announcement = Announcement::ByTrain;
            }
            if transfer.target == Target::Receive {
                self.advance.expected = is_whole && now - transfer.numbered <= ANNOUNCE_DELAY;
            }
            self.held += 1;
            self.make_ready(cts.sequence, id, cts.b_num);
        }
    }

    /// The peer heard the announcement of a Transfer with advance grants, which it calls `peer`.
    pub(crate) fn on_heard(&mut self, id: TransferId, peer: TransferId) {
        if let Some(transfer) = self.transfers.get_mut(&id)
            && transfer.in_advance
            && transfer.peer == peer
        {
            transfer.in_advance = false;
            self.on_event(id, OutboundEvent::Granted);
        }
    }

    /// Drops the advance grants of the Transfer of `cts` if it matched another receive; or one Block, if `cts` grants
    /// it anew for the same receive.
    pub(super) fn forget_void(&mut self, cts: &ClearToSend) {
        let id = cts.d_id;
        let Some(transfer) = self.transfers.get_mut(&id).filter(|it| it.in_advance) else {
            return;
        };
        if transfer.peer == cts.s_id {
            let held = transfer.held.get(&cts.b_num);
            if held.is_some_and(|held| is_before(held.sequence, cts.sequence)) {
                self.forget_block(id, cts.b_num);
            }
            return;
        }
        self.held -= transfer.held.len();
        transfer.held.clear();
        (transfer.peer, transfer.sent, transfer.in_advance) = (0, 0, false);
        self.ready.retain(|entry| entry.1 != id);
        self.repairs.retain(|repair| repair.id != id);
    }

    /// Drops a Block whose advance grant was replaced: the payload sent for it was dropped.
    fn forget_block(&mut self, id: TransferId, b_num: u32) {
        let transfer = self.transfers.get_mut(&id);
        let Some((transfer, block)) =
            transfer.and_then(|it| it.held.remove(&b_num).map(|block| (it, block)))
        else {
            return;
        };
        transfer.sent -= u64::from(block.sent);
        self.held -= 1;
        self.ready.retain(|it| (it.1, it.2) != (id, b_num));
        self.repairs.retain(|it| (it.id, it.b_num) != (id, b_num));
    }
}

/// Whether number `a` precedes `b`.
fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// The part of an advance grant, of at most a receive's length, that lies in a Transfer of `length` bytes, if any.
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
