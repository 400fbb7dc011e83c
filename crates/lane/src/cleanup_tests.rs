#![allow(non_snake_case)]
use super::*;
use proptest::prelude::*;

fn run(memory: &mut [u8], list: &[(usize, usize, usize)]) {
    let before = memory.to_vec();
    run_with(memory, list, false);
    let mut through_kernel = before;
    run_with(&mut through_kernel, list, true);
    assert_eq!(memory, through_kernel);
}

fn run_with(memory: &mut [u8], list: &[(usize, usize, usize)], file: bool) {
    let base = memory.as_mut_ptr();
    let mut moves: Vec<Move> = list
        .iter()
        // SAFETY: the tests keep both ends within `memory`.
        .map(|&(from, to, len)| unsafe {
            Move {
                from: base.add(from),
                to: base.add(to),
                len,
                region: RegionId {
                    index: 0,
                    generation: 1,
                },
                // The property must hold for both ways.
                file,
                shared: None,
            }
        })
        .collect();
    // SAFETY: within `memory`, targets disjoint.
    unsafe { perform(&mut moves) }.expect("nothing is gone");
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

proptest! {
    /// Any permutation of STUs within a burst, some missing.
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
