//! What throughput, CPU time and memory traffic follow from what single things cost (P4.3, and the idea of P2.8: a model
//! that is held against a measurement). Pure: no clock, no IO.
//!
//! | module | what it holds |
//! |---|---|
//! | `costs` | unit costs, and how they depend on how much memory there is |
//! | `row` | what is predicted |
//! | `stage` | what an end does for each byte |
//! | `prediction` | the slower end, goodput and CPU time |
//! | `tcp`, `zerolane` | the stages of each carrier |
//! | `memory` | sources and sinks, and cores that hinder each other |
//! | `traffic` | bytes on the memory bus |
//!
//! What it leaves out: loss, the start of a connection, other programs, more than two cores, devices that are no veth.
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
