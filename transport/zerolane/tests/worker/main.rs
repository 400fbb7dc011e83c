//! Tests that a worker drives many connections: called by its user, in a thread, as a task.
#![allow(non_snake_case)]

mod arrived;
mod background;
mod child;
mod fork;
mod handles;
mod killed;
mod over;
mod progress;
mod tokio;

use std::time::Duration;
use zerolane::{Options, Region, Security};

/// Bounds how long a failure takes to show; otherwise never reached.
const PATIENCE: Duration = Duration::from_secs(20);

fn anywhere() -> std::net::SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

fn plain() -> Options {
    Options {
        security: Security::plain(),
        ..Options::default()
    }
}

/// Bytes that identify their offset and `seed`.
fn content(seed: u64, len: usize) -> Vec<u8> {
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (0..len)
        .map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ mixed as u8)
        .collect()
}

fn region(seed: u64, len: usize) -> Region {
    Region::from_vec(content(seed, len))
}
