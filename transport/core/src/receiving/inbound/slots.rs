//! Keeps the peer's announcements in slots, and matches each with a posted receive or a Read.

use super::{InboundEvent, InboundState, Inbox, Origin, Posted, Queue};
use crate::context::Refusal;
use crate::time::Instant;
use crate::transfer::TransferId;
use zerolane_wire::{Delivered, Immediate, Place, Reason, RequestToSend, Target};

/// One announcement of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) state: InboundState,
    pub(crate) rts: Option<RequestToSend>,
    /// This end's identifier of it, 0 before it matched.
    pub(crate) id: TransferId,
    /// The refusal to repeat to its sender, once it is refused.
    pub(crate) refusal: Refusal,
}

impl Slot {
    /// Whether its Transfer arrived, or never will.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, InboundState::Complete | InboundState::Ended)
    }

    /// Whether it announced a put.
    fn is_put(&self) -> bool {
        let put = |rts: RequestToSend| matches!(rts.target, Target::Region(..));
        self.rts.is_some_and(put)
    }

    /// Whether it waits for the next posted receive, not for a target that it names.
    fn waits_for_receive(&self) -> bool {
        let next = |rts: RequestToSend| rts.target == Target::Receive;
        self.state == InboundState::Announced && self.rts.is_none_or(next)
    }
}

const UNHEARD: Slot = Slot {
    state: InboundState::Unheard,
    rts: None,
    id: 0,
    refusal: Refusal::CANCELLED,
};

/// Classification of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announcement {
    /// Not heard before.
    New,
    /// Heard before; the slot tells how it stands.
    Repeated(Slot),
    /// Older than the remembered ones.
    Old,
    /// Beyond the slots.
    TooMany,
}

/// Where the peer finished sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    /// From this number on, it announces nothing that matches a receive.
    pub(crate) announcement: u32,
    /// From this operation number on, it sends no message.
    pub(crate) operation: u32,
}

/// Result of matching a receive.
pub(crate) enum Matched {
    /// It fits: Blocks will be granted.
    Receiving { id: TransferId, rts: RequestToSend },
    /// The Transfer is larger than the receive.
    TooLarge { posted: Posted, rts: RequestToSend },
}

impl Inbox {
    pub(super) fn slot_mut(&mut self, sequence: u32) -> Option<&mut Slot> {
        self.slots
            .get_mut(sequence.wrapping_sub(self.base) as usize)
    }

    /// Ensures that announcement `sequence` has a slot.
    pub(super) fn open_slot(&mut self, sequence: u32) -> Result<&mut Slot, Announcement> {
        let ahead = sequence.wrapping_sub(self.base);
        if ahead > u32::MAX / 2 {
            return Err(Announcement::Old);
        }
        // The sender has at most `limit` unresolved announcements, so one further ahead implies that it resolved the
        // oldest.
        let over = ahead.saturating_sub(u32::from(self.limit) - 1) as usize;
        let matched = self.next_match.wrapping_sub(self.base) as usize;
        if over > self.slots.len().min(matched) || !self.slots.iter().take(over).all(Slot::is_over)
        {
            return Err(Announcement::TooMany);
        }
        self.slots.drain(..over);
        self.base = self.base.wrapping_add(over as u32);
        let index = sequence.wrapping_sub(self.base) as usize;
        if self.slots.len() <= index {
            self.slots.resize(index + 1, UNHEARD);
        }
        Ok(&mut self.slots[index])
    }

    /// Takes an announcement.
    pub(crate) fn announce(&mut self, rts: &RequestToSend) -> Announcement {
        let slot = match self.open_slot(rts.sequence) {
            Ok(slot) => slot,
            Err(why) => return why,
        };
        match slot.state.step(InboundEvent::Announced) {
            Some(state) => {
                *slot = Slot {
                    state,
                    rts: Some(*rts),
                    ..UNHEARD
                };
                Announcement::New
            }
            None => Announcement::Repeated(*slot),
        }
    }

    /// Takes the peer's end of sending.
    pub(crate) fn finish(&mut self, it: Finished) {
        self.finished.get_or_insert(it);
    }

    pub(crate) fn finished(&self) -> Option<Finished> {
        self.finished
    }

    /// Whether the peer finished sending, and all its announcements for receives are over.
    pub(crate) fn is_finished(&self) -> bool {
        let is_behind = |it: Finished| self.next_match.wrapping_sub(it.announcement) as i32 > 0;
        self.finished.is_some_and(is_behind)
            && !self.is_receiving(|origin| origin == Origin::Posted)
    }

    /// Whether announcement `sequence` was heard, or its end.
    pub(super) fn is_heard(&self, sequence: u32) -> bool {
        let state = self.state(sequence);
        state.is_some_and(|state| state != InboundState::Unheard)
    }

    /// Matches the next announcement with the next posted receive, if both exist.
    pub(crate) fn match_next(&mut self, now: Instant) -> Option<Matched> {
        loop {
            let next_match = self.next_match;
            let slot = *self.slot_mut(next_match)?;
            match slot.state {
                InboundState::Unheard => return None,
                InboundState::Announced if slot.waits_for_receive() => break,
                _ => {
                    self.next_match = next_match.wrapping_add(1);
                    self.revoke_advance_grants(Queue::Receives, 0);
                }
            }
        }
        let next_match = self.next_match;
        let rts = self.slot_mut(next_match)?.rts?;
        let posted = self.posted.pop_front()?;
        self.next_match = next_match.wrapping_add(1);
        let is_eager = self.arrivals.get_mut(next_match).is_some();
        self.usual = if is_eager { 0 } else { rts.length };
        if is_eager || rts.length > posted.span.len {
            self.grants.revoke_transfer(posted.id);
        }
        if rts.length > posted.span.len {
            self.too_large(next_match, posted.span.len);
            return Some(Matched::TooLarge { posted, rts });
        }
        self.begin(posted.id, posted.span, &rts, Origin::Posted);
        if !is_eager {
            self.adopt_grants(now, &posted, &rts);
        }
        Some(Matched::Receiving { id: posted.id, rts })
    }

    /// Matches an announcement that answers a Read.
    pub(crate) fn match_read(
        &mut self,
        reader: TransferId,
        rts: &RequestToSend,
    ) -> Option<Matched> {
        let read = self.reads.remove(reader)?;
        if let Some(sequence) = read.sequence {
            self.reads.resolve(sequence);
        }
        if rts.length > read.span.len {
            self.too_large(rts.sequence, read.span.len);
            let posted = Posted::new(reader, read.span);
            return Some(Matched::TooLarge { posted, rts: *rts });
        }
        self.begin(reader, read.span, rts, Origin::Posted);
        Some(Matched::Receiving {
            id: reader,
            rts: *rts,
        })
    }

    /// The announcement of the payload of message `number`, if it waits.
    pub(crate) fn message(&self, number: u32) -> Option<RequestToSend> {
        let waits = |slot: &&Slot| slot.state == InboundState::Announced;
        // It is one of the latest.
        let announced = self.slots.iter().rev().filter(waits);
        announced
            .filter_map(|slot| slot.rts)
            .find(|rts| rts.target == Target::Message(number))
    }

    /// The first announced put that waits to be received.
    pub(crate) fn waiting_put(&self) -> Option<(Place, Option<Immediate>, RequestToSend)> {
        let mut waiting = self.slots.iter().filter(|slot| slot.is_put());
        let slot = waiting.find(|slot| slot.state == InboundState::Announced)?;
        match slot.rts?.target {
            Target::Region(place, immediate) => Some((place, immediate, slot.rts?)),
            _ => None,
        }
    }

    /// The state of announcement `sequence`; `None` if it is not remembered.
    pub(crate) fn state(&self, sequence: u32) -> Option<InboundState> {
        let slot = self.slots.get(sequence.wrapping_sub(self.base) as usize)?;
        Some(slot.state)
    }

    /// Whether all puts announced before `sequence` are over.
    pub(crate) fn are_puts_over_before(&self, sequence: u32) -> bool {
        let before = sequence.wrapping_sub(self.base);
        if before > u32::MAX / 2 {
            return true;
        }
        let mut slots = self.slots.iter().take(before as usize);
        slots.len() == before as usize
            && slots
                .all(|slot| slot.is_over() || slot.state != InboundState::Unheard && !slot.is_put())
    }

    pub(super) fn set_state(&mut self, sequence: u32, event: InboundEvent) -> bool {
        let Some(slot) = self.slot_mut(sequence) else {
            return false;
        };
        let Some(state) = slot.state.step(event) else {
            return false;
        };
        slot.state = state;
        if slot.is_over() {
            self.arrivals.forget(sequence);
        }
        true
    }

    pub(super) fn too_large(&mut self, sequence: u32, room: u64) {
        self.set_state(sequence, InboundEvent::TooLarge);
        if let Some(slot) = self.slot_mut(sequence) {
            let reason = Reason::MessageTooLarge;
            slot.refusal = Refusal { reason, room };
        }
    }

    /// Refuses an announcement that will never match.
    pub(crate) fn refuse(&mut self, sequence: u32, why: Refusal) {
        self.set_state(sequence, InboundEvent::EndedByPeer);
        if let Some(slot) = self.slot_mut(sequence) {
            slot.refusal = why;
        }
    }

    /// The peer ended its announcement `sequence`. Returns this end's Transfer, if there is one.
    ///
    /// # Errors
    /// The announcement is further ahead than the slots reach: the peer must repeat the End.
    pub(crate) fn ended_by_peer(
        &mut self,
        sequence: u32,
    ) -> Result<Option<TransferId>, Announcement> {
        let slot = match self.open_slot(sequence) {
            Ok(slot) => *slot,
            Err(Announcement::Old) => return Ok(None),
            Err(why) => return Err(why),
        };
        if slot.state == InboundState::Receiving {
            return Ok(Some(slot.id));
        }
        self.set_state(sequence, InboundEvent::EndedByPeer);
        Ok(None)
    }

    /// The announcement that the peer's identifier `s_id` names, if it is remembered.
    pub(crate) fn find(&self, s_id: u32) -> Option<Slot> {
        let named = |slot: &&Slot| slot.rts.is_some_and(|rts| rts.s_id == s_id);
        self.slots.iter().rev().find(named).copied()
    }

    /// The latest announcements whose Transfers arrived whole.
    pub(crate) fn delivered(&self) -> Delivered {
        let told = self.slots.len().min(Delivered::ANNOUNCEMENTS as usize);
        let skip = self.slots.len() - told;
        let first = self.base.wrapping_add(skip as u32);
        let mut delivered = Delivered::new(0, first);
        for (sequence, slot) in (0..).zip(self.slots.iter().skip(skip)) {
            if slot.state == InboundState::Complete {
                delivered.add(first.wrapping_add(sequence));
            }
        }
        delivered
    }

    /// Length of the announced Transfer that waits for a receive.
    pub(crate) fn waiting(&self) -> Option<u64> {
        let index = self.next_match.wrapping_sub(self.base) as usize;
        let slot = self
            .slots
            .iter()
            .skip(index)
            .find(|slot| slot.state == InboundState::Unheard || slot.waits_for_receive())?;
        slot.rts.map(|rts| rts.length)
    }
}
