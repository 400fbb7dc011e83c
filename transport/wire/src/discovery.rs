//! Encodes discovery: a question for a name to all hosts of an Ethernet segment, and the answers of listening hosts.
//!
//! ```text
//! | 29, 3 zero bits | kind | length of the name | 0 | port: 2 | 0: 10 | nonce: 8 | name, then zeros: 64 |
//! ```
//! Question and answer have the same length, so discovery amplifies no traffic. Both are unencrypted and prove nothing:
//! an answer is an address to try, and the key exchange there authenticates the host. Only Ethernet frames carry them:
//! see `docs/reference/protocol.md`, "Discovery".

use crate::encapsulation::{MIN_FRAME, PADDED_CODE};
use crate::header::{Field, Op, ParseError, Problem};

/// Code point in the place of Op's, distinct from the operations, padding and the handshake.
pub const DISCOVERY_CODE: u8 = 29;
/// Bytes of a question or answer.
pub const DISCOVERY_LEN: usize = NAME_AT + NAME_PLACE;
/// Bytes of the longest name.
pub const MAX_NEIGHBOUR_NAME: usize = 63;

const NONCE_AT: usize = 16;
const NAME_AT: usize = 24;
const NAME_PLACE: usize = MAX_NEIGHBOUR_NAME + 1;

/// The kind of a discovery datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DiscoveryKind {
    /// Asks for hosts with this name. An empty name asks all.
    Question = 1,
    /// This host has the name, and listens at the port.
    Answer = 2,
}

/// A question or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Discovery<'a> {
    /// The kind.
    pub kind: DiscoveryKind,
    /// In an answer: the listening port. 0 in a question.
    pub port: u16,
    /// Drawn for the question, repeated in the answer.
    pub nonce: [u8; 8],
    /// The name: see [`is_neighbour_name`]. May be empty in a question.
    pub name: &'a str,
}

/// Whether a host may have this name: 1 to 63 ASCII letters, digits, `-`, `_` and `.`, of which the first is a letter
/// or a digit.
pub fn is_neighbour_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let is_sign = |it: &u8| matches!(it, b'-' | b'_' | b'.');
    (1..=MAX_NEIGHBOUR_NAME).contains(&bytes.len())
        && bytes[0].is_ascii_alphanumeric()
        && bytes
            .iter()
            .all(|it| it.is_ascii_alphanumeric() || is_sign(it))
}

impl<'a> Discovery<'a> {
    /// Whether `datagram` has the discovery code. Reads five bits.
    pub fn is(datagram: &[u8]) -> bool {
        datagram
            .first()
            .is_some_and(|first| first >> 3 == DISCOVERY_CODE)
    }

    /// Parses the content of a frame.
    ///
    /// # Errors
    /// Names the field: wrong length or code, an unassigned kind, an invalid name, or nonzero bytes where zeros belong.
    pub fn parse(datagram: &'a [u8]) -> Result<Discovery<'a>, ParseError> {
        let error = |field, problem| Err(ParseError::new(field, problem));
        let Ok(whole) = <&[u8; DISCOVERY_LEN]>::try_from(datagram) else {
            let len = datagram.len();
            return match len < DISCOVERY_LEN {
                true => error(Field::Encapsulation, Problem::Truncated(len)),
                false => error(Field::Encapsulation, Problem::TooLong(len)),
            };
        };
        if whole[0] != DISCOVERY_CODE << 3 {
            return error(Field::Op, Problem::Unassigned(u32::from(whole[0])));
        }
        let kind = match whole[1] {
            1 => DiscoveryKind::Question,
            2 => DiscoveryKind::Answer,
            other => return error(Field::Param, Problem::Unassigned(u32::from(other))),
        };
        let len = usize::from(whole[2]);
        let out_of_range = Problem::OutOfRange(len as u64);
        let Some((name, behind)) = whole[NAME_AT..].split_at_checked(len) else {
            return error(Field::Options, out_of_range);
        };
        let zeros = [&whole[3..4], &whole[6..NONCE_AT], behind];
        if zeros.into_iter().flatten().any(|&it| it != 0) {
            return error(Field::Options, Problem::Unassigned(1));
        }
        let name = core::str::from_utf8(name).unwrap_or("\0");
        let asks_all = kind == DiscoveryKind::Question && name.is_empty();
        if !asks_all && !is_neighbour_name(name) {
            return error(Field::Options, out_of_range);
        }
        let mut nonce = [0; 8];
        nonce.copy_from_slice(&whole[NONCE_AT..NAME_AT]);
        Ok(Discovery {
            kind,
            port: u16::from_be_bytes([whole[4], whole[5]]),
            nonce,
            name,
        })
    }

    /// The bytes on the wire. Truncates a name that is too long.
    pub fn emit(&self) -> [u8; DISCOVERY_LEN] {
        let mut bytes = [0; DISCOVERY_LEN];
        let len = self.name.len().min(MAX_NEIGHBOUR_NAME);
        bytes[0] = DISCOVERY_CODE << 3;
        bytes[1] = self.kind as u8;
        bytes[2] = len as u8;
        bytes[4..6].copy_from_slice(&self.port.to_be_bytes());
        bytes[NONCE_AT..NAME_AT].copy_from_slice(&self.nonce);
        bytes[NAME_AT..NAME_AT + len].copy_from_slice(&self.name.as_bytes()[..len]);
        bytes
    }
}

const _: () = assert!(Op::ALL.len() < DISCOVERY_CODE as usize && DISCOVERY_CODE < PADDED_CODE);
// It needs no padding.
const _: () = assert!(DISCOVERY_LEN >= MIN_FRAME);

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    extern crate std;
    use super::*;
    use std::prelude::v1::*;

    const ANSWER: Discovery<'_> = Discovery {
        kind: DiscoveryKind::Answer,
        port: 0x1234,
        nonce: [1, 2, 3, 4, 5, 6, 7, 8],
        name: "box-1.example",
    };

    #[test]
    fn emit__is_laid_out_as_the_protocol_has_it() {
        let bytes = ANSWER.emit();
        assert_eq!(bytes.len(), 88);
        assert_eq!(bytes[..8], [29 << 3, 2, 13, 0, 0x12, 0x34, 0, 0]);
        // The place of a connection's key, which is never 0.
        assert_eq!(bytes[8..16], [0; 8]);
        assert_eq!(bytes[16..24], ANSWER.nonce);
        assert_eq!(&bytes[24..37], b"box-1.example");
        assert_eq!(bytes[37..], [0; 51]);
        assert_eq!(Discovery::parse(&bytes), Ok(ANSWER));
    }

    #[test]
    fn parse__refuses_every_other_bit_where_zeros_belong() {
        let good = ANSWER.emit();
        for at in (0..DISCOVERY_LEN).filter(|at| !matches!(at, 4..6 | 16..37)) {
            for bit in 0..8 {
                let mut bytes = good;
                bytes[at] ^= 1 << bit;
                if let Ok(read) = Discovery::parse(&bytes) {
                    // Accepted only as a question with that name, with a port.
                    assert!(at < 3 && read.emit() == bytes, "{at} {bit}");
                }
            }
        }
        for len in 0..DISCOVERY_LEN {
            assert!(Discovery::parse(&good[..len]).is_err(), "{len}");
        }
        assert!(Discovery::parse(&[&good[..], &[0]].concat()).is_err());
    }

    #[test]
    fn parse__names_that_a_host_may_have() {
        let of = |kind, name| {
            let bytes = Discovery {
                kind,
                name,
                ..ANSWER
            }
            .emit();
            Discovery::parse(&bytes).is_ok()
        };
        let long = "n".repeat(MAX_NEIGHBOUR_NAME);
        for good in ["a", "A-1_b.c", "7", &long] {
            assert!(
                of(DiscoveryKind::Answer, good) && of(DiscoveryKind::Question, good),
                "{good}"
            );
        }
        for bad in ["a b", "a:b", "a/b", ".a", "-a", "_a", "\u{1b}[2J", "\u{e9}"] {
            assert!(
                !of(DiscoveryKind::Answer, bad) && !of(DiscoveryKind::Question, bad),
                "{bad}"
            );
        }
        assert!(of(DiscoveryKind::Question, "") && !of(DiscoveryKind::Answer, ""));
        assert!(!is_neighbour_name(&"n".repeat(MAX_NEIGHBOUR_NAME + 1)));
    }
}
