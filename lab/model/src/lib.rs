//! Predicts throughput, CPU time and memory traffic from unit costs, to compare with measurements (P4.3, P2.8).
//!
//! Pure: no clock, no IO.
//!
//! | module | what it holds |
//! |---|---|
//! | `costs` | unit costs, and how they depend on the amount of memory |
//! | `row` | the row to predict |
//! | `stage` | the work of an end for each byte |
//! | `prediction` | the slower end, goodput and CPU time |
//! | `tcp`, `zerolane` | the stages of each carrier |
//! | `memory` | sources and sinks, and interference between cores |
//! | `traffic` | bytes on the memory bus |
//!
//! The model leaves out loss, connection setup, other programs, more than two cores, and devices other than veth.
#![forbid(unsafe_code)]

mod costs;
mod memory;
mod prediction;
mod row;
mod stage;
mod tcp;
#[cfg(test)]
mod tests;
mod traffic;
mod zerolane;

pub use costs::{
    Caches, Cost, HandedCosts, LibraryCosts, MemoryCosts, SLOTS, TRAIN, TRAIN_END, TcpCosts,
    TrainCosts, UnitCosts, WakeCosts, Way,
};
pub use prediction::{Prediction, predict};
pub use row::{Carrier, Row, Sink, Source};
pub use stage::{End, Stage};
pub use traffic::{Adapter, Bytes, Movement, RowTraffic, Sizes, Traffic};
