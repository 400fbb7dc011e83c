//! Whether a node keeps up with the one above it in a stripe.
//!
//! Counts of chunks are all that a coordinator hears. Where a chunk takes longer than the time between two reviews, a node
//! gains none in most of them, however fast it is: so the two are compared over as many reviews as the node above needs to
//! gain some chunks.

use std::time::Duration;

use crate::message::NodeId;

/// Chunks of its stripe that the node above gains until the two are compared: half of fewer is one chunk more or less. Where
/// few stripes have to agree, chance would have it more often.
fn span(arity: u32) -> u32 {
    (16 / arity.max(1)).clamp(4, 8)
}

/// Chunks that a node which keeps up may be behind: one on its way, and one that waits for its turn.
const LAG: u32 = 2;

/// What was found when a node and the one above it were compared last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Verdict {
    /// They were not yet.
    #[default]
    Unknown,
    /// The node has at least half the pace, or is hardly behind.
    KeepsUp,
    /// It is behind, and has less than half the pace.
    Lags,
}

/// A node above, as a review sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Above {
    pub(super) id: NodeId,
    /// Chunks of the stripe that it has.
    pub(super) verified: u32,
    /// How long the cast takes from one to the next. What the node above gains faster, from helpers, it cannot pass on as fast.
    pub(super) chunk_time: Duration,
}

/// What a comparison takes at least.
#[derive(Clone, Copy, Debug)]
pub(super) struct Least {
    time: Duration,
    chunks: u32,
}

impl Least {
    pub(super) fn new(time: Duration, arity: u32) -> Least {
        Least {
            time,
            chunks: span(arity),
        }
    }
}

/// The comparison of a node with the one above it in one stripe.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    above: Option<NodeId>,
    /// The node above has gained something since it is the one.
    begun: bool,
    since: Duration,
    theirs: u32,
    own: u32,
    verdict: Verdict,
}

impl Watch {
    /// The node's place is new: what was seen before says nothing.
    pub(super) fn forget(&mut self) {
        *self = Watch::default();
    }

    /// The node above that the node lags behind.
    pub(super) fn lags(&self) -> Option<NodeId> {
        self.above.filter(|_| self.verdict == Verdict::Lags)
    }

    pub(super) fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// A review, in which the node has `own` chunks of the stripe.
    pub(super) fn see(&mut self, now: Duration, above: Above, own: u32, least: Least) {
        let theirs = above.verified;
        if self.above != Some(above.id) || theirs < self.theirs {
            *self = Watch {
                above: Some(above.id),
                since: now,
                theirs,
                own,
                ..Watch::default()
            };
        }
        if !self.begun {
            self.begun = theirs > self.theirs;
            (self.since, self.theirs, self.own) = (now, theirs, own);
            return;
        }
        let span = now.saturating_sub(self.since);
        let usual = span.as_nanos() / above.chunk_time.as_nanos().max(1);
        let usual = u32::try_from(usual).unwrap_or(u32::MAX);
        let gained = (theirs - self.theirs).min(usual.saturating_mul(2).saturating_add(2));
        if gained < least.chunks || span < least.time {
            return;
        }
        // A full half may be what an uplink leaves, or a port that two share: over many chunks it has to be clearly less.
        let passed = own.saturating_sub(self.own).saturating_add(gained / 8);
        let slow = passed < gained.div_ceil(2);
        self.verdict = match slow && theirs.saturating_sub(own) > LAG {
            true => Verdict::Lags,
            false => Verdict::KeepsUp,
        };
        (self.since, self.theirs, self.own) = (now, theirs, own);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const REVIEW: Duration = Duration::from_millis(200);

    /// The verdict after `seconds`, of a node that needs `own` milliseconds for a chunk, below one that needs `theirs`.
    fn verdict(own: u64, theirs: u64, seconds: u64) -> Verdict {
        let mut watch = Watch::default();
        for review in 0..seconds * 5 {
            let now = REVIEW * review as u32;
            let chunks = |each: u64| (now.as_millis() as u64 / each) as u32;
            let above = Above {
                id: NodeId(1),
                verified: 10 + chunks(theirs),
                chunk_time: Duration::from_millis(theirs),
            };
            watch.see(now, above, 9 + chunks(own), Least::new(REVIEW * 2, 4));
            assert!(
                own > theirs || watch.verdict() != Verdict::Lags,
                "{own} {theirs}: at {now:?}"
            );
        }
        watch.verdict()
    }

    #[test]
    fn watch__a_node_of_a_tenth_of_the_pace_is_found_however_long_a_chunk_takes() {
        for chunk in [1, 30, 100, 199, 200, 201, 430, 1070, 5000] {
            let enough = 2 + chunk * 12 / 1000;
            assert_eq!(verdict(chunk * 10, chunk, enough), Verdict::Lags, "{chunk}");
            assert_eq!(verdict(chunk, chunk, enough), Verdict::KeepsUp, "{chunk}");
        }
    }
}
