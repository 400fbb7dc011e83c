//! Splits a stream of bytes into PDUs. It checks lengths against the limits before it allocates memory.

use super::digest::{self, BYTES};
use super::{Digests, HEADER_BYTES, Header};
use crate::limits::MAX_SEGMENT_BYTES;

/// A received PDU, not parsed further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawPdu {
    /// Its basic header segment.
    pub header: Header,
    /// Length of additional header segments. They are not kept, because no supported command has any.
    pub additional_bytes: usize,
    /// Its data, without padding.
    pub data: Vec<u8>,
}

/// Why a stream cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A data segment longer than was declared.
    #[error("a data segment of {0} bytes, at most {MAX_SEGMENT_BYTES} are allowed")]
    Length(usize),
    /// A damaged header.
    #[error("a wrong header digest")]
    HeaderDigest,
    /// Damaged data.
    #[error("a wrong data digest")]
    DataDigest,
}

/// Received bytes that do not form a whole PDU yet.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// Where the next PDU begins.
    at: usize,
}

impl Decoder {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.at == self.bytes.len() {
            self.bytes.clear();
        } else {
            self.bytes.drain(..self.at);
        }
        self.at = 0;
        self.bytes.extend(bytes);
    }

    /// The next whole PDU.
    ///
    /// # Errors
    /// The next bytes are not a valid PDU: the stream cannot be used further.
    pub fn next(&mut self, digests: Digests) -> Result<Option<RawPdu>, FrameError> {
        let bytes = &self.bytes[self.at..];
        let Some(&header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let additional_bytes = usize::from(header[4]) * 4;
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        if length > MAX_SEGMENT_BYTES {
            return Err(FrameError::Length(length));
        }
        let headers = HEADER_BYTES + additional_bytes;
        let start = headers + if digests.header { BYTES } else { 0 };
        let Some(before) = bytes.get(..start) else {
            return Ok(None);
        };
        if digests.header && digest::of(&before[..headers]) != before[headers..] {
            return Err(FrameError::HeaderDigest);
        }
        let padded = length.next_multiple_of(4);
        let tail = if digests.data && length > 0 { BYTES } else { 0 };
        let Some(body) = bytes.get(start..start + padded + tail) else {
            return Ok(None);
        };
        let (data, given) = body.split_at(padded);
        if tail > 0 && digest::of(data) != given {
            return Err(FrameError::DataDigest);
        }
        let pdu = RawPdu {
            header,
            additional_bytes,
            data: data[..length].to_vec(),
        };
        self.at += start + padded + tail;
        Ok(Some(pdu))
    }
}
