//! Putting misplaced payload where it belongs.
//!
//! After a burst was received by forecast, some of it may lie in each other's places: a lost STU
//! shifts all that follow, reordering swaps. All moves of a burst are done together, in an order in
//! which no move overwrites what another still has to read; a cycle is broken by bounce copies.

use crate::fault::{self, Gone};
use crate::shared::{self, Bounds};
use zerolane_core::RegionId;

/// Bytes to be moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) from: Source,
    pub(crate) to: *mut u8,
    pub(crate) len: usize,
    /// Where they belong.
    pub(crate) region: RegionId,
    /// The target is a mapped file, whose pages may be gone.
    pub(crate) file: bool,
    /// Where they belong is exported memory with these bounds.
    pub(crate) shared: Option<Bounds>,
}

/// Where bytes lie that are to be moved, and how that memory may be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) start: *const u8,
    /// It is a mapped file, whose pages may be gone.
    pub(crate) file: bool,
    /// It is exported memory with these bounds: others write it meanwhile. Then what is read is spoilt,
    /// as by a late put.
    pub(crate) shared: Option<Bounds>,
}

impl Source {
    /// Memory of the lane's own.
    pub(crate) fn own(bytes: &[u8]) -> Source {
        Source {
            start: bytes.as_ptr(),
            file: false,
            shared: None,
        }
    }

    /// The source without its first `len` bytes.
    pub(crate) fn behind(self, len: u64) -> Source {
        Source {
            start: self.start.wrapping_add(len as usize),
            ..self
        }
    }

    /// Copies what lies there.
    ///
    /// # Safety
    /// `into.len()` bytes are readable there, and lie within the bounds if it is shared. Nothing writes
    /// them unless it is; they may be gone if it is a file.
    pub(crate) unsafe fn read(self, into: &mut [u8]) -> Result<(), Gone> {
        match (self.file, self.shared) {
            // SAFETY: as promised by the caller.
            (true, shared) => unsafe { fault::read(self.start, into, shared) },
            (false, Some(bounds)) => {
                // SAFETY: as promised by the caller.
                unsafe { shared::load(bounds, bounds.offset_of(self.start), into) };
                Ok(())
            }
            (false, None) => {
                // SAFETY: as promised by the caller; `into` is exclusive, so they do not overlap.
                unsafe { std::ptr::copy_nonoverlapping(self.start, into.as_mut_ptr(), into.len()) };
                Ok(())
            }
        }
    }
}

impl Move {
    /// Does this one alone.
    ///
    /// # Safety
    /// As of [`perform`].
    pub(crate) unsafe fn perform(&self) -> Result<(), Gone> {
        if !self.file && self.shared.is_none() && !self.from.file && self.from.shared.is_none() {
            // SAFETY: as promised by the caller; ptr::copy allows the two to overlap.
            unsafe { std::ptr::copy(self.from.start, self.to, self.len) };
            return Ok(());
        }
        let mut bytes = vec![0; self.len];
        // SAFETY: as promised by the caller.
        unsafe { self.from.read(&mut bytes)? };
        match (self.file, self.shared) {
            // SAFETY: as promised by the caller.
            (true, shared) => unsafe { fault::write(&bytes, self.to, shared) },
            (false, Some(bounds)) => {
                // SAFETY: as promised by the caller.
                unsafe { shared::store(bounds, bounds.offset_of(self.to), &bytes) };
                Ok(())
            }
            (false, None) => {
                // SAFETY: as promised by the caller; the copy is ours.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.to, self.len) };
                Ok(())
            }
        }
    }

    /// Takes the source out of the others' way.
    ///
    /// # Safety
    /// As of [`perform`], and the returned memory outlives the move.
    unsafe fn bounce(&mut self) -> Result<Box<[u8]>, Gone> {
        let mut copy = vec![0; self.len].into_boxed_slice();
        // SAFETY: as promised by the caller.
        unsafe { self.from.read(&mut copy)? };
        self.from = Source::own(&copy);
        Ok(copy)
    }
}

fn overlaps(a: *const u8, a_len: usize, b: *const u8, b_len: usize) -> bool {
    (a as usize) < b as usize + b_len && (b as usize) < a as usize + a_len
}

/// Does all `moves` as if at once, and empties the list. What cannot be done is left out, and the
/// region it belonged to (one of them) returned. Where two targets overlap, either may win: an honest
/// sender gives both the same bytes.
///
/// Bounded for any moves: each is done once and bounced at most once. So at most twice the bytes of
/// the batch are copied, and at most its bytes are held. [`Order`] bounds the work of finding the order.
///
/// # Safety
/// Every `from` is readable and every `to` writable for `len` bytes, unless `file` is set and its page
/// gone. Nothing else touches them, unless `shared` says that it is exported, and lies in those bounds.
/// Sources may overlap targets in any way.
pub(crate) unsafe fn perform(moves: &mut Vec<Move>) -> Result<(), RegionId> {
    match moves[..] {
        [] => return Ok(()),
        [only] => {
            moves.clear();
            // SAFETY: as promised by the caller.
            return unsafe { only.perform() }.map_err(|_| only.region);
        }
        _ => {}
    }
    let mut order = Order::of(moves);
    let mut bounced: Vec<Box<[u8]>> = vec![];
    let mut outcome = Ok(());
    while let Some(step) = order.next() {
        let (index, done) = match step {
            // SAFETY: as promised by the caller.
            Step::Perform(index) => (index, unsafe { moves[index].perform() }),
            Step::Bounce(index) => {
                // SAFETY: as promised by the caller; `bounced` outlives the list.
                let copy = unsafe { moves[index].bounce() };
                if copy.is_err() {
                    // Nothing of it is left to be moved.
                    moves[index].len = 0;
                }
                (index, copy.map(|copy| bounced.push(copy)))
            }
        };
        if done.is_err() {
            outcome = Err(moves[index].region);
        }
    }
    moves.clear();
    outcome
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Perform(usize),
    /// All that are left block each other: this one's source goes out of the way.
    Bounce(usize),
}

/// An order of moves in which none overwrites what another still has to read.
///
/// A move *blocks* another while its source lies where the other writes. A move that nothing blocks is
/// performed. Where each one left is blocked, following the blockers leads into a cycle; one of the
/// cycle is bounced, which then blocks nothing any more. (One that a cycle blocks without being part of
/// it blocks nothing in the cycle: bouncing it would change nothing.)
///
/// Work: one comparison for each move and each source that lies among the targets. Those are places of
/// one forecast, so 64 at most, however many datagrams a batch has.
#[derive(Debug)]
struct Order {
    /// Pairs of blocker and blocked, by blocker.
    edges: Vec<(usize, usize)>,
    /// Of each move: how many block it.
    blockers: Vec<usize>,
    ready: Vec<usize>,
}

impl Order {
    fn of(moves: &[Move]) -> Order {
        let targets = moves
            .iter()
            .map(|it| it.to as usize..it.to as usize + it.len);
        let start = targets.clone().map(|it| it.start).min().unwrap_or(0);
        let end = targets.map(|it| it.end).max().unwrap_or(0);
        let mut order = Order {
            edges: vec![],
            blockers: vec![0; moves.len()],
            ready: vec![],
        };
        for (blocker, source) in moves.iter().enumerate() {
            let from = source.from.start;
            // What lies in the lane's own memory is in nothing's way.
            if from as usize >= end || from as usize + source.len <= start {
                continue;
            }
            for (blocked, it) in moves.iter().enumerate() {
                if blocked != blocker && overlaps(it.to, it.len, from, source.len) {
                    order.edges.push((blocker, blocked));
                    order.blockers[blocked] += 1;
                }
            }
        }
        order.ready = (0..moves.len())
            .filter(|&index| order.blockers[index] == 0)
            .collect();
        order
    }

    /// The next step; the caller takes it at once.
    fn next(&mut self) -> Option<Step> {
        if let Some(index) = self.ready.pop() {
            self.release(index);
            return Some(Step::Perform(index));
        }
        let index = self.in_a_cycle()?;
        self.release(index);
        Some(Step::Bounce(index))
    }

    /// `blocker` blocks nothing any more.
    fn release(&mut self, blocker: usize) {
        let start = self.edges.partition_point(|edge| edge.0 < blocker);
        let end = self.edges.partition_point(|edge| edge.0 <= blocker);
        for (_, blocked) in self.edges.drain(start..end) {
            self.blockers[blocked] -= 1;
            if self.blockers[blocked] == 0 {
                self.ready.push(blocked);
            }
        }
    }

    /// A move of a cycle, if any move is left: nothing is ready, so each one left has a blocker that is left.
    fn in_a_cycle(&self) -> Option<usize> {
        let mut met = vec![false; self.blockers.len()];
        let mut index = self.edges.first()?.1;
        loop {
            if std::mem::replace(&mut met[index], true) {
                return Some(index);
            }
            index = self.edges.iter().find(|edge| edge.1 == index)?.0;
        }
    }
}

#[cfg(test)]
#[path = "cleanup_tests.rs"]
mod tests;
