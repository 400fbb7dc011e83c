//! `zerolane cast`: what it plans, and casts between processes and hosts.
#![allow(non_snake_case)]

#[path = "../content/mod.rs"]
mod content;
mod faults;
mod kept;
mod lab;
mod measured;
mod plan;
mod processes;
mod refused;
mod running;
