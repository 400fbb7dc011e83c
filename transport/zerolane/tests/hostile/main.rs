//! Tests that attackers on and off the path, and peers with a wrong identity, cause no harm.
//!
//! On the path, a relay sees everything and adds packets. Real sockets are used; nothing leaves loopback.
#![allow(non_snake_case)]

mod flood;
mod full;
mod refusal;
mod relay;
mod spray;
mod stray;
mod tamper;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use zerolane::security::{Identity, PublicKey, Trust};
use zerolane::{Connection, Endpoint, Options, Security};

/// Nothing here takes longer; a call that does hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Trusts one key.
#[derive(Debug)]
struct Only(PublicKey);

impl Trust for Only {
    fn trusts(&self, peer: &PublicKey) -> bool {
        *peer == self.0
    }
}

fn identity(n: u8) -> Arc<Identity> {
    Arc::new(Identity::from_secret([n; 32]))
}

fn options(security: Security) -> Options {
    Options::default().with(|it| {
        it.security = security;
        it.times.connect = PATIENCE;
    })
}

/// Words that differ at each offset, to detect a copy at the wrong place or time.
fn pattern(len: usize) -> Vec<u8> {
    let word = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n).to_le_bytes();
    (0..len as u64 / 8).flat_map(word).collect()
}

/// Accepts one connection in a thread and calls `with` with it.
fn serve<T: Send + 'static>(
    security: Security,
    with: impl FnOnce(Option<Connection>) -> T + Send + 'static,
) -> (SocketAddr, thread::JoinHandle<T>) {
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options(security)).unwrap();
    let address = endpoint.local_addr();
    let server = thread::spawn(move || with(endpoint.accept(Some(PATIENCE)).unwrap()));
    (address, server)
}
