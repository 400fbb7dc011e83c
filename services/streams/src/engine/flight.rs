//! Bounds the payload handed to the transport: enough to fill the path, little enough that a long stream of high
//! priority does not wait long behind it. (The transport sends bundles before chunks, so short payload does not wait.)
//!
//! As in BBR, the bound is a multiple of the product of the best rate and the shortest time from handing a chunk over
//! to its end, both over the last [`PATH_MEMORY`].

use crate::limits::{
    MAX_CHUNKS_POSTED, MESSAGE_BYTES, MIN_FLIGHT, PATH_MEMORY, RECEIVES, STALE_ROUNDS, START_FLIGHT,
};
use std::time::{Duration, Instant};

/// The multiple: once for the path, once for the repairs of a lossy one, and once to see whether the rate grows.
const GAIN: f64 = 3.0;

/// A message in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    at: Instant,
    bytes: u64,
    /// Bytes that had ended then.
    ended: u64,
    is_chunk: bool,
}

#[derive(Debug)]
pub(super) struct Flight {
    bytes: u64,
    messages: usize,
    chunks: usize,
    ended: u64,
    limit: u64,
    /// Of the current period, and of the one before.
    periods: [Period; 2],
    since: Option<Instant>,
    /// `None`: the path's rate is known.
    start: Option<Start>,
}

/// The search for the path's rate.
#[derive(Clone, Copy, Debug, Default)]
struct Start {
    /// The best rate when it last grew by a quarter, and the rounds since.
    rate: f64,
    stale: u32,
    /// Bytes that have ended at the begin of this round, and whether it was full.
    began: u64,
    full: bool,
}

impl Start {
    /// A message that left when `ended` bytes had ended is over. True once the rate is known.
    fn is_over(&mut self, ended: u64, now_ended: u64, rate: f64) -> bool {
        if ended < self.began {
            return false;
        }
        self.began = now_ended;
        // Without enough to send, the rate says nothing about the path.
        if std::mem::take(&mut self.full) {
            match rate >= 1.25 * self.rate {
                true => (self.rate, self.stale) = (rate, 0),
                false => self.stale += 1,
            }
        }
        self.stale >= STALE_ROUNDS
    }
}

#[derive(Clone, Copy, Debug)]
struct Period {
    /// Bytes a second.
    rate: f64,
    time: Duration,
}

impl Period {
    const EMPTY: Period = Period {
        rate: 0.0,
        time: Duration::MAX,
    };
}

impl Flight {
    pub(super) fn new() -> Flight {
        Flight {
            bytes: 0,
            messages: 0,
            chunks: 0,
            ended: 0,
            limit: START_FLIGHT,
            periods: [Period::EMPTY; 2],
            since: None,
            start: Some(Start::default()),
        }
    }

    /// Whether a bundle may leave.
    pub(super) fn has_room(&self) -> bool {
        self.messages < RECEIVES
    }

    /// Whether a chunk may leave.
    pub(super) fn has_room_for_chunk(&self) -> bool {
        self.has_room() && self.chunks < MAX_CHUNKS_POSTED && self.bytes < self.limit
    }

    pub(super) fn leave(&mut self, at: Instant, bytes: usize, is_chunk: bool) -> Ticket {
        let bytes = bytes as u64;
        self.bytes += bytes;
        self.messages += 1;
        self.chunks += usize::from(is_chunk);
        if let Some(start) = &mut self.start {
            start.full |= self.bytes >= self.limit / 2;
        }
        let ended = self.ended;
        Ticket {
            at,
            bytes,
            ended,
            is_chunk,
        }
    }

    pub(super) fn end(&mut self, ticket: Ticket, now: Instant) {
        self.bytes -= ticket.bytes;
        self.messages -= 1;
        self.chunks -= usize::from(ticket.is_chunk);
        self.ended += ticket.bytes;
        let time = now
            .saturating_duration_since(ticket.at)
            .max(Duration::from_micros(1));
        let rate = (self.ended - ticket.ended) as f64 / time.as_secs_f64();
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) >= PATH_MEMORY {
            self.since = Some(now);
            self.periods = [Period::EMPTY, self.periods[0]];
        }
        if !ticket.is_chunk {
            // A short message waits for no grant.
            return;
        }
        let [current, before] = &mut self.periods;
        current.rate = current.rate.max(rate);
        current.time = current.time.min(time);
        let (rate, time) = (current.rate.max(before.rate), current.time.min(before.time));
        if let Some(start) = &mut self.start
            && start.is_over(ticket.ended, self.ended, rate)
        {
            self.start = None;
        }
        let least = if self.start.is_some() {
            START_FLIGHT
        } else {
            MIN_FLIGHT
        };
        let most = (MAX_CHUNKS_POSTED * MESSAGE_BYTES) as u64;
        self.limit = ((GAIN * rate * time.as_secs_f64()) as u64).clamp(least, most);
    }
}
