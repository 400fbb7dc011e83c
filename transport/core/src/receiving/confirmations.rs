//! Delays confirmations until this end's answer has left, or sends them with the grant of the next receive.
//!
//! A confirmation that leaves first delays the answer of a program that answers each message, and its peer receives the
//! confirmation first. A program that does not answer must not delay the confirmation. So a confirmation waits for a
//! moment if an answer followed the previous one within such a moment, as TCP's delayed acknowledgements do.

use crate::limits::{CONFIRM_DELAY, MAX_CONFIRMATIONS};
use crate::time::Instant;
use crate::transfer::TransferId;
use alloc::vec::Vec;

/// A complete Transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    /// The sender's identifier.
    pub(super) peer: u32,
    pub(super) id: TransferId,
    /// Number of its granted Blocks.
    pub(super) blocks: u32,
    /// Number of the message whose payload it is.
    pub(super) message: Option<u32>,
}

/// The delayed confirmations of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Confirmations {
    waiting: Vec<Done>,
    /// When a Transfer last completed, if nothing left since.
    complete_at: Option<Instant>,
    /// An answer followed the last one.
    answered: bool,
}

impl Confirmations {
    /// `done` is complete. Returns whether its confirmation waits.
    pub(super) fn hold(&mut self, now: Instant, done: Done) -> bool {
        self.complete_at.get_or_insert(now);
        let waits = self.answered && self.waiting.len() < MAX_CONFIRMATIONS;
        if waits {
            self.waiting.push(done);
        }
        waits
    }

    /// Payload, an operation or an advance grant leaves: the waiting confirmations must follow.
    pub(super) fn on_departed(&mut self, now: Instant) {
        if let Some(at) = self.complete_at.take() {
            self.answered = now - at <= CONFIRM_DELAY;
        }
    }

    /// Nothing left that they could have followed.
    pub(super) fn on_timeout(&mut self) {
        (self.complete_at, self.answered) = (None, false);
    }

    /// Removes and returns the confirmations to send.
    pub(super) fn take(&mut self) -> Vec<Done> {
        core::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
#[path = "confirmations_tests.rs"]
mod tests;
