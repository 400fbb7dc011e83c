//! Tests that headers keep their layout, flags and checksums, and that errors name the field.
#![allow(non_snake_case)]
extern crate std;
use super::*;
use std::string::ToString;

#[test]
fn all__code_points_are_consecutive_from_one() {
    for (index, op) in Op::ALL.into_iter().enumerate() {
        assert_eq!(op as usize, index + 1);
        assert_eq!(Op::from_code(op as u8), Some(op));
    }
}

#[test]
fn parse__unassigned_code() {
    for code in [0, Op::ALL.len() as u8 + 1, 31] {
        let mut bytes = Header::new(Op::Nop).emit();
        bytes[0] = code << 3;
        let problem = Problem::Unassigned(u32::from(code));
        assert_eq!(
            Header::parse(&bytes),
            Err(ParseError::new(Field::Op, problem))
        );
    }
}

#[test]
fn parse__empty_and_one_byte_short() {
    let bytes = Header::new(Op::Nop).emit();
    for len in [0, HEADER_LEN - 1] {
        let problem = Problem::Truncated(len);
        assert_eq!(
            Header::parse(&bytes[..len]),
            Err(ParseError::new(Field::Header, problem))
        );
    }
}

#[test]
fn parse__leaves_the_payload_alone() {
    let header = Header::new(Op::Data);
    let mut datagram = [0xff; 1472];
    datagram[..HEADER_LEN].copy_from_slice(&header.emit());
    assert_eq!(Header::parse(&datagram), Ok(header));
}

#[test]
fn wide__bufx_is_the_high_half() {
    let header = Header::new(Op::RequestToSend).with_wide(0x0000_0001_0000_0002);
    assert_eq!((header.bufx, header.offset), (1, 2));
    assert_eq!(header.wide(), 0x0000_0001_0000_0002);
}

#[test]
fn from_bits__keeps_eleven() {
    assert_eq!(Flags::from_bits(0xffff).bits(), 0x7ff);
}

#[test]
fn flags__operation_bits_are_distinct() {
    let bits = [
        Flags::SILENT,
        Flags::INTERRUPT,
        Flags::SEND_STATE,
        Flags::REPLY,
        Flags::PROBE,
        Flags::READ,
        Flags::COMPLETE,
        Flags::UNKNOWN,
        Flags::FROM_SOURCE,
        Flags::REJECT,
    ];
    let union = bits.iter().fold(Flags::NONE, |all, &bit| all.with(bit));
    assert_eq!(union.bits().count_ones() as usize, bits.len());
}

#[test]
fn flags__capabilities_leave_reject_alone() {
    let bits = [
        Flags::CAP_CLASSIC,
        Flags::CAP_EXTENDED,
        Flags::CAP_CHECKSUM,
        Flags::CAP_OUT_OF_ORDER,
        Flags::CAP_PERSISTENT,
        Flags::REJECT,
    ];
    let union = bits.iter().fold(Flags::NONE, |all, &bit| all.with(bit));
    assert_eq!(union.bits().count_ones() as usize, bits.len());
}

#[test]
fn sealed__covers_header_and_payload() {
    let payload = b"an odd number of bytes!";
    let header = Header::new(Op::Data).with_wide(7).sealed(Sum::of(payload));
    assert_ne!(header.checksum, 0);
    assert_eq!(header.verify(Sum::of(payload)), Ok(()));
    let mismatch = Err(ParseError::new(Field::Checksum, Problem::Mismatch));
    assert_eq!(header.verify(Sum::of(b"an odd number of bytes?")), mismatch);
    assert_eq!(header.with_wide(6).verify(Sum::of(payload)), mismatch);
}

#[test]
fn sealed__twice_is_once() {
    let once = Header::new(Op::Nop).sealed(Sum::EMPTY);
    assert_eq!(once.sealed(Sum::EMPTY), once);
}

#[test]
fn verify__omitted() {
    assert_eq!(Header::new(Op::Data).verify(Sum::of(b"payload")), Ok(()));
}

#[test]
fn display__names_field_and_problem() {
    let error = ParseError::new(Field::Options, Problem::TooLong(33));
    assert_eq!(error.to_string(), "Options: too long, 33 bytes");
}
