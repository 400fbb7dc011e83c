//! The way of an Initiator that found a listener in shared memory, and is not let in there.

use crate::initiate::exchange;
use crate::udp::{self, UdpLane};
use crate::{Options, Turn};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use zerolane_core::Instant;

/// How long an Initiator waits to be let in, at most. A listener that looks for those who come needs a thousandth of it.
const PATIENCE: Duration = Duration::from_secs(1);

/// What it takes to go by UDP instead, as long as the connection is not answered.
#[derive(Debug)]
pub struct Fallback {
    options: Options,
    /// When it was looked first.
    since: Option<Instant>,
}

impl Fallback {
    pub(crate) fn new(options: &Options) -> Fallback {
        Fallback {
            options: options.clone(),
            since: None,
        }
    }

    /// Whether an Initiator that has not been let in waits no more. Half of the time to connect is left for the other way.
    pub(crate) fn is_late(&mut self, now: Instant) -> bool {
        let patience = PATIENCE.min(self.options.connect_timeout / 2);
        now - *self.since.get_or_insert(now) >= patience
    }

    /// Has the connection begin anew by UDP.
    ///
    /// # Errors
    /// No socket, or no route to `peer`; or the system gives no random numbers.
    pub(crate) fn go(&self, peer: SocketAddr, turn: &mut Turn<'_>) -> io::Result<UdpLane> {
        let entropy = udp::entropy()?;
        let mut lane = udp::to(peer, &self.options, entropy)?;
        let config = lane.config(&self.options);
        if let Some(exchange) = exchange(&config, &self.options, entropy)? {
            lane.begin(exchange);
        }
        turn.core.restart(turn.now, config, entropy);
        Ok(lane)
    }
}
