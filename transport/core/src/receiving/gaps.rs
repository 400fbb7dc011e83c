//! Tracks the missing ranges of a Block, sorted, as payload arrives.
//!
//! Ranges of bytes rather than a bitmap of STUs: the STU size may change in the middle of a Block (when the path's MTU
//! shrinks), and the common case, no loss, is one range with a moving start.

use crate::limits::MAX_GAPS_PER_BLOCK;
use smallvec::{SmallVec, smallvec};

/// Ranges stored without allocation: no loss, or one burst of losses.
const INLINE: usize = 2;

/// Sorted, disjoint, non-empty missing ranges `[start, end)`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gaps {
    ranges: SmallVec<[(u32, u32); INLINE]>,
}

/// Result of filling a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// Number of bytes that were missing before.
    New(u32),
    /// No byte of it was missing.
    Duplicate,
    /// It would create too many gaps.
    TooFragmented,
}

impl Gaps {
    /// A Block of which all `len` bytes are missing.
    pub(crate) fn whole(len: u32) -> Gaps {
        Gaps {
            ranges: smallvec![(0, len)],
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Marks `[start, end)` as received.
    pub(crate) fn fill(&mut self, start: u32, end: u32) -> Filled {
        if let [(gap_start, gap_end)] = &mut self.ranges[..]
            && *gap_start == start
            && end < *gap_end
        {
            *gap_start = end;
            return Filled::New(end - start);
        }
        self.fill_general(start, end)
    }

    fn fill_general(&mut self, start: u32, end: u32) -> Filled {
        let first = self
            .ranges
            .partition_point(|&(_, gap_end)| gap_end <= start);
        let last = self
            .ranges
            .partition_point(|&(gap_start, _)| gap_start < end);
        if first >= last {
            return Filled::Duplicate;
        }
        let left = (self.ranges[first].0, start);
        let right = (end, self.ranges[last - 1].1);
        let rest = [left, right].into_iter().filter(|&(a, b)| a < b);
        let kept: u32 = rest.clone().map(|(a, b)| b - a).sum();
        if self.ranges.len() - (last - first) + rest.clone().count() > MAX_GAPS_PER_BLOCK {
            return Filled::TooFragmented;
        }
        let missing: u32 = self.ranges[first..last].iter().map(|&(a, b)| b - a).sum();
        self.ranges.drain(first..last);
        self.ranges.insert_many(first, rest);
        Filled::New(missing - kept)
    }

    /// The missing range that holds `at`, or the first after it.
    pub(crate) fn from(&self, at: u32) -> Option<(u32, u32)> {
        let index = self.ranges.partition_point(|&(_, gap_end)| gap_end <= at);
        self.ranges
            .get(index)
            .map(|&(start, end)| (start.max(at), end))
    }

    /// All missing ranges, in order.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.ranges.iter().copied()
    }

    /// Number of missing ranges.
    pub(crate) fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Nothing from `end` on is expected any more.
    pub(crate) fn truncate(&mut self, end: u32) {
        self.ranges.retain(|&mut (start, _)| start < end);
        if let Some(last) = self.ranges.last_mut() {
            last.1 = last.1.min(end);
        }
    }

    /// Number of missing bytes.
    pub(crate) fn missing(&self) -> u32 {
        self.ranges.iter().map(|&(a, b)| b - a).sum()
    }
}

#[cfg(test)]
#[path = "gaps_tests.rs"]
mod tests;
