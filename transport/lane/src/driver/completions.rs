//! Queues completions in order until the user takes them, and tracks which ones the user may see.
//!
//! ```text
//!  front  | told: a wait returns | shown: taken by a poll | deferred  |  back
//! ```
//!
//! A completion that wakes moves itself and all before it to told. A polled one moves them to shown. A silent one is
//! deferred until one after it is shown.

use super::Completion;
use std::collections::VecDeque;
use zerolane_core::{Delivery, TransferId};

/// The queue. `told <= shown <= list.len()`.
#[derive(Default)]
pub(super) struct Completions {
    list: VecDeque<Completion>,
    /// The number at the front for which a wait returns.
    told: usize,
    /// The number at the front that may be taken.
    shown: usize,
    /// The connection is over: no later completion can show deferred ones.
    ended: bool,
}

impl Completions {
    /// Adds a completion. A failure wakes, whatever delivery the sender requested.
    pub(super) fn push(&mut self, completion: Completion) {
        let wakes = completion.delivery == Delivery::Interrupt || completion.result.is_err();
        let polled = completion.delivery == Delivery::Polled;
        self.list.push_back(completion);
        if wakes || self.ended {
            self.tell_all();
        } else if polled {
            self.shown = self.list.len();
        }
    }

    /// Takes the next one that may be taken.
    pub(super) fn pop(&mut self) -> Option<Completion> {
        self.shown = self.shown.checked_sub(1)?;
        self.told = self.told.saturating_sub(1);
        self.list.pop_front()
    }

    /// Takes the completion of request `id` out of order.
    pub(super) fn take(&mut self, id: TransferId) -> Option<Completion> {
        let place = self.place(id)?;
        self.told -= usize::from(place < self.told);
        self.shown -= usize::from(place < self.shown);
        self.list.remove(place)
    }

    /// Moves the completion of request `id`, and all before it, to told. False if it is not in the queue.
    pub(super) fn tell(&mut self, id: TransferId) -> bool {
        let Some(place) = self.place(id) else {
            return false;
        };
        self.told = self.told.max(place + 1);
        self.shown = self.shown.max(self.told);
        true
    }

    pub(super) fn tell_all(&mut self) {
        self.told = self.list.len();
        self.shown = self.told;
    }

    /// Ends the connection: later completions are told at once.
    pub(super) fn end(&mut self) {
        self.ended = true;
        self.tell_all();
    }

    /// The number in the queue.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// The number for which a wait returns.
    pub(super) fn told(&self) -> usize {
        self.told
    }

    /// The number that may be taken.
    pub(super) fn shown(&self) -> usize {
        self.shown
    }

    /// Whether there are completions for which no wait returns.
    pub(super) fn has_untold(&self) -> bool {
        self.told < self.list.len()
    }

    fn place(&self, id: TransferId) -> Option<usize> {
        self.list.iter().position(|it| it.id == id)
    }
}

#[cfg(test)]
#[path = "completions_tests.rs"]
mod tests;
