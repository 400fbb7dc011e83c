//! Holds payload that came with its announcement until a receive is posted for it. The core decides what to hold and
//! when to free it, and bounds the amount. An idle connection holds none.

use std::collections::HashMap;
use zerolane_core::Hold;

/// A connection's held payload, by number.
#[derive(Debug, Default)]
pub(crate) struct Holds(HashMap<u32, Box<[u8]>>);

impl Holds {
    /// Stores `payload` after the earlier bytes of the same Transfer.
    pub(crate) fn store(&mut self, hold: Hold, payload: &[u8]) {
        let new = || vec![0; hold.length as usize].into();
        let buffer = self.0.entry(hold.number).or_insert_with(new);
        let place = buffer.get_mut(hold.start as usize..);
        if let Some(place) = place.and_then(|it| it.get_mut(..payload.len())) {
            place.copy_from_slice(payload);
        }
    }

    /// `len` held bytes, from `start` on.
    pub(crate) fn bytes(&self, number: u32, start: u32, len: u64) -> Option<&[u8]> {
        let rest = self.0.get(&number)?.get(start as usize..)?;
        rest.get(..usize::try_from(len).ok()?)
    }

    /// Frees the payload with this number.
    pub(crate) fn free(&mut self, number: u32) {
        self.0.remove(&number);
        if self.0.is_empty() {
            // Frees the table as well.
            *self = Holds::default();
        }
    }
}

#[cfg(test)]
#[path = "holds_tests.rs"]
mod tests;
