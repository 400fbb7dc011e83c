//! Tests that moves of misplaced payload end in the right content, in bounded steps.
#![allow(non_snake_case)]
use super::*;
use proptest::prelude::*;

/// How the memory is accessed: the properties must hold for each way.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Own,
    File,
    /// Exported.
    Shared,
}

fn run(memory: &mut [u8], list: &[(usize, usize, usize)]) {
    let before = memory.to_vec();
    run_with(memory, list, Kind::Own);
    for kind in [Kind::File, Kind::Shared] {
        // Exported memory starts at a word.
        let mut words = vec![0u64; before.len().div_ceil(8)];
        // SAFETY: the words have at least as many bytes.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), before.len())
        };
        bytes.copy_from_slice(&before);
        run_with(bytes, list, kind);
        assert_eq!(memory, bytes);
    }
}

fn run_with(memory: &mut [u8], list: &[(usize, usize, usize)], kind: Kind) {
    let mut moves = moves_in(memory, list, kind);
    // SAFETY: within `memory`.
    unsafe { perform(&mut moves) }.expect("nothing is gone");
}

/// Moves from a list of `(from, to, len)`.
fn moves_in(memory: &mut [u8], list: &[(usize, usize, usize)], kind: Kind) -> Vec<Move> {
    let base = memory.as_mut_ptr();
    let file = kind == Kind::File;
    let shared = (kind == Kind::Shared).then_some(Bounds {
        start: base,
        len: memory.len(),
    });
    list.iter()
        // SAFETY: the tests keep both ends within `memory`.
        .map(|&(from, to, len)| unsafe {
            Move {
                from: Source {
                    start: base.add(from),
                    file,
                    shared,
                },
                to: base.add(to),
                len,
                region: RegionId {
                    index: 0,
                    generation: 1,
                },
                file,
                shared,
            }
        })
        .collect()
}

/// Bytes in exported memory are accessed atomically, at either end of a move.
#[test]
fn perform__exported_memory_by_atomics_alone() {
    let mut exported = [0u64; 8];
    let mut own = [7u8; 64];
    let start = exported.as_mut_ptr().cast::<u8>();
    let shared = Some(Bounds { start, len: 64 });
    let region = RegionId {
        index: 0,
        generation: 1,
    };
    let copied = |moves: &[Move]| {
        shared::seam::take();
        // SAFETY: both buffers live, and have the given lengths.
        unsafe { perform(&mut moves.to_vec()) }.expect("nothing is gone");
        shared::seam::take()
    };
    // SAFETY: within the 64 bytes.
    let at = |offset: usize| unsafe { start.add(offset) };
    let into = Move {
        from: Source::own(&[9; 10]),
        to: at(3),
        len: 10,
        region,
        file: false,
        shared,
    };
    assert_eq!(copied(&[into]), (0, 10));
    let here = Source {
        start: at(3),
        file: false,
        shared,
    };
    let out = Move {
        from: here,
        to: own.as_mut_ptr(),
        shared: None,
        ..into
    };
    assert_eq!(copied(&[out]), (10, 0));
    assert_eq!(own[..11], [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 7]);
    let within = Move {
        from: here,
        to: at(8),
        ..into
    };
    assert_eq!(copied(&[within]), (10, 10));
    // A cycle: one of the moves is bounced.
    let back = Move {
        from: Source {
            start: at(8),
            ..here
        },
        to: at(3),
        ..into
    };
    assert_eq!(copied(&[within, back]), (20, 20));
}

#[test]
fn perform__shift_after_a_loss() {
    let mut memory: Vec<u8> = (0..50).collect();
    run(&mut memory, &[(10, 20, 10), (20, 30, 10), (30, 40, 10)]);
    assert_eq!(memory[20..], (10..40).collect::<Vec<u8>>());
}

#[test]
fn perform__swap_needs_a_bounce() {
    let mut memory: Vec<u8> = (0..20).collect();
    run(&mut memory, &[(0, 10, 10), (10, 0, 10)]);
    assert_eq!(memory, (10..20).chain(0..10).collect::<Vec<u8>>());
}

#[test]
fn perform__self_overlap_both_ways() {
    let mut memory: Vec<u8> = (0..20).collect();
    run(&mut memory, &[(0, 3, 10)]);
    assert_eq!(memory[3..13], (0..10).collect::<Vec<u8>>());
    run(&mut memory, &[(3, 0, 10)]);
    assert_eq!(memory[..10], (0..10).collect::<Vec<u8>>());
}

/// The first move waits for a cycle that it is not part of. It must not be bounced again and again.
#[test]
fn perform__one_blocked_by_a_cycle_it_is_not_in() {
    let mut memory: Vec<u8> = (0..120).collect();
    run(&mut memory, &[(100, 0, 5), (0, 20, 10), (20, 5, 10)]);
    assert_eq!(memory[0..5], (100..105).collect::<Vec<u8>>());
    assert_eq!(memory[5..15], (20..30).collect::<Vec<u8>>());
    assert_eq!(memory[20..30], (0..10).collect::<Vec<u8>>());
}

#[test]
fn order__bounces_only_in_cycles_and_each_once() {
    let mut memory = vec![0; 120];
    let list = [(100, 0, 5), (0, 20, 10), (20, 5, 10)];
    let order = Order::of(&moves_in(&mut memory, &list, Kind::Own));
    assert_eq!(
        steps(order),
        [
            Step::Bounce(1),
            Step::Perform(2),
            Step::Perform(1),
            Step::Perform(0),
        ]
    );
}

/// Each move is performed once, and bounced at most once before that.
fn steps(mut order: Order) -> Vec<Step> {
    let mut steps = vec![];
    while let Some(step) = order.next() {
        assert!(!steps.contains(&step), "{step:?} twice");
        if let Step::Bounce(index) = step {
            assert!(!steps.contains(&Step::Perform(index)), "{step:?} when done");
        }
        steps.push(step);
    }
    steps
}

const MEMORY: usize = 400;

/// Moves as unequal STUs make them: disjoint targets of any length, sources of the same length anywhere.
fn unequal() -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
    let piece = (0..6usize, 1..24usize, 0..MEMORY);
    prop::collection::vec(piece, 1..24).prop_flat_map(|pieces| {
        let mut end = 0;
        let mut list = vec![];
        for (gap, len, from) in pieces {
            let to = end + gap;
            end = to + len;
            if end <= MEMORY {
                list.push((from.min(MEMORY - len), to, len));
            }
        }
        Just(list).prop_shuffle()
    })
}

/// The same with targets that overlap: a peer may send bytes that partly overlap earlier ones.
fn overlapping() -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
    let piece = (0..MEMORY - 24, 0..MEMORY - 24, 1..24usize);
    prop::collection::vec(piece, 1..40)
}

proptest! {
    /// STUs of unequal sizes that partly overlap each other's places.
    #[test]
    fn perform__any_moves_of_unequal_lengths(list in unequal()) {
        let before: Vec<u8> = (0..MEMORY).map(|at| (at * 31 + at / 256) as u8).collect();
        let mut memory = before.clone();
        run(&mut memory, &list);
        let mut expected = before.clone();
        for (from, to, len) in list {
            expected[to..to + len].copy_from_slice(&before[from..from + len]);
        }
        prop_assert_eq!(memory, expected);
    }

    /// Any moves take as many steps as there are moves, and at most one bounce each.
    #[test]
    fn order__ends_for_any_moves(list in overlapping()) {
        let mut memory = vec![0; MEMORY];
        let order = Order::of(&moves_in(&mut memory, &list, Kind::Own));
        let performed = steps(order).iter().filter(|it| matches!(it, Step::Perform(_))).count();
        prop_assert_eq!(performed, list.len());
    }

    /// Any permutation of STUs within a burst, with some missing.
    #[test]
    fn perform__any_permutation(order in Just((0..12usize).collect::<Vec<_>>()).prop_shuffle(), drop in prop::collection::vec(any::<bool>(), 12)) {
        const STU: usize = 7;
        let before: Vec<u8> = (0..12 * STU as u8).collect();
        let mut memory = before.clone();
        let moves: Vec<_> = order.iter().enumerate().filter(|(i, _)| !drop[*i])
            .map(|(landed, &belongs)| (landed * STU, belongs * STU, STU)).collect();
        run(&mut memory, &moves);
        for (from, to, len) in moves {
            prop_assert_eq!(&memory[to..to + len], &before[from..from + len]);
        }
    }
}
