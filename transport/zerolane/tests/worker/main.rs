//! Tests that a worker drives many connections: called by its user, in a thread, as a task.
#![allow(non_snake_case)]

mod addresses;
mod arrived;
mod background;
mod backlog;
#[path = "../content/mod.rs"]
mod bytes;
mod child;
mod ended;
mod fork;
mod handles;
mod incoming;
mod killed;
mod late;
mod numbered;
mod over;
mod progress;
mod receive_pool;
mod set;
mod signals;
mod tokio;

use bytes::content;
use std::time::Duration;
use zerolane::{Options, Region, Security};

/// Bounds how long a failure takes to show; otherwise never reached.
const PATIENCE: Duration = Duration::from_secs(20);

fn anywhere() -> std::net::SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

fn plain() -> Options {
    Options::default().with(|it| it.security = Security::plain())
}

fn region(seed: u64, len: usize) -> Region {
    Region::from_vec(content(seed, len))
}
