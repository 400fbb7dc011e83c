#![allow(non_snake_case)]

mod bring_up;
mod model;
mod seeds;
mod sim;
mod write;
