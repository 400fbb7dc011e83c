//! Completions that were not taken yet, in order, and which of them the user is told of.
//!
//! ```text
//!  front  | told: a wait returns | shown: taken by a poll | held back |  back
//! ```
//!
//! A completion that wakes is told, with all before it. A polled one is shown. A silent one is held back until
//! one behind it is shown.

use super::Completion;
use std::collections::VecDeque;
use zerolane_core::{Delivery, TransferId};

/// The queue. `told <= shown <= list.len()`.
#[derive(Default)]
pub(super) struct Completions {
    list: VecDeque<Completion>,
    /// How many of the first a wait returns for.
    told: usize,
    /// How many of the first may be taken.
    shown: usize,
    /// The connection is over: no later completion can show what is held back.
    ended: bool,
}

impl Completions {
    /// A failure wakes, whatever the sender asked for.
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

    /// The next that may be taken.
    pub(super) fn pop(&mut self) -> Option<Completion> {
        self.shown = self.shown.checked_sub(1)?;
        self.told = self.told.saturating_sub(1);
        self.list.pop_front()
    }

    /// Takes that of request `id` out of its turn.
    pub(super) fn take(&mut self, id: TransferId) -> Option<Completion> {
        let place = self.place(id)?;
        self.told -= usize::from(place < self.told);
        self.shown -= usize::from(place < self.shown);
        self.list.remove(place)
    }

    /// Tells of request `id`, and of all before it. False if it is not here.
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

    /// The connection is over.
    pub(super) fn end(&mut self) {
        self.ended = true;
        self.tell_all();
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// How many a wait returns for.
    pub(super) fn told(&self) -> usize {
        self.told
    }

    /// How many may be taken.
    pub(super) fn shown(&self) -> usize {
        self.shown
    }

    /// Whether there are some that a wait does not return for.
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
