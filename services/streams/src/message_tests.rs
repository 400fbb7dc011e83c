//! Tests that frames and messages are read as written, and that malformed ones are refused.
#![allow(non_snake_case)]

use super::*;

const STREAM: StreamId = StreamId(6);

fn all() -> Vec<Frame<'static>> {
    vec![
        Frame::Hello { version: 1 },
        Frame::Open {
            stream: STREAM,
            priority: 7,
            purpose: b"connect x:1",
        },
        Frame::Accept { stream: STREAM },
        Frame::Data {
            stream: STREAM,
            offset: 5,
            bytes: b"payload",
        },
        Frame::Finish {
            stream: STREAM,
            length: 12,
        },
        Frame::Credit {
            stream: STREAM,
            limit: u64::MAX,
        },
        Frame::Blocked {
            stream: STREAM,
            limit: 3,
        },
        Frame::Reset {
            stream: STREAM,
            code: 2,
            words: "no route",
        },
    ]
}

#[test]
fn Frame__is_read_as_written() {
    let mut bundle = Vec::new();
    all().iter().for_each(|it| it.write(&mut bundle));
    let Ok(Message::Bundle(frames)) = Message::parse(&bundle) else {
        panic!("no bundle");
    };
    let read: Result<Vec<_>, _> = frames.collect();
    assert_eq!(read, Ok(all()));
}

#[test]
fn Frame__cut_short_is_malformed() {
    for frame in all() {
        let mut bundle = Vec::new();
        frame.write(&mut bundle);
        for len in 2..bundle.len() {
            let Ok(Message::Bundle(mut frames)) = Message::parse(&bundle[..len]) else {
                panic!("no bundle");
            };
            assert!(frames.next().unwrap().is_err(), "{frame:?} of {len} bytes");
            assert_eq!(frames.next(), None, "no frame follows a malformed one");
        }
    }
}

#[test]
fn Frame__beyond_its_limits_is_malformed() {
    let long = "w".repeat(MAX_WORDS + 1);
    let purpose = vec![0; MAX_PURPOSE + 1];
    for frame in [
        Frame::Open {
            stream: STREAM,
            priority: 8,
            purpose: b"",
        },
        Frame::Open {
            stream: STREAM,
            priority: 0,
            purpose: &purpose,
        },
        Frame::Reset {
            stream: STREAM,
            code: 0,
            words: &long,
        },
    ] {
        let mut bundle = Vec::new();
        frame.write(&mut bundle);
        let Ok(Message::Bundle(mut frames)) = Message::parse(&bundle) else {
            panic!("no bundle");
        };
        assert!(frames.next().unwrap().is_err());
    }
    let Ok(Message::Bundle(mut unknown)) = Message::parse(&[1, 9]) else {
        panic!("no bundle");
    };
    assert!(unknown.next().unwrap().is_err());
}

#[test]
fn Message__of_no_kind_is_malformed() {
    for bytes in [
        &[][..],
        &[0],
        &[3],
        &[2],
        &[2, 0, 0, 0, 0, 0, 0, 1],
        &[2; 24],
        &[2, 0, 0, 0, 0, 0, 0, 0, 1],
    ] {
        assert!(Message::parse(bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn chunk__is_read_as_written() {
    let mut bytes = [9; CHUNK_HEADER + 3];
    write_chunk_header(&mut bytes, STREAM, 77);
    let expected = Message::Chunk {
        stream: STREAM,
        offset: 77,
        bytes: &[9; 3],
    };
    assert_eq!(Message::parse(&bytes), Ok(expected));
}
