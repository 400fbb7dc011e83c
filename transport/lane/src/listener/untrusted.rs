//! Keeps untrusted clients to report to the program, which may admit them another time.

use std::net::SocketAddr;
use zerolane_handshake::PublicKey;

/// Most clients with an untrusted key that are kept until the program takes them. The proof of a key costs some 100 us:
/// a flood makes more clients than are worth reporting.
const UNTRUSTED_CLIENTS: usize = 64;

/// Clients that proved an untrusted key, and got no connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Untrusted {
    /// Their keys and addresses.
    pub clients: Vec<(PublicKey, SocketAddr)>,
    /// Number of further ones.
    pub more: u64,
}

impl Untrusted {
    pub(super) fn note(&mut self, key: PublicKey, from: SocketAddr) {
        match self.clients.len() < UNTRUSTED_CLIENTS {
            true => self.clients.push((key, from)),
            false => self.more += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn Untrusted__keeps_a_bounded_number_and_counts_the_rest() {
        let key = zerolane_handshake::Identity::from_secret([1; 32]).public();
        let from = SocketAddr::from(([127, 0, 0, 1], 9));
        let mut untrusted = Untrusted::default();
        for _ in 0..UNTRUSTED_CLIENTS + 3 {
            untrusted.note(key, from);
        }
        assert_eq!(untrusted.clients.len(), UNTRUSTED_CLIENTS);
        assert_eq!((untrusted.clients[0], untrusted.more), ((key, from), 3));
    }
}
