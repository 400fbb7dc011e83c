//! The end of a Transfer.

use crate::RegionKey;
use zerolane_lane::{
    Delivery, Memory, MessageControl, Region, TransferError, TransferId, WorkKind,
};

/// A request that is over, and the memory that was posted.
#[derive(Debug)]
pub struct Completion {
    /// Which; 0 for an immediate of the peer.
    pub id: TransferId,
    /// Kind of the request.
    pub kind: WorkKind,
    /// What the request was given as its context: see [`Work::with_context`](crate::Work::with_context).
    pub context: u64,
    /// Bytes moved, or why not.
    pub result: Result<usize, TransferError>,
    /// What was posted; empty if it was several pieces, copied, or nothing.
    pub memory: Memory,
    /// What was posted in several pieces.
    pub pieces: Vec<Memory>,
    /// How the sender asked for it to be delivered (receives of Transfers; `Interrupt` otherwise).
    pub delivery: Delivery,
    /// The word before an atomic operation; the number of an immediate.
    pub value: u64,
    /// The control of a message received.
    pub control: MessageControl,
    /// The region of the peer that was asked for by name.
    pub region: Option<RegionKey>,
}

/// No memory.
pub(crate) fn nothing() -> Memory {
    Region::empty().into()
}

impl Completion {
    /// The exclusively owned region that was posted; empty if shared memory was.
    pub fn into_region(self) -> Region {
        self.memory.into_region().unwrap_or_else(Region::empty)
    }
}

impl From<zerolane_lane::Completion> for Completion {
    fn from(it: zerolane_lane::Completion) -> Completion {
        Completion {
            id: it.id,
            result: it.result.map(|bytes| bytes as usize),
            kind: it.kind,
            context: it.context,
            memory: it.memory.unwrap_or_else(nothing),
            pieces: Vec::new(),
            delivery: it.delivery,
            value: it.value,
            control: it.control,
            region: it.region.map(RegionKey::new),
        }
    }
}
