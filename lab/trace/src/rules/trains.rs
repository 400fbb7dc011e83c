//! Replays Zerolane's rule for trains.
//!
//! A train is many datagrams of payload in one piece, verified as a whole by a digest or tag at its end. A missing,
//! duplicated or reordered datagram spoils the whole train.

use crate::stream::{Arrival, Order};
use crate::tally::{Cause, Tally};
use zerolane_core::limits::{LARGE_TRAIN, MIN_TRAIN};

/// Payload of a train, bytes, at most.
const MAX_TRAIN_BYTES: u32 = crate::limits::GRO_BYTES;

/// A train of which something came.
#[derive(Clone, Copy, Debug)]
struct Train {
    /// Where the longest train that begins where it does ends.
    full: u64,
    /// Payload of each datagram but the last.
    datagram: u32,
    datagrams: u32,
    bytes: u64,
    missed: Option<Cause>,
}

impl Train {
    fn begun_by(arrival: &Arrival) -> Train {
        let datagrams = (MAX_TRAIN_BYTES / arrival.len).max(1);
        Train {
            full: arrival.position + u64::from(datagrams) * u64::from(arrival.len),
            datagram: arrival.len,
            datagrams: 0,
            bytes: 0,
            missed: None,
        }
    }

    /// Whether a sender would have made a train of it.
    fn is_worth_it(&self) -> bool {
        self.datagrams > MIN_TRAIN || self.bytes >= LARGE_TRAIN.into()
    }
}

/// The trains of a flow.
#[derive(Debug, Default)]
pub(super) struct Trains {
    train: Option<Train>,
    pub(super) tally: Tally,
}

impl Trains {
    pub(super) fn take(&mut self, arrival: &Arrival) {
        // What is sent again has a header in each datagram.
        if arrival.order == Order::Again {
            return;
        }
        let foreign = self.train.is_some_and(|train| {
            arrival.begins || arrival.len > train.datagram || arrival.position >= train.full
        });
        if foreign {
            self.close();
        }
        if self.train.is_none() && arrival.order == Order::Late {
            // The train that it is of is over, and spoiled.
            return;
        }
        let train = self.train.get_or_insert_with(|| Train::begun_by(arrival));
        train.datagrams += 1;
        train.bytes += u64::from(arrival.len);
        train.missed = train.missed.or(arrival.order.cause());
        if arrival.len < train.datagram && arrival.order != Order::Late {
            self.close();
        }
    }

    /// Nothing more comes of the train.
    pub(super) fn close(&mut self) {
        if let Some(train) = self.train.take().filter(Train::is_worth_it) {
            self.tally.count(train.bytes, train.missed);
        }
    }
}
