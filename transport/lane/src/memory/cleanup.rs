//! Moves misplaced payload to its place after a burst was received.
//!
//! Payload received by forecast may land in the wrong places: a lost STU shifts all that follow, and reordering swaps
//! STUs. The moves of a burst are performed together, in an order in which no move overwrites bytes that another has
//! yet to read. A bounce copy breaks each cycle.

use crate::memory::fault::Gone;
use crate::memory::shared::Bounds;
use crate::memory::{fault, shared};
use zerolane_core::RegionId;

/// A move of bytes to their place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) from: Source,
    pub(crate) to: *mut u8,
    pub(crate) len: usize,
    /// The region of the target.
    pub(crate) region: RegionId,
    /// Whether the target is a mapped file, whose pages may be gone.
    pub(crate) file: bool,
    /// The bounds of the target's memory, if it is exported.
    pub(crate) shared: Option<Bounds>,
}

/// Bytes to move, and how their memory may be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) start: *const u8,
    /// Whether it is a mapped file, whose pages may be gone.
    pub(crate) file: bool,
    /// The bounds of its memory, if it is exported. Others may write it during the read, which corrupts the content
    /// read, as a late put does.
    pub(crate) shared: Option<Bounds>,
}

impl Source {
    /// The lane's own memory.
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

    /// Copies the source into `into`.
    ///
    /// # Safety
    /// `into.len()` bytes are readable at the source, and lie within its bounds if it is shared. Nothing writes them
    /// unless the source is shared. Their pages may be gone if it is a file.
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
    /// Performs this move.
    ///
    /// # Safety
    /// As [`perform`].
    pub(crate) unsafe fn perform(&self) -> Result<(), Gone> {
        if !self.file && self.shared.is_none() && !self.from.file && self.from.shared.is_none() {
            // SAFETY: as promised by the caller; ptr::copy allows source and target to overlap.
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

    /// Copies the source to new memory, so that other moves may overwrite it.
    ///
    /// # Safety
    /// As [`perform`], and the returned memory outlives the move.
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

/// Performs all `moves` as if at once, and empties the list. Skips moves whose memory is gone, and returns the region
/// of one of them. If two targets overlap, either may win: an honest sender sends the same bytes for both.
///
/// The cost is bounded for any moves: each is performed once and bounced at most once. At most twice the bytes of the
/// batch are copied, and at most its bytes are held. [`Order`] bounds the work of ordering.
///
/// # Safety
/// Each `from` is readable and each `to` writable for `len` bytes, unless `file` is set and the page is gone. Nothing
/// else accesses them, unless `shared` says that the memory is exported; then they lie within those bounds. Sources may
/// overlap targets in any way.
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
                    // No bytes are left to move.
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

/// The next step of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Perform(usize),
    /// All remaining moves block each other: bounce the source of this one.
    Bounce(usize),
}

/// Orders moves so that none overwrites bytes that another has yet to read.
///
/// A move *blocks* another while its source overlaps the target of the other. A move that nothing blocks is performed.
/// If each remaining move is blocked, following the blockers leads into a cycle. One move of the cycle is bounced, and
/// then blocks nothing. (A move that a cycle blocks without being part of it blocks nothing in the cycle, so bouncing
/// it would not help.)
///
/// Work: one comparison for each move and each source that lies among the targets. Those sources are places of one
/// forecast, so there are at most 64, however many datagrams a batch has.
#[derive(Debug)]
struct Order {
    /// Pairs of blocker and blocked, by blocker.
    edges: Vec<(usize, usize)>,
    /// For each move, the number of moves that block it.
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
            // A source in the lane's own memory blocks nothing.
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

    /// The next step, which the caller performs at once.
    fn next(&mut self) -> Option<Step> {
        if let Some(index) = self.ready.pop() {
            self.release(index);
            return Some(Step::Perform(index));
        }
        let index = self.in_a_cycle()?;
        self.release(index);
        Some(Step::Bounce(index))
    }

    /// Records that `blocker` no longer blocks anything.
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

    /// A move of a cycle, if any move is left. No move is ready, so each remaining one has a blocker that remains.
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
