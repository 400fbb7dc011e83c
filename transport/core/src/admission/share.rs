//! Divides a budget among streams, by weight or in turn. Pure arithmetic.

use alloc::vec;
use alloc::vec::Vec;

/// The bid of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bid {
    /// Its part relative to others', at least 1.
    pub(super) weight: u32,
    /// Most bytes it can use.
    pub(super) useful: u64,
    /// Bytes it is likely to use; more only if no other wants them.
    pub(super) likely: u64,
    /// Bytes below which it makes no progress: one STU.
    pub(super) stu: u64,
}

/// How the budget is divided after all streams have a trickle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SharingRule {
    /// By weight.
    ByWeight,
    /// The first stream takes all it can use, then the second, and so on.
    InTurn,
}

/// STUs of the trickle with [`SharingRule::ByWeight`]: one in flight, one granted.
const WEIGHTED_TRICKLE: u64 = 2;

/// With [`SharingRule::InTurn`], the part of the budget that trickles may take.
const TRICKLE_PART: u64 = 4;

/// How many of `bids` get anything, such that a trickle for each fits the budget. At least one.
pub(super) fn admitted(order: SharingRule, budget: u64, bids: &[Bid]) -> usize {
    let (limit, stus) = match order {
        SharingRule::ByWeight => (budget, WEIGHTED_TRICKLE),
        SharingRule::InTurn => (budget / TRICKLE_PART, 1),
    };
    let mut sum = 0;
    let fits = |bid: &&Bid| {
        sum += trickle(bid, stus);
        sum <= limit
    };
    bids.iter().take_while(fits).count().max(1)
}

fn trickle(bid: &Bid, stus: u64) -> u64 {
    bid.useful.min(stus * bid.stu)
}

/// Divides `budget` among `bids`, whose number [`admitted`] bounds. The sum of the shares is at most the budget,
/// unless the trickles alone exceed it.
pub(super) fn divide(order: SharingRule, budget: u64, bids: &[Bid]) -> Vec<u64> {
    let mut shares = match order {
        SharingRule::ByWeight => {
            let floor = |it: &Bid| trickle(it, WEIGHTED_TRICKLE);
            let want = |it: &Bid| it.likely.min(it.useful).max(floor(it));
            by_weight(budget, bids, floor, want)
        }
        SharingRule::InTurn => in_turn(budget, bids),
    };
    // Budget that its stream is unlikely to use goes to others that might.
    let left = budget.saturating_sub(shares.iter().sum());
    let rest: Vec<Bid> = bids
        .iter()
        .zip(&shares)
        .map(|(bid, share)| Bid {
            useful: bid.useful - share,
            ..*bid
        })
        .collect();
    let more = by_weight(left, &rest, |_| 0, |it| it.useful);
    shares
        .iter_mut()
        .zip(more)
        .for_each(|(share, more)| *share += more);
    shares
}

fn in_turn(budget: u64, bids: &[Bid]) -> Vec<u64> {
    let mut shares: Vec<u64> = bids.iter().map(|it| trickle(it, 1)).collect();
    let mut left = budget.saturating_sub(shares.iter().sum());
    for (bid, share) in bids.iter().zip(&mut shares) {
        let want = bid.likely.min(bid.useful);
        let more = want.saturating_sub(*share).min(left);
        *share += more;
        left -= more;
    }
    shares
}

/// Max-min fairness by weight: a member whose floor exceeds its part gets the floor, one that wants less than its part
/// gets what it wants, and the rest is divided by weight.
fn by_weight(
    budget: u64,
    bids: &[Bid],
    floor: impl Fn(&Bid) -> u64,
    want: impl Fn(&Bid) -> u64,
) -> Vec<u64> {
    let mut shares = vec![0; bids.len()];
    let mut left = budget;
    let mut weights: u64 = bids.iter().map(|it| u64::from(it.weight)).sum();
    let mut open: Vec<usize> = (0..bids.len()).collect();
    for wants_first in [false, true] {
        let bound = |index: usize| match wants_first {
            false => floor(&bids[index]),
            true => want(&bids[index]),
        };
        // Sorted by the value per unit of weight that satisfies a bid: floors from the highest, wants from the
        // lowest.
        open.sort_by_key(|&index| bound(index) / u64::from(bids[index].weight));
        if !wants_first {
            open.reverse();
        }
        open.retain(|&index| {
            let weight = u64::from(bids[index].weight);
            let part = part_of(left, weight, weights);
            let settled = match wants_first {
                false => bound(index) > part,
                true => bound(index) <= part,
            };
            if settled {
                shares[index] = bound(index);
                left = left.saturating_sub(bound(index));
                weights -= weight;
            }
            !settled
        });
    }
    for index in open {
        shares[index] = part_of(left, u64::from(bids[index].weight), weights);
    }
    shares
}

fn part_of(left: u64, weight: u64, weights: u64) -> u64 {
    (u128::from(left) * u128::from(weight) / u128::from(weights.max(1))) as u64
}

#[cfg(test)]
#[path = "share_tests.rs"]
mod tests;
