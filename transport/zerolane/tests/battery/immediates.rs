//! Tests that an immediate arrives after all earlier puts, with slots that are reused, and says what was put.

use crate::content;
use crate::drive::{PATIENCE, both};
use crate::path::Pair;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use zerolane::counters::LaneKind;
use zerolane::request::{Immediate, Put, PutInline, PutPieces};
use zerolane::{Connection, ExportedRegion, Region, RegionKey, RegionNumber, Rights};

const SLOTS: u64 = 4;
const SLOT: usize = 20_000;
/// Size of the memory, bytes.
pub const LEN: usize = SLOTS as usize * SLOT;
const ROUNDS: u64 = 40;
/// The offsets at which the puts of one slot begin: a small one, one of several operations, and one with the immediate.
const CUTS: [usize; 4] = [0, 700, 9_001, SLOT];

/// Each immediate says that its slot is complete: the owner checks it, and gives the slot back.
pub fn tell_of_all_before_them(mut pair: Pair, memory: &ExportedRegion, of_memfd: bool) {
    let key = pair.b.export(memory, Rights::ALL).expect("exported");
    let seen = &AtomicU64::new(0);
    let (direct, ()) = both(
        &mut pair,
        |a| put_rounds(a, &key, seen),
        |b| {
            for round in 0..ROUNDS {
                let completion = b.wait(Some(PATIENCE)).expect("open").got().expect("told");
                let told = Immediate {
                    number: round as u32,
                    region: key,
                    length: CUTS[3] - CUTS[2],
                };
                assert_eq!(completion.immediate(), Some(told));
                let mut slot = vec![0; SLOT];
                memory.read((round % SLOTS) as usize * SLOT, &mut slot);
                content::verify(round, &slot);
                seen.store(round + 1, Ordering::Release);
            }
        },
    );
    let puts = ROUNDS * (CUTS.len() as u64 - 1);
    let all = match pair.a.account().lane {
        LaneKind::SharedMemory if of_memfd => puts,
        _ => 0,
    };
    assert_eq!(direct, all);
}

/// Returns how many of the puts were done without the owner.
fn put_rounds(connection: &mut Connection, key: &RegionKey, seen: &AtomicU64) -> u64 {
    // Memory that the owner lends is mapped here once this answer arrives.
    connection.get(key, 0, &mut [0]).expect("got");
    let before = connection.account().direct_operations;
    let mut ended = 0;
    for round in 0..ROUNDS {
        let until = Instant::now() + PATIENCE;
        while seen.load(Ordering::Acquire) + SLOTS <= round {
            assert!(Instant::now() < until, "round {round} has no slot");
            let wait = Some(Duration::from_millis(1));
            if let Some(completion) = connection.wait(wait).expect("open").got() {
                completion.result.expect("placed");
                ended += 1;
            }
        }
        let mut bytes = vec![0; SLOT];
        content::fill(round, &mut bytes);
        let at = (round % SLOTS) as usize * SLOT;
        for (from, to) in CUTS.into_iter().zip(CUTS.into_iter().skip(1)) {
            let number = (to == SLOT).then_some(round as u32);
            let part = Region::from_vec(bytes[from..to].to_vec());
            let put = Put::new(key, (at + from) as u64, part).immediate(number);
            let posted = connection.post(put);
            posted.expect("room");
        }
    }
    let puts = ROUNDS * (CUTS.len() as u64 - 1);
    while ended < puts {
        let completion = connection.wait(Some(PATIENCE)).expect("open").got();
        completion.expect("over").result.expect("placed");
        ended += 1;
    }
    connection.account().direct_operations - before
}

/// Lengths of puts of one piece: none, small ones, one of several operations, and one that is announced.
const LENGTHS: [usize; 5] = [0, 8, 700, 9_001, 70_000];
/// Lengths of puts that are copied when they are posted.
const COPIED: [usize; 3] = [0, 8, 256];

/// Each immediate says which export its put wrote, by key and by number, and how many bytes.
pub fn say_what_was_put(mut pair: Pair, memory: &ExportedRegion, of_memfd: bool) {
    let number = RegionNumber::new(7).expect("below 2^24");
    let b = &mut pair.b;
    let key = b.export(memory, Rights::ALL).expect("exported");
    let numbered = b.export_numbered(number, memory, Rights::WRITE);
    let numbered = numbered.expect("exported");
    // The keys that the peer has, and those that the owner has.
    let keys = [(key, key), (RegionKey::numbered(number, 64), numbered)];
    let pieces = [3_000, 5, 1_000];
    let mut lengths = Vec::from(LENGTHS);
    lengths.extend(COPIED);
    lengths.extend([pieces.iter().sum(), pieces[2]]);
    let told = lengths.iter().flat_map(|&len| keys.map(|it| (len, it.1)));
    let told: Vec<_> = (0..)
        .zip(told)
        .map(|(number, (length, region))| Immediate {
            number,
            region,
            length,
        })
        .collect();
    let posted = told.len();
    let (direct, ()) = both(
        &mut pair,
        |a| {
            // Memory that the owner lends is mapped here once this answer arrives.
            a.get(&key, 0, &mut [0]).expect("got");
            let region = |len| Region::from_vec(vec![1; len]);
            let mut number = 0..;
            let mut next = || number.next().expect("endless");
            for len in LENGTHS {
                for (key, _) in &keys {
                    let put = Put::new(key, 8, region(len)).immediate(next());
                    a.post(put).expect("room");
                }
            }
            for len in COPIED {
                for (key, _) in &keys {
                    let bytes = vec![1; len];
                    let put = PutInline::new(key, 8, &bytes).immediate(next());
                    a.post(put).expect("room");
                }
            }
            for (key, _) in &keys {
                let gathered: Vec<_> = pieces.map(|len| region(len).into()).into();
                let put = Put::new(key, 8, gathered).immediate(next());
                a.post(put).expect("room");
            }
            for (key, _) in &keys {
                let pieces = pieces.map(|len| (8, region(len).into())).into();
                let put = PutPieces::new(key, pieces).immediate(next());
                a.post(put).expect("room");
            }
            for _ in 0..posted {
                let completion = a.wait(Some(PATIENCE)).expect("open").got();
                completion.expect("over").result.expect("placed");
            }
            a.account().direct_operations
        },
        |b| {
            for told in &told {
                let completion = b.wait(Some(PATIENCE)).expect("open").got().expect("told");
                assert_eq!(completion.immediate().as_ref(), Some(told));
                assert_eq!(completion.result, Ok(told.length));
                let by_number = (told.region == numbered).then_some(number);
                assert_eq!(told.region.number(), by_number);
            }
        },
    );
    let shared = pair.a.account().lane == LaneKind::SharedMemory;
    assert_eq!(direct > 0, shared && of_memfd);
}
