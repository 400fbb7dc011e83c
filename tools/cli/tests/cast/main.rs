//! Tests `zerolane cast`: its plans, and casts between processes and between hosts.
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
