//! Derives a key from a one-time code, a few digits that two people read to each other.
//!
//! An attacker can test a code only by taking part in an exchange, once per try. SPAKE2 on Ed25519 (Abdalla and
//! Pointcheval, RSA 2005) turns the code into a key that an end has only if it knew the code at that moment. Its two
//! messages travel as payload of the first two messages of the Noise exchange, and the key is mixed in before the third
//! (XXpsk3). So the exchange proves the code, and binds the transcript with both ends' keys to it, without a further
//! message.

use crate::noise::Role;
use core::fmt;
use core::str::FromStr;
use rand_core::{CryptoRng, RngCore};
use spake2::{Ed25519Group, Identity, Password, Spake2};
use zeroize::Zeroizing;

/// Digits of a code: with [`CODE_GUESSES`](crate::limits::CODE_GUESSES) tries, one attacker in 33 million succeeds.
const DIGITS: usize = 8;
/// Number of different codes.
const CODES: u64 = 100_000_000;
/// Bytes of either end's message.
pub(crate) const SHARE_LEN: usize = 33;

/// A one-time code: eight digits, `1234-5678` in text. Wiped from memory when dropped, never shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Code(Zeroizing<[u8; DIGITS]>);

impl Code {
    /// A code from unpredictable bytes.
    pub fn from_random(random: [u8; 32]) -> Code {
        let random = Zeroizing::new(random);
        let mut number = [0; 8];
        number.copy_from_slice(&random[..8]);
        let mut rest = u64::from_le_bytes(number) % CODES;
        let mut digits = Zeroizing::new([b'0'; DIGITS]);
        for digit in digits.iter_mut().rev() {
            *digit += (rest % 10) as u8;
            rest /= 10;
        }
        Code(digits)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, &digit) in self.0.iter().enumerate() {
            let dash = if index == DIGITS / 2 { "-" } else { "" };
            write!(f, "{dash}{}", char::from(digit))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Code")
    }
}

/// The text is not a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeError;

impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a code: expected eight digits, such as 1234-5678")
    }
}

impl std::error::Error for CodeError {}

/// Parses a code as people write it: ignores dashes and spaces between the digits.
impl FromStr for Code {
    type Err = CodeError;
    fn from_str(text: &str) -> Result<Code, CodeError> {
        let mut digits = Zeroizing::new([0; DIGITS]);
        let mut count = 0;
        for byte in text.bytes().filter(|byte| !b"- ".contains(byte)) {
            *digits.get_mut(count).ok_or(CodeError)? = byte;
            count += 1;
            if !byte.is_ascii_digit() {
                return Err(CodeError);
            }
        }
        match count {
            DIGITS => Ok(Code(digits)),
            _ => Err(CodeError),
        }
    }
}

/// One end's half of an agreement.
pub(crate) struct Agreement(Spake2<Ed25519Group>);

/// Begins an agreement: returns this end's half, and the message for the other end. Depends only on the code and
/// `ephemeral`, because an answer may have to be computed again.
pub(crate) fn begin(role: Role, code: &Code, ephemeral: &[u8; 32]) -> (Agreement, [u8; SHARE_LEN]) {
    let seed = blake3::Hasher::new_derive_key("Zerolane 1, scalar of a code's agreement")
        .update(ephemeral)
        .finalize_xof();
    let password = Password::new(&code.0[..]);
    let initiator = Identity::new(b"Zerolane Initiator");
    let responder = Identity::new(b"Zerolane Responder");
    let begin = match role {
        Role::Initiator => Spake2::start_a_with_rng,
        Role::Responder => Spake2::start_b_with_rng,
    };
    let (half, message) = begin(&password, &initiator, &responder, Stretched(seed));
    let mut share = [0; SHARE_LEN];
    let len = message.len().min(SHARE_LEN);
    share[..len].copy_from_slice(&message[..len]);
    (Agreement(half), share)
}

impl Agreement {
    /// The key, equal at both ends if they had the same code. `None` if `theirs` is not a valid message.
    pub(crate) fn finish(self, theirs: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
        let key = Zeroizing::new(self.0.finish(theirs).ok()?);
        let mut out = Zeroizing::new([0; 32]);
        match key.len() {
            32 => out.copy_from_slice(&key),
            _ => return None,
        }
        Some(out)
    }
}

/// Random bytes, stretched to any length.
struct Stretched(blake3::OutputReader);

impl RngCore for Stretched {
    fn next_u32(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.0.fill(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill_bytes(bytes);
        Ok(())
    }
}

impl CryptoRng for Stretched {}
