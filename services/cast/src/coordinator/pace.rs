//! Judges whether a node keeps up with its predecessors, by comparing counts of chunks.
//!
//! A coordinator knows only counts of chunks. Where a chunk takes longer than the time between two reviews, even a fast node
//! gains no chunk in most reviews. The comparison therefore spans as many reviews as the predecessor needs to gain some
//! chunks. In trees, a slow node is slow in all stripes, so the sum over all stripes decides in a fraction of the time. A
//! predecessor that is slow itself offers nothing, and does not count.

use std::time::Duration;

use crate::message::NodeId;

/// Chunks of its stripe that the node above gains until the two are compared: half of fewer is one chunk more or less. Where
/// few stripes have to agree, chance would have it more often.
fn span(arity: u32) -> u32 {
    (16 / arity.max(1)).clamp(4, 8)
}

/// Chunks that a node is offered in all stripes together until it is compared with all above it: at least two of each stripe.
const LEAST_OFFERED: u32 = 8;

/// Stripes in which a node is behind that lags in all together: in one alone it may be the node above that does.
const LEAST_BEHIND: usize = 2;

/// Chunks that a node which keeps up may be behind: one on its way, and one that waits for its turn.
const LAG: u32 = 2;

/// The result of the last comparison of a node with its predecessor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Verdict {
    /// They were not yet.
    #[default]
    Unknown,
    /// The node has at least half the pace, or is hardly behind.
    KeepsUp,
    /// It is behind, and has less than half the pace, twice in a row if it is compared with one alone.
    Lags,
}

/// A node above, as a review sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Above {
    pub(super) id: NodeId,
    pub(super) stripe: usize,
    /// Chunks of the stripe that it has, and when it said so.
    pub(super) verified: u32,
    pub(super) said: Duration,
    /// How long the cast takes from one to the next. What the node above gains faster, from helpers, it cannot pass on as fast.
    pub(super) chunk_time: Duration,
}

/// The node itself, as a review sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    /// Chunks of the stripe that it has, and when it said so.
    pub(super) verified: u32,
    pub(super) said: Duration,
}

/// The counts of both, each at the time of its report.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    theirs: (Duration, u32),
    own: (Duration, u32),
}

impl Counts {
    fn of(above: Above, own: Own) -> Counts {
        Counts {
            theirs: (above.said, above.verified),
            own: (own.said, own.verified),
        }
    }

    /// What the one above gained since that the node lacked, and what the node would have in the same time: they do not tell
    /// at the same moments.
    fn since(&self, before: &Counts) -> (u32, f64) {
        let time = |it: (Duration, u32), before: (Duration, u32)| {
            it.0.saturating_sub(before.0).as_secs_f64()
        };
        let (theirs, own) = (time(self.theirs, before.theirs), time(self.own, before.own));
        let ratio = if own > 0.0 { theirs / own } else { 1.0 };
        let gained = f64::from(self.own.1.saturating_sub(before.own.1));
        let offered = self
            .theirs
            .1
            .saturating_sub(before.theirs.1.max(before.own.1));
        (offered, gained * ratio)
    }
}

/// Whether `passed` is clearly less than half of what was offered: a full half may be what an uplink leaves, or a port that
/// two share.
fn is_slow(passed: f64, offered: u32) -> bool {
    passed < f64::from(offered) * 0.375
}

/// The least data for a comparison.
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
    /// Whether the predecessor has made progress since it became the predecessor.
    started: bool,
    since: Duration,
    /// What both had then, and at the last review.
    before: Counts,
    last: Counts,
    reviewed: Duration,
    /// The comparison before said that it lags: one may be chance.
    warned: bool,
    verdict: Verdict,
}

/// The chunks that a node was offered in a stripe between two reviews, and those that it received.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passed {
    stripe: usize,
    offered: u32,
    got: f64,
    /// Chunks that the node above has and it lacks.
    behind: u32,
}

/// The comparison of a node with all above it together.
#[derive(Clone, Debug, Default)]
pub(super) struct Overall {
    /// The last review before it was offered anything.
    since: Duration,
    /// By stripe.
    offered: Vec<u32>,
    got: f64,
    verdict: Verdict,
}

impl Overall {
    pub(super) fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// What was seen before says nothing.
    pub(super) fn forget(&mut self) {
        *self = Overall::default();
    }

    /// A review, in which so much was passed in each of the stripes that are compared.
    pub(super) fn see(&mut self, now: Duration, passed: &[Passed], time: Duration) {
        if self.offered.is_empty() {
            (self.since, self.got) = (now, 0.0);
        }
        for it in passed.iter().filter(|it| it.offered > 0) {
            let stripes = self.offered.len().max(it.stripe + 1);
            self.offered.resize(stripes, 0);
            self.offered[it.stripe] += it.offered;
        }
        self.got += passed.iter().map(|it| it.got).sum::<f64>();
        let offered = self.offered.iter().sum::<u32>();
        let least = (2 * passed.len() as u32).max(LEAST_OFFERED);
        if offered < least || now.saturating_sub(self.since) < time {
            return;
        }
        // A stripe in which little was offered says little: another slow node may be above.
        let behind = passed.iter().filter(|it| it.behind > LAG);
        let of = |it: &Passed| self.offered.get(it.stripe).copied().unwrap_or(0);
        let weight: u32 = behind.clone().map(of).sum();
        let most = 2 * weight > offered && behind.count() >= passed.len().min(LEAST_BEHIND);
        self.verdict = match most && is_slow(self.got, offered) {
            true => Verdict::Lags,
            false => Verdict::KeepsUp,
        };
        (self.since, self.got) = (now, 0.0);
        self.offered.clear();
    }
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

    /// The last comparison said that the node lags.
    pub(super) fn is_warned(&self) -> bool {
        self.warned
    }

    /// A review: what the node was offered, and got, since the one before.
    pub(super) fn see(&mut self, now: Duration, above: Above, own: Own, least: Least) -> Passed {
        let counts = Counts::of(above, own);
        if self.above != Some(above.id) || above.verified < self.before.theirs.1 {
            *self = Watch {
                above: Some(above.id),
                since: now,
                reviewed: now,
                before: counts,
                last: counts,
                ..Watch::default()
            };
        }
        let usual = |time: Duration| {
            let usual = time.as_nanos() / above.chunk_time.as_nanos().max(1);
            u32::try_from(usual).unwrap_or(u32::MAX)
        };
        let (offered, got) = counts.since(&self.last);
        let most = usual(now.saturating_sub(self.reviewed)).saturating_add(1);
        let passed = Passed {
            stripe: above.stripe,
            offered: offered.min(most),
            got,
            behind: above.verified.saturating_sub(own.verified),
        };
        (self.last, self.reviewed) = (counts, now);
        self.compare(now, counts, usual(now.saturating_sub(self.since)), least);
        passed
    }

    /// Compares the two, of which the one above usually gains so many chunks in that time.
    fn compare(&mut self, now: Duration, counts: Counts, usual: u32, least: Least) {
        let (gained, passed) = counts.since(&self.before);
        if !self.started {
            self.started = gained > 0;
            (self.since, self.before) = (now, counts);
            return;
        }
        let gained = gained.min(usual.saturating_mul(2).saturating_add(2));
        if gained < least.chunks || now.saturating_sub(self.since) < least.time {
            return;
        }
        let behind = counts.theirs.1.saturating_sub(counts.own.1);
        let lags = is_slow(passed, gained) && behind > LAG;
        self.verdict = match (lags, self.warned) {
            (true, true) => Verdict::Lags,
            (true, false) => self.verdict,
            (false, _) => Verdict::KeepsUp,
        };
        (self.since, self.before, self.warned) = (now, counts, lags);
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
                stripe: 0,
                verified: 10 + chunks(theirs),
                said: now,
                chunk_time: Duration::from_millis(theirs),
            };
            let node = Own {
                verified: 9 + chunks(own),
                said: now,
            };
            watch.see(now, above, node, Least::new(REVIEW * 2, 4));
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

    /// The verdict on a node, from its received and offered chunks in each stripe.
    fn overall(stripes: &[(u32, f64)]) -> Verdict {
        let passed = |(stripe, (offered, got)): (usize, &(u32, f64))| Passed {
            stripe,
            offered: *offered,
            got: *got,
            behind: (f64::from(*offered) - got) as u32,
        };
        let passed: Vec<Passed> = stripes.iter().enumerate().map(passed).collect();
        let mut overall = Overall::default();
        overall.see(REVIEW, &passed, Duration::ZERO);
        overall.verdict()
    }

    /// Slow nodes above it leave it little of two stripes, and hid it.
    #[test]
    fn overall__a_slow_node_is_found_by_the_stripes_in_which_it_is_offered_something() {
        let slow = [(6, 1.0), (6, 0.0), (1, 0.0), (0, 0.0)];
        assert_eq!(overall(&slow), Verdict::Lags);
        let sound = [(6, 6.0), (6, 5.0), (1, 0.0), (0, 0.0)];
        assert_eq!(overall(&sound), Verdict::KeepsUp);
        // In one stripe alone it may be the node above.
        let below = [(12, 0.0), (1, 1.0), (1, 1.0), (0, 0.0)];
        assert_eq!(overall(&below), Verdict::KeepsUp);
    }
}
