//! Queues completions in order until the user takes them, and tracks which ones the user may see.
//!
//! ```text
//!  front  | notified: a wait returns | visible: taken by a poll | deferred  |  back
//! ```
//!
//! A completion that wakes makes itself and all before it notified. If the user honours what senders ask for, a polled
//! one makes them visible, and a silent one is deferred until one after it is visible; otherwise every completion wakes.

use super::Completion;
use std::collections::VecDeque;
use zerolane_core::{Delivery, TransferId};

/// The queue. `notified <= visible <= list.len()`.
#[derive(Default)]
pub(super) struct Completions {
    list: VecDeque<Completion>,
    /// The number at the front for which a wait returns.
    notified: usize,
    /// The number at the front that may be taken.
    visible: usize,
    /// The connection is over: no later completion can make deferred ones visible.
    ended: bool,
    /// Whether the delivery that a sender asked for counts.
    honours: bool,
}

impl Completions {
    /// Adds a completion. A failure wakes, whatever delivery the sender requested.
    pub(super) fn push(&mut self, completion: Completion) {
        let wakes = completion.delivery == Delivery::Interrupt || completion.result.is_err();
        let polled = completion.delivery == Delivery::Polled;
        self.list.push_back(completion);
        if wakes || self.ended || !self.honours {
            self.notify_all();
        } else if polled {
            self.visible = self.list.len();
        }
    }

    /// Takes the next one that may be taken.
    pub(super) fn pop(&mut self) -> Option<Completion> {
        self.visible = self.visible.checked_sub(1)?;
        self.notified = self.notified.saturating_sub(1);
        self.list.pop_front()
    }

    /// Removes the next one, whether it may be taken or not: the connection is dropped.
    pub(super) fn discard(&mut self) -> Option<Completion> {
        self.list.pop_front()
    }

    /// Takes the completion of request `id` out of order.
    pub(super) fn take(&mut self, id: TransferId) -> Option<Completion> {
        let place = self.place(id)?;
        self.notified -= usize::from(place < self.notified);
        self.visible -= usize::from(place < self.visible);
        self.list.remove(place)
    }

    /// Makes the completion of request `id`, and all before it, notified. False if it is not in the queue.
    pub(super) fn notify(&mut self, id: TransferId) -> bool {
        let Some(place) = self.place(id) else {
            return false;
        };
        self.notified = self.notified.max(place + 1);
        self.visible = self.visible.max(self.notified);
        true
    }

    pub(super) fn notify_all(&mut self) {
        self.notified = self.list.len();
        self.visible = self.notified;
    }

    /// Sets whether the delivery that a sender asked for counts.
    pub(super) fn honour(&mut self, honours: bool) {
        self.honours = honours;
        if !honours {
            self.notify_all();
        }
    }

    /// Ends the connection: later completions are notified at once.
    pub(super) fn end(&mut self) {
        self.ended = true;
        self.notify_all();
    }

    /// The number in the queue.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// The number for which a wait returns.
    pub(super) fn notified(&self) -> usize {
        self.notified
    }

    /// The number that may be taken.
    pub(super) fn visible(&self) -> usize {
        self.visible
    }

    /// Whether there are completions for which no wait returns.
    pub(super) fn has_unnotified(&self) -> bool {
        self.notified < self.list.len()
    }

    fn place(&self, id: TransferId) -> Option<usize> {
        self.list.iter().position(|it| it.id == id)
    }
}

#[cfg(test)]
#[path = "completions_tests.rs"]
mod tests;
