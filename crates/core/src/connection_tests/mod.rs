#![allow(non_snake_case)]

mod bring_up;
mod faults;
mod hostile;
mod model;
mod seeds;
mod sequences;
mod sim;
mod write;
