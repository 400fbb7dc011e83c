//! Gives numbers to exported regions.

use std::collections::VecDeque;

const NUMBERS: u32 = 1 << 24;
/// A number rests while so many others are given back: an operation of a peer may still be on its way to it.
const RESTING: usize = 1 << 16;

/// Gives numbers to regions.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    next: u32,
    resting: VecDeque<u32>,
}

impl Numbers {
    pub(crate) fn take(&mut self) -> Option<u32> {
        if self.resting.len() > RESTING {
            return self.resting.pop_front();
        }
        let fresh = Some(self.next).filter(|it| *it < NUMBERS)?;
        self.next += 1;
        Some(fresh)
    }

    pub(crate) fn give_back(&mut self, number: u32) {
        self.resting.push_back(number);
    }
}
