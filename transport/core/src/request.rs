//! What a user asks to be done with the peer's memory, before and while it is done.

use crate::{Delivery, Span, TransferId, limits};
use core::fmt;
use zerolane_wire::{FetchOpKind, OPTIONS_LEN};

/// Name of a region, padded with zeros.
pub type RegionName = [u8; OPTIONS_LEN];

/// A place in a persistent memory region of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemotePlace {
    /// Handle of the region.
    pub handle: u32,
    /// Its memory index.
    pub mx: u16,
    /// Byte of the peer's address space: where the region starts, plus an offset.
    pub address: u64,
}

/// A region that the peer made available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteRegion {
    /// Its first byte.
    pub start: RemotePlace,
    /// Length in bytes.
    pub length: u64,
    /// What may be done with it.
    pub rights: zerolane_wire::Rights,
}

/// An atomic operation on a 64-bit word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Atomic {
    /// Which.
    pub kind: FetchOpKind,
    /// Operand (add, swap, compare and swap).
    pub operand: u64,
    /// Comparand (compare and swap).
    pub comparand: u64,
}

/// How a request is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkFlags {
    /// Tell of its success too, not of its failure alone.
    pub signalled: bool,
    /// Begin only when everything asked for before is complete.
    pub fence: bool,
    /// A caller waits for its end: the peer is asked to confirm at once, rather than with what it
    /// sends next.
    pub awaited: bool,
}

impl Default for WorkFlags {
    fn default() -> WorkFlags {
        WorkFlags {
            signalled: true,
            fence: false,
            awaited: true,
        }
    }
}

/// A work request (verbs): what is asked of a connection, beside the memory that it is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkRequest {
    /// Sends the memory as one Transfer.
    Send {
        /// How its arrival is to be delivered.
        delivery: Delivery,
    },
    /// Receives the next Transfer that no earlier receive takes into the memory.
    Receive,
    /// Offers the memory to the peer's next Read (Request_To_Receive).
    Offer {
        /// How its arrival is to be delivered.
        delivery: Delivery,
    },
    /// Reads what the peer offers into the memory (Read sequence: Request_To_Receive first).
    Read,
    /// Puts the memory into the peer's.
    Put {
        /// Where.
        place: RemotePlace,
        /// A number that is shown to the peer when the bytes are there.
        immediate: Option<u32>,
        /// How.
        flags: WorkFlags,
    },
    /// Gets bytes of the peer's memory into the memory.
    Get {
        /// From where.
        place: RemotePlace,
        /// How.
        flags: WorkFlags,
    },
    /// Does an atomic operation on a word of the peer's memory, once. Without memory here.
    /// [`Event::Fetched`](crate::Event::Fetched) follows.
    FetchOp {
        /// Which word.
        place: RemotePlace,
        /// What to do with it.
        atomic: Atomic,
        /// How.
        flags: WorkFlags,
    },
    /// Sends a message whose payload is the memory, if there is any.
    Message {
        /// Up to [`MAX_CONTROL`](crate::limits::MAX_CONTROL) bytes.
        control: Span,
        /// How.
        flags: WorkFlags,
    },
    /// Receives the next message that no earlier receive takes, its payload into the memory.
    ReceiveMessage {
        /// [`MAX_CONTROL`](crate::limits::MAX_CONTROL) bytes for its control.
        control: Span,
    },
    /// Asks for a region of the peer by name. Without memory here.
    /// [`Event::Region`](crate::Event::Region) follows.
    OpenRegion {
        /// The name.
        name: RegionName,
        /// What is to be done with it.
        rights: zerolane_wire::Rights,
    },
}

impl WorkRequest {
    /// How it is to be done, where that can be said.
    pub fn flags_mut(&mut self) -> Option<&mut WorkFlags> {
        match self {
            WorkRequest::Put { flags, .. }
            | WorkRequest::Get { flags, .. }
            | WorkRequest::FetchOp { flags, .. }
            | WorkRequest::Message { flags, .. } => Some(flags),
            _ => None,
        }
    }

    /// Whether the memory is written, and not read.
    pub fn writes(&self) -> bool {
        matches!(
            self,
            WorkRequest::Receive
                | WorkRequest::Read
                | WorkRequest::Get { .. }
                | WorkRequest::ReceiveMessage { .. }
        )
    }
}

/// Why a Transfer could not be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The connection is over or ending.
    Closed,
    /// [`limits::MAX_POSTED`] Transfers are in flight in that direction.
    Full,
    /// [`limits::MAX_EXPORTS`] regions are exported.
    TooManyExports,
    /// A region of that name is exported already.
    NameTaken,
    /// The peer has no persistent memory.
    Unsupported,
    /// The word's offset is no multiple of 8.
    Misaligned,
    /// The place named lies outside the region.
    OutOfBounds,
    /// The region is not exported with that right.
    Denied,
    /// A message has more than [`limits::MAX_CONTROL`] bytes of control.
    ControlTooLong,
    /// A request of several pieces has none.
    NoPieces,
    /// A request has more than [`limits::MAX_POSTED`] pieces, each with a place of its own at the peer: there is never room for it.
    TooManyPieces,
    /// The pieces have more bytes together than a request may have, 2^63 - 1.
    TooLong,
    /// This end finished sending.
    Finished,
    /// This process is a child, by fork, of the one whose connection it is. The driver finds that: here is no process.
    Forked,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PostError::Closed => f.write_str("the connection is closed"),
            PostError::Full => f.write_str("too many are posted already"),
            PostError::TooManyExports => write!(
                f,
                "{} regions are exported, and no more can be: revoke one first",
                limits::MAX_EXPORTS
            ),
            PostError::NameTaken => f.write_str("a region of that name is exported already"),
            PostError::Unsupported => f.write_str("the peer has no persistent memory"),
            PostError::Misaligned => f.write_str("the word's offset is no multiple of 8"),
            PostError::OutOfBounds => f.write_str("outside the region"),
            PostError::Denied => f.write_str("the region is not exported with that right"),
            PostError::ControlTooLong => {
                write!(f, "more than {} bytes of control", limits::MAX_CONTROL)
            }
            PostError::NoPieces => f.write_str("a request of no pieces"),
            PostError::TooManyPieces => {
                let most = limits::MAX_POSTED;
                write!(
                    f,
                    "more than {most} pieces in one request: post several requests"
                )
            }
            PostError::TooLong => f.write_str("the pieces have more than 2^63 - 1 bytes together"),
            PostError::Finished => f.write_str("this end finished sending"),
            PostError::Forked => f.write_str("the connection belongs to the parent process"),
        }
    }
}

impl core::error::Error for PostError {}

/// A request on the peer's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) id: TransferId,
    pub(crate) flags: WorkFlags,
    pub(crate) kind: RequestKind,
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestKind {
    Put {
        place: RemotePlace,
        span: Span,
        immediate: Option<u32>,
    },
    Get {
        place: RemotePlace,
        span: Span,
    },
    Fetch {
        place: RemotePlace,
        atomic: Atomic,
    },
    Message {
        control: Span,
        payload: Option<Span>,
    },
    /// The immediate of the put before it, which follows the Transfers announced before this number.
    Immediate {
        value: u32,
        announced: u32,
    },
    /// What is left of an operation that was cancelled after it left: its number.
    Nothing,
}

impl RequestKind {
    /// Bytes of the numbered operation that it is behind its header, and in front of a seal.
    pub(crate) fn content_len(&self) -> u32 {
        match self {
            RequestKind::Put { span, .. } => span.len as u32,
            RequestKind::Message { control, .. } => control.len as u32,
            RequestKind::Fetch { .. } => zerolane_wire::OPTIONS_LEN as u32,
            RequestKind::Get { .. } | RequestKind::Immediate { .. } | RequestKind::Nothing => 0,
        }
    }

    /// Whether it leaves the peer's memory as it is and meets no receive: a put of no bytes. An immediate may come
    /// with it.
    pub(crate) fn is_notice(&self) -> bool {
        matches!(self, RequestKind::Put { span, .. } if span.len == 0)
    }

    /// The number that is shown to the peer.
    pub(crate) fn immediate(&self) -> Option<u32> {
        match self {
            RequestKind::Put { immediate, .. } => *immediate,
            _ => None,
        }
    }
}

/// An atomic operation that the lane is to do now, before anything that came after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// The aligned word, 8 bytes.
    pub word: Span,
    /// What to do with it.
    pub atomic: Atomic,
}
