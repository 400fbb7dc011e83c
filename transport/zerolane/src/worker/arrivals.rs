//! Answers handles that wait for part of a request, or for an announcement.

use super::pending::{Claim, GivenUp};
use crate::connection::Connection;
use crate::error::Error;
use crate::id::RequestId;

/// The state of a handle's request.
pub(super) enum Standing {
    /// It waits for room.
    Waits,
    Posted(RequestId),
    Over,
}

/// Waits for more bytes of a request.
#[derive(Debug)]
struct Arrival {
    id: RequestId,
    beyond: u64,
    claim: Claim<Option<u64>>,
}

/// Waits of handles for parts of requests, and for announcements, on one connection.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    parts: Vec<Arrival>,
    announced: Vec<Claim<u64>>,
    given_up: GivenUp,
}

impl Arrivals {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.announced.is_empty()
    }

    /// Whether a handle waits.
    pub(super) fn is_awaited(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|it| it.claim.is_awaited()) || self.announced.iter().any(Claim::is_awaited)
    }

    /// Answers the waits that are satisfied.
    pub(super) fn report(
        &mut self,
        connection: &Connection,
        standing: impl Fn(RequestId) -> Standing,
    ) {
        if let Some(length) = connection.driver.announced() {
            for claim in self.announced.drain(..) {
                claim.answer_or_drop(Ok(length));
            }
        }
        let mut at = 0;
        while let Some(part) = self.parts.get(at) {
            let arrived = match standing(part.id) {
                Standing::Waits => Some(0),
                Standing::Posted(id) => connection.arrived(id),
                Standing::Over => None,
            };
            if arrived.is_some_and(|arrived| arrived <= part.beyond) {
                at += 1;
                continue;
            }
            self.parts.swap_remove(at).claim.answer_or_drop(Ok(arrived));
        }
    }

    /// Answers when there is more than `beyond` of request `id`.
    pub(super) fn await_part(&mut self, id: RequestId, beyond: u64, claim: Claim<Option<u64>>) {
        self.parts.push(Arrival { id, beyond, claim });
    }

    /// Answers when the peer announces a Transfer that no receive matches.
    pub(super) fn await_announced(&mut self, claim: Claim<u64>) {
        self.announced.push(claim);
    }

    /// Withdraws a wait.
    pub(super) fn give_up(&mut self) {
        if self.given_up.add(self.parts.len() + self.announced.len()) {
            self.parts.retain(|it| it.claim.is_awaited());
            self.announced.retain(Claim::is_awaited);
        }
    }

    /// Answers all waits, because the connection is over.
    pub(super) fn end(&mut self, reason: &Error) {
        for part in self.parts.drain(..) {
            part.claim.answer_or_drop(Err(reason.again()));
        }
        for claim in self.announced.drain(..) {
            claim.answer_or_drop(Err(reason.again()));
        }
    }
}
