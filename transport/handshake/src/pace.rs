//! How fast strangers are answered: in all, and those of one origin.

use crate::limits::{COOKIE_FROM_RATE, MAX_ANSWERS_OF_ORIGIN_PER_SECOND, MAX_ANSWERS_PER_SECOND};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;
use zerolane_core::Instant;

/// A limit that strangers run into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum GateLimit {
    /// [`MAX_PENDING_HANDSHAKES`](crate::limits::MAX_PENDING_HANDSHAKES): the oldest exchange was forgotten for a new one.
    Pending,
    /// [`MAX_PENDING_OF_ORIGIN`](crate::limits::MAX_PENDING_OF_ORIGIN): an exchange was not begun.
    PendingOfOrigin,
    /// [`MAX_ANSWERS_PER_SECOND`](crate::limits::MAX_ANSWERS_PER_SECOND): a message was not answered.
    Answers,
    /// [`MAX_ANSWERS_OF_ORIGIN_PER_SECOND`](crate::limits::MAX_ANSWERS_OF_ORIGIN_PER_SECOND): the same.
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

/// Whose limits an address counts against: an IPv4 host's own, or those of an IPv6 host's network, in
/// which it has 2^64 addresses to choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin(IpAddr);

impl Origin {
    /// The one that `address` belongs to.
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

/// What was asked and answered in the present second.
pub(crate) struct Pace {
    second: Instant,
    hellos: u32,
    answers: u32,
    /// No more entries than answers, so it is bounded by the same limit.
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

    /// Begins another second when it is due.
    pub(crate) fn pass(&mut self, now: Instant) {
        if now - self.second >= Duration::from_secs(1) {
            *self = Pace::new(now);
        }
    }

    pub(crate) fn hello(&mut self) {
        self.hellos = self.hellos.saturating_add(1);
    }

    /// Whether there are so many Hellos that a cookie is asked for.
    pub(crate) fn is_loaded(&self) -> bool {
        self.hellos > COOKIE_FROM_RATE
    }

    /// Counts an answer to `origin`, which costs key agreements, if there may be one more.
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
