//! Holds the thesis's measurements over such links, of 2001, to print beside ours. They show the shape and are no target.
//!
//! They are of Scheduled Transfer on Linux over Gigabit Ethernet, with a network emulator in between that halved the
//! bandwidth (5.3.6, 5.3.7). Of Tables 4 and 5, which have ten and six rows and columns of 128 KiB, four rows each are here,
//! at 512 KiB.

use serde::Serialize;

/// A table of the thesis.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Thesis {
    pub(crate) what: &'static str,
    pub(crate) rows: &'static [Row],
}

/// MB/s of 2^20 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) link: &'static str,
    pub(crate) stp: f64,
    pub(crate) tcp: f64,
}

const fn row(link: &'static str, stp: f64, tcp: f64) -> Row {
    Row { link, stp, tcp }
}

/// Additional round trip.
pub(crate) const LATENCY: Thesis = Thesis {
    what: "thesis, Table 4: Transfers and windows of 512 KiB, additional round trip",
    rows: &[
        row("RTT 0 ms", 42.5, 44.9),
        row("RTT 1 ms", 36.0, 45.2),
        row("RTT 10 ms", 17.9, 33.3),
        row("RTT 100 ms", 2.4, 3.8),
    ],
};

/// Packets lost where the data flows.
pub(crate) const LOSS: Thesis = Thesis {
    what: "thesis, Table 5: packets lost in the direction of the data",
    rows: &[
        row("loss 0 %", 41.7, 45.4),
        row("loss 0.001 %", 22.3, 45.3),
        row("loss 0.01 %", 5.5, 44.6),
        row("loss 0.1 %", 0.75, 40.1),
    ],
};

impl Thesis {
    /// The row of this link, if the thesis has it.
    pub(crate) fn row(&self, link: &str) -> Option<Row> {
        self.rows.iter().copied().find(|row| row.link == link)
    }
}
