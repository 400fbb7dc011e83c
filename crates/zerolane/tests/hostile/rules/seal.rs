//! Sealing as in docs/protocol.md, written a second time, without the checks of an honest end: a number can be
//! chosen, and used twice.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use zerolane_handshake::{Cipher, Session};
use zerolane_wire::HEADER_LEN;

/// The cipher that the hostile peer offers, and that every end has.
pub(super) const OFFERED: Cipher = Cipher::ChaCha20Poly1305;

const NUMBER_LEN: usize = 8;
const TAG_LEN: usize = 16;

/// The keys of the first generation, both ways.
pub(super) struct Seal {
    send: (LessSafeKey, [u8; 12]),
    receive: (LessSafeKey, [u8; 12]),
    /// Of the next datagram.
    pub(super) number: u64,
}

fn key(cipher: Cipher, secret: &[u8; 32]) -> (LessSafeKey, [u8; 12]) {
    let mut hasher = blake3::Hasher::new_derive_key("Zerolane 1, key of a generation");
    hasher.update(&[cipher as u8]).update(secret);
    let mut made = [0; 48];
    hasher.finalize_xof().fill(&mut made);
    assert_eq!(cipher, OFFERED);
    let algorithm = &CHACHA20_POLY1305;
    let key = UnboundKey::new(algorithm, &made[..algorithm.key_len()]).unwrap();
    // Of the mask, the last bytes count with this cipher.
    let mask = made[36..].try_into().unwrap();
    (LessSafeKey::new(key), mask)
}

fn nonce(mut mask: [u8; 12], number: u64) -> Nonce {
    for (byte, number) in mask[4..].iter_mut().zip(number.to_be_bytes()) {
        *byte ^= number;
    }
    Nonce::assume_unique_for_key(mask)
}

impl Seal {
    pub(super) fn new(session: &Session) -> Seal {
        Seal {
            send: key(session.cipher, &session.send),
            receive: key(session.cipher, &session.receive),
            number: 0,
        }
    }

    /// Seals a datagram of a whole header at least; shorter ones stay as they are.
    pub(super) fn seal(&mut self, datagram: &[u8]) -> Vec<u8> {
        let mut sealed = datagram.to_vec();
        if datagram.len() < HEADER_LEN {
            return sealed;
        }
        let (header, payload) = sealed.split_at_mut(HEADER_LEN);
        let (key, mask) = &self.send;
        let nonce = nonce(*mask, self.number);
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(&*header), payload);
        sealed.extend_from_slice(&self.number.to_be_bytes());
        sealed.extend_from_slice(tag.unwrap().as_ref());
        self.number = self.number.wrapping_add(1);
        sealed
    }

    /// Header and payload, if the datagram is the peer's.
    pub(super) fn open(&self, datagram: &[u8]) -> Option<Vec<u8>> {
        let sealed_len = datagram.len().checked_sub(NUMBER_LEN + TAG_LEN)?;
        let (header, rest) = datagram.split_at_checked(HEADER_LEN)?;
        let number_at = sealed_len.checked_sub(HEADER_LEN)?;
        let number: [u8; 8] = rest[number_at..number_at + NUMBER_LEN].try_into().ok()?;
        let mut payload = rest[..number_at].to_vec();
        payload.extend_from_slice(&rest[number_at + NUMBER_LEN..]);
        let (key, mask) = &self.receive;
        let nonce = nonce(*mask, u64::from_be_bytes(number));
        let opened = key
            .open_in_place(nonce, Aad::from(header), &mut payload)
            .ok()?;
        Some([header, opened].concat())
    }
}
