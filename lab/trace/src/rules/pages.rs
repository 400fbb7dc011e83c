//! Replays the paper's rule: a page of payload in several frames, of which all but the first are predicted to continue it.
//!
//! P2, 3.2.2: descriptors are loaded ahead, in pairs of header and payload, with lengths that are guessed, for the three
//! fragments of a page. 3.2.3: "If the speculation fails or the driver has received an interfering packet between the
//! individual fragments of a 4 KByte frame, some data ends up in a displaced location." 5.4 counts, in Table 2, the
//! packets that could have been received so and those that were.

use crate::limits::PAGE_BYTES;
use crate::packet::Piece;
use crate::stream::Arrival;
use crate::tally::{Cause, Tally};

/// A page of which something came.
#[derive(Clone, Copy, Debug)]
struct Page {
    bytes: u64,
    /// IP length of its first frame, and of all others but the last.
    frame: u32,
    /// One was shorter: nothing may follow.
    ended: bool,
    header: u32,
    /// One past the last byte of the last frame, and why that was not where it was expected, if so.
    end: u64,
    displaced: Option<Cause>,
    /// Why it missed, with one list of descriptors and with a list of its own.
    missed: Option<Cause>,
    missed_per_stream: Option<Cause>,
}

impl Page {
    fn begun_by(arrival: &Arrival) -> Page {
        Page {
            bytes: arrival.len.into(),
            frame: arrival.header + arrival.len,
            ended: false,
            header: arrival.header,
            end: arrival.end(),
            displaced: arrival.order.cause(),
            missed: None,
            missed_per_stream: None,
        }
    }

    fn go_on(&mut self, arrival: &Arrival) {
        let per_stream = self.displaced(arrival).or_else(|| self.size(arrival));
        self.missed_per_stream = self.missed_per_stream.or(per_stream);
        self.missed = self.missed.or(per_stream).or(arrival.between);
        self.bytes += u64::from(arrival.len);
        self.ended = arrival.header + arrival.len != self.frame;
        self.end = arrival.end();
        self.displaced = arrival.order.cause();
    }

    fn displaced(&self, arrival: &Arrival) -> Option<Cause> {
        if arrival.position == self.end {
            return None;
        }
        let own = arrival.order.cause();
        Some(own.or(self.displaced).unwrap_or(Cause::Lost))
    }

    fn size(&self, arrival: &Arrival) -> Option<Cause> {
        // Of fragments only the first has the transport's header.
        let header = arrival.piece == Piece::Whole && arrival.header != self.header;
        let longer = arrival.header + arrival.len > self.frame;
        (self.ended || header || longer).then_some(Cause::Size)
    }
}

/// The pages of a flow.
#[derive(Debug, Default)]
pub(super) struct Pages {
    page: Option<Page>,
    pub(super) one_list: Tally,
    pub(super) per_stream: Tally,
}

impl Pages {
    pub(super) fn take(&mut self, arrival: &Arrival) {
        if arrival.begins || arrival.piece == Piece::First || !arrival.large {
            // "If [...] the data is smaller than a page [...], the incoming data is passed to the regular protocol
            // stack" (3): it is none that could have been received so.
            self.page = None;
        }
        if !arrival.large {
            return;
        }
        let page = match self.page.take() {
            Some(mut page) => {
                page.go_on(arrival);
                page
            }
            None => Page::begun_by(arrival),
        };
        if page.bytes < PAGE_BYTES.into() && arrival.piece != Piece::Last {
            self.page = Some(page);
            return;
        }
        self.one_list.count(page.bytes, page.missed);
        self.per_stream.count(page.bytes, page.missed_per_stream);
    }
}
