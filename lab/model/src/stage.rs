//! Defines a stage: one kind of work of an end for each byte.

use serde::Serialize;

/// The end of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It has the memory that is sent.
    Sender,
    /// It has the memory that is received into.
    Receiver,
}

/// One kind of work of an end for each byte.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stage {
    /// The end that does it.
    pub end: End,
    /// A description.
    pub what: &'static str,
    /// Its time, nanoseconds per byte of payload.
    pub ns_per_byte: f64,
}

/// What the ends take for a byte, nanoseconds, and what of that is CPU time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Work {
    pub(crate) stages: Vec<Stage>,
    /// CPU time of either end beside its stages: where it spins, or falls asleep.
    pub(crate) tx_waits: f64,
    pub(crate) rx_waits: f64,
}

impl Work {
    /// All stages of an end.
    pub(crate) fn of(&self, end: End) -> f64 {
        let stages = self.stages.iter().filter(|it| it.end == end);
        stages.map(|it| it.ns_per_byte).sum()
    }
}
