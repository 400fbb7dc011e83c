//! Tests that messages and records are encoded and decoded within their limits.

#![allow(non_snake_case)]
use super::*;
use crate::digest::{Algorithm, Digester};
use crate::limits::{
    FEEDBACK_FAILURES, HAVE_DIGESTS, NAME_BYTES, PATCH_PIECES, PATH_BYTES, UNIT_BYTES,
};
use crate::position::Position;
use proptest::prelude::*;

fn meta() -> impl Strategy<Value = Meta> {
    (any::<u32>(), any::<i64>(), any::<u32>()).prop_map(
        |(mode, mtime_seconds, mtime_nanoseconds)| Meta {
            mode,
            mtime_seconds,
            mtime_nanoseconds,
            owner: None,
        },
    )
}

/// The longest of each record must fit, or a legal file could not be copied.
#[test]
fn encode_record__longest_fits() {
    let name = &[0xff; NAME_BYTES][..];
    let meta = Meta {
        mode: u32::MAX,
        mtime_seconds: i64::MIN,
        mtime_nanoseconds: u32::MAX,
        owner: None,
    };
    let piece = Piece {
        offset: UNIT_BYTES as u32,
        len: UNIT_BYTES as u32,
    };
    for record in [
        Record::Link {
            name,
            target: &[0xff; PATH_BYTES],
            meta,
        },
        Record::File {
            name,
            meta,
            size: u32::MAX,
            digest: [255; 32],
        },
        Record::Open {
            name,
            meta,
            size: u64::MAX,
            number: u64::MAX,
            resume: true,
        },
        Record::Patch {
            pieces: vec![piece; PATCH_PIECES],
        },
        Record::HardLink {
            name,
            level: u32::MAX,
            first: &[0xff; PATH_BYTES],
            size: u64::MAX,
            meta,
            before: true,
        },
        Record::Same {
            name: &[0xff; NAME_BYTES],
            directory: u8::MAX,
            path: &[0xff; PATH_BYTES],
            size: u64::MAX,
            meta,
            was: meta,
        },
    ] {
        assert!(
            encode_record(&record, &mut Vec::new()).is_some(),
            "{record:?}"
        );
    }
}

#[test]
fn encode_feedback__longest_fits() {
    let mut buffer = vec![0; CONTROL_BYTES];
    let failure = Failure::new(&[0xff; 5000], Cause::Os(i32::MIN));
    for feedback in [
        Feedback::Have {
            digests: vec![[255; 32]; HAVE_DIGESTS],
            last: true,
        },
        Feedback::Failed {
            failures: vec![failure; FEEDBACK_FAILURES],
            open: Some(u64::MAX),
        },
    ] {
        let len = encode_feedback(&feedback, &mut buffer).expect("fits");
        assert_eq!(decode_feedback(&buffer[..len]).unwrap(), feedback);
    }
}

#[test]
fn decode_opening__not_this_service() {
    assert!(matches!(
        decode_opening::<Request>(b""),
        Err(Error::NotFileService)
    ));
    assert!(matches!(
        decode_opening::<Request>(b"GET / HTTP/1.1"),
        Err(Error::NotFileService)
    ));
}

fn accepted() -> Reply {
    Reply::Accepted {
        algorithm: Algorithm::Blake3,
        landing: Landing::Named,
        boot: [7; 16],
    }
}

#[test]
fn decode_opening__another_version() {
    let mut bytes = encode_opening(&accepted()).unwrap();
    bytes[4] = 77;
    assert!(matches!(
        decode_opening::<Reply>(&bytes),
        Err(Error::Version { peer: 77 })
    ));
}

#[test]
fn decode_opening__roundtrip_and_truncation() {
    let request = Request::Get {
        sources: vec![b"a\n\xff".to_vec()],
        share: Share::Files { index: 3, of: 4 },
        options: CopyOptions {
            resume: true,
            ..Default::default()
        },
        filter: vec![b"- *.o".to_vec(), b":n .f".to_vec()],
        digester: Digester::fixed(),
        from: Position::default(),
        started: 7,
    };
    let bytes = encode_opening(&request).unwrap();
    assert_eq!(decode_opening::<Request>(&bytes).unwrap(), request);
    for len in 0..bytes.len() {
        assert!(decode_opening::<Request>(&bytes[..len]).is_err(), "{len}");
    }
}

#[test]
fn decode_opening__backups_that_a_sync_asks_for() {
    for directory in [None, Some(b"../old".to_vec())] {
        let suffix = b"~".to_vec();
        let backup = Some(Backup { directory, suffix });
        let update = Request::Update {
            destination: b"t".to_vec(),
            options: CopyOptions::default(),
            backup: backup.clone(),
            link_dest: vec![b"../last".to_vec()],
            digester: Digester::fixed(),
        };
        let remove = Request::Remove {
            path: b"t".to_vec(),
            backup,
            digester: Digester::fixed(),
        };
        for request in [update, remove] {
            let bytes = encode_opening(&request).unwrap();
            assert_eq!(decode_opening::<Request>(&bytes).unwrap(), request);
            for len in 0..bytes.len() {
                assert!(decode_opening::<Request>(&bytes[..len]).is_err(), "{len}");
            }
        }
    }
}

#[test]
fn encode_opening__too_long() {
    let request = Request::Remove {
        path: vec![b'x'; CONTROL_BYTES],
        backup: None,
        digester: Digester::fixed(),
    };
    assert_eq!(encode_opening(&request), None);
}

/// A count larger than the message must not make the decoder allocate memory for it.
#[test]
fn decode_feedback__huge_count() {
    // Have, 2^60 digests.
    let bytes = [0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10];
    assert!(decode_feedback(&bytes).is_err());
}

proptest! {
    #[test]
    fn decode__never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let _ = decode_feedback(&bytes);
        let _ = decode_opening::<Request>(&bytes);
        let _ = decode_opening::<Reply>(&bytes);
        let mut manifest = &bytes[..];
        while decode_record(&mut manifest).is_ok() && !manifest.is_empty() {}
        let mut body = encode_opening(&accepted()).unwrap();
        body.truncate(PROLOGUE_BYTES);
        body.extend(&bytes);
        let _ = decode_opening::<Request>(&body);
        let _ = decode_opening::<Reply>(&body);
    }

    #[test]
    fn records__roundtrip_in_sequence(
        name in proptest::collection::vec(any::<u8>(), 0..300),
        target in proptest::collection::vec(any::<u8>(), 0..300),
        meta in meta(),
        size in any::<u64>(),
        pieces in proptest::collection::vec((any::<u32>(), any::<u32>()), 0..128),
    ) {
        let records = [
            Record::Enter { name: &name, meta },
            Record::Link { name: &name, target: &target, meta },
            Record::File { name: &name, meta, size: size as u32, digest: [7; 32] },
            Record::Open { name: &name, meta, size, number: 3, resume: true },
            Record::Run { units: size },
            Record::Patch { pieces: pieces.iter().map(|&(offset, len)| Piece { offset, len }).collect() },
            Record::Abandon { cause: Cause::SourceChanged },
            Record::Finish,
        ];
        let mut manifest = Vec::new();
        for record in &records {
            encode_record(record, &mut manifest).unwrap();
        }
        let mut rest = &manifest[..];
        for record in &records {
            prop_assert_eq!(&decode_record(&mut rest).unwrap(), record);
        }
        prop_assert!(rest.is_empty());
    }
}
