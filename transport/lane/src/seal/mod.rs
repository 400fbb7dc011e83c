//! Sealing datagrams and opening them: encryption and authentication of one connection's traffic.
//!
//! A sealed datagram is `[header][payload, encrypted][number][tag]`. The header stays readable and
//! is authenticated with the payload. The number counts the datagrams of one direction and is never
//! used twice under one key, since the one [`Sealer`] of a direction counts it up and cannot be
//! copied. Keys change every [`GENERATION`] datagrams: the number says which key it is, so that
//! neither end has to tell the other, and an old key cannot be had from a new one.

mod key;
mod one_pass;
mod window;

use key::Key;
use std::fmt;
use std::sync::Arc;
use window::ReplayWindow;
use zeroize::Zeroizing;
use zerolane_core::DropReason;
use zerolane_handshake::{Cipher, Ciphers};
use zerolane_wire::HEADER_LEN;

/// Bytes of the number behind the payload.
const NUMBER_LEN: usize = 8;
/// Bytes of the tag behind the number.
const TAG_LEN: usize = one_pass::TAG_LEN;
/// Bytes that sealing adds to a datagram.
pub(crate) const TRAILER_LEN: usize = NUMBER_LEN + TAG_LEN;

/// log2 of the datagrams sealed with one key. RFC 9001 (B.1) allows AES-GCM 2^23 packets of up to
/// 64 KiB, the largest we send; half of that.
const GENERATION_LOG2: u32 = 22;

/// Forged datagrams after which a direction opens nothing more: RFC 9001 (6.6) allows
/// ChaCha20-Poly1305 2^36, and AES-GCM more. The connection dies of silence then.
const MAX_FORGED: u64 = 1 << 36;

/// What follows a sealed payload.
pub(crate) type Trailer = [u8; TRAILER_LEN];

/// What this machine seals well.
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

/// The secret that a generation's key is made of, and that the next one's secret is made of.
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
    // As long as that, for the two are a trailer.
    (number, tag.first_chunk().unwrap_or(&[0; TAG_LEN]))
}

fn generation(number: u64) -> u64 {
    number >> GENERATION_LOG2
}

/// Seals what one end sends. Owned by that connection's sender, and not to be copied: its numbers
/// are what makes the nonces unique.
pub(crate) struct Sealer {
    cipher: Cipher,
    secret: Secret,
    key: Arc<Key>,
    next: u64,
}

/// Numbers of a [`Sealer`], which are nobody else's, and their key: for another thread to seal with.
pub(crate) struct SealNumbers {
    key: Arc<Key>,
    left: std::ops::Range<u64>,
}

impl SealNumbers {
    /// As [`Sealer::seal_from`]; `None` also where no number is left.
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
    /// `None` if the cryptography refuses the key, which a sane build never does.
    pub(crate) fn new(cipher: Cipher, secret: Zeroizing<[u8; 32]>) -> Option<Sealer> {
        let secret = Secret(secret);
        Some(Sealer {
            cipher,
            key: Arc::new(secret.key(cipher)?),
            secret,
            next: 0,
        })
    }

    /// Encrypts `payload` where it lies, if the cipher hides anything. `None` if it cannot be: the
    /// datagram counts as lost.
    pub(crate) fn seal(
        &mut self,
        header: &[u8; HEADER_LEN],
        payload: &mut [u8],
    ) -> Option<Trailer> {
        let number = self.number()?;
        let tag = self.key.seal(number, header, payload)?;
        Some(trailer(number, &tag))
    }

    /// Puts `source`, sealed, in `place`, which is as long: in one pass, if the cipher can. Otherwise as
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

    /// Whether [`Sealer::seal_at`] can: the cipher's implementation takes an address.
    pub(crate) fn seals_at(&self) -> bool {
        self.key.takes_addresses()
    }

    /// As [`Sealer::seal_from`], of the bytes of `source`, an address and a length, which others may touch meanwhile: what
    /// is sealed is what was there at some moment of the call, aligned words whole if `source` is made of such.
    ///
    /// `None` also if [`Sealer::seals_at`] is false.
    ///
    /// # Safety
    /// They are mapped and readable as long as the call lasts, and none of them lies in `place`. No reference that writes
    /// is to them; other threads may touch them by atomic accesses, and the kernel as it likes.
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

    /// The next number, with its key in place.
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

    /// The next `count` numbers, for another thread to seal with. `None` if the key changes among them: some are left
    /// unused then.
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

    /// With which cipher.
    pub(crate) fn cipher(&self) -> Cipher {
        self.cipher
    }
}

/// What opens one datagram, wherever that is done.
pub(crate) struct Opening {
    key: Arc<Key>,
    number: u64,
    tag: one_pass::Tag,
}

impl Opening {
    /// Of the datagram.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// As [`Opener::open_into`]; false if the peer did not seal it.
    ///
    /// # Safety
    /// As there.
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

/// Opens what one end receives.
pub(crate) struct Opener {
    cipher: Cipher,
    /// Generation of `current`.
    generation: u64,
    /// For datagrams that were overtaken by the change of keys.
    previous: Option<Arc<Key>>,
    current: Arc<Key>,
    next: Arc<Key>,
    /// Secret of `next`.
    next_secret: Secret,
    window: ReplayWindow,
    forged: u64,
}

impl Opener {
    /// `None` if the cryptography refuses the key, which a sane build never does.
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

    /// Decrypts `payload` where it lies, if it was encrypted.
    ///
    /// # Errors
    /// It came before, or the peer did not seal it. `payload` is unspecified bytes then.
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

    /// Whether [`Opener::open_at`] and [`Opener::open_into`] can: the cipher's implementation takes an address.
    pub(crate) fn opens_at(&self) -> bool {
        self.current.takes_addresses()
    }

    /// As [`Opener::open`], of the `len` bytes at `place`, which others may touch meanwhile. What they store
    /// there is what they would have stored a moment later; what is opened there is what was sealed.
    ///
    /// # Errors
    /// As of [`Opener::open`]; always if [`Opener::opens_at`] is false.
    ///
    /// # Safety
    /// They are mapped and writable as long as the call lasts. No reference to them is alive; other threads
    /// may touch them by atomic accesses, and the kernel as it likes.
    pub(crate) unsafe fn open_at(
        &mut self,
        header: &[u8; HEADER_LEN],
        place: (*mut u8, usize),
        trailer: &Trailer,
    ) -> Result<(), DropReason> {
        // SAFETY: as promised.
        self.open_by(trailer, |key, number, tag| unsafe {
            let source = (place.0.cast_const(), place.1);
            key.open_at(number, header, source, place.0, tag)
        })
    }

    /// As [`Opener::open_at`], of `source` to the as many bytes at `place`.
    ///
    /// # Errors
    /// As of [`Opener::open_at`].
    ///
    /// # Safety
    /// As of [`Opener::open_at`].
    pub(crate) unsafe fn open_into(
        &mut self,
        header: &[u8; HEADER_LEN],
        source: &[u8],
        place: *mut u8,
        trailer: &Trailer,
    ) -> Result<(), DropReason> {
        // SAFETY: as promised.
        self.open_by(trailer, |key, number, tag| unsafe {
            let source = (source.as_ptr(), source.len());
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

    /// What opens the datagram of `trailer`, for another thread. What came of it is for [`Opener::opened`].
    ///
    /// # Errors
    /// It came before, or no key is its.
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

    /// Datagram `number` was opened, or was not the peer's.
    ///
    /// # Errors
    /// It was not, or another of its number was opened meanwhile.
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

    /// The peer has changed its key: so do we.
    fn advance(&mut self) {
        let secret = self.next_secret.next();
        // Without a key for after the next change, this one goes on until then.
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
