//! Computes the expected content of the target's memory.

use std::collections::BTreeMap;

/// A part of an area and its content: first byte, end (exclusive), seed.
pub type Part = (u64, u64, u64);

/// An initiator's own memory at the target, which no other initiator touches.
pub struct Oracle {
    /// By first byte.
    parts: BTreeMap<u64, (u64, u64)>,
}

impl Oracle {
    /// `len` bytes of zeros.
    pub fn new(len: u64) -> Oracle {
        Oracle {
            parts: BTreeMap::from([(0, (len, 0))]),
        }
    }

    /// Gives the part the content `seed`.
    pub fn put(&mut self, from: u64, to: u64, seed: u64) {
        self.cut(from);
        self.cut(to);
        let covered: Vec<u64> = self.parts.range(from..to).map(|it| *it.0).collect();
        for start in covered {
            self.parts.remove(&start);
        }
        self.parts.insert(from, (to, seed));
    }

    fn cut(&mut self, at: u64) {
        let around = self.parts.range(..at).next_back();
        if let Some((&start, &(end, seed))) = around.filter(|it| it.1.0 > at) {
            self.parts.insert(start, (at, seed));
            self.parts.insert(at, (end, seed));
        }
    }

    /// The content of the part.
    pub fn get(&self, from: u64, to: u64) -> Vec<Part> {
        let first = self.parts.range(..=from).next_back().map(|it| *it.0);
        let parts = self.parts.range(first.unwrap_or(from)..to);
        parts
            .map(|(&start, &(end, seed))| (start.max(from), end.min(to), seed))
            .filter(|(start, end, _)| start < end)
            .collect()
    }

    /// The content of the whole area.
    pub fn all(&self) -> Vec<Part> {
        self.get(0, u64::MAX)
    }
}
