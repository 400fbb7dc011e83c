//! The end of a Transfer.

use zerolane_lane::{Delivery, Memory, Region, TransferError, TransferId};

/// A Transfer that is over, and the memory that was posted.
#[derive(Debug)]
pub struct Completion {
    /// Which.
    pub id: TransferId,
    /// Bytes moved, or why not.
    pub result: Result<usize, TransferError>,
    /// What was posted.
    pub memory: Memory,
    /// How the sender asked for it to be delivered (receives; `Interrupt` otherwise).
    pub delivery: Delivery,
}

impl Completion {
    /// The exclusively owned region that was posted; empty if shared memory was.
    pub fn into_region(self) -> Region {
        match self.memory {
            Memory::Exclusive(region) => region,
            Memory::Shared(_) => Region::from_vec(Vec::new()),
        }
    }
}

impl From<zerolane_lane::Completion> for Completion {
    fn from(it: zerolane_lane::Completion) -> Completion {
        Completion {
            id: it.id,
            result: it.result.map(|bytes| bytes as usize),
            // Only the blocking calls post borrowed memory, and they take their own completions.
            memory: it
                .memory
                .unwrap_or_else(|| Region::from_vec(Vec::new()).into()),
            delivery: it.delivery,
        }
    }
}
