//! Defines the completion of a request: its result, and the memory it gives back.

use crate::id::{Poster, RequestId};
use crate::key::RegionKey;
use zerolane_lane::{Delivery, Memory, MessageControl, Region, TransferError, WorkKind};

/// A completed request and its memory, or an immediate from the peer.
#[derive(Debug)]
pub struct Completion {
    /// The request's identifier; that of no request for an immediate from the peer.
    pub id: RequestId,
    /// Kind of the request.
    pub kind: WorkKind,
    /// The context that the request was posted with: see [`Put::context`](crate::request::Put::context).
    pub context: u64,
    /// Bytes moved, or why the request failed.
    pub result: Result<usize, TransferError>,
    /// The memory that was posted; empty if the request had several pieces, copied its data, or had no memory.
    pub memory: Memory,
    /// The pieces of a request posted in several pieces.
    pub pieces: Vec<Memory>,
    /// The delivery mode that the sender chose (receives of Transfers; `Interrupt` otherwise).
    pub delivery: Delivery,
    /// The word's value before an atomic operation; the number of an immediate.
    pub value: u64,
    /// The control of a received message.
    pub control: MessageControl,
    /// The peer's region, in reply to a request that named it.
    pub region: Option<RegionKey>,
    pub(crate) arrived: usize,
}

/// An empty memory.
pub(crate) fn nothing() -> Memory {
    Region::empty().into()
}

impl Completion {
    /// Bytes at the start of the memory of a receive, get or message that are verified and in place: all of them, or,
    /// if the request failed or was cancelled, those that had arrived by then. The bytes after them are undefined.
    pub fn arrived(&self) -> usize {
        self.arrived
    }

    /// The region that was posted, exclusively owned. Memory that was shared is a region again once no other reference
    /// is left ([`SharedRegion::try_unique`](crate::SharedRegion::try_unique)). Empty if another reference is left, or
    /// if several pieces were posted.
    pub fn into_region(self) -> Region {
        self.memory.into_region().unwrap_or_else(Region::empty)
    }
}

impl Completion {
    /// The completion of a request of `poster`.
    pub(crate) fn new(it: zerolane_lane::Completion, poster: Poster) -> Completion {
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
            id: match it.kind {
                WorkKind::Immediate => RequestId::NONE,
                _ => poster.request(it.id),
            },
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
