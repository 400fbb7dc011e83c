//! Tests that shares follow weights or turns and leave each member a trickle.
#![allow(non_snake_case)]
use super::*;
use proptest::prelude::*;

const STU: u64 = 1000;

fn bid(weight: u32, useful: u64) -> Bid {
    Bid {
        weight,
        useful,
        likely: u64::MAX,
        stu: STU,
    }
}

#[test]
fn divide__equal_weights_get_equal_parts() {
    let shares = divide(SharingRule::ByWeight, 60_000, &[bid(1, u64::MAX); 4]);
    assert_eq!(shares, [15_000; 4]);
}

#[test]
fn divide__parts_follow_weights() {
    let bids = [bid(1, u64::MAX), bid(2, u64::MAX), bid(3, u64::MAX)];
    assert_eq!(
        divide(SharingRule::ByWeight, 60_000, &bids),
        [10_000, 20_000, 30_000]
    );
}

#[test]
fn divide__what_one_cannot_use_is_the_others() {
    let bids = [bid(1, 5_000), bid(1, u64::MAX), bid(1, u64::MAX)];
    assert_eq!(
        divide(SharingRule::ByWeight, 60_000, &bids),
        [5_000, 27_500, 27_500]
    );
}

#[test]
fn divide__a_light_one_gets_the_trickle() {
    let bids = [bid(1, u64::MAX), bid(98, u64::MAX)];
    assert_eq!(
        divide(SharingRule::ByWeight, 60_000, &bids),
        [2_000, 58_000]
    );
}

#[test]
fn divide__what_is_unlikely_to_be_used_goes_to_a_member_that_uses_it() {
    let slow = Bid {
        likely: 2_000,
        ..bid(1, u64::MAX)
    };
    let bids = [slow, bid(1, u64::MAX)];
    assert_eq!(
        divide(SharingRule::ByWeight, 60_000, &bids),
        [2_000, 58_000]
    );
    // Unless none does.
    assert_eq!(
        divide(SharingRule::ByWeight, 60_000, &[slow; 2]),
        [30_000; 2]
    );
}

#[test]
fn divide__in_turn_the_first_takes_all_but_trickles() {
    let bids = [bid(1, u64::MAX), bid(1, u64::MAX), bid(1, 400)];
    assert_eq!(
        divide(SharingRule::InTurn, 60_000, &bids),
        [58_600, 1_000, 400]
    );
    let bids = [bid(1, 5_000), bid(1, u64::MAX), bid(1, u64::MAX)];
    assert_eq!(
        divide(SharingRule::InTurn, 60_000, &bids),
        [5_000, 54_000, 1_000]
    );
}

#[test]
fn admitted__as_many_as_a_trickle_fits() {
    assert_eq!(
        admitted(SharingRule::ByWeight, 60_000, &[bid(1, u64::MAX); 99]),
        30
    );
    assert_eq!(
        admitted(SharingRule::InTurn, 60_000, &[bid(1, u64::MAX); 99]),
        15
    );
    assert_eq!(
        admitted(SharingRule::ByWeight, 500, &[bid(1, u64::MAX); 9]),
        1
    );
    assert_eq!(
        admitted(SharingRule::ByWeight, 60_000, &[bid(1, 10); 99]),
        99
    );
}

proptest! {
    #[test]
    fn divide__never_more_than_the_budget_nor_than_is_wanted(
        raw in prop::collection::vec((1u32..100, 1u64..200_000, 1u64..200_000), 1..40),
        budget in 3_000u64..300_000,
        in_turn: bool,
    ) {
        let bids: Vec<Bid> = raw
            .iter()
            .map(|&(weight, useful, likely)| Bid { weight, useful, likely, stu: STU })
            .collect();
        let order = if in_turn { SharingRule::InTurn } else { SharingRule::ByWeight };
        let admitted = admitted(order, budget, &bids);
        let shares = divide(order, budget, &bids[..admitted]);
        prop_assert!(shares.iter().sum::<u64>() <= budget);
        let wanted: u64 = bids[..admitted].iter().map(|it| it.useful).sum();
        // Only rounding remains.
        prop_assert!(shares.iter().sum::<u64>() + 2 * 40 >= budget.min(wanted));
        for (bid, share) in bids.iter().zip(&shares) {
            prop_assert!(*share <= bid.useful && *share >= bid.useful.min(STU));
        }
    }
}
