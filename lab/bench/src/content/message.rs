//! Fills and checks messages, so that each can be told from every other.
//!
//! A message of a given length carries the same bytes each time, drawn from the seed, except for its *stamp*: the first
//! eight bytes give the number of the message, and the last eight depend on it. A stamp costs two stores to write and two
//! loads to check, the same for every contender and size. Every message of a run is therefore checked in the timed part; all
//! bytes are checked outside it.

use anyhow::{Context, Result, ensure};

use super::pattern::mix;
use zerolane_cli::exit::Exit;

const WORD: usize = 8;

/// The content of messages of one length.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    seed: u64,
    base: Vec<u8>,
}

impl Content {
    /// Messages of up to `len` bytes. Both ends of a run use the same seed.
    pub(crate) fn new(seed: u64, len: usize) -> Content {
        let words = (0..len.div_ceil(WORD) as u64).flat_map(|at| mix(seed, at).to_le_bytes());
        Content {
            seed,
            base: words.take(len).collect(),
        }
    }

    /// What the other end sends in reply: never equal to what this end sends.
    pub(crate) fn reply(seed: u64, len: usize) -> Content {
        Content::new(!seed, len)
    }

    /// Fills `message` as it is before its stamp.
    pub(crate) fn fill(&self, message: &mut [u8]) {
        message.copy_from_slice(&self.base[..message.len()]);
    }

    /// Makes `message` the one of this number.
    pub(crate) fn stamp(&self, message: &mut [u8], index: u64) {
        let len = message.len();
        let head = len.min(WORD);
        message[..head].copy_from_slice(&self.head(index).to_le_bytes()[..head]);
        if let Some(tail) = tail(len) {
            message[tail..].copy_from_slice(&mix(self.seed, index).to_le_bytes());
        }
    }

    /// The number of `message`, as far as its length can tell it: modulo 256 to the power of its
    /// length.
    pub(crate) fn index(&self, message: &[u8]) -> u64 {
        let mut word = [0; WORD];
        let head = message.len().min(WORD);
        word[..head].copy_from_slice(&message[..head]);
        (u64::from_le_bytes(word) ^ self.seed) & mask(head)
    }

    /// Whether `message` has the stamp of this number.
    pub(crate) fn is(&self, message: &[u8], index: u64) -> bool {
        let end = match tail(message.len()) {
            Some(tail) => message[tail..] == mix(self.seed, index).to_le_bytes(),
            None => true,
        };
        let head = message.len().min(WORD);
        end && message[..head] == self.head(index).to_le_bytes()[..head]
    }

    /// Fails unless `message` has the stamp of this number.
    pub(crate) fn check(&self, message: &[u8], index: u64) -> Result<()> {
        ensure!(
            self.is(message, index),
            anyhow::Error::new(Exit::Corrupt).context(format!(
                "a message of {} bytes is not number {index}",
                message.len()
            ))
        );
        Ok(())
    }

    /// Fails unless every byte of `message` is as in the one of this number.
    pub(crate) fn check_all(&self, message: &[u8], index: u64) -> Result<()> {
        let mut right = self.base[..message.len()].to_vec();
        self.stamp(&mut right, index);
        let wrong = message.iter().zip(&right).position(|(is, be)| is != be);
        match wrong {
            None => Ok(()),
            Some(at) => {
                Err(Exit::Corrupt).with_context(|| format!("byte {at} of message {index} is wrong"))
            }
        }
    }

    /// The same, but for one byte.
    #[cfg(test)]
    pub(crate) fn wrong_at(&self, byte: usize) -> Content {
        let mut wrong = self.clone();
        wrong.base[byte] ^= 1;
        wrong
    }

    fn head(&self, index: u64) -> u64 {
        index ^ self.seed
    }
}

/// Where the second half of the stamp is, in messages that have room for both.
fn tail(len: usize) -> Option<usize> {
    (len >= 2 * WORD).then(|| len - WORD)
}

/// The values that this many bytes can have, less one.
pub(crate) fn mask(bytes: usize) -> u64 {
    match bytes {
        0 => 0,
        1..WORD => (1 << (8 * bytes)) - 1,
        _ => u64::MAX,
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn message(content: &Content, len: usize, index: u64) -> Vec<u8> {
        let mut message = vec![0; len];
        content.fill(&mut message);
        content.stamp(&mut message, index);
        message
    }

    #[test]
    fn check__knows_its_message_of_every_length() {
        for len in [1, 2, 7, 8, 9, 15, 16, 17, 1000] {
            let content = Content::new(3, len);
            let good = message(&content, len, 200);
            content.check(&good, 200).unwrap();
            content.check_all(&good, 200).unwrap();
            assert_eq!(content.index(&good), 200, "{len}");
            assert!(content.check(&good, 201).is_err(), "{len}");
            assert!(Content::reply(3, len).check(&good, 200).is_err(), "{len}");
        }
    }

    #[test]
    fn check_all__finds_any_wrong_byte() {
        let content = Content::new(9, 100);
        for at in 0..100 {
            let mut bad = message(&content, 100, 5);
            bad[at] ^= 1;
            let error = content.check_all(&bad, 5).unwrap_err();
            assert_eq!(Exit::of(&error), Exit::Corrupt);
        }
    }

    #[test]
    fn index__of_one_byte_is_the_number_modulo_256() {
        let content = Content::new(9, 1);
        assert_eq!(content.index(&message(&content, 1, 0x1234)), 0x34);
    }
}
