//! Proves that a client is reachable at its source address, by cookies that the gate does not store.
//!
//! A cookie is a keyed digest of the client's Hello and address (as in DTLS, WireGuard and QUIC).

use crate::limits::COOKIE_LIFETIME;
use std::net::{IpAddr, SocketAddr};
use zeroize::Zeroizing;
use zerolane_core::Instant;
use zerolane_wire::handshake::COOKIE_LEN;

pub(crate) type Cookie = [u8; COOKIE_LEN];

/// Makes and checks cookies. Its secret changes; the previous secret stays valid for a while.
pub(crate) struct Cookies {
    secrets: [Zeroizing<[u8; 32]>; 2],
    changed: Instant,
}

impl Cookies {
    pub(crate) fn new(now: Instant, draw: &mut dyn FnMut() -> [u8; 32]) -> Cookies {
        Cookies {
            secrets: [Zeroizing::new(draw()), Zeroizing::new(draw())],
            changed: now,
        }
    }

    /// Changes the secret when it is due.
    pub(crate) fn age(&mut self, now: Instant, draw: &mut dyn FnMut() -> [u8; 32]) {
        let old = now - self.changed;
        if old <= COOKIE_LIFETIME {
            return;
        }
        self.secrets.swap(0, 1);
        self.secrets[0] = Zeroizing::new(draw());
        if old > 2 * COOKIE_LIFETIME {
            self.secrets[1] = Zeroizing::new(draw());
        }
        self.changed = now;
    }

    /// The cookie for `hello`, the Noise message as sent, from `address`.
    pub(crate) fn give(&self, address: SocketAddr, hello: &[u8]) -> Cookie {
        cookie(&self.secrets[0], address, hello)
    }

    /// Whether `shown` was recently issued for this address and Hello.
    pub(crate) fn holds(&self, address: SocketAddr, hello: &[u8], shown: &[u8]) -> bool {
        // blake3's Hash compares in constant time.
        let shown = blake3::hash(shown);
        self.secrets
            .iter()
            .any(|secret| blake3::hash(&cookie(secret, address, hello)) == shown)
    }
}

fn cookie(secret: &[u8; 32], address: SocketAddr, hello: &[u8]) -> Cookie {
    let mut hasher = blake3::Hasher::new_keyed(secret);
    match address.ip() {
        IpAddr::V4(ip) => hasher.update(&ip.to_ipv6_mapped().octets()),
        IpAddr::V6(ip) => hasher.update(&ip.octets()),
    };
    hasher.update(&address.port().to_be_bytes());
    hasher.update(hello);
    let mut cookie = Cookie::default();
    hasher.finalize_xof().fill(&mut cookie);
    cookie
}
