//! Limits how many answers unauthenticated peers get per second: in total, and per origin.

use crate::limits::{COOKIE_FROM_RATE, MAX_ANSWERS_OF_ORIGIN_PER_SECOND, MAX_ANSWERS_PER_SECOND};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;
use zerolane_core::Instant;

/// A limit on unauthenticated peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum GateLimit {
    /// [`MAX_PENDING_HANDSHAKES`](crate::limits::MAX_PENDING_HANDSHAKES): a new exchange displaced the oldest.
    Pending,
    /// [`MAX_PENDING_OF_ORIGIN`](crate::limits::MAX_PENDING_OF_ORIGIN): an exchange was not begun.
    PendingOfOrigin,
    /// [`MAX_ANSWERS_PER_SECOND`](crate::limits::MAX_ANSWERS_PER_SECOND): a message was not answered.
    Answers,
    /// [`MAX_ANSWERS_OF_ORIGIN_PER_SECOND`](crate::limits::MAX_ANSWERS_OF_ORIGIN_PER_SECOND): a message was not
    /// answered.
    AnswersOfOrigin,
}

impl GateLimit {
    /// All of them.
    pub const ALL: [GateLimit; 4] = [
        GateLimit::Pending,
        GateLimit::PendingOfOrigin,
        GateLimit::Answers,
        GateLimit::AnswersOfOrigin,
    ];
}

/// The unit of per-origin limits: an IPv4 address, or the network of an IPv6 host, in which it has 2^64 addresses to
/// choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin(IpAddr);

impl Origin {
    /// The origin of `address`.
    pub fn of(address: IpAddr) -> Origin {
        Origin(match address.to_canonical() {
            IpAddr::V6(it) => {
                let network = it.to_bits() & !u128::from(u64::MAX);
                IpAddr::V6(network.into())
            }
            v4 => v4,
        })
    }
}

/// Counts of the present second.
pub(crate) struct Pace {
    second: Instant,
    hellos: u32,
    answers: u32,
    /// At most as many entries as answers, so the same limit bounds it.
    of_origin: HashMap<Origin, u32>,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Pace {
        Pace {
            second: now,
            hellos: 0,
            answers: 0,
            of_origin: HashMap::new(),
        }
    }

    /// Begins the next second when it is due.
    pub(crate) fn pass(&mut self, now: Instant) {
        if now - self.second >= Duration::from_secs(1) {
            *self = Pace::new(now);
        }
    }

    pub(crate) fn hello(&mut self) {
        self.hellos = self.hellos.saturating_add(1);
    }

    /// Whether there are so many Hellos that a cookie is required.
    pub(crate) fn is_loaded(&self) -> bool {
        self.hellos > COOKIE_FROM_RATE
    }

    /// Counts an answer to `origin`, which costs key agreements, if the limits permit another.
    pub(crate) fn answer(&mut self, origin: Origin) -> Result<(), GateLimit> {
        if self.answers >= MAX_ANSWERS_PER_SECOND {
            return Err(GateLimit::Answers);
        }
        let of_origin = self.of_origin.entry(origin).or_default();
        if *of_origin >= MAX_ANSWERS_OF_ORIGIN_PER_SECOND {
            return Err(GateLimit::AnswersOfOrigin);
        }
        *of_origin += 1;
        self.answers += 1;
        Ok(())
    }
}
