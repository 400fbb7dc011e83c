//! Tracks this end's Reads from their request until an announcement answers each.

use crate::slot_window::SlotWindow;
use crate::span::Span;
use crate::time::Instant;
use crate::transfer::TransferId;
use alloc::collections::{BTreeMap, VecDeque};

/// A Read that asks the peer to announce.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub(crate) span: Span,
    /// Its number, once requested.
    pub(crate) sequence: Option<u32>,
    pub(crate) resend_at: Instant,
    /// The peer keeps the request until it has something to offer.
    pub(crate) waiting: bool,
}

/// All unanswered Reads of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reads {
    reads: BTreeMap<TransferId, Read>,
    queued: VecDeque<TransferId>,
    window: SlotWindow,
}

impl Reads {
    pub(crate) fn len(&self) -> usize {
        self.reads.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = TransferId> + '_ {
        self.reads.keys().copied()
    }

    pub(crate) fn post(&mut self, id: TransferId, span: Span) {
        let read = Read {
            span,
            sequence: None,
            resend_at: Instant::ZERO,
            waiting: false,
        };
        self.reads.insert(id, read);
        self.queued.push_back(id);
    }

    /// Numbers and returns the next Read to request, if the peer's `slots` leave room.
    pub(crate) fn ask_next(&mut self, slots: u16) -> Option<TransferId> {
        let &id = self.queued.front()?;
        let read = self.reads.get_mut(&id)?;
        read.sequence = Some(self.window.open(slots)?);
        self.queued.pop_front();
        Some(id)
    }

    pub(crate) fn get_mut(&mut self, id: TransferId) -> Option<&mut Read> {
        self.reads.get_mut(&id)
    }

    /// Reads that were requested and are unanswered.
    pub(crate) fn asked(&self) -> impl Iterator<Item = (TransferId, &Read)> + '_ {
        self.reads
            .iter()
            .map(|(&id, read)| (id, read))
            .filter(|(_, read)| read.sequence.is_some())
    }

    /// Removes a Read: matched, refused or cancelled. Its number stays unresolved.
    pub(crate) fn remove(&mut self, id: TransferId) -> Option<Read> {
        let read = self.reads.remove(&id)?;
        if read.sequence.is_none() {
            self.queued.retain(|&other| other != id);
        }
        Some(read)
    }

    /// The peer is done with request `number`.
    pub(crate) fn resolve(&mut self, number: u32) {
        self.window.resolve(number);
    }

    /// Continues as if `number` Reads had been requested before.
    #[cfg(test)]
    pub(crate) fn age(&mut self, number: u32) {
        self.window.age(number);
    }
}
