//! Hands an endpoint's accepted connections to handles, and exports regions to them.

use super::handle::ConnectionHandle;
use super::incoming::IncomingHandle;
use super::pending::{Claim, GivenUp};
use crate::connection::Connection;
use crate::error::{self, Error};
use std::collections::VecDeque;
use zerolane_lane::{ExportAs, Exporting, RegionName};
use zerolane_wire::Rights;

#[derive(Debug, Default)]
pub(super) struct Accepting {
    /// A handle owns the endpoint, so it has no events.
    handled: bool,
    waiting: VecDeque<Waiter>,
    given_up: GivenUp,
    /// Connections that no handle asked for yet: accepted, or requested if the endpoint asks.
    ready: VecDeque<ConnectionHandle>,
    /// Length of `ready` that triggers the next purge of closed connections.
    purge_at: usize,
    /// Regions that every client may use.
    exports: Vec<(RegionName, Exporting, Rights)>,
    /// Length of `exports` that triggers the next removal of revoked regions.
    prune_at: usize,
}

/// A request of a handle.
#[derive(Debug)]
enum Waiter {
    /// For a connection.
    Accept(Claim<ConnectionHandle>),
    /// For a connection to decide about.
    Incoming(Claim<IncomingHandle>),
}

impl Waiter {
    /// # Errors
    /// Returns the handle if the `Pending` is gone.
    fn answer(self, handle: ConnectionHandle) -> Result<(), ConnectionHandle> {
        match self {
            Waiter::Accept(claim) => {
                let (id, worker) = (handle.id(), handle.worker());
                match claim.answer(Ok(handle)) {
                    Err(Ok(again)) => return Err(again),
                    // No effect on a connection that was accepted already.
                    _ => worker.submit(move |worker| {
                        worker.accept_request(id, None);
                    }),
                }
            }
            Waiter::Incoming(claim) => {
                let incoming = IncomingHandle { connection: handle };
                if let Err(Ok(again)) = claim.answer(Ok(incoming)) {
                    return Err(again.connection);
                }
            }
        }
        Ok(())
    }

    fn is_awaited(&self) -> bool {
        match self {
            Waiter::Accept(claim) => claim.is_awaited(),
            Waiter::Incoming(claim) => claim.is_awaited(),
        }
    }

    fn fail(self, error: Error) {
        match self {
            Waiter::Accept(claim) => claim.answer_or_drop(Err(error)),
            Waiter::Incoming(claim) => claim.answer_or_drop(Err(error)),
        }
    }
}

/// Accepted connections kept without checking which have closed.
const PURGE_AT: usize = 64;

impl Accepting {
    pub(super) fn handle(&mut self) {
        self.handled = true;
    }

    pub(super) fn is_handled(&self) -> bool {
        self.handled
    }

    /// Adds an export. A program that exports and revokes repeatedly keeps at most twice as many entries as are live.
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

    pub(super) fn export_to(&mut self, connection: &mut Connection) -> error::Result<()> {
        self.prune();
        for (name, memory, rights) in &self.exports {
            let named = ExportAs::Name(*name);
            connection.driver.export(memory.clone(), *rights, named)?;
        }
        Ok(())
    }

    /// Answers with the next connection.
    pub(super) fn await_next(&mut self, claim: Claim<ConnectionHandle>) {
        self.wait(Waiter::Accept(claim));
    }

    /// Answers with the next request.
    pub(super) fn await_request(&mut self, claim: Claim<IncomingHandle>) {
        self.wait(Waiter::Incoming(claim));
    }

    fn wait(&mut self, waiter: Waiter) {
        let Some(handle) = self.ready.pop_front() else {
            return self.waiting.push_back(waiter);
        };
        if let Err(handle) = waiter.answer(handle) {
            self.ready.push_front(handle);
        }
    }

    pub(super) fn accepted(&mut self, mut handle: ConnectionHandle) {
        while let Some(waiter) = self.waiting.pop_front() {
            match waiter.answer(handle) {
                Err(again) => handle = again,
                Ok(()) => return,
            }
        }
        self.ready.push_back(handle);
    }

    /// Withdraws a request for a connection. A connection that already came goes to the next request.
    pub(super) fn give_up(&mut self, unread: Option<ConnectionHandle>) {
        match unread {
            Some(handle) => self.accepted(handle),
            None if self.given_up.add(self.waiting.len()) => {
                self.waiting.retain(Waiter::is_awaited);
            }
            None => {}
        }
    }

    /// Whether so many connections wait to be asked for that closed ones must be removed.
    pub(super) fn wants_purge(&self) -> bool {
        self.ready.len() > self.purge_at.max(PURGE_AT)
    }

    /// Removes connections that have closed.
    pub(super) fn purge(&mut self, lives: impl Fn(&ConnectionHandle) -> bool) {
        self.ready.retain(lives);
        self.purge_at = 2 * self.ready.len();
    }

    /// Fails all requests for a connection, because the endpoint failed.
    pub(super) fn fail(&mut self, error: &Error) {
        for waiter in self.waiting.drain(..) {
            waiter.fail(error.again());
        }
    }
}

#[cfg(test)]
#[path = "accepting_tests.rs"]
mod tests;
