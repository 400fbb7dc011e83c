//! Putting misplaced payload where it belongs.
//!
//! After a burst was received by forecast, some of it may lie in each other's places: a lost STU
//! shifts all that follow, reordering swaps. All moves of a burst are done together, in an order in
//! which no move overwrites what another still has to read; a cycle is broken by one bounce copy.

/// Bytes to be moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) from: *const u8,
    pub(crate) to: *mut u8,
    pub(crate) len: usize,
}

fn overlaps(a: *const u8, a_len: usize, b: *const u8, b_len: usize) -> bool {
    (a as usize) < b as usize + b_len && (b as usize) < a as usize + a_len
}

/// Does all `moves` as if at once, and empties the list.
///
/// # Safety
/// Every `from` is readable and every `to` writable for `len` bytes by nobody else; no two targets
/// overlap. Sources may overlap targets in any way.
pub(crate) unsafe fn perform(moves: &mut Vec<Move>) {
    let mut bounced: Vec<Box<[u8]>> = vec![];
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
                // SAFETY: as promised by the caller; ptr::copy allows the two to overlap.
                unsafe { std::ptr::copy(it.from, it.to, it.len) };
            }
            None => {
                let it = &mut moves[0];
                // SAFETY: readable, as promised.
                let copy: Box<[u8]> = unsafe { std::slice::from_raw_parts(it.from, it.len) }.into();
                it.from = copy.as_ptr();
                bounced.push(copy);
            }
        }
    }
}

#[cfg(test)]
#[path = "cleanup_tests.rs"]
mod tests;
