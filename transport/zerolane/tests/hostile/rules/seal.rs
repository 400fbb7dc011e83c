//! Seals datagrams by docs/reference/protocol.md, independently of the library and without its checks.
//!
//! A number can be chosen, and used twice.

use aegis::aegis128x2::Aegis128X2;
use ring::aead::{self, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use zerolane_handshake::{Cipher, Session};
use zerolane_wire::HEADER_LEN;

const NUMBER_LEN: usize = 8;
const TAG_LEN: usize = 16;

enum Algorithm {
    ChaCha(Box<LessSafeKey>),
    Aegis([u8; 16]),
}

/// The key of a direction, and its mask.
struct Key {
    algorithm: Algorithm,
    mask: [u8; 16],
}

/// The keys of the first generation, both ways.
pub(super) struct Seal {
    send: Key,
    receive: Key,
    /// The number of the next datagram.
    pub(super) number: u64,
}

impl Key {
    fn new(cipher: Cipher, secret: &[u8; 32]) -> Key {
        let mut hasher = blake3::Hasher::new_derive_key("Zerolane 1, key of a generation");
        hasher.update(&[cipher as u8]).update(secret);
        let mut made = [0; 48];
        hasher.finalize_xof().fill(&mut made);
        let algorithm = match cipher {
            Cipher::ChaCha20Poly1305 => {
                let key = UnboundKey::new(&CHACHA20_POLY1305, &made[..32]).unwrap();
                Algorithm::ChaCha(Box::new(LessSafeKey::new(key)))
            }
            Cipher::Aegis128X2 => Algorithm::Aegis(made[..16].try_into().unwrap()),
            other => panic!("{other:?} is not offered"),
        };
        Key {
            algorithm,
            mask: made[32..].try_into().unwrap(),
        }
    }

    fn nonce(&self, number: u64) -> [u8; 16] {
        let mut nonce = self.mask;
        for (byte, number) in nonce[8..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= number;
        }
        nonce
    }

    fn seal(&self, number: u64, header: &[u8], payload: &mut [u8]) -> [u8; TAG_LEN] {
        let nonce = self.nonce(number);
        match &self.algorithm {
            Algorithm::ChaCha(key) => {
                let tag = key.seal_in_place_separate_tag(short(&nonce), Aad::from(header), payload);
                tag.unwrap().as_ref().try_into().unwrap()
            }
            Algorithm::Aegis(key) => Aegis128X2::new(key, &nonce).encrypt_in_place(payload, header),
        }
    }

    /// Whether the tag holds.
    fn open(&self, number: u64, header: &[u8], payload: &mut [u8], tag: [u8; TAG_LEN]) -> bool {
        let nonce = self.nonce(number);
        match &self.algorithm {
            Algorithm::ChaCha(key) => {
                let (nonce, tag) = (short(&nonce), aead::Tag::from(tag));
                let aad = Aad::from(header);
                let opened = key.open_in_place_separate_tag(nonce, aad, tag, payload, 0..);
                opened.is_ok()
            }
            Algorithm::Aegis(key) => {
                let opener = Aegis128X2::new(key, &nonce);
                opener.decrypt_in_place(payload, &tag, header).is_ok()
            }
        }
    }
}

/// With this cipher, only the last bytes of the mask are used.
fn short(nonce: &[u8; 16]) -> Nonce {
    Nonce::assume_unique_for_key(nonce[4..].try_into().unwrap())
}

impl Seal {
    pub(super) fn new(session: &Session) -> Seal {
        Seal {
            send: Key::new(session.cipher, &session.send),
            receive: Key::new(session.cipher, &session.receive),
            number: 0,
        }
    }

    /// Seals a datagram with a whole header; shorter ones stay as they are.
    pub(super) fn seal(&mut self, datagram: &[u8]) -> Vec<u8> {
        let mut sealed = datagram.to_vec();
        if datagram.len() < HEADER_LEN {
            return sealed;
        }
        let (header, payload) = sealed.split_at_mut(HEADER_LEN);
        let tag = self.send.seal(self.number, header, payload);
        sealed.extend_from_slice(&self.number.to_be_bytes());
        sealed.extend_from_slice(&tag);
        self.number = self.number.wrapping_add(1);
        sealed
    }

    /// Header and payload, if the datagram is the peer's.
    pub(super) fn open(&self, datagram: &[u8]) -> Option<Vec<u8>> {
        let (header, rest) = datagram.split_at_checked(HEADER_LEN)?;
        let (rest, tag) = rest.split_last_chunk()?;
        let (payload, number) = rest.split_last_chunk::<NUMBER_LEN>()?;
        let mut opened = datagram[..HEADER_LEN + payload.len()].to_vec();
        let number = u64::from_be_bytes(*number);
        let holds = self
            .receive
            .open(number, header, &mut opened[HEADER_LEN..], *tag);
        holds.then_some(opened)
    }
}
