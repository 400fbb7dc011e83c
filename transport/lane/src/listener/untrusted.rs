//! Clients that are to be named to the program, for they may be let in another time.

use std::net::SocketAddr;
use zerolane_handshake::PublicKey;

/// Most clients with a key that is not trusted that are kept until somebody asks for them. A proof of a key takes some
/// 100 us: a flood of strangers makes more than are worth naming.
const UNTRUSTED_CLIENTS: usize = 64;

/// Clients that proved a key which is not trusted, and got no connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Untrusted {
    /// Their keys, and where they came from.
    pub clients: Vec<(PublicKey, SocketAddr)>,
    /// How many there were besides.
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
        let key = crate::Identity::from_secret([1; 32]).public();
        let from = SocketAddr::from(([127, 0, 0, 1], 9));
        let mut untrusted = Untrusted::default();
        for _ in 0..UNTRUSTED_CLIENTS + 3 {
            untrusted.note(key, from);
        }
        assert_eq!(untrusted.clients.len(), UNTRUSTED_CLIENTS);
        assert_eq!((untrusted.clients[0], untrusted.more), ((key, from), 3));
    }
}
