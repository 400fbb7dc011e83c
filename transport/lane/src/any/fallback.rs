//! Continues by UDP when a listener in shared memory does not admit an Initiator.

use super::exchange;
use crate::datagram::{DatagramLane, udp};
use crate::entropy;
use crate::lane::Turn;
use crate::options::Options;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use zerolane_core::Instant;

/// Longest wait of an Initiator for admission. A listener that polls its rendezvous needs a thousandth of it.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a connection needs to continue by UDP, until the peer answers.
#[derive(Debug)]
pub struct Fallback {
    options: Options,
    /// When admission was first checked.
    since: Option<Instant>,
}

impl Fallback {
    pub(crate) fn new(options: &Options) -> Fallback {
        Fallback {
            options: options.clone(),
            since: None,
        }
    }

    /// Whether an Initiator that is not admitted has waited long enough. Half of the connect timeout remains for UDP.
    pub(crate) fn is_late(&mut self, now: Instant) -> bool {
        let patience = PATIENCE.min(self.options.times.connect / 2);
        now - *self.since.get_or_insert(now) >= patience
    }

    /// Starts the connection again, by UDP.
    ///
    /// # Errors
    /// No socket, or no route to `peer`; or the system gives no random numbers.
    pub(crate) fn go(&self, peer: SocketAddr, turn: &mut Turn<'_>) -> io::Result<DatagramLane> {
        let entropy = entropy::draw()?;
        let mut lane = udp::to(peer, &self.options, entropy)?;
        let config = lane.config(&self.options);
        if let Some(exchange) = exchange(&config, &self.options, entropy)? {
            lane.begin(exchange);
        }
        turn.core.restart(turn.now, config, entropy);
        Ok(lane)
    }
}
