//! Describes the predicted layout of a message, and checks whether it held.

use zerolane_core::{Run, pattern_holds};

/// A message that the kernel filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) index: usize,
    /// Bytes of all its datagrams.
    pub(super) total: usize,
    /// Bytes of each datagram except the last.
    pub(super) segment: usize,
}

impl Message {
    pub(super) fn segments(&self) -> usize {
        self.total.div_ceil(self.segment).max(1)
    }
}

/// The prediction for one message: pairs of header slot and place, by runs.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) runs: Vec<Run>,
    pub(super) pairs: usize,
    /// First of its header slots.
    pub(super) slot: usize,
}

impl Layout {
    /// Predicts nothing.
    pub(super) fn clear(&mut self) {
        self.runs.clear();
        self.pairs = 0;
    }

    /// Whether each segment n lies in pair n, header in its slot and payload in its place, with `around` bytes around
    /// the payload.
    pub(super) fn fits(&self, total: usize, segment: usize, around: usize) -> bool {
        pattern_holds(&self.runs, self.pairs, total, segment, around)
    }
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
