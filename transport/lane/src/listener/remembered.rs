//! Remembers Initiators that recently became connections, in plain mode.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Most Initiators remembered, so that a repeated request does not become a second connection.
const MAX_REMEMBERED: usize = 1024;
/// How long they are remembered: longer than an Initiator repeats its request.
const REMEMBER: Duration = Duration::from_secs(30);

/// Initiators, by address and key, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Remembered(VecDeque<(Instant, SocketAddr, u32)>);

impl Remembered {
    /// Records that this one became a connection.
    pub(super) fn note(&mut self, peer: SocketAddr, key: u32) {
        self.0.push_back((Instant::now(), peer, key));
    }

    /// Whether this one became a connection recently.
    pub(super) fn has(&mut self, peer: SocketAddr, key: u32) -> bool {
        let now = Instant::now();
        let is_old = |(at, ..): &(Instant, SocketAddr, u32)| now - *at > REMEMBER;
        while self.0.len() >= MAX_REMEMBERED || self.0.front().is_some_and(is_old) {
            self.0.pop_front();
        }
        self.0
            .iter()
            .any(|&(_, other, its)| other == peer && its == key)
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn has__forgets_the_oldest_beyond_the_limit() {
        let mut remembered = Remembered::default();
        let peer = |n: u32| SocketAddr::from(([127, 0, 0, 1], 1 + n as u16));
        let count = MAX_REMEMBERED as u32 + 7;
        for n in 0..count {
            assert!(!remembered.has(peer(n), n));
            remembered.note(peer(n), n);
            assert!(remembered.0.len() <= MAX_REMEMBERED);
        }
        assert!(remembered.has(peer(count - 1), count - 1));
        assert!(!remembered.has(peer(0), 0));
    }
}
