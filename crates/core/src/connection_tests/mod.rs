#![allow(non_snake_case)]

mod bring_up;
mod endings;
mod faults;
mod goodput;
mod hostile;
mod incast;
mod memory;
mod memory_faults;
mod memory_hostile;
mod model;
mod reports;
mod seeds;
mod sequences;
mod sim;
mod star;
mod write;
