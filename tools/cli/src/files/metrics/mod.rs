//! Publishes a server's counters for Prometheus.

mod counts;
mod http;

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, anyhow};
use zerolane::counters::{Account, GateCounters, ListenerCounters};
use zerolane_files::{Error, Failure, Peer, Queued, Refusal, ServerObserver, Spent, Totals, Verb};

use crate::exit::Exit;
use counts::Counts;

/// Counts the events of a server.
#[derive(Clone, Default)]
pub(super) struct Metrics(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    counts: Counts,
    /// The requests of open connections.
    requested: HashMap<u64, Verb>,
}

impl Metrics {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&self) -> String {
        let state = self.state();
        state.counts.text(state.requested.len())
    }

    /// Answers requests at `listener` on a separate thread, until the process ends.
    pub(super) fn publish(&self, listener: TcpListener) -> Result<()> {
        let metrics = self.clone();
        std::thread::Builder::new()
            .name("metrics".into())
            .spawn(move || http::serve(&listener, &|| metrics.text()))
            .context("starting the thread that answers with metrics")?;
        Ok(())
    }
}

/// Listens for Prometheus. Anyone who can connect may read, so only loopback addresses are allowed.
pub(super) fn listen(address: SocketAddr) -> Result<TcpListener> {
    if !address.ip().is_loopback() {
        let words = format!(
            "--metrics {address}: anyone could read them there; name a loopback address such as 127.0.0.1:{}",
            address.port()
        );
        return Err(anyhow!(words).context(Exit::Usage));
    }
    TcpListener::bind(address).with_context(|| format!("cannot listen on {address} for --metrics"))
}

impl ServerObserver for Metrics {
    fn requested(&self, peer: &Peer, verb: Verb, _: &[Vec<u8>]) {
        let mut state = self.state();
        state.requested.insert(peer.connection, verb);
        state.counts.requested(verb);
    }

    fn unauthenticated(&self, gate: Option<&GateCounters>, listener: &ListenerCounters) {
        let gate = gate.copied().unwrap_or_default();
        self.state().counts.unauthenticated(&gate, listener);
    }

    fn queued(&self, queued: Queued) {
        self.state().counts.queued(queued);
    }

    fn untrusted(&self, clients: &[Peer], more: u64) {
        self.state()
            .counts
            .refused("not-on-list", clients.len() as u64 + more);
    }

    fn refused(&self, _: &Peer, why: &Refusal) {
        self.state().counts.refused(reason(why), 1);
    }

    fn wrong_code(&self, _: u32) {
        self.state().counts.refused("wrong-code", 1);
    }

    fn advanced(&self, peer: &Peer, bytes: u64) {
        let state = self.state();
        if let Some(&verb) = state.requested.get(&peer.connection) {
            state.counts.advanced(verb, bytes);
        }
    }

    fn failed(&self, _: &Peer, _: &Failure) {
        self.state().counts.failed();
    }

    fn spent(&self, _: &Peer, spent: &Spent) {
        self.state().counts.spent(spent);
    }

    fn ended(&self, peer: &Peer, outcome: &Result<Option<Totals>, Error>, account: &Account) {
        let mut state = self.state();
        let verb = state.requested.remove(&peer.connection);
        let counts = &state.counts;
        counts.account(account);
        let how = match outcome {
            Ok(totals) => {
                if let (Some(verb), Some(totals)) = (verb, totals) {
                    counts.files(verb, totals.files);
                }
                "done"
            }
            Err(Error::Refused(why)) => {
                counts.refused(reason(why), 1);
                "refused"
            }
            Err(Error::Revoked) => "revoked",
            Err(Error::Stopped) => "stopped",
            Err(Error::Transport(_) | Error::PeerGone | Error::Stalled) => "lost",
            Err(_) => "other",
        };
        counts.ended(how);
    }
}

/// The label of a refusal.
fn reason(why: &Refusal) -> &'static str {
    match why {
        Refusal::ReadOnly => "read-only",
        Refusal::Full => "full",
        Refusal::Path { .. } => "path",
        Refusal::Malformed => "malformed",
        Refusal::NotAllowed => "not-allowed",
        _ => "other",
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// With shared memory, all clients have the same address.
    #[test]
    fn asked__is_counted_by_connection() {
        let metrics = Metrics::default();
        let peer = |connection| Peer {
            connection,
            address: "127.0.0.1:0".parse().unwrap(),
            key: None,
            name: None,
        };
        for connection in 1..=3 {
            metrics.requested(&peer(connection), Verb::Read, &[]);
        }
        assert_eq!(metrics.state().requested.len(), 3);
        metrics.ended(&peer(2), &Ok(None), &Account::default());
        assert_eq!(metrics.state().requested.len(), 2);
    }
}
