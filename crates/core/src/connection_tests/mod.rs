#![allow(non_snake_case)]

mod bring_up;
mod debts;
mod eager;
mod ecn;
mod endings;
mod faults;
mod flow;
mod goodput;
mod hostile;
mod incast;
mod lan;
mod liars;
mod limits;
mod memory;
mod memory_faults;
mod memory_hostile;
mod migration;
mod model;
mod posts;
mod reports;
mod seeds;
mod sequences;
pub(crate) mod shared;
mod sim;
mod soak;
mod star;
mod write;
