//! Tests that frames omit shared fields, and that invalid frames are named.
#![allow(non_snake_case)]
extern crate std;
use super::*;
use crate::Op;
use std::vec;
use std::vec::Vec;

fn put(sync: u32, offset: u32) -> Header {
    Header {
        flags: Flags::SILENT,
        b_id: 9,
        bufx: 3,
        offset,
        sync,
        d_id: 1 << 31 | 9,
        s_id: sync.wrapping_add(70),
        ..Header::new(Op::Data)
    }
}

fn content(operations: &[(Header, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![];
    let mut before = None;
    for (header, payload) in operations {
        let it = FrameFields::of(header);
        let head = FrameHead::new(before, it, payload.len() as u16);
        let mut place = [0xee; MAX_FRAME_HEAD_LEN];
        let len = head.emit_into(&mut place);
        assert_eq!(len, head.size());
        bytes.extend_from_slice(&place[..len]);
        bytes.extend_from_slice(payload);
        before = Some(it);
    }
    bytes
}

fn problem(content: &[u8]) -> Problem {
    let error = Frames::parse(&Frames::header(&put(0, 0)), content).unwrap_err();
    assert_eq!(error.field, Field::Frame);
    error.problem
}

#[test]
fn frames__of_one_region_cost_seven_bytes_each() {
    let operations = [
        (put(5, 0), &b"abc"[..]),
        (put(6, 64), b""),
        (put(7, 8), b"z"),
    ];
    let mut bytes = content(&operations);
    assert_eq!(bytes.len(), 3 * 7 + 4);
    bytes.resize(60, 0);
    let frames = Frames::parse(&Frames::header(&operations[0].0), &bytes).unwrap();
    assert_eq!(frames.len(), 3);
    assert_eq!(frames.collect::<Vec<_>>(), operations);
}

#[test]
fn frames__say_what_does_not_follow_from_the_one_before() {
    let message = Header {
        flags: Flags::INTERRUPT,
        b_id: 0,
        bufx: 0,
        d_id: 1 << 31,
        s_id: 8,
        b_num: 77,
        ..put(6, 0)
    };
    let last = Header {
        flags: Flags::CONTINUES.with(Flags::SILENT),
        s_id: 9,
        ..put(7, 1)
    };
    let operations = [(put(5, 0), &b"1"[..]), (message, b"22"), (last, b"333")];
    let bytes = content(&operations);
    assert_eq!(bytes.len(), 3 * 7 + 2 * 10 + 4 + 4 + 6);
    let frames = Frames::parse(&Frames::header(&operations[0].0), &bytes).unwrap();
    assert_eq!(frames.collect::<Vec<_>>(), operations);
}

#[test]
fn frames__the_last_one_asks() {
    let asking = Header {
        flags: Flags::SEND_STATE.with(Flags::SILENT),
        ..put(u32::MAX, 0)
    };
    let bytes = content(&[(asking, b"1"), (put(0, 8), b"2")]);
    let frames = Frames::parse(&Frames::header(&asking), &bytes).unwrap();
    let asks =
        |(header, _): (Header, &[u8])| (header.sync, header.flags.contains(Flags::SEND_STATE));
    let asks: Vec<_> = frames.map(asks).collect();
    assert_eq!(asks, [(u32::MAX, false), (0, true)]);
}

#[test]
fn parse__names_what_is_wrong() {
    let good = content(&[(put(0, 0), b"abc"), (put(1, 3), b"defg")]);
    assert_eq!(problem(&[]), Problem::OutOfRange(0));
    assert_eq!(problem(&[0; 40]), Problem::OutOfRange(0));
    assert_eq!(problem(&[0x11; 40]), Problem::Unassigned(0x11));
    // Cut anywhere but between two.
    for len in 1..good.len() {
        match len {
            10 => continue,
            1..10 => assert_eq!(problem(&good[..len]), Problem::Truncated(len)),
            _ => assert_eq!(problem(&good[..len]), Problem::Truncated(len - 10)),
        }
    }
    let transfer = Header {
        d_id: 77,
        ..put(1, 0)
    };
    for all in [[transfer, put(2, 0)], [put(0, 0), transfer]] {
        let bytes = content(&all.map(|it| (it, &b"x"[..])));
        let error = Frames::parse(&Frames::header(&all[0]), &bytes).unwrap_err();
        assert_eq!(
            (error.field, error.problem),
            (Field::DId, Problem::OutOfRange(77))
        );
    }
    let many = [FRAME, 0, 0, 0, 0, 0, 0].repeat(MAX_FRAMES + 1);
    assert_eq!(problem(&many), Problem::OutOfRange(MAX_FRAMES as u64 + 1));
}
