//! Predicts goodput and CPU time from stages.
//!
//! Sender and receiver work at the same time, one core each, and every byte passes both: the slower end sets the rate. The
//! work of an end for a byte is a sum of stages, each a unit cost. A cost of n nanoseconds per byte is n CPU seconds per GB,
//! and 8 / n Gb/s.

use serde::Serialize;

use crate::costs::UnitCosts;
use crate::row::{Carrier, Row};
use crate::stage::{End, Stage};
use crate::traffic::{RowTraffic, of_row};
use crate::{tcp, zerolane};

/// The prediction for a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Goodput, Gb/s.
    pub gbps: f64,
    /// CPU time of the sender, seconds a GB (10^9 bytes).
    pub tx_cpu_s_per_gb: f64,
    /// That of the receiver.
    pub rx_cpu_s_per_gb: f64,
    /// The slower end, and its longest stage.
    pub bottleneck: String,
    /// Bytes on the memory bus for each byte of payload, by end (P4.3).
    pub traffic: RowTraffic,
    /// The stages of both ends.
    pub stages: Vec<Stage>,
}

/// Predicts this row for a machine with these unit costs.
#[must_use]
pub fn predict(row: &Row, costs: &UnitCosts) -> Prediction {
    let work = match row.carrier {
        Carrier::Tcp | Carrier::TcpSplice | Carrier::TcpSendfile => tcp::work(row, costs),
        Carrier::Plain | Carrier::Encrypted => zerolane::work(row, costs),
    };
    let (tx, rx) = (work.of(End::Sender), work.of(End::Receiver));
    let slower = if tx >= rx { End::Sender } else { End::Receiver };
    let took = tx.max(rx).max(f64::MIN_POSITIVE);
    let longest = work.stages.iter().filter(|it| it.end == slower);
    let longest = longest.max_by(|one, other| one.ns_per_byte.total_cmp(&other.ns_per_byte));
    let name = match slower {
        End::Sender => "sender",
        End::Receiver => "receiver",
    };
    Prediction {
        gbps: 8.0 / took,
        tx_cpu_s_per_gb: (tx + work.tx_waits).min(took),
        rx_cpu_s_per_gb: (rx + work.rx_waits).min(took),
        bottleneck: longest.map_or_else(|| name.into(), |it| format!("{name}: {}", it.what)),
        traffic: of_row(row, &costs.caches),
        stages: work.stages,
    }
}
