//! Tests that private data arrives as given, and that other lengths are refused.
#![allow(non_snake_case)]
use super::super::{Operation, Packet};
use super::*;
use crate::checksum::Sum;
use crate::header::Flags;
use std::vec::Vec;

extern crate std;

/// A Request_Connection or Connection_Answer without private data.
fn bare(op: Op) -> [u8; HEADER_LEN + OPTIONS_LEN] {
    let header = Header {
        flags: Flags::CAP_EXTENDED,
        param: match op {
            Op::RequestConnection => 0x0101,
            _ => 1,
        },
        b_id: 1,
        bufx: 1,
        ..Header::new(op)
    };
    let mut bytes = [0; HEADER_LEN + OPTIONS_LEN];
    bytes[..HEADER_LEN].copy_from_slice(&header.emit());
    if op == Op::RequestConnection {
        bytes[HEADER_LEN..][..8].copy_from_slice(b"Zerolane");
    }
    bytes
}

fn with(op: Op, data: &PrivateData) -> [u8; MAX_CONTROL] {
    let mut bytes = [0; MAX_CONTROL];
    let bare = bare(op);
    bytes[..bare.len()].copy_from_slice(&bare);
    assert_eq!(data.attach(&mut bytes), MAX_CONTROL);
    bytes
}

const BOTH: [Op; 2] = [Op::RequestConnection, Op::ConnectionAnswer];

#[test]
fn of__every_length_as_given() {
    let longest: Vec<u8> = (1..=MAX_PRIVATE_DATA as u8).collect();
    for op in BOTH {
        for len in 0..=MAX_PRIVATE_DATA {
            let data = PrivateData::new(&longest[..len]).expect("short enough");
            let bytes = with(op, &data);
            let packet = Packet::parse(&bytes).expect("valid");
            assert_eq!(packet.operation.op(), op);
            let read = PrivateData::of(&bytes).expect("there is some");
            assert_eq!(read.as_slice(), &longest[..len]);
        }
    }
}

#[test]
fn of__none_in_a_datagram_of_before() {
    for op in BOTH {
        let bytes = bare(op);
        assert!(Packet::parse(&bytes).is_ok());
        assert_eq!(PrivateData::of(&bytes), None);
    }
    assert_eq!(PrivateData::of(&Header::new(Op::Nop).emit()), None);
    assert_eq!(PrivateData::of(&[]), None);
}

#[test]
fn new__refuses_what_is_too_long() {
    let refused = PrivateData::new(&[0; MAX_PRIVATE_DATA + 1]);
    assert_eq!(refused, Err(PrivateDataTooLong(65)));
    let said = std::format!("{}", PrivateDataTooLong(65));
    assert_eq!(said, "private data has 65 bytes: give at most 64");
}

#[test]
fn parse__other_lengths_are_refused() {
    let whole = PrivateData::new(&[7; MAX_PRIVATE_DATA]).expect("short enough");
    for op in BOTH {
        let bytes = with(op, &whole);
        for len in HEADER_LEN..MAX_CONTROL {
            let error = Packet::parse(&bytes[..len]).expect_err("cut off");
            assert_eq!(error.field, Field::Options, "{len} bytes");
        }
        let longer = [&bytes[..], &[0]].concat();
        let error = Packet::parse(&longer).expect_err("a byte too many");
        let too_long = Problem::TooLong(OPTIONS_LEN + MAX_PRIVATE_DATA + 1);
        assert_eq!(error, ParseError::new(Field::Options, too_long));
        let count = HEADER_LEN + COUNT;
        for said in [0, 66, 255] {
            let mut bytes = bytes;
            bytes[count] = said;
            let error = Packet::parse(&bytes).expect_err("another length");
            assert_eq!(error.field, Field::Options);
            assert_eq!(PrivateData::of(&bytes), None);
        }
        let mut none = bare(op);
        none[OPTIONS_LEN + HEADER_LEN - 1] = 1;
        assert!(Packet::parse(&none).is_ok(), "a byte without a meaning");
        none[count] = 1;
        assert!(Packet::parse(&none).is_err(), "it promises data");
    }
}

#[test]
fn parse__no_other_operation_has_it() {
    let mut bytes = with(Op::RequestConnection, &PrivateData::EMPTY);
    bytes[..HEADER_LEN].copy_from_slice(&Header::new(Op::Nop).emit());
    let error = Packet::parse(&bytes).expect_err("too long");
    let too_long = Problem::TooLong(OPTIONS_LEN + MAX_PRIVATE_DATA);
    assert_eq!(error, ParseError::new(Field::Options, too_long));
}

#[test]
fn parse__a_checksum_covers_it() {
    let data = PrivateData::new(b"of the program").expect("short enough");
    let mut bytes = with(Op::RequestConnection, &data);
    let header = Header::parse(&bytes).expect("valid");
    let sealed = header.sealed(Sum::of(&bytes[HEADER_LEN..]));
    bytes[..HEADER_LEN].copy_from_slice(&sealed.emit());
    let parsed = Packet::parse(&bytes).expect("valid");
    assert!(matches!(parsed.operation, Operation::RequestConnection(_)));
    bytes[MAX_CONTROL - 1] ^= 1;
    let error = Packet::parse(&bytes).expect_err("changed");
    assert_eq!(error.field, Field::Checksum);
}
