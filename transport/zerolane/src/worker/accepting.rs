//! What is done with the connections of an endpoint.

use super::handle::ConnectionHandle;
use super::pending::Claim;
use crate::{Connection, Error, Result, Rights};
use std::collections::VecDeque;
use zerolane_lane::{Exporting, RegionName};

#[derive(Debug, Default)]
pub(super) struct Accepting {
    /// A handle has the endpoint: there are no events of it.
    handled: bool,
    waiting: VecDeque<Claim<ConnectionHandle>>,
    /// Accepted, and not asked for.
    ready: VecDeque<ConnectionHandle>,
    /// How many of those there may be before it is looked which are over.
    purge_at: usize,
    /// What every client may use.
    exports: Vec<(RegionName, Exporting, Rights)>,
    /// How many of those there may be before it is looked which were revoked.
    prune_at: usize,
}

/// Connections not asked for that are kept without a look at whether they are over.
const PURGE_AT: usize = 64;

impl Accepting {
    pub(super) fn handle(&mut self) {
        self.handled = true;
    }

    pub(super) fn is_handled(&self) -> bool {
        self.handled
    }

    /// A program that exports and revokes for ever leaves no more than twice what lives.
    pub(super) fn export(&mut self, name: RegionName, memory: Exporting, rights: Rights) {
        if self.exports.len() >= self.prune_at {
            self.prune();
        }
        self.exports.push((name, memory, rights));
    }

    fn prune(&mut self) {
        self.exports.retain(|(_, it, _)| !it.is_revoked());
        self.prune_at = 2 * self.exports.len();
    }

    pub(super) fn export_to(&mut self, connection: &mut Connection) -> Result<()> {
        self.prune();
        for (name, memory, rights) in &self.exports {
            let name = Some(*name);
            connection.driver.export(memory.clone(), *rights, name)?;
        }
        Ok(())
    }

    /// Answers with the next connection.
    pub(super) fn await_next(&mut self, claim: Claim<ConnectionHandle>) {
        let Some(handle) = self.ready.pop_front() else {
            return self.waiting.push_back(claim);
        };
        if let Err(Ok(handle)) = claim.answer(Ok(handle)) {
            self.ready.push_front(handle);
        }
    }

    pub(super) fn accepted(&mut self, mut handle: ConnectionHandle) {
        while let Some(claim) = self.waiting.pop_front() {
            match claim.answer(Ok(handle)) {
                Err(Ok(again)) => handle = again,
                _ => return,
            }
        }
        self.ready.push_back(handle);
    }

    /// A connection is not waited for any more. If it came, it is the next one's.
    pub(super) fn give_up(&mut self, unread: Option<ConnectionHandle>) {
        match unread {
            Some(handle) => self.accepted(handle),
            None => self.waiting.retain(Claim::is_awaited),
        }
    }

    /// Whether so many are not asked for that it is to be looked which are over.
    pub(super) fn wants_purge(&self) -> bool {
        self.ready.len() > self.purge_at.max(PURGE_AT)
    }

    /// Forgets connections that are over.
    pub(super) fn purge(&mut self, lives: impl Fn(&ConnectionHandle) -> bool) {
        self.ready.retain(lives);
        self.purge_at = 2 * self.ready.len();
    }

    /// The endpoint failed.
    pub(super) fn fail(&mut self, error: &Error) {
        for claim in self.waiting.drain(..) {
            let error = std::io::Error::other(error.to_string());
            claim.answer_or_drop(Err(error.into()));
        }
    }
}

#[cfg(test)]
#[path = "accepting_tests.rs"]
mod tests;
