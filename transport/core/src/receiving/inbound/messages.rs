//! Queues receives of messages, so that the payload of messages to come can be granted in advance.
//!
//! The Responder of numbered operations handles the messages themselves, and the order in which they match receives.

use super::{Inbox, Posted, Queue, TransferId};
use crate::time::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use zerolane_wire::{Advance, RequestToSend};

/// Receives of messages whose payload is not yet announced.
#[derive(Clone, Debug, Default)]
pub(super) struct Messages {
    /// For messages to come, in order.
    pub(super) posted: VecDeque<Posted>,
    /// Number of the operation that the first of them matches, if it is a message.
    next: u32,
    /// For messages that came.
    met: Vec<Posted>,
    /// The operation behind the last message, and whether that message directly followed another.
    behind: Option<(u32, bool)>,
    /// Length of the payload of the last message that had one, bytes. 0 if it needed no grant, or if an operation
    /// between or since is no message: advance grants are useless where those alternate.
    pub(super) usual: u64,
}

impl Messages {
    /// The number of the operation that receive `id` was granted to.
    pub(super) fn granted_to(&self, id: TransferId) -> Option<(u32, Advance)> {
        let index = self.posted.iter().position(|it| it.id == id)?;
        let number = self.next.wrapping_add(index as u32);
        Some((number, Advance::Message(self.next)))
    }

    fn take_met(&mut self, id: TransferId) -> Option<Posted> {
        let index = self.met.iter().position(|it| it.id == id)?;
        Some(self.met.swap_remove(index))
    }
}

impl Inbox {
    /// Number of receives of messages whose payload is not yet announced.
    pub(crate) fn messages(&self) -> usize {
        self.messages.posted.len() + self.messages.met.len()
    }

    /// A receive of a message was posted.
    pub(crate) fn post_message(&mut self, posted: Posted) {
        self.messages.posted.push_back(posted);
    }

    /// Operation `number` is executed next. Advance grants are void if an earlier operation was no message.
    pub(crate) fn expect_operation(&mut self, number: u32) {
        if self.messages.next != number {
            self.revoke_advance_grants(Queue::Messages, 0);
            (self.messages.next, self.messages.usual) = (number, 0);
        }
    }

    /// Operation `number` is a message, and matches the first receive. Its payload, if any, is announced or will be.
    pub(crate) fn meet_message(&mut self, number: u32, has_payload: bool) {
        self.expect_operation(number);
        let next = number.wrapping_add(1);
        let in_a_row = self.messages.behind.is_some_and(|it| it.0 == number);
        (self.messages.next, self.messages.behind) = (next, Some((next, in_a_row)));
        let Some(posted) = self.messages.posted.pop_front() else {
            return;
        };
        match has_payload {
            true => self.messages.met.push(posted),
            false => self.grants.revoke_transfer(posted.id),
        }
    }

    /// The payload of a received message will not be received. False if `id` awaits none.
    pub(crate) fn forget_payload(&mut self, id: TransferId) -> bool {
        let met = self.messages.take_met(id).is_some();
        if met {
            self.grants.revoke_transfer(id);
        }
        met
    }

    /// The payload of a message was announced, and is being received: its advance grants become part of it.
    pub(crate) fn adopt_payload(&mut self, now: Instant, id: TransferId, rts: &RequestToSend) {
        let Some(posted) = self.messages.take_met(id) else {
            return;
        };
        let is_eager = self.arrivals.get_mut(rts.sequence).is_some();
        let in_a_row = self.messages.behind.is_some_and(|it| it.1);
        self.messages.usual = if is_eager || !in_a_row { 0 } else { rts.length };
        match is_eager {
            true => self.grants.revoke_transfer(id),
            false => self.adopt_grants(now, &posted, rts),
        }
    }

    /// Forgets all receives of messages.
    pub(crate) fn clear_messages(&mut self) {
        self.revoke_advance_grants(Queue::Messages, 0);
        self.messages.posted.clear();
    }
}
