//! Tests that an immediate arrives after all earlier puts, with slots that are reused.

use crate::content;
use crate::drive::{PATIENCE, both};
use crate::path::Pair;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use zerolane::counters::LaneKind;
use zerolane::request::Put;
use zerolane::{Connection, ExportedRegion, Region, RegionKey, Rights};

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
                assert_eq!(completion.immediate(), Some(round as u32));
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
