//! Packs several control operations into one datagram, and parses them.
//!
//! The ports and the key of the operations come first, where a header has them, so that filters find them: behind a code
//! that is no operation's, and three zeros. In front of each operation is a byte with its length.

use crate::header::{Field, HEADER_LEN, ParseError, Problem};
use crate::operation::OPTIONS_LEN;

/// Most bytes of a datagram with several control operations: every path of IPv4 carries it, sealed.
pub const MAX_CONTROLS: usize = 400;

/// The code in place of an operation's.
const SEVERAL_CODE: u8 = 28;
/// The first four bytes.
const START: [u8; 4] = [SEVERAL_CODE << 3, 0, 0, 0];
/// Bytes in front of the first operation: the start, ports and key.
const HEAD_LEN: usize = 12;

/// The control operations of a datagram, whose form was checked as a whole. Yields the bytes of each.
#[derive(Clone, Debug)]
pub struct Controls<'a> {
    rest: &'a [u8],
}

impl<'a> Controls<'a> {
    /// Whether `datagram` has several control operations.
    pub fn is(datagram: &[u8]) -> bool {
        datagram.starts_with(&START)
    }

    /// Parses a datagram for which [`Controls::is`] holds.
    ///
    /// # Errors
    /// [`Field::Frame`]: there is no operation, the datagram is longer than [`MAX_CONTROLS`], or an operation has
    /// another length than its header without or with options, or is longer than the datagram.
    pub fn parse(datagram: &'a [u8]) -> Result<Controls<'a>, ParseError> {
        let broken = |problem| Err(ParseError::new(Field::Frame, problem));
        if datagram.len() > MAX_CONTROLS {
            return broken(Problem::TooLong(datagram.len()));
        }
        let all = datagram.get(HEAD_LEN..).unwrap_or_default();
        let mut rest = all;
        loop {
            let Some((&len, after)) = rest.split_first() else {
                return broken(Problem::Truncated(rest.len()));
            };
            if !has_form(len.into()) {
                return broken(Problem::OutOfRange(len.into()));
            }
            rest = match after.get(usize::from(len)..) {
                Some([]) => return Ok(Controls { rest: all }),
                Some(rest) => rest,
                None => return broken(Problem::Truncated(after.len())),
            };
        }
    }

    /// Whether an operation of these bytes may share a datagram that has `len` bytes so far, or is new (0).
    pub fn takes(len: usize, operation: &[u8]) -> bool {
        has_form(operation.len()) && len.max(HEAD_LEN) + 1 + operation.len() <= MAX_CONTROLS
    }

    /// Adds an operation to the `len` bytes of a datagram that [takes](Controls::takes) it. Returns their new number.
    pub fn push(datagram: &mut [u8; MAX_CONTROLS], len: usize, operation: &[u8]) -> usize {
        if len == 0 {
            datagram[..START.len()].copy_from_slice(&START);
            datagram[START.len()..HEAD_LEN].copy_from_slice(&operation[START.len()..HEAD_LEN]);
        }
        let at = len.max(HEAD_LEN);
        datagram[at] = operation.len() as u8;
        let end = at + 1 + operation.len();
        datagram[at + 1..end].copy_from_slice(operation);
        end
    }
}

impl<'a> Iterator for Controls<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (&len, after) = self.rest.split_first()?;
        let (operation, rest) = after.split_at_checked(len.into())?;
        self.rest = rest;
        Some(operation)
    }
}

const fn has_form(len: usize) -> bool {
    len == HEADER_LEN || len == HEADER_LEN + OPTIONS_LEN
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use crate::header::Header;

    const LONG: [u8; HEADER_LEN + OPTIONS_LEN] = [7; HEADER_LEN + OPTIONS_LEN];
    const SHORT: [u8; HEADER_LEN] = [9; HEADER_LEN];

    /// A short operation and a long one.
    fn two() -> ([u8; MAX_CONTROLS], usize) {
        let mut datagram = [0; MAX_CONTROLS];
        let len = Controls::push(&mut datagram, 0, &SHORT);
        let len = Controls::push(&mut datagram, len, &LONG);
        (datagram, len)
    }

    #[test]
    fn parse__yields_what_was_pushed() {
        let (datagram, len) = two();
        assert!(Controls::is(&datagram));
        assert_eq!(datagram[4..12], SHORT[4..12], "ports and key");
        let mut all = Controls::parse(&datagram[..len]).expect("whole");
        assert_eq!(
            (all.next(), all.next()),
            (Some(&SHORT[..]), Some(&LONG[..]))
        );
        assert_eq!(all.next(), None);
        assert!(Header::parse(&datagram).is_err(), "no operation of its own");
    }

    #[test]
    fn takes__as_many_as_fit() {
        let mut datagram = [0; MAX_CONTROLS];
        let (mut len, mut pushed) = (0, 0);
        while Controls::takes(len, &LONG) {
            len = Controls::push(&mut datagram, len, &LONG);
            pushed += 1;
        }
        assert_eq!(pushed, 5);
        assert_eq!(Controls::parse(&datagram[..len]).expect("whole").count(), 5);
        assert!(!Controls::takes(0, &[0; HEADER_LEN + 8]), "a value");
    }

    #[test]
    fn parse__refuses_what_is_not_whole() {
        let (datagram, whole) = two();
        for len in (1..whole).filter(|&it| it != HEAD_LEN + 1 + SHORT.len()) {
            assert!(Controls::parse(&datagram[..len]).is_err(), "{len}");
        }
        for len in [0, 1, 39, 41, 71, 73, 136, 255] {
            let mut wrong = datagram;
            wrong[HEAD_LEN] = len;
            assert!(Controls::parse(&wrong[..whole]).is_err(), "{len}");
        }
        assert!(Controls::parse(&[72; MAX_CONTROLS + 1]).is_err());
    }
}
