//! Tests that steps change only the requested bytes, and respect holes and durability.
#![allow(non_snake_case)]

use super::*;

const BLOCK: u64 = 512;

/// What `steps` do to a disk of bytes that are all 1, where a zero or a byte of the payload is 0; and its whole blocks.
fn changed(kind: Kind, at: u64, bytes: u32) -> Vec<u8> {
    let request = Request {
        cookie: 0,
        kind,
        at,
        bytes,
        refused: None,
    };
    let mut disk = vec![1; 4 * BLOCK as usize];
    let mut fetched = None;
    for step in steps(&request, BLOCK, true) {
        match step {
            Step::Write { at, .. } => {
                assert!(at.is_multiple_of(BLOCK) && u64::from(bytes).is_multiple_of(BLOCK));
                disk[at as usize..][..bytes as usize].fill(0);
            }
            Step::Fetch { at, bytes } => {
                assert!(at.is_multiple_of(BLOCK) && (bytes as u64).is_multiple_of(BLOCK));
                fetched = Some((at, bytes));
            }
            Step::Store {
                at, skip, bytes, ..
            } => {
                let (start, span) = fetched.take().unwrap();
                assert!(at == start && skip + bytes <= span);
                disk[at as usize + skip..][..bytes].fill(0);
            }
            Step::Zero { at, bytes, .. } => {
                assert!(at.is_multiple_of(BLOCK) && bytes.is_multiple_of(BLOCK));
                disk[at as usize..][..bytes as usize].fill(0);
            }
            Step::Read { .. } | Step::Flush | Step::Status { .. } => {}
        }
    }
    disk
}

#[test]
fn steps__change_the_bytes_that_were_asked_for_and_no_others() {
    let durable = false;
    let unmap = true;
    for (at, bytes) in [
        (0, 512),
        (0, 2048),
        (1, 1),
        (511, 1),
        (511, 2),
        (100, 1900),
        (512, 513),
        (1000, 24),
        (1000, 25),
        (2047, 1),
        (7, 0),
    ] {
        let mut wanted = vec![1; 4 * BLOCK as usize];
        wanted[at as usize..][..bytes as usize].fill(0);
        for kind in [Kind::Write { durable }, Kind::Zero { unmap, durable }] {
            assert!(changed(kind, at, bytes) == wanted, "{kind:?} {at} {bytes}");
        }
        // Of what is trimmed no byte is another that was not asked for, and whole blocks are gone.
        let trimmed = changed(Kind::Trim { durable }, at, bytes);
        for (number, (now, least)) in trimmed.chunks(512).zip(wanted.chunks(512)).enumerate() {
            let is_whole = least.iter().all(|&it| it == 0);
            assert!(now.iter().all(|&it| it == u8::from(!is_whole)), "{number}");
        }
    }
}

/// As `mkfs` asks, which trims all of a disk first.
#[test]
fn steps__a_trim_of_a_disk_that_gives_no_space_back_writes_nothing() {
    for durable in [false, true] {
        let request = Request {
            cookie: 0,
            kind: Kind::Trim { durable },
            at: 0,
            bytes: 4 * BLOCK as u32,
            refused: None,
        };
        let steps = steps(&request, BLOCK, false);
        assert!(steps.is_empty(), "{steps:?}");
    }
}

#[test]
fn steps__what_is_durable_ends_with_it() {
    let durable = true;
    let unmap = false;
    for (at, bytes) in [(0, 512), (100, 10), (100, 1000), (512, 700)] {
        for kind in [
            Kind::Write { durable },
            Kind::Zero { unmap, durable },
            Kind::Trim { durable },
        ] {
            let request = Request {
                cookie: 0,
                kind,
                at,
                bytes,
                refused: None,
            };
            let steps = steps(&request, BLOCK, true);
            let mut since_flush = false;
            for step in &steps {
                match step {
                    Step::Zero { .. } => since_flush = true,
                    Step::Flush => since_flush = false,
                    Step::Write { durable, .. } | Step::Store { durable, .. } => assert!(durable),
                    _ => {}
                }
            }
            assert!(!since_flush, "{kind:?} {at} {bytes}: {steps:?}");
        }
    }
}
