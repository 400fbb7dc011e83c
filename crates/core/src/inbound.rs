//! The destination's side of Transfers: announcements kept in their slots, matched with posted
//! receives in the order they were announced, granted Block by Block.

use crate::grants::{Grants, LiveBlock};
use crate::limits::MAX_STUS_PER_BLOCK;
use crate::reads::Reads;
use crate::transmit::split;
use crate::work::RemotePlace;
use crate::{Delivery, Instant, Span, TransferId, tiling};
use std::collections::{BTreeMap, VecDeque};
use zerolane_wire::{
    ClearToSend, Delivered, Grant, Profile, Reason, RequestToSend, Target, encapsulation,
};

/// Where an incoming Transfer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InboundState {
    /// Not announced yet, as far as we heard.
    Unheard,
    /// Announced, waits for a receive.
    Announced,
    /// Matched: Blocks are granted.
    Receiving,
    /// All of it arrived.
    Complete,
    /// Refused, aborted or cancelled.
    Ended,
}

/// What can happen to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Happening {
    Announced,
    Matched,
    TooLarge,
    AllArrived,
    EndedByPeer,
    Cancelled,
}

impl InboundState {
    /// The next state, if `happening` means something in this one.
    pub(crate) fn step(self, happening: Happening) -> Option<InboundState> {
        use Happening as H;
        use InboundState as S;
        match (self, happening) {
            (S::Unheard, H::Announced) => Some(S::Announced),
            (S::Announced, H::Matched) => Some(S::Receiving),
            (S::Announced, H::TooLarge) => Some(S::Ended),
            (S::Receiving, H::AllArrived) => Some(S::Complete),
            (S::Unheard | S::Announced | S::Receiving, H::EndedByPeer) => Some(S::Ended),
            (S::Receiving, H::Cancelled) => Some(S::Ended),
            _ => None,
        }
    }
}

/// One announcement of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) state: InboundState,
    pub(crate) rts: Option<RequestToSend>,
    /// Our identifier of it, 0 before it matched.
    pub(crate) id: TransferId,
    /// What its sender is told, again if need be, once it is refused.
    pub(crate) refusal: Refusal,
}

/// Why an announcement is refused for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    /// With [`Reason::MessageTooLarge`]: room there was, bytes.
    pub(crate) room: u64,
}

impl Refusal {
    pub(crate) const CANCELLED: Refusal = Refusal {
        reason: Reason::Cancelled,
        room: 0,
    };
}

impl Slot {
    /// Whether it waits for the next receive that is posted, not for something it names.
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

/// What an announcement turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announcement {
    /// Not heard before.
    New,
    /// Heard before; the slot tells how it stands.
    Repeated(Slot),
    /// From before anything we remember.
    Old,
    /// More than the slots hold.
    TooMany,
}

/// A posted receive without a Transfer yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    pub(crate) id: TransferId,
    pub(crate) span: Span,
}

/// Why a Transfer is being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Announced, and met by a receive or a Read.
    Posted,
    /// Announced for the exported region with this handle.
    Region(u32),
    /// Announced as the payload of a message with so many bytes of control.
    Message(u32),
    /// Asked for by Gets of what starts there, after all operations with lower numbers.
    Got { place: RemotePlace, after: u32 },
}

/// An incoming Transfer that is being received.
#[derive(Clone, Debug)]
pub(crate) struct Inbound {
    pub(crate) peer: u32,
    pub(crate) sequence: u32,
    /// Where it goes; as long as the Transfer.
    pub(crate) span: Span,
    pub(crate) granted: u64,
    pub(crate) received: u64,
    pub(crate) next_b_num: u32,
    pub(crate) delivery: Delivery,
    pub(crate) origin: Origin,
}

/// How Blocks are cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(crate) profile: Profile,
    pub(crate) window: u32,
    /// Length to aim at (extended profile).
    pub(crate) block: u32,
    pub(crate) block_log2: u8,
    pub(crate) buffer_log2: u8,
    /// The sender's STU, as far as known.
    pub(crate) stu: u32,
    pub(crate) burst_segments: u32,
    /// Bytes around the payload of a datagram.
    pub(crate) around: u32,
}

impl Geometry {
    /// Length of a Block that is a whole number of bursts, so that no STU within it is short.
    fn block_len(&self) -> u32 {
        let most = encapsulation::MAX_UDP_PAYLOAD_V4 as u32 / (self.stu + self.around);
        let burst = self.stu * most.clamp(1, self.burst_segments.max(1));
        let target = self
            .block
            .min(self.window / 2)
            .min(self.stu.saturating_mul(MAX_STUS_PER_BLOCK));
        let whole = target / burst * burst;
        if whole > 0 {
            whole
        } else {
            (target / self.stu).max(1) * self.stu
        }
    }
}

/// A grant made.
pub(crate) struct Granted {
    pub(crate) sequence: u32,
    pub(crate) transfer: TransferId,
}

/// All incoming Transfers of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    slots: VecDeque<Slot>,
    base: u32,
    limit: u16,
    /// Announcement that the next posted receive gets.
    next_match: u32,
    pub(crate) posted: VecDeque<Posted>,
    pub(crate) reads: Reads,
    transfers: BTreeMap<TransferId, Inbound>,
    granting: VecDeque<TransferId>,
    /// Bytes of `granting` that are not granted.
    ungranted: u64,
    pub(crate) grants: Grants,
}

/// What a posted receive met.
pub(crate) enum Matched {
    /// It fits: Blocks will be granted.
    Receiving { id: TransferId, rts: RequestToSend },
    /// The Transfer is larger than the receive.
    TooLarge { posted: Posted, rts: RequestToSend },
}

impl Inbox {
    pub(crate) fn new(limit: u16, buffer_log2: u8) -> Inbox {
        Inbox {
            slots: VecDeque::new(),
            base: 0,
            limit,
            next_match: 0,
            posted: VecDeque::new(),
            reads: Reads::default(),
            transfers: BTreeMap::new(),
            granting: VecDeque::new(),
            ungranted: 0,
            grants: Grants::new(buffer_log2),
        }
    }

    /// Transfers posted here that are not over.
    pub(crate) fn len(&self) -> usize {
        self.posted.len() + self.reads.len() + self.transfers.len()
    }

    pub(crate) fn ids(&self) -> Vec<TransferId> {
        let posted = self.posted.iter().map(|posted| posted.id);
        posted
            .chain(self.reads.ids())
            .chain(self.transfers.keys().copied())
            .collect()
    }

    pub(crate) fn get(&self, id: TransferId) -> Option<&Inbound> {
        self.transfers.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: TransferId) -> Option<&mut Inbound> {
        self.transfers.get_mut(&id)
    }

    fn slot_mut(&mut self, sequence: u32) -> Option<&mut Slot> {
        self.slots
            .get_mut(sequence.wrapping_sub(self.base) as usize)
    }

    /// Makes the slot of announcement `sequence` exist.
    fn open_slot(&mut self, sequence: u32) -> Result<&mut Slot, Announcement> {
        let ahead = sequence.wrapping_sub(self.base);
        if ahead > u32::MAX / 2 {
            return Err(Announcement::Old);
        }
        // The sender keeps at most `limit` unresolved, so one further ahead says that the oldest
        // ones are resolved at its end too.
        let over = ahead.saturating_sub(u32::from(self.limit) - 1) as usize;
        let done = |slot: &Slot| matches!(slot.state, InboundState::Complete | InboundState::Ended);
        let matched = self.next_match.wrapping_sub(self.base) as usize;
        if over > self.slots.len().min(matched) || !self.slots.iter().take(over).all(done) {
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
        match slot.state.step(Happening::Announced) {
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

    /// Matches the next announcement with the next posted receive, if both are there.
    pub(crate) fn match_next(&mut self) -> Option<Matched> {
        loop {
            let next_match = self.next_match;
            let slot = *self.slot_mut(next_match)?;
            match slot.state {
                InboundState::Unheard => return None,
                InboundState::Announced if slot.waits_for_receive() => break,
                _ => self.next_match = next_match.wrapping_add(1),
            }
        }
        let next_match = self.next_match;
        let rts = self.slot_mut(next_match)?.rts?;
        let posted = self.posted.pop_front()?;
        self.next_match = next_match.wrapping_add(1);
        if rts.length > posted.span.len {
            self.too_large(next_match, posted.span.len);
            return Some(Matched::TooLarge { posted, rts });
        }
        self.begin(posted.id, posted.span, &rts, Origin::Posted);
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
            let posted = Posted {
                id: reader,
                span: read.span,
            };
            return Some(Matched::TooLarge { posted, rts: *rts });
        }
        self.begin(reader, read.span, rts, Origin::Posted);
        Some(Matched::Receiving {
            id: reader,
            rts: *rts,
        })
    }

    /// Receives what `rts` announced into `span`, which has room for it.
    pub(crate) fn begin(
        &mut self,
        id: TransferId,
        span: Span,
        rts: &RequestToSend,
        origin: Origin,
    ) {
        self.set_state(rts.sequence, Happening::Matched);
        if let Some(slot) = self.slot_mut(rts.sequence) {
            slot.id = id;
        }
        let transfer = Inbound {
            peer: rts.s_id,
            sequence: rts.sequence,
            span: span.part(0, rts.length),
            granted: 0,
            received: 0,
            next_b_num: 0,
            delivery: Delivery::Polled,
            origin,
        };
        self.transfers.insert(id, transfer);
        if rts.length > 0 {
            self.granting.push_back(id);
            self.ungranted += rts.length;
        }
    }

    /// Receives what Gets ask for.
    pub(crate) fn begin_got(&mut self, id: TransferId, span: Span, place: RemotePlace, after: u32) {
        let transfer = Inbound {
            peer: 0,
            sequence: 0,
            span,
            granted: 0,
            received: 0,
            next_b_num: 0,
            delivery: Delivery::Interrupt,
            origin: Origin::Got { place, after },
        };
        self.ungranted += span.len;
        self.transfers.insert(id, transfer);
        self.granting.push_back(id);
    }

    /// Transfers of that origin.
    pub(crate) fn of_region(&self, handle: u32) -> Option<TransferId> {
        let mut all = self.transfers.iter();
        let found = all.find(|(_, it)| it.origin == Origin::Region(handle))?;
        Some(*found.0)
    }

    /// Whether the Transfer is a put of the peer, of which nobody here is told.
    pub(crate) fn is_theirs(&self, id: TransferId) -> bool {
        let region = |it: &Inbound| matches!(it.origin, Origin::Region(_));
        self.transfers.get(&id).is_some_and(region)
    }

    /// Whether any Get is under way.
    pub(crate) fn is_getting(&self) -> bool {
        let got = |it: &Inbound| matches!(it.origin, Origin::Got { .. });
        self.transfers.values().any(got)
    }

    /// The announcement of the payload of message `number`, if it waits.
    pub(crate) fn message(&self, number: u32) -> Option<RequestToSend> {
        let waits = |slot: &&Slot| slot.state == InboundState::Announced;
        let announced = self.slots.iter().filter(waits).filter_map(|slot| slot.rts);
        announced
            .into_iter()
            .find(|rts| rts.target == Target::Message(number))
    }

    fn set_state(&mut self, sequence: u32, happening: Happening) -> bool {
        let Some(slot) = self.slot_mut(sequence) else {
            return false;
        };
        let Some(state) = slot.state.step(happening) else {
            return false;
        };
        slot.state = state;
        true
    }

    fn too_large(&mut self, sequence: u32, room: u64) {
        self.set_state(sequence, Happening::TooLarge);
        if let Some(slot) = self.slot_mut(sequence) {
            let reason = Reason::MessageTooLarge;
            slot.refusal = Refusal { reason, room };
        }
    }

    /// As if `number` Transfers had been announced and `blocks` granted before.
    #[cfg(test)]
    pub(crate) fn age(&mut self, number: u32, blocks: u32) {
        (self.base, self.next_match) = (number, number);
        self.grants.age(blocks);
        self.reads.age(number);
    }

    /// Stops the program if what the peer makes us hold grew beyond its limits.
    pub(crate) fn assert_bounded(&self) {
        let left = |id: &TransferId| {
            let transfer = &self.transfers[id];
            transfer.span.len - transfer.granted
        };
        assert_eq!(self.granting.iter().map(left).sum::<u64>(), self.ungranted);
        assert!(self.slots.len() <= usize::from(self.limit));
        self.grants.assert_bounded();
    }

    /// Refuses an announcement that nothing here will ever take.
    pub(crate) fn refuse(&mut self, sequence: u32, why: Refusal) {
        self.set_state(sequence, Happening::EndedByPeer);
        if let Some(slot) = self.slot_mut(sequence) {
            slot.refusal = why;
        }
    }

    /// Ends a Transfer that is being received; its grants place nothing any more.
    pub(crate) fn end(&mut self, id: TransferId, happening: Happening) -> Option<Inbound> {
        let transfer = self.transfers.remove(&id)?;
        if !matches!(transfer.origin, Origin::Got { .. }) {
            self.set_state(transfer.sequence, happening);
        }
        self.granting.retain(|&other| other != id);
        self.ungranted -= transfer.span.len - transfer.granted;
        self.grants.revoke_transfer(id);
        Some(transfer)
    }

    /// The peer ended its announcement `sequence`. Returns our Transfer, if it had become one.
    ///
    /// # Errors
    /// The announcement is further ahead than the slots hold: this must be heard again.
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
        self.set_state(sequence, Happening::EndedByPeer);
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

    /// Bytes announced and matched, but not granted yet.
    pub(crate) fn ungranted(&self) -> u64 {
        self.ungranted
    }

    /// Grants the next Block, if the window has room.
    pub(crate) fn grant_next(&mut self, now: Instant, geometry: &Geometry) -> Option<Granted> {
        let &id = self.granting.front()?;
        let transfer = self.transfers.get_mut(&id)?;
        let at = transfer.span.offset + transfer.granted;
        let rest = transfer.span.len - transfer.granted;
        let len = match geometry.profile {
            Profile::Classic => tiling::classic_block(
                transfer.span.offset,
                transfer.granted,
                transfer.span.len,
                geometry.block_log2,
            ),
            Profile::Extended => {
                let to_boundary =
                    (1u64 << geometry.buffer_log2) - (at & ((1 << geometry.buffer_log2) - 1));
                u64::from(geometry.block_len()).min(rest).min(to_boundary) as u32
            }
        };
        let room = match geometry.profile {
            Profile::Classic => self.grants.is_idle(),
            Profile::Extended => {
                self.grants.is_idle()
                    || self.grants.outstanding() + u64::from(len) <= u64::from(geometry.window)
            }
        };
        if !room || !self.grants.has_room() {
            return None;
        }
        let span = transfer.span.part(transfer.granted, u64::from(len));
        let sequence = self
            .grants
            .grant(now, id, transfer.next_b_num, span, transfer.granted);
        transfer.granted += u64::from(len);
        self.ungranted -= u64::from(len);
        transfer.next_b_num += 1;
        if transfer.granted == transfer.span.len {
            self.granting.pop_front();
        }
        Some(Granted {
            sequence,
            transfer: id,
        })
    }

    /// Grants a Block anew from its start (classic repair): what had arrived is forgotten.
    pub(crate) fn regrant(&mut self, now: Instant, sequence: u32) -> Option<Granted> {
        let block = self.grants.get(sequence)?;
        let (id, b_num, span) = (block.transfer, block.b_num, block.span);
        let (had, offset) = (
            span.len - u64::from(block.gaps.missing()),
            block.transfer_offset,
        );
        self.transfers.get_mut(&id)?.received -= had;
        self.grants.revoke(sequence);
        Some(Granted {
            sequence: self.grants.grant(now, id, b_num, span, offset),
            transfer: id,
        })
    }

    /// The Clear_To_Send of a live Block.
    pub(crate) fn clear_to_send(&self, sequence: u32, geometry: &Geometry) -> Option<ClearToSend> {
        let block = self.grants.get(sequence)?;
        let transfer = self.transfers.get(&block.transfer)?;
        let (bufx, offset) = split(block.address, geometry.buffer_log2);
        let extended = geometry.profile == Profile::Extended;
        Some(ClearToSend {
            block_log2: if extended { 0 } else { geometry.block_log2 },
            mx: block.mx,
            bufx,
            offset,
            sequence,
            b_num: block.b_num,
            d_id: transfer.peer,
            s_id: block.transfer,
            grant: extended.then(|| Grant {
                transfer_offset: block.transfer_offset,
                length: block.len(),
                blocks_complete: self.blocks_complete(block.transfer, transfer),
            }),
        })
    }

    /// Blocks of a Transfer below this number are complete.
    pub(crate) fn blocks_complete(&self, id: TransferId, transfer: &Inbound) -> u32 {
        let of_it = |(_, block): &(u32, &LiveBlock)| block.transfer == id;
        let lowest = self
            .grants
            .iter()
            .filter(of_it)
            .map(|(_, block)| block.b_num)
            .min();
        lowest.unwrap_or(transfer.next_b_num)
    }
}

#[cfg(test)]
#[path = "inbound_tests.rs"]
mod tests;
