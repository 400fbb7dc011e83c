//! Putting misplaced payload where it belongs.
//!
//! After a burst was received by forecast, some of it may lie in each other's places: a lost STU
//! shifts all that follow, reordering swaps. All moves of a burst are done together, in an order in
//! which no move overwrites what another still has to read; a cycle is broken by one bounce copy.

use crate::fault::{self, Gone};
use crate::shared::{self, Bounds};
use std::borrow::Cow;
use zerolane_core::RegionId;

/// Bytes to be moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) from: *const u8,
    pub(crate) to: *mut u8,
    pub(crate) len: usize,
    /// Where they belong.
    pub(crate) region: RegionId,
    /// Source or target is a mapped file, whose pages may be gone.
    pub(crate) file: bool,
    /// Where they belong is exported memory with these bounds.
    pub(crate) shared: Option<Bounds>,
}

impl Move {
    /// # Safety
    /// As of [`perform`].
    unsafe fn perform(&self) -> Result<(), Gone> {
        if self.file {
            // SAFETY: as promised by the caller.
            return unsafe { fault::copy(self.from, self.to, self.len) };
        }
        if let Some(bounds) = self.shared {
            let offset = self.to as usize - bounds.start as usize;
            // SAFETY: as promised. What lies at the source was put there by the kernel for us: if
            // that is exported memory, too, who writes it meanwhile spoils it, as a late put would.
            let source = unsafe { std::slice::from_raw_parts(self.from, self.len) };
            let bytes = match overlaps(self.from, self.len, self.to, self.len) {
                false => Cow::Borrowed(source),
                true => Cow::Owned(source.to_vec()),
            };
            // SAFETY: as promised.
            unsafe { shared::store(bounds, offset, &bytes) };
            return Ok(());
        }
        // SAFETY: as promised by the caller; ptr::copy allows the two to overlap.
        unsafe { std::ptr::copy(self.from, self.to, self.len) };
        Ok(())
    }

    /// Takes the source out of the others' way.
    ///
    /// # Safety
    /// As of [`perform`], and the returned memory outlives the move.
    unsafe fn bounce(&mut self) -> Result<Box<[u8]>, Gone> {
        let mut copy = vec![0; self.len].into_boxed_slice();
        // SAFETY: readable, as promised by the caller, unless it is a file's.
        unsafe {
            if self.file {
                fault::read(self.from, &mut copy)?;
            } else {
                std::ptr::copy_nonoverlapping(self.from, copy.as_mut_ptr(), self.len);
            }
        }
        self.from = copy.as_ptr();
        Ok(copy)
    }
}

fn overlaps(a: *const u8, a_len: usize, b: *const u8, b_len: usize) -> bool {
    (a as usize) < b as usize + b_len && (b as usize) < a as usize + a_len
}

/// Does all `moves` as if at once, and empties the list. What cannot be done is left out, and the
/// region it belonged to (one of them) returned.
///
/// # Safety
/// Every `from` is readable and every `to` writable for `len` bytes by nobody else, unless `file` is
/// set and its page gone; no two targets overlap. Sources may overlap targets in any way.
pub(crate) unsafe fn perform(moves: &mut Vec<Move>) -> Result<(), RegionId> {
    let mut bounced: Vec<Box<[u8]>> = vec![];
    let mut outcome = Ok(());
    while !moves.is_empty() {
        let harmless = (0..moves.len()).rev().find(|&index| {
            let it = moves[index];
            let hurts = |(other, that): (usize, &Move)| {
                other != index && overlaps(it.to, it.len, that.from, that.len)
            };
            !moves.iter().enumerate().any(hurts)
        });
        match harmless {
            Some(index) => {
                let it = moves.swap_remove(index);
                // SAFETY: as promised by the caller.
                if unsafe { it.perform() }.is_err() {
                    outcome = Err(it.region);
                }
            }
            // SAFETY: as promised by the caller; `bounced` outlives the list.
            None => match unsafe { moves[0].bounce() } {
                Ok(copy) => bounced.push(copy),
                Err(Gone) => outcome = Err(moves.swap_remove(0).region),
            },
        }
    }
    outcome
}

#[cfg(test)]
#[path = "cleanup_tests.rs"]
mod tests;
