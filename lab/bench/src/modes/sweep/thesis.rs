//! Holds the figures of the thesis of 2001, printed beside ours. They show the shape and are no target.
//!
//! They are of Scheduled Transfer on Linux over Gigabit Ethernet, with a network emulator in between that halved the
//! bandwidth (5.3.6, 5.3.7; Tables 4 and 5 of its raw data).

use serde::Serialize;

/// A table of the thesis.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Thesis {
    pub(crate) what: &'static str,
    pub(crate) rows: &'static [Row],
}

/// MB/s of 2^20 bytes, with Transfers of STP and windows of TCP of 512 and of 128 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) link: &'static str,
    pub(crate) stp: f64,
    pub(crate) tcp: f64,
    pub(crate) stp_128k: f64,
    /// `None`: not in the table.
    pub(crate) tcp_128k: Option<f64>,
}

const fn row(link: &'static str, stp: [f64; 2], tcp: f64, tcp_128k: Option<f64>) -> Row {
    let [stp, stp_128k] = stp;
    Row {
        link,
        stp,
        tcp,
        stp_128k,
        tcp_128k,
    }
}

/// Additional round trip.
pub(crate) const LATENCY: Thesis = Thesis {
    what: "thesis, Table 4: additional round trip",
    rows: &[
        row("RTT 0 ms", [42.54, 31.0], 44.9, Some(44.35)),
        row("RTT 0.25 ms", [41.73, 26.35], 45.22, Some(44.99)),
        row("RTT 0.5 ms", [38.5, 24.16], 45.3, Some(44.65)),
        row("RTT 1 ms", [35.95, 21.14], 45.24, Some(40.02)),
        row("RTT 2.5 ms", [30.11, 15.0], 45.3, Some(26.64)),
        row("RTT 5 ms", [23.99, 9.39], 45.18, Some(16.61)),
        row("RTT 10 ms", [17.94, 5.36], 33.27, Some(9.11)),
        row("RTT 20 ms", [10.46, 2.88], 18.02, Some(4.79)),
        row("RTT 50 ms", [4.63, 1.21], 7.45, Some(1.96)),
        row("RTT 100 ms", [2.4, 0.61], 3.76, Some(1.01)),
    ],
};

/// Packets lost where the data flows.
pub(crate) const LOSS: Thesis = Thesis {
    what: "thesis, Table 5: packets lost in the direction of the data",
    rows: &[
        row("loss 0 %", [41.65, 30.92], 45.4, None),
        row("loss 0.0001 %", [41.54, 30.9], 45.42, None),
        row("loss 0.0005 %", [41.75, 30.71], 45.38, None),
        row("loss 0.001 %", [22.29, 20.68], 45.28, None),
        row("loss 0.01 %", [5.52, 5.23], 44.62, None),
        row("loss 0.1 %", [0.75, 0.56], 40.12, None),
    ],
};

impl Thesis {
    /// The row of this link, if the thesis has it.
    pub(crate) fn row(&self, link: &str) -> Option<Row> {
        self.rows.iter().copied().find(|row| row.link == link)
    }
}
