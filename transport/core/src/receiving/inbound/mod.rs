//! Tracks the destination's side of Transfers, from announcement to completion.
//!
//! Announcements wait in their slots, match posted receives in order, and are granted Block by Block.

mod advance;
mod grant;
mod messages;
mod slots;
mod state;

pub(crate) use self::advance::Queue;
pub(crate) use self::grant::{Geometry, Granted};
pub(crate) use self::slots::{Announcement, Finished, Matched, Slot};
pub(crate) use self::state::InboundEvent;
pub(crate) use self::state::InboundState;
use alloc::vec::Vec;

use self::messages::Messages;
use crate::limits::MAX_POSTED;
use crate::receiving::eager::Arrivals;
use crate::receiving::placement::PlacementTable;
use crate::receiving::reads::Reads;
use crate::request::RemotePlace;
use crate::span::Span;
use crate::transfer::{Delivery, TransferId};
use alloc::collections::{BTreeMap, VecDeque};
use zerolane_wire::RequestToSend;

/// A posted receive without a Transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    pub(crate) id: TransferId,
    pub(crate) span: Span,
    /// Bytes granted in advance, and the number of their Blocks.
    granted: u64,
    blocks: u32,
}

impl Posted {
    pub(crate) fn new(id: TransferId, span: Span) -> Posted {
        Posted {
            id,
            span,
            granted: 0,
            blocks: 0,
        }
    }
}

/// Why a Transfer is being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Announced, and matched by a receive or a Read.
    Posted,
    /// Announced for the exported region with this handle.
    Region(u32),
    /// Announced as the payload of a message.
    Message {
        number: u32,
        /// Bytes of its control.
        control: u32,
        /// A caller at the sender waits for its end.
        awaited: bool,
    },
    /// Requested by Gets from `place` on, after all operations with lower numbers.
    Got { place: RemotePlace, after: u32 },
}

/// An incoming Transfer that is being received.
#[derive(Clone, Debug)]
pub(crate) struct Inbound {
    pub(crate) peer: u32,
    pub(crate) sequence: u32,
    /// Destination; as long as the Transfer.
    pub(crate) span: Span,
    pub(crate) granted: u64,
    pub(crate) received: u64,
    pub(crate) next_b_num: u32,
    pub(crate) delivery: Delivery,
    pub(crate) origin: Origin,
    /// Some of it was granted before it was announced.
    pub(crate) in_advance: bool,
}

impl Inbound {
    /// Bytes at its start while no Block misses any: everything granted. Eager payload is here as a whole or not at
    /// all.
    fn complete(&self) -> u64 {
        match self.received == self.granted {
            true => self.granted,
            false => 0,
        }
    }
}

/// All incoming Transfers of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    slots: VecDeque<Slot>,
    base: u32,
    limit: u16,
    /// Announcement that the next posted receive matches.
    next_match: u32,
    /// Length of the last granted Transfer that matched a receive, bytes; 0 if it needed no grant.
    usual: u64,
    finished: Option<Finished>,
    pub(crate) posted: VecDeque<Posted>,
    messages: Messages,
    pub(crate) reads: Reads,
    transfers: BTreeMap<TransferId, Inbound>,
    granting: VecDeque<TransferId>,
    /// Ungranted bytes of `granting`.
    ungranted: u64,
    pub(crate) grants: PlacementTable,
    /// Eager Transfers.
    pub(crate) arrivals: Arrivals,
    /// Bytes that had arrived of failed Transfers, until the user asks.
    failed: VecDeque<(TransferId, u64)>,
}

impl Inbox {
    pub(crate) fn new(limit: u16, buffer_log2: u8) -> Inbox {
        Inbox {
            slots: VecDeque::new(),
            base: 0,
            limit,
            next_match: 0,
            usual: 0,
            finished: None,
            posted: VecDeque::new(),
            messages: Messages::default(),
            reads: Reads::default(),
            transfers: BTreeMap::new(),
            granting: VecDeque::new(),
            ungranted: 0,
            grants: PlacementTable::new(buffer_log2),
            arrivals: Arrivals::default(),
            failed: VecDeque::new(),
        }
    }

    /// Pending Transfers posted here.
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

    /// Receives the Transfer that `rts` announced into `span`, which has room for it.
    pub(crate) fn begin(
        &mut self,
        id: TransferId,
        span: Span,
        rts: &RequestToSend,
        origin: Origin,
    ) {
        self.set_state(rts.sequence, InboundEvent::Matched);
        if let Some(slot) = self.slot_mut(rts.sequence) {
            slot.id = id;
        }
        let span = span.part(0, rts.length);
        let eager = self.arrivals.take(rts.sequence, id, span);
        // Unless the last STU says otherwise: a Transfer of no bytes has none.
        let (received, delivery) = eager.unwrap_or((0, Delivery::Interrupt));
        let transfer = Inbound {
            peer: rts.s_id,
            sequence: rts.sequence,
            span,
            // Eager payload needs no grant.
            granted: eager.map_or(0, |_| rts.length),
            received,
            next_b_num: 0,
            delivery,
            origin,
            in_advance: false,
        };
        self.transfers.insert(id, transfer);
        if rts.length > 0 && eager.is_none() {
            self.granting.push_back(id);
            self.ungranted += rts.length;
        }
    }

    /// Receives the bytes that Gets ask for.
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
            in_advance: false,
        };
        self.ungranted += span.len;
        self.transfers.insert(id, transfer);
        self.granting.push_back(id);
    }

    /// A Transfer of that origin.
    pub(crate) fn of_region(&self, handle: u32) -> Option<TransferId> {
        let mut all = self.transfers.iter();
        let found = all.find(|(_, it)| it.origin == Origin::Region(handle))?;
        Some(*found.0)
    }

    /// Whether the Transfer is a put of the peer, which is not reported to the user here.
    pub(crate) fn is_put_of_peer(&self, id: TransferId) -> bool {
        let region = |it: &Inbound| matches!(it.origin, Origin::Region(_));
        self.transfers.get(&id).is_some_and(region)
    }

    /// Whether any Get is in flight.
    pub(crate) fn is_getting(&self) -> bool {
        self.is_receiving(|origin| matches!(origin, Origin::Got { .. }))
    }

    /// Whether a Transfer of an origin that `is_such` is being received.
    pub(crate) fn is_receiving(&self, is_such: impl Fn(Origin) -> bool) -> bool {
        self.transfers.values().any(|it| is_such(it.origin))
    }

    /// Continues as if `number` Transfers had been announced and `blocks` granted before.
    #[cfg(test)]
    pub(crate) fn age(&mut self, number: u32, blocks: u32) {
        (self.base, self.next_match) = (number, number);
        self.grants.age(blocks);
        self.reads.age(number);
    }

    /// Panics if the state that the peer controls grew beyond its limits.
    pub(crate) fn assert_bounded(&self, credit: u32) {
        self.arrivals.assert_bounded(self.slots.len(), credit);
        let left = |id: &TransferId| {
            let transfer = &self.transfers[id];
            transfer.span.len - transfer.granted
        };
        assert_eq!(self.granting.iter().map(left).sum::<u64>(), self.ungranted);
        assert!(self.slots.len() <= usize::from(self.limit));
        assert!(self.failed.len() <= MAX_POSTED);
        self.grants.assert_bounded();
    }

    /// Ends a Transfer being received; its grants no longer place anything.
    pub(crate) fn end(&mut self, id: TransferId, event: InboundEvent) -> Option<Inbound> {
        if event != InboundEvent::AllArrived {
            self.note_failed(id);
        }
        let transfer = self.transfers.remove(&id)?;
        if !matches!(transfer.origin, Origin::Got { .. }) {
            self.set_state(transfer.sequence, event);
        }
        self.granting.retain(|&other| other != id);
        self.ungranted -= transfer.span.len - transfer.granted;
        self.grants.revoke_transfer(id);
        Some(transfer)
    }

    /// Bytes at the start of a Transfer that arrived.
    pub(crate) fn arrived(&self, id: TransferId) -> Option<u64> {
        let transfer = self.transfers.get(&id)?;
        let missing = self.missing_from(id);
        Some(missing.map_or(transfer.complete(), |(block, at)| block + at))
    }

    /// The same, in whole Blocks.
    pub(crate) fn arrived_in_blocks(&self, id: TransferId) -> Option<u64> {
        let transfer = self.transfers.get(&id)?;
        let missing = self.missing_from(id);
        Some(missing.map_or(transfer.complete(), |(block, _)| block))
    }

    /// The first granted byte that is missing: the offset of its Block in the Transfer, and its own in the Block.
    fn missing_from(&self, id: TransferId) -> Option<(u64, u64)> {
        let blocks = self.grants.iter().map(|(_, block)| block);
        let first = blocks
            .filter(|block| block.transfer == id)
            .min_by_key(|block| block.transfer_offset)?;
        let at = first.gaps.from(0).map_or(0, |(start, _)| start);
        Some((first.transfer_offset, u64::from(at)))
    }

    /// Remembers how much of a failed Transfer had arrived, for the user.
    fn note_failed(&mut self, id: TransferId) {
        let arrived = self.arrived(id).filter(|arrived| *arrived > 0);
        if let Some(arrived) = arrived.filter(|_| !self.is_put_of_peer(id)) {
            // Entries that the user never asked for go first, oldest first.
            self.failed.truncate(MAX_POSTED - 1);
            self.failed.push_front((id, arrived));
        }
    }

    /// Bytes that had arrived of a failed Transfer; available once.
    pub(crate) fn take_failed(&mut self, id: TransferId) -> u64 {
        let index = self.failed.iter().position(|it| it.0 == id);
        let taken = index.and_then(|index| self.failed.remove(index));
        taken.map_or(0, |it| it.1)
    }

    /// Bytes announced and matched, but not yet granted.
    pub(crate) fn ungranted(&self) -> u64 {
        self.ungranted
    }
}

#[cfg(test)]
#[path = "../inbound_tests.rs"]
mod tests;
