//! Attackers against real sockets: on the path (a relay that sees everything and adds what it
//! likes), off it, and peers with another identity than expected. Nothing leaves loopback.
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

/// Nothing here takes longer; a call that does is a hang.
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
    Options {
        security,
        connect_timeout: PATIENCE,
        ..Options::default()
    }
}

/// Words that differ at each place, to detect a copy at the wrong place or of the wrong time.
fn pattern(len: usize) -> Vec<u8> {
    let word = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n).to_le_bytes();
    (0..len as u64 / 8).flat_map(word).collect()
}

/// Accepts one connection in a thread and does `with` with it.
fn serve<T: Send + 'static>(
    security: Security,
    with: impl FnOnce(Option<Connection>) -> T + Send + 'static,
) -> (SocketAddr, thread::JoinHandle<T>) {
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options(security)).unwrap();
    let address = endpoint.local_addr();
    let server = thread::spawn(move || with(endpoint.accept(Some(PATIENCE)).unwrap()));
    (address, server)
}
