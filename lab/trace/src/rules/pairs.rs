//! Replays Zerolane's rule for merged datagrams.
//!
//! Merged datagrams are received as one message, into pairs of header and place laid out by an earlier forecast. The predictor is
//! the code that every receiver runs.

use crate::limits::{BLOCK_BYTES, GRO_BYTES, GRO_SEGMENTS, ORIGIN, POLL_PACKETS};
use crate::stream::{Arrival, Order};
use crate::tally::{Cause, Tally};
use zerolane_core::{DropReason, Forecast, Predictor, Run, pattern_holds};

/// The prediction at a flow.
#[derive(Debug)]
pub(super) struct Pairs {
    /// Silence that ends a message, nanoseconds.
    pause: u64,
    /// Made when something came: it is larger than all the rest of a flow.
    predictor: Option<Box<Predictor>>,
    /// The message that is being merged.
    message: Vec<Arrival>,
    pub(super) tally: Tally,
    /// Messages.
    pub(super) runs: u64,
}

/// Where the datagrams of a message were predicted to be.
struct Layout {
    runs: Vec<Run>,
    pairs: usize,
}

impl Layout {
    /// As the lane lays it out: up to the first short place, behind which nothing is merged.
    fn of(forecast: &Forecast) -> Layout {
        let mut runs = Vec::new();
        for run in forecast.runs() {
            runs.push(run);
            if !run.span.len.is_multiple_of(u64::from(run.stu)) {
                break;
            }
        }
        let pairs = runs.iter().map(|run| run.stus() as usize).sum();
        Layout { runs, pairs }
    }

    /// The place of each pair.
    fn places(&self) -> impl Iterator<Item = u64> + '_ {
        self.runs
            .iter()
            .flat_map(|run| (run.span.offset..run.span.end()).step_by(run.stu as usize))
    }
}

impl Pairs {
    pub(super) fn new(pause: u64) -> Pairs {
        Pairs {
            pause,
            predictor: None,
            message: Vec::new(),
            tally: Tally::default(),
            runs: 0,
        }
    }

    pub(super) fn take(&mut self, arrival: &Arrival) {
        if !self.merges(arrival) {
            self.deliver();
        }
        if arrival.begins {
            self.predictor = None;
        }
        self.message.push(*arrival);
        // The ends agree on a size before anything is sent. A capture does not tell on which: the first packet, on its
        // own, does.
        if arrival.begins {
            self.deliver();
        }
    }

    /// Whether the kernel makes one message of what it has and `arrival`: datagrams of one length, of which the last may
    /// be shorter, that come in one poll.
    fn merges(&self, arrival: &Arrival) -> bool {
        let (Some(first), Some(last)) = (self.message.first(), self.message.last()) else {
            return true;
        };
        let bytes = first.len as usize * self.message.len() + arrival.len as usize;
        !arrival.begins
            && !arrival.after_control
            && self.message.len() < GRO_SEGMENTS
            && bytes <= GRO_BYTES as usize
            && last.len == first.len
            && arrival.len <= first.len
            && arrival.at_host - first.at_host < POLL_PACKETS
            && arrival.time.saturating_sub(last.time) <= self.pause
    }

    /// The message is complete: it lies where that was predicted, or not.
    pub(super) fn deliver(&mut self) {
        let message = std::mem::take(&mut self.message);
        let Some(first) = message.first() else {
            return;
        };
        self.runs += 1;
        let position = if first.begins { first.position } else { ORIGIN };
        let predictor = self
            .predictor
            .get_or_insert_with(|| Box::new(Predictor::new(position, BLOCK_BYTES)));
        let mut forecast = Forecast::default();
        predictor.forecast(GRO_SEGMENTS as u32, &mut forecast);
        let layout = Layout::of(&forecast);
        let segment = first.len as usize;
        let total = message.iter().map(|it| it.len as usize).sum();
        let unmet = if layout.pairs == 0 {
            Some(Cause::First)
        } else if pattern_holds(&layout.runs, layout.pairs, total, segment, 0) {
            None
        } else {
            Some(Cause::Size)
        };
        let mut shifted = None;
        let mut places = layout.places();
        for (index, arrival) in message.iter().enumerate() {
            let ends = index + 1 == message.len();
            let missed = match place(predictor, arrival, segment, ends) {
                true if unmet.is_none() && places.next() == Some(arrival.position) => None,
                _ => {
                    // One out of its order moves all behind it in its message.
                    shifted = arrival.order.cause().or(shifted);
                    Some(unmet.or(shifted).unwrap_or(Cause::Lost))
                }
            };
            self.tally.count(arrival.len.into(), missed);
        }
        self.message = message;
        self.message.clear();
    }
}

/// Tells the predictor of a datagram of a message in datagrams of `segment`. Whether it is taken.
fn place(predictor: &mut Predictor, arrival: &Arrival, segment: usize, ends: bool) -> bool {
    let Arrival { position, len, .. } = *arrival;
    let short = (len as usize) < segment || len < predictor.stu();
    let more = !(ends && short);
    let taken = predictor.on_data(position, len, len, more);
    let ahead = !matches!(arrival.order, Order::Late | Order::Again);
    match taken {
        // A replay cannot request missing packets, so it skips them.
        Err(DropReason::NoGrant | DropReason::Limit) if ahead => {
            predictor.restart(position);
            predictor.on_data(position, len, len, more).is_ok()
        }
        taken => taken.is_ok(),
    }
}
