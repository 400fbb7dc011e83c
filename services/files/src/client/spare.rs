//! Opens a second connection while the current one is silent.
//!
//! A restarted server does not know the old connection and sends nothing on it. Without a second connection the client
//! would have to wait for the transport's idle timeout.

use super::Client;
use crate::error::Error;
use crate::limits::{MOST_PAUSE_MILLISECONDS, RECONNECT_SECONDS, SILENCE_SECONDS};
use crate::pump::Watch;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};
use zerolane::Connection;

const SILENCE: Duration = Duration::from_secs(SILENCE_SECONDS);
const TRY: Duration = Duration::from_secs(RECONNECT_SECONDS);
const PAUSE: Duration = Duration::from_millis(MOST_PAUSE_MILLISECONDS);

/// Watches a client's connection.
pub(super) struct Spare<'a> {
    client: &'a Client,
    /// Datagrams received, and the time of the last one.
    heard: u64,
    since: Instant,
    trying: Option<Receiver<zerolane::Result<Connection>>>,
    /// The time before which no further attempt is made.
    next: Instant,
    /// A second connection that was established.
    pub(super) found: Option<Connection>,
}

impl<'a> Spare<'a> {
    pub(super) fn new(client: &'a Client) -> Spare<'a> {
        let now = Instant::now();
        Spare {
            client,
            heard: 0,
            since: now,
            trying: None,
            next: now,
            found: None,
        }
    }

    /// Whether a copy may have another connection: a one-time code admits only one.
    fn may_try(&self) -> bool {
        !self.client.patience.is_zero() && self.client.transport.security.pre_shared.is_none()
    }
}

impl Watch for Spare<'_> {
    fn look(&mut self, datagrams_received: u64) -> Result<(), Error> {
        let now = Instant::now();
        if self.heard != datagrams_received {
            (self.heard, self.since) = (datagrams_received, now);
            // The connection is alive: a second one is dropped.
            self.trying = None;
            return Ok(());
        }
        if now < self.since + SILENCE || now < self.next || !self.may_try() {
            return Ok(());
        }
        let Some(trying) = &self.trying else {
            self.trying = Some(self.client.start_connecting(TRY)?);
            return Ok(());
        };
        match trying.try_recv() {
            Ok(Ok(connection)) => {
                self.found = Some(connection);
                return Err(Error::Forgotten);
            }
            Err(TryRecvError::Empty) => {}
            // The reason is reported when the current connection ends.
            Ok(Err(_)) | Err(TryRecvError::Disconnected) => {
                self.trying = None;
                self.next = now + PAUSE;
            }
        }
        Ok(())
    }
}
