//! Defines the data of the program that travels with Request_Connection and Connection_Answer.

use super::{OPTIONS_LEN, out_of_range};
use crate::header::{Field, HEADER_LEN, Header, Op, ParseError, Problem};
use core::fmt;

/// Most bytes of private data.
pub const MAX_PRIVATE_DATA: usize = 64;

/// Bytes of the longest control datagram that is no padded probe: one with private data.
pub const MAX_CONTROL: usize = HEADER_LEN + OPTIONS_LEN + MAX_PRIVATE_DATA;

/// The byte of the options that says how many bytes of private data follow, plus 1. 0: there is none, and nothing
/// follows.
const COUNT: usize = 17;

/// Data of the program, up to [`MAX_PRIVATE_DATA`] bytes, that travels with the request for a connection or with its
/// answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PrivateData {
    len: u8,
    /// Zero from `len` on.
    bytes: [u8; MAX_PRIVATE_DATA],
}

impl PrivateData {
    /// No bytes. Unlike no private data, it asks for the data of the answer.
    pub const EMPTY: PrivateData = PrivateData {
        len: 0,
        bytes: [0; MAX_PRIVATE_DATA],
    };

    /// A copy of `data`.
    ///
    /// # Errors
    /// It is longer than [`MAX_PRIVATE_DATA`].
    pub fn new(data: &[u8]) -> Result<PrivateData, PrivateDataTooLong> {
        let mut this = PrivateData::EMPTY;
        let place = this.bytes.get_mut(..data.len());
        place
            .ok_or(PrivateDataTooLong(data.len()))?
            .copy_from_slice(data);
        this.len = data.len() as u8;
        Ok(this)
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Puts the data behind the options of the Request_Connection or Connection_Answer in `datagram`. Returns the new
    /// length, which is the same for all data.
    pub fn attach(&self, datagram: &mut [u8; MAX_CONTROL]) -> usize {
        datagram[HEADER_LEN + COUNT] = self.len + 1;
        datagram[HEADER_LEN + OPTIONS_LEN..].copy_from_slice(&self.bytes);
        datagram.len()
    }

    /// The private data of a control datagram that [`Packet::parse`](super::Packet::parse) accepted.
    pub fn of(datagram: &[u8]) -> Option<PrivateData> {
        let header = Header::parse(datagram).ok()?;
        PrivateData::parse(&header, &datagram[HEADER_LEN..]).ok()?
    }

    /// Whether an operation may have it.
    pub(super) const fn fits(op: Op) -> bool {
        matches!(op, Op::RequestConnection | Op::ConnectionAnswer)
    }

    /// The private data in `rest`, the bytes behind `header`, which are as long as options at least.
    pub(super) fn parse(header: &Header, rest: &[u8]) -> Result<Option<PrivateData>, ParseError> {
        const LONG: usize = OPTIONS_LEN + MAX_PRIVATE_DATA;
        let options = |problem| Err(ParseError::new(Field::Options, problem));
        if !PrivateData::fits(header.op) {
            return Ok(None);
        }
        let Some(&count) = rest.get(COUNT) else {
            return options(Problem::Truncated(rest.len()));
        };
        match (count.checked_sub(1), rest.len()) {
            (None, OPTIONS_LEN) => Ok(None),
            (None, len) => options(Problem::TooLong(len)),
            (Some(len), LONG) => {
                let data = rest[OPTIONS_LEN..].get(..len.into());
                let data = data.ok_or(out_of_range(Field::Options, count.into()))?;
                Ok(PrivateData::new(data).ok())
            }
            (Some(_), len) => options(Problem::Truncated(len)),
        }
    }
}

impl fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PrivateData")
            .field(&self.as_slice())
            .finish()
    }
}

impl TryFrom<&[u8]> for PrivateData {
    type Error = PrivateDataTooLong;

    fn try_from(data: &[u8]) -> Result<PrivateData, PrivateDataTooLong> {
        PrivateData::new(data)
    }
}

/// Private data of this many bytes is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PrivateDataTooLong(pub usize);

impl fmt::Display for PrivateDataTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "private data has {} bytes: give at most {MAX_PRIVATE_DATA}",
            self.0
        )
    }
}

impl core::error::Error for PrivateDataTooLong {}

#[cfg(test)]
#[path = "private_tests.rs"]
mod tests;
