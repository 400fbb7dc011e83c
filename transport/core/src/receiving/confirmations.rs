//! Confirmations that wait for an answer of this end, to leave behind it, or for the grant of the next receive, to leave
//! with it.
//!
//! A program that answers what it receives is held up by whatever leaves before its answer, and its peer by
//! taking that first. A program that does not answer must not hold up the confirmation. So one waits for a
//! moment if the last one was followed by an answer within such a moment, as TCP's delayed acknowledgements do.

use crate::limits::{CONFIRM_DELAY, MAX_CONFIRMATIONS};
use crate::{Instant, TransferId};
use alloc::vec::Vec;

/// A Transfer that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    /// The sender's identifier.
    pub(super) peer: u32,
    pub(super) id: TransferId,
    /// Blocks that it was granted in.
    pub(super) blocks: u32,
    /// Number of the message that it is the payload of.
    pub(super) message: Option<u32>,
}

/// Confirmations of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Confirmations {
    waiting: Vec<Done>,
    /// When something was last complete, if nothing left since.
    complete_at: Option<Instant>,
    /// The last one was followed by an answer.
    answered: bool,
}

impl Confirmations {
    /// `done` is complete: whether its confirmation waits.
    pub(super) fn hold(&mut self, now: Instant, done: Done) -> bool {
        self.complete_at.get_or_insert(now);
        let waits = self.answered && self.waiting.len() < MAX_CONFIRMATIONS;
        if waits {
            self.waiting.push(done);
        }
        waits
    }

    /// Payload, an operation or a grant in advance leaves: what waits is to follow.
    pub(super) fn on_departed(&mut self, now: Instant) {
        if let Some(at) = self.complete_at.take() {
            self.answered = now - at <= CONFIRM_DELAY;
        }
    }

    /// Nothing left that it could have followed.
    pub(super) fn on_timeout(&mut self) {
        (self.complete_at, self.answered) = (None, false);
    }

    /// What has to wait no longer.
    pub(super) fn take(&mut self) -> Vec<Done> {
        core::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
#[path = "confirmations_tests.rs"]
mod tests;
