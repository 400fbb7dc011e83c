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
    pub(crate) arrived: usize,
}

/// No memory.
pub(crate) fn nothing() -> Memory {
    Region::empty().into()
}

impl Completion {
    /// What was posted, in one piece or several.
    pub(crate) fn take_memory(&mut self) -> Memory {
        if self.pieces.is_empty() {
            return std::mem::replace(&mut self.memory, nothing());
        }
        Memory::Gathered(std::mem::take(&mut self.pieces))
    }

    /// Bytes at the start of the memory of a receive, get or message that are verified and in place: all that
    /// moved, or, if it failed or was cancelled, what had come until then. Those behind are undefined.
    pub fn arrived(&self) -> usize {
        self.arrived
    }

    /// The region that was posted, exclusively owned: also if it was shared and is the only one by now
    /// ([`SharedRegion::try_unique`](crate::SharedRegion::try_unique)). Empty if there is another, or several
    /// pieces were posted.
    pub fn into_region(self) -> Region {
        self.memory.into_region().unwrap_or_else(Region::empty)
    }
}

impl From<zerolane_lane::Completion> for Completion {
    fn from(it: zerolane_lane::Completion) -> Completion {
        let (memory, pieces) = match it.memory {
            Some(Memory::Gathered(pieces)) => (nothing(), pieces),
            memory => (memory.unwrap_or_else(nothing), Vec::new()),
        };
        let receives = matches!(
            it.kind,
            WorkKind::Receive | WorkKind::Read | WorkKind::Get | WorkKind::MessageReceived
        );
        let (value, arrived) = match it.result {
            Ok(bytes) => (it.value, bytes),
            Err(_) if receives => (0, it.value),
            Err(_) => (it.value, 0),
        };
        Completion {
            id: it.id,
            result: it.result.map(|bytes| bytes as usize),
            arrived: arrived as usize,
            kind: it.kind,
            context: it.context,
            memory,
            pieces,
            delivery: it.delivery,
            value,
            control: it.control,
            region: it.region.map(RegionKey::new),
        }
    }
}
