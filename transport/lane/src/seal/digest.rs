//! Computes the digest of an unsealed train: 64-bit XXH3 of the payload, seeded with XXH3 of the header.
//!
//! Like a tag, it detects loss, duplication, reordering and corruption. Unlike a tag, it hides nothing and stops no
//! forger: a plain connection has no keys. XXH3 was the fastest digest measured: 47 GB/s in the cache, where CRCs
//! reached 13.

use std::hash::Hasher;
use twox_hash::XxHash3_64;
use zerolane_wire::{DIGEST_LEN, HEADER_LEN};

/// A digest in progress.
pub(crate) struct Digest(XxHash3_64);

impl Digest {
    /// Starts the digest of a train that ends with `header`.
    pub(crate) fn new(header: &[u8; HEADER_LEN]) -> Digest {
        Digest(XxHash3_64::with_seed(seed(header)))
    }

    /// Adds the next bytes of the payload.
    pub(crate) fn update(&mut self, payload: &[u8]) {
        self.0.write(payload);
    }

    pub(crate) fn finish(&self) -> [u8; DIGEST_LEN] {
        self.0.finish().to_be_bytes()
    }

    /// The digest of payload in one piece, at twice the speed.
    pub(crate) fn of(header: &[u8; HEADER_LEN], payload: &[u8]) -> [u8; DIGEST_LEN] {
        XxHash3_64::oneshot_with_seed(seed(header), payload).to_be_bytes()
    }
}

fn seed(header: &[u8; HEADER_LEN]) -> u64 {
    XxHash3_64::oneshot(header)
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    const HEADER: [u8; HEADER_LEN] = [7; HEADER_LEN];

    fn payload() -> Vec<u8> {
        (0..65_507u32).map(|at| ((at * 31) >> 3) as u8).collect()
    }

    #[test]
    fn digest__in_pieces_is_that_of_the_whole() {
        let payload = payload();
        let whole = Digest::of(&HEADER, &payload);
        for piece in [1, 7, 1_472, 4_096, 65_507] {
            let mut digest = Digest::new(&HEADER);
            payload.chunks(piece).for_each(|it| digest.update(it));
            assert_eq!(digest.finish(), whole, "{piece}");
        }
    }

    /// docs/reference/protocol.md has this value, for other implementations.
    #[test]
    fn digest__of_known_bytes() {
        let bytes: Vec<u8> = (0..=255).collect();
        let digest = u64::from_be_bytes(Digest::of(&[0; HEADER_LEN], &bytes));
        let text = include_str!("../../../../docs/reference/protocol.md");
        assert!(text.contains(&format!("{digest:016x}")), "{digest:016x}");
    }

    #[test]
    fn digest__tells_header_and_payload_by_each_byte() {
        let payload = payload();
        let whole = Digest::of(&HEADER, &payload);
        for at in 0..HEADER_LEN {
            let mut header = HEADER;
            header[at] ^= 1;
            assert_ne!(Digest::of(&header, &payload), whole, "{at}");
        }
        for at in (0..payload.len()).step_by(101) {
            let mut other = payload.clone();
            other[at] ^= 0x80;
            assert_ne!(Digest::of(&HEADER, &other), whole, "{at}");
        }
        let mut swapped = payload.clone();
        let (one, two) = swapped.split_at_mut(1_472);
        one.swap_with_slice(&mut two[..1_472]);
        assert_ne!(Digest::of(&HEADER, &swapped), whole);
        assert_ne!(Digest::of(&HEADER, &payload[1..]), whole);
    }
}
