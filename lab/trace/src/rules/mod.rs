//! Replays the rules of prediction, each over the packets of one flow in order of arrival.

mod pages;
mod pairs;
mod trains;

use crate::packet::Piece;
use crate::stream::{Arrival, Order};
use crate::tally::Tally;
use pages::Pages;
use pairs::Pairs;
use serde::Serialize;
use trains::Trains;

/// How often each rule's predictions held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tallies {
    /// The paper's driver: pages in one list of descriptors for all that a host receives (P2, sections 3.2.2, 3.2.3 and
    /// 5.4).
    pub pages: Tally,
    /// The same with a list of descriptors for each stream, as by the proposed match registers (P2, 6.2 and 6.3).
    pub pages_per_stream: Tally,
    /// Zerolane's pairs of header and place over what the kernel merges, by the predictor of its receiver: packets.
    pub pairs: Tally,
    /// Zerolane's trains.
    pub trains: Tally,
    /// Super-packets that the kernel would have made of what `pairs` counts.
    pub runs: u64,
}

impl Tallies {
    /// Adds what another stream had.
    pub(crate) fn add(&mut self, other: &Tallies) {
        self.pages.add(&other.pages);
        self.pages_per_stream.add(&other.pages_per_stream);
        self.pairs.add(&other.pairs);
        self.trains.add(&other.trains);
        self.runs += other.runs;
    }
}

/// All rules at one flow.
#[derive(Debug)]
pub(crate) struct Rules {
    pages: Pages,
    pairs: Pairs,
    trains: Trains,
    /// A datagram of which not all fragments came.
    datagram: Option<Arrival>,
}

impl Rules {
    /// `pause`: the silence, nanoseconds, after which the kernel merges nothing more.
    pub(crate) fn new(pause: u64) -> Rules {
        Rules {
            pages: Pages::default(),
            pairs: Pairs::new(pause),
            trains: Trains::default(),
            datagram: None,
        }
    }

    pub(crate) fn take(&mut self, arrival: &Arrival) {
        self.pages.take(arrival);
        if let Some(whole) = self.reassemble(arrival) {
            self.pairs.take(&whole);
            self.trains.take(&whole);
        }
    }

    /// What a socket gets: no fragments, and nothing of a datagram of which one is missing.
    fn reassemble(&mut self, arrival: &Arrival) -> Option<Arrival> {
        if arrival.piece == Piece::Whole {
            self.datagram = None;
            return Some(*arrival);
        }
        let before = self.datagram.take();
        let before = before.filter(|it| it.end() == arrival.position);
        let datagram = match before {
            None if arrival.piece != Piece::First => return None,
            None => *arrival,
            Some(before) => Arrival {
                position: before.position,
                len: before.len + arrival.len,
                begins: before.begins,
                after_control: before.after_control || arrival.after_control,
                order: match before.order {
                    Order::Next => arrival.order,
                    other => other,
                },
                ..*arrival
            },
        };
        if arrival.piece == Piece::Last {
            return Some(datagram);
        }
        self.datagram = Some(datagram);
        None
    }

    /// No more comes.
    pub(crate) fn finish(&mut self) -> Tallies {
        self.pairs.deliver();
        self.trains.close();
        Tallies {
            pages: self.pages.one_list,
            pages_per_stream: self.pages.per_stream,
            pairs: self.pairs.tally,
            trains: self.trains.tally,
            runs: self.pairs.runs,
        }
    }
}
