//! Tests that a session survives any bytes of a client, in any pieces.

#![allow(non_snake_case)]

use proptest::prelude::*;
use zerolane_nbd::session::{Event, Export, Offence, Session};

const EXPORT: Export = Export {
    bytes: 1 << 30,
    block_bytes: 512,
    read_only: false,
    thin: true,
};

/// What a session makes of `input`, which comes in pieces that end at `cuts`: its events, its answers, and its end.
/// Payload is passed over.
fn said(input: &[u8], cuts: &[usize]) -> (Vec<Event>, Vec<u8>, Option<Offence>) {
    let mut out = Vec::new();
    let mut session = Session::new(EXPORT, &mut out);
    let (mut events, mut from, mut payload) = (Vec::new(), 0, 0);
    let ends = cuts.iter().map(|it| it % (input.len() + 1));
    let mut ends: Vec<usize> = ends.chain([input.len()]).collect();
    ends.sort_unstable();
    for end in ends {
        loop {
            let skipped = payload.min(end - from);
            (from, payload) = (from + skipped, payload - skipped);
            if payload > 0 {
                break;
            }
            match session.take(&input[from..end], &mut out) {
                Ok((taken, event)) => {
                    from += taken;
                    let Some(event) = event else {
                        break;
                    };
                    if let Event::Request(request) = event {
                        payload = request.payload() as usize;
                    }
                    events.push(event);
                }
                Err(offence) => return (events, out, Some(offence)),
            }
        }
    }
    (events, out, None)
}

fn option() -> impl Strategy<Value = Vec<u8>> {
    let data = proptest::collection::vec(any::<u8>(), 0..40);
    let go = Just([0; 6].to_vec());
    let data = prop_oneof![2 => data, 2 => go, 2 => Just(Vec::new())];
    (0u32..13, data).prop_map(|(number, data)| {
        let length = data.len() as u32;
        let head = [number.to_be_bytes(), length.to_be_bytes()].concat();
        [b"IHAVEOPT", &head[..], &data].concat()
    })
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![0u32..2000, any::<u32>()];
    let at = prop_oneof![0u64..(2 << 30), any::<u64>()];
    (0u16..32, 0u16..10, at, length).prop_map(|(flags, kind, at, length)| {
        let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend([7; 8]);
        bytes.extend(at.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        if kind == 1 {
            bytes.resize(bytes.len() + (length % 4096) as usize, 0);
        }
        bytes
    })
}

fn input() -> impl Strategy<Value = Vec<u8>> {
    let options = proptest::collection::vec(option(), 0..8);
    let requests = proptest::collection::vec(request(), 0..20);
    let noise = proptest::collection::vec(any::<u8>(), 0..100);
    (0u8..5, options, requests, noise).prop_map(|(flags, options, requests, noise)| {
        let flags = vec![0, 0, 0, flags];
        [flags, options.concat(), requests.concat(), noise].concat()
    })
}

proptest! {
    #[test]
    fn session__pieces_make_no_difference(
        input in input(),
        cuts in proptest::collection::vec(any::<usize>(), 0..20),
    ) {
        prop_assert_eq!(said(&input, &[]), said(&input, &cuts));
    }

    #[test]
    fn session__what_is_not_refused_is_on_the_disk(input in input()) {
        for event in said(&input, &[]).0 {
            if let Event::Request(request) = event && request.refused.is_none() {
                let end = request.at.checked_add(request.bytes.into());
                prop_assert!(end.is_some_and(|it| it <= EXPORT.bytes));
                prop_assert!(request.payload() <= 32 << 20);
            }
        }
    }
}
