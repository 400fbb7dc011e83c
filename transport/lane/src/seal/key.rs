//! Seals and opens one datagram with the key of one generation.

use super::NUMBER_LEN;
use super::one_pass::{self, TAG_LEN, Tag};
use aegis::aegis128x2::{Aegis128X2, Aegis128X2Mac};
use ring::aead::{self, AES_128_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, UnboundKey};
use zeroize::Zeroizing;
use zerolane_handshake::Cipher;
use zerolane_wire::HEADER_LEN;

/// Bytes of secret in a key: at most 32 of key, and 16 of mask.
pub(super) const MATERIAL_LEN: usize = 48;

/// The key of one generation.
pub(super) struct Key {
    algorithm: Algorithm,
    /// Makes unpredictable nonces, as in TLS 1.3 (RFC 8446, 5.3). Shorter nonces take the end of it.
    mask: [u8; 16],
}

enum Algorithm {
    Ring(Box<LessSafeKey>),
    Aegis(Zeroizing<[u8; 16]>),
    AegisMac(Zeroizing<[u8; 16]>),
}

impl Key {
    /// `None` if the cryptography refuses the key, which a correct build never does.
    pub(super) fn new(cipher: Cipher, material: &[u8; MATERIAL_LEN]) -> Option<Key> {
        let (key, mask) = material.split_last_chunk()?;
        let short = || key.first_chunk().copied().map(Zeroizing::new);
        let ring = |algorithm: &'static aead::Algorithm| {
            let key = UnboundKey::new(algorithm, &key[..algorithm.key_len()]).ok()?;
            Some(Algorithm::Ring(Box::new(LessSafeKey::new(key))))
        };
        let algorithm = match cipher {
            Cipher::Aegis128X2 => {
                one_pass::prepare();
                Algorithm::Aegis(short()?)
            }
            Cipher::Aes128Gcm => ring(&AES_128_GCM)?,
            Cipher::ChaCha20Poly1305 => ring(&CHACHA20_POLY1305)?,
            Cipher::Aegis128X2Mac => Algorithm::AegisMac(short()?),
        };
        Some(Key {
            algorithm,
            mask: *mask,
        })
    }

    /// Seals datagram `number` in place; `None` if that fails.
    pub(super) fn seal(
        &self,
        number: u64,
        header: &[u8; HEADER_LEN],
        payload: &mut [u8],
    ) -> Option<Tag> {
        match &self.algorithm {
            Algorithm::Ring(key) => {
                let tag = key.seal_in_place_separate_tag(
                    aead::Nonce::assume_unique_for_key(self.nonce(number)),
                    Aad::from(header),
                    payload,
                );
                tag.ok()?.as_ref().try_into().ok()
            }
            Algorithm::Aegis(key) => {
                Some(Aegis128X2::new(key, &self.nonce(number)).encrypt_in_place(payload, header))
            }
            Algorithm::AegisMac(key) => Some(self.mac(key, number, header, payload).finalize()),
        }
    }

    /// Seals datagram `number`, whose payload is `source`, into `place`, which has the same length. `None` if that
    /// fails.
    pub(super) fn seal_from(
        &self,
        number: u64,
        header: &[u8; HEADER_LEN],
        source: &[u8],
        place: &mut [u8],
    ) -> Option<Tag> {
        if let Algorithm::Aegis(key) = &self.algorithm {
            let source = (source.as_ptr(), source.len());
            // SAFETY: all of a slice, which nothing writes as long as it is borrowed.
            return unsafe { one_pass::encrypt(key, &self.nonce(number), header, source, place) };
        }
        place.copy_from_slice(source);
        self.seal(number, header, place)
    }

    /// Does the same for `source` as an address and a length: others may access the bytes meanwhile. `None` also if the
    /// cipher cannot.
    ///
    /// # Safety
    /// As [`one_pass::encrypt`].
    pub(super) unsafe fn seal_at(
        &self,
        number: u64,
        header: &[u8; HEADER_LEN],
        source: (*const u8, usize),
        place: &mut [u8],
    ) -> Option<Tag> {
        match &self.algorithm {
            // SAFETY: as promised.
            Algorithm::Aegis(key) => unsafe {
                one_pass::encrypt(key, &self.nonce(number), header, source, place)
            },
            Algorithm::Ring(_) | Algorithm::AegisMac(_) => None,
        }
    }

    /// Opens datagram `number` in place. False if the peer did not seal it; `payload` is unspecified then.
    pub(super) fn open(
        &self,
        number: u64,
        header: &[u8; HEADER_LEN],
        payload: &mut [u8],
        tag: &Tag,
    ) -> bool {
        match &self.algorithm {
            Algorithm::Ring(key) => {
                let opened = key.open_in_place_separate_tag(
                    aead::Nonce::assume_unique_for_key(self.nonce(number)),
                    Aad::from(header),
                    aead::Tag::from(*tag),
                    payload,
                    0..,
                );
                opened.is_ok()
            }
            Algorithm::Aegis(key) => {
                let opener = Aegis128X2::new(key, &self.nonce(number));
                opener.decrypt_in_place(payload, tag, header).is_ok()
            }
            Algorithm::AegisMac(key) => self.mac(key, number, header, payload).verify(tag).is_ok(),
        }
    }

    /// Whether [`Key::seal_at`] and [`Key::open_at`] are possible.
    pub(super) fn takes_addresses(&self) -> bool {
        matches!(self.algorithm, Algorithm::Aegis(_))
    }

    /// Opens the bytes of `source`, an address and a length, into `place`, which has the same length and may be the
    /// same address: others may access the bytes meanwhile. False as [`Key::open`], and if the cipher cannot.
    ///
    /// # Safety
    /// As [`one_pass::decrypt`].
    pub(super) unsafe fn open_at(
        &self,
        number: u64,
        header: &[u8; HEADER_LEN],
        source: (*const u8, usize),
        place: *mut u8,
        tag: &Tag,
    ) -> bool {
        match &self.algorithm {
            // SAFETY: as promised.
            Algorithm::Aegis(key) => unsafe {
                one_pass::decrypt(key, &self.nonce(number), header, source, place, tag)
            },
            Algorithm::Ring(_) | Algorithm::AegisMac(_) => false,
        }
    }

    /// AEGISMAC over the header, zeros up to the 64 bytes that the MAC takes at a time, and the payload.
    fn mac(
        &self,
        key: &[u8; 16],
        number: u64,
        header: &[u8; HEADER_LEN],
        payload: &[u8],
    ) -> Aegis128X2Mac<TAG_LEN> {
        let mut head = [0; 64];
        head[..HEADER_LEN].copy_from_slice(header);
        let mut mac = Aegis128X2Mac::new_with_nonce(key, &self.nonce(number));
        mac.update(&head);
        mac.update(payload);
        mac
    }

    fn nonce<const LEN: usize>(&self, number: u64) -> [u8; LEN] {
        const { assert!(LEN >= NUMBER_LEN && LEN <= 16) };
        let mut nonce = [0; LEN];
        nonce.copy_from_slice(&self.mask[16 - LEN..]);
        for (byte, number) in nonce[LEN - NUMBER_LEN..]
            .iter_mut()
            .zip(number.to_be_bytes())
        {
            *byte ^= number;
        }
        nonce
    }
}
