//! Measures where the time of a connection goes.

use super::session::Session;
use super::turns::Turn;
use crate::digest::Digester;
use crate::error::Error;
use crate::observe::Spent;
use crate::port::Port;
use crate::pump::{self, Ring};
use crate::stop::Stop;
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use zerolane::{Connection, RequestId};

impl Session<'_> {
    fn spend(&self, note: impl FnOnce(&mut Spent)) {
        note(&mut self.spent.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Records that the request of a connection that began at `begun` was received, or did not come.
    pub(super) fn heard(&self, started: Instant) {
        self.spend(|spent| spent.request = started.elapsed());
    }

    /// The times of a finished connection that began at `begun`.
    pub(super) fn spent(&self, started: Instant) -> Spent {
        let mut all = Spent::default();
        self.spend(|spent| {
            let known = spent.request + spent.turn + spent.network;
            spent.files = started.elapsed().saturating_sub(known);
            all = *spent;
        });
        all
    }

    /// Waits for the copy's previous connection to end, if there is one.
    pub(super) fn take_turn(&self, digester: &Digester) -> Result<Turn<'_>, Error> {
        let asked = Instant::now();
        let turn = self.turns.take(self.key, digester, &self.stop);
        self.spend(|spent| spent.turn += asked.elapsed());
        turn
    }

    /// Drives the connection for `work`, as [`pump::run`] does; `replies` are in flight.
    pub(super) fn pump<T: Send>(
        &self,
        connection: &mut Connection,
        replies: Vec<RequestId>,
        rings: (Ring, Ring),
        stop: &Stop,
        work: impl FnOnce(Port) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let counters = self.queues.enter();
        let done = pump::run_counted(
            connection,
            replies,
            rings,
            (stop, Arc::clone(&counters)),
            work,
        );
        self.spend(|spent| spent.network += counters.blocked());
        done
    }
}
