//! Seals datagrams and opens them: encrypts and authenticates the traffic of one connection.
//!
//! A sealed datagram is `[header][payload, encrypted][number][tag]`; a train has its header behind the payload. The
//! header stays readable and is authenticated with the payload. The number counts the datagrams of one direction. It is
//! never used twice with one key, because a direction has one [`Sealer`], which increments the number and cannot be
//! copied. Keys change every [`GENERATION`] datagrams. The number determines the key, so neither end has to announce a
//! change, and an old key cannot be derived from a new one.

pub(crate) mod digest;
mod key;
mod one_pass;
pub(crate) mod security;
mod window;

pub use security::{Mode, Security, random};

use key::Key;
use std::fmt;
use std::sync::Arc;
use window::ReplayWindow;
use zeroize::Zeroizing;
use zerolane_core::DropReason;
use zerolane_handshake::{Cipher, Ciphers};
use zerolane_wire::HEADER_LEN;

/// Bytes of the number after the payload.
const NUMBER_LEN: usize = 8;
/// Bytes of the tag after the number.
const TAG_LEN: usize = one_pass::TAG_LEN;
/// Bytes that sealing adds to a datagram.
pub(crate) const TRAILER_LEN: usize = NUMBER_LEN + TAG_LEN;

/// log2 of the datagrams sealed with one key. RFC 9001 (B.1) allows AES-GCM 2^23 packets of up to 64 KiB, which is also
/// the longest datagram here; this is half of that.
const GENERATION_LOG2: u32 = 22;

/// Forged datagrams after which a direction opens no more: RFC 9001 (6.6) allows ChaCha20-Poly1305 2^36, and AES-GCM
/// more. The connection then ends by its idle timeout.
const MAX_FORGED: u64 = 1 << 36;

/// The bytes after a sealed payload.
pub(crate) type Trailer = [u8; TRAILER_LEN];

/// The ciphers that this machine computes fast.
pub(crate) fn ciphers() -> Ciphers {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    let aes = std::is_x86_feature_detected!("aes") && std::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    let aes = std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
    let aes = false;
    Ciphers::of_machine(aes)
}

/// The secret of a generation, from which its key and the next generation's secret are derived.
#[derive(Clone)]
struct Secret(Zeroizing<[u8; 32]>);

impl Secret {
    fn next(&self) -> Secret {
        let next = blake3::derive_key("Zerolane 1, secret of the next generation", &self.0[..]);
        Secret(Zeroizing::new(next))
    }

    fn key(&self, cipher: Cipher) -> Option<Key> {
        let mut hasher = blake3::Hasher::new_derive_key("Zerolane 1, key of a generation");
        hasher.update(&[cipher as u8]).update(&self.0[..]);
        let mut material = Zeroizing::new([0; key::MATERIAL_LEN]);
        hasher.finalize_xof().fill(&mut material[..]);
        Key::new(cipher, &material)
    }
}

fn trailer(number: u64, tag: &[u8; TAG_LEN]) -> Trailer {
    let mut trailer = [0; TRAILER_LEN];
    trailer[..NUMBER_LEN].copy_from_slice(&number.to_be_bytes());
    trailer[NUMBER_LEN..].copy_from_slice(tag);
    trailer
}

fn split(trailer: &Trailer) -> (u64, &[u8; TAG_LEN]) {
    let (number, tag) = trailer.split_at(NUMBER_LEN);
    let number = number.try_into().map_or(0, u64::from_be_bytes);
    // Always that long, because number and tag make up a trailer.
    (number, tag.first_chunk().unwrap_or(&[0; TAG_LEN]))
}

fn generation(number: u64) -> u64 {
    number >> GENERATION_LOG2
}

/// Seals the datagrams of one end. The connection's sender owns it, and it must not be copied: its numbers make the
/// nonces unique.
pub(crate) struct Sealer {
    cipher: Cipher,
    secret: Secret,
    key: Arc<Key>,
    next: u64,
}

/// Reserved numbers of a [`Sealer`], and their key, with which another thread seals.
pub(crate) struct SealNumbers {
    key: Arc<Key>,
    left: std::ops::Range<u64>,
}

impl SealNumbers {
    /// Seals as [`Sealer::seal_from`]; `None` also if no number is left.
    pub(crate) fn seal_from(
        &mut self,
        header: &[u8; HEADER_LEN],
        source: &[u8],
        place: &mut [u8],
    ) -> Option<Trailer> {
        let number = self.left.next()?;
        let tag = self.key.seal_from(number, header, source, place)?;
        Some(trailer(number, &tag))
    }
}

impl Sealer {
    /// `None` if the cryptography refuses the key, which a correct build never does.
    pub(crate) fn new(cipher: Cipher, secret: Zeroizing<[u8; 32]>) -> Option<Sealer> {
        let secret = Secret(secret);
        Some(Sealer {
            cipher,
            key: Arc::new(secret.key(cipher)?),
            secret,
            next: 0,
        })
    }

    /// Encrypts `payload` in place, if the cipher encrypts. `None` if that fails: the datagram counts as lost.
    pub(crate) fn seal(
        &mut self,
        header: &[u8; HEADER_LEN],
        payload: &mut [u8],
    ) -> Option<Trailer> {
        let number = self.number()?;
        let tag = self.key.seal(number, header, payload)?;
        Some(trailer(number, &tag))
    }

    /// Seals `source` into `place`, which has the same length: in one pass, if the cipher can; otherwise as
    /// [`Sealer::seal`].
    pub(crate) fn seal_from(
        &mut self,
        header: &[u8; HEADER_LEN],
        source: &[u8],
        place: &mut [u8],
    ) -> Option<Trailer> {
        let number = self.number()?;
        let tag = self.key.seal_from(number, header, source, place)?;
        Some(trailer(number, &tag))
    }

    /// Whether [`Sealer::seal_at`] is possible: the cipher's implementation accepts an address.
    pub(crate) fn seals_at(&self) -> bool {
        self.key.takes_addresses()
    }

    /// Seals as [`Sealer::seal_from`], with `source` as an address and a length. Others may write these bytes
    /// meanwhile: each sealed byte is the one there at some moment of the call, and aligned words are whole if `source`
    /// consists of such.
    ///
    /// `None` also if [`Sealer::seals_at`] is false.
    ///
    /// # Safety
    /// The bytes are mapped and readable for the length of the call, and none of them lies in `place`. No mutable
    /// reference to them exists; other threads may access them atomically, and the kernel in any way.
    pub(crate) unsafe fn seal_at(
        &mut self,
        header: &[u8; HEADER_LEN],
        source: (*const u8, usize),
        place: &mut [u8],
    ) -> Option<Trailer> {
        let number = self.number()?;
        // SAFETY: as promised.
        let tag = unsafe { self.key.seal_at(number, header, source, place)? };
        Some(trailer(number, &tag))
    }

    /// The next number, after a change of keys if it needs one.
    fn number(&mut self) -> Option<u64> {
        let number = self.next;
        if number > 0 && number.trailing_zeros() >= GENERATION_LOG2 {
            let secret = self.secret.next();
            self.key = Arc::new(secret.key(self.cipher)?);
            self.secret = secret;
        }
        self.next = number.checked_add(1)?;
        Some(number)
    }

    /// Reserves the next `count` numbers, with which another thread seals. `None` if the key changes among them: some
    /// numbers then stay unused.
    pub(crate) fn reserve(&mut self, count: u32) -> Option<SealNumbers> {
        let first = self.number()?;
        let end = first.checked_add(u64::from(count))?;
        if count == 0 || generation(end - 1) != generation(first) {
            return None;
        }
        self.next = end;
        Some(SealNumbers {
            key: Arc::clone(&self.key),
            left: first..end,
        })
    }

    /// The cipher in use.
    pub(crate) fn cipher(&self) -> Cipher {
        self.cipher
    }
}

/// Opens one datagram, in any thread.
pub(crate) struct Opening {
    key: Arc<Key>,
    number: u64,
    tag: one_pass::Tag,
}

impl Opening {
    /// The datagram's number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Opens `source` into `place`, which has the same length, as [`Opener::open_at`]; false if the peer did not seal
    /// the datagram.
    ///
    /// # Safety
    /// As [`Opener::open_at`].
    pub(crate) unsafe fn open_into(
        &self,
        header: &[u8; HEADER_LEN],
        source: &[u8],
        place: *mut u8,
    ) -> bool {
        let source = (source.as_ptr(), source.len());
        // SAFETY: as promised.
        unsafe {
            self.key
                .open_at(self.number, header, source, place, &self.tag)
        }
    }
}

/// Opens the datagrams that one end receives.
pub(crate) struct Opener {
    cipher: Cipher,
    /// Generation of `current`.
    generation: u64,
    /// For datagrams that the change of keys overtook.
    previous: Option<Arc<Key>>,
    current: Arc<Key>,
    next: Arc<Key>,
    /// Secret of `next`.
    next_secret: Secret,
    window: ReplayWindow,
    forged: u64,
}

impl Opener {
    /// `None` if the cryptography refuses the key, which a correct build never does.
    pub(crate) fn new(cipher: Cipher, secret: Zeroizing<[u8; 32]>) -> Option<Opener> {
        let secret = Secret(secret);
        let next_secret = secret.next();
        Some(Opener {
            cipher,
            generation: 0,
            previous: None,
            current: Arc::new(secret.key(cipher)?),
            next: Arc::new(next_secret.key(cipher)?),
            next_secret,
            window: ReplayWindow::default(),
            forged: 0,
        })
    }

    /// Decrypts `payload` in place, if it is encrypted.
    ///
    /// # Errors
    /// It is a duplicate, or the peer did not seal it. `payload` is unspecified then.
    pub(crate) fn open(
        &mut self,
        header: &[u8; HEADER_LEN],
        payload: &mut [u8],
        trailer: &Trailer,
    ) -> Result<(), DropReason> {
        self.open_by(trailer, |key, number, tag| {
            key.open(number, header, payload, tag)
        })
    }

    /// Whether [`Opener::open_at`] is possible: the cipher's implementation accepts an address.
    pub(crate) fn opens_at(&self) -> bool {
        self.current.takes_addresses()
    }

    /// Opens as [`Opener::open`], from `source`, an address and a length, into `place`, which has the same length and may
    /// be the same address. Others may write the bytes at `place` meanwhile. Bytes that they store are as if stored a
    /// moment later; bytes that are opened are the sealed ones.
    ///
    /// # Errors
    /// As [`Opener::open`]; always if [`Opener::opens_at`] is false.
    ///
    /// # Safety
    /// The bytes are mapped, readable and writable, for the length of the call. No mutable reference to those of
    /// `source` is alive, and no reference at all to those at `place`; other threads may access them atomically, and the
    /// kernel in any way. The two are the same bytes, or do not overlap.
    pub(crate) unsafe fn open_at(
        &mut self,
        header: &[u8; HEADER_LEN],
        source: (*const u8, usize),
        place: *mut u8,
        trailer: &Trailer,
    ) -> Result<(), DropReason> {
        // SAFETY: as promised.
        self.open_by(trailer, |key, number, tag| unsafe {
            key.open_at(number, header, source, place, tag)
        })
    }

    fn open_by(
        &mut self,
        trailer: &Trailer,
        open: impl FnOnce(&Key, u64, &[u8; TAG_LEN]) -> bool,
    ) -> Result<(), DropReason> {
        let (number, tag) = split(trailer);
        if !self.window.is_new(number) {
            return Err(DropReason::Replayed);
        }
        let key = self.key_for(number);
        let opened = key.is_some_and(|key| open(key, number, tag));
        self.opened(number, opened)
    }

    /// The opening of the datagram of `trailer`, for another thread, whose result goes to [`Opener::opened`].
    ///
    /// # Errors
    /// It is a duplicate, or no key fits it.
    pub(crate) fn hand_out(&mut self, trailer: &Trailer) -> Result<Opening, DropReason> {
        let (number, tag) = split(trailer);
        if !self.window.is_new(number) {
            return Err(DropReason::Replayed);
        }
        let Some(key) = self.key_for(number).map(Arc::clone) else {
            return self.opened(number, false).and(Err(DropReason::Forged));
        };
        Ok(Opening {
            key,
            number,
            tag: *tag,
        })
    }

    /// Records that datagram `number` was opened, or was forged.
    ///
    /// # Errors
    /// It was forged, or another of its number was opened meanwhile.
    pub(crate) fn opened(&mut self, number: u64, opened: bool) -> Result<(), DropReason> {
        if !opened {
            self.forged += 1;
            return Err(DropReason::Forged);
        }
        if !self.window.is_new(number) {
            return Err(DropReason::Replayed);
        }
        self.window.mark(number);
        if generation(number) > self.generation {
            self.advance();
        }
        Ok(())
    }

    fn key_for(&self, number: u64) -> Option<&Arc<Key>> {
        let generation = generation(number);
        match generation.wrapping_sub(self.generation) {
            _ if self.forged >= MAX_FORGED => None,
            0 => Some(&self.current),
            1 => Some(&self.next),
            u64::MAX => self.previous.as_ref(),
            _ => None,
        }
    }

    /// Changes the key, as the peer has.
    fn advance(&mut self) {
        let secret = self.next_secret.next();
        // Without a key for the generation after next, the present one stays in use.
        let Some(next) = secret.key(self.cipher) else {
            return;
        };
        let current = std::mem::replace(&mut self.next, Arc::new(next));
        self.previous = Some(std::mem::replace(&mut self.current, current));
        self.next_secret = secret;
        self.generation += 1;
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer")
            .field("cipher", &self.cipher)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener")
            .field("cipher", &self.cipher)
            .field("generation", &self.generation)
            .field("forged", &self.forged)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
