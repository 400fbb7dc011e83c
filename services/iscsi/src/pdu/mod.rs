//! Parses and builds protocol data units (RFC 7143, 11).
//!
//! Parser and builder stand side by side, so portal, initiators and tests share one definition.

mod answer;
mod decoder;
mod digest;
mod request;

pub use answer::{Answer, AnswerBody, Sequence};
pub use decoder::{Decoder, FrameError, RawPdu};
pub use digest::Digests;
pub use request::{Request, RequestBody, RequestError};

/// Bytes of the basic header segment.
pub const HEADER_BYTES: usize = 48;

/// A tag that names nothing.
pub const NO_TAG: u32 = u32::MAX;

/// A basic header segment.
pub type Header = [u8; HEADER_BYTES];

/// Operation codes.
pub mod opcode {
    #![allow(missing_docs)] // The names are the standard's.
    pub const NOP_OUT: u8 = 0x00;
    pub const COMMAND: u8 = 0x01;
    pub const MANAGEMENT: u8 = 0x02;
    pub const LOGIN: u8 = 0x03;
    pub const TEXT: u8 = 0x04;
    pub const DATA_OUT: u8 = 0x05;
    pub const LOGOUT: u8 = 0x06;
    pub const SNACK: u8 = 0x10;
    pub const NOP_IN: u8 = 0x20;
    pub const RESPONSE: u8 = 0x21;
    pub const MANAGEMENT_RESPONSE: u8 = 0x22;
    pub const LOGIN_RESPONSE: u8 = 0x23;
    pub const TEXT_RESPONSE: u8 = 0x24;
    pub const DATA_IN: u8 = 0x25;
    pub const LOGOUT_RESPONSE: u8 = 0x26;
    pub const R2T: u8 = 0x31;
    pub const REJECT: u8 = 0x3f;
}

/// Why a PDU is rejected (RFC 7143, 11.17.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)] // The names are the standard's.
pub enum Reason {
    Snack = 0x03,
    Protocol = 0x04,
    NotSupported = 0x05,
    TooManyImmediate = 0x06,
    TaskInProgress = 0x07,
    InvalidField = 0x09,
}

fn word(header: &Header, at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

fn half(header: &Header, at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

fn lun(header: &Header) -> [u8; 8] {
    let mut lun = [0; 8];
    lun.copy_from_slice(&header[8..16]);
    lun
}

fn put_word(header: &mut Header, at: usize, value: u32) {
    header[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

fn put_half(header: &mut Header, at: usize, value: u16) {
    header[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Appends a PDU without additional headers: header, data, padding, digests.
fn frame(into: &mut Vec<u8>, mut header: Header, data: &[u8], digests: Digests) {
    let length = data.len() as u32;
    header[5..8].copy_from_slice(&length.to_be_bytes()[1..]);
    into.extend(header);
    if digests.header {
        into.extend(digest::of(&header));
    }
    if data.is_empty() {
        return;
    }
    let start = into.len();
    into.extend(data);
    into.resize(start + data.len().next_multiple_of(4), 0);
    if digests.data {
        let digest = digest::of(&into[start..]);
        into.extend(digest);
    }
}
