//! Defines the work requests that users post, and the state of those in progress.

use crate::limits;
use crate::span::Span;
use crate::transfer::{Delivery, NUMBERED, TransferId, mx};
use core::fmt;
use core::time::Duration;
use smallvec::SmallVec;
use zerolane_wire::{FetchOpKind, OPTIONS_LEN, Word};

/// Name of a region, padded with zeros.
pub type RegionName = [u8; OPTIONS_LEN];

/// The number under which a program exports a region: its peers make the key from it, and need not ask. Below
/// [`RegionNumber::END`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionNumber(u32);

impl RegionNumber {
    /// Numbers are below this, 2^24.
    pub const END: u32 = 1 << 24;

    /// `None` unless `number` is below [`RegionNumber::END`].
    pub const fn new(number: u32) -> Option<RegionNumber> {
        match number < RegionNumber::END {
            true => Some(RegionNumber(number)),
            false => None,
        }
    }

    /// The number that these 24 bits are, big-endian.
    pub const fn from_be_bytes([a, b, c]: [u8; 3]) -> RegionNumber {
        RegionNumber(u32::from_be_bytes([0, a, b, c]))
    }

    /// The number that `handle` was made from; `None` if the core assigned the handle.
    pub const fn of_handle(handle: u32) -> Option<RegionNumber> {
        match handle & NUMBERED == NUMBERED {
            true => RegionNumber::new(handle & !NUMBERED),
            false => None,
        }
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The byte at `address` of the region, as its peers name it.
    pub const fn place(self, address: u64) -> RemotePlace {
        let handle = NUMBERED | self.0;
        RemotePlace {
            handle,
            mx: mx(handle),
            address,
        }
    }
}

/// How the peer names a region that this end exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportAs {
    /// By the handle that the core assigns.
    Handle,
    /// By that handle, or by this name.
    Name(RegionName),
    /// By the handle made from this number.
    Number(RegionNumber),
}

/// A place in a persistent memory region of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemotePlace {
    /// Handle of the region.
    pub handle: u32,
    /// Its memory index.
    pub mx: u16,
    /// Address in the peer's address space, bytes: the region's start plus an offset.
    pub address: u64,
}

/// A region that the peer granted access to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteRegion {
    /// Its first byte.
    pub start: RemotePlace,
    /// Length in bytes.
    pub length: u64,
    /// The rights granted.
    pub rights: zerolane_wire::Rights,
}

/// An atomic operation on an aligned word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Atomic {
    /// Which.
    pub kind: FetchOpKind,
    /// Size of the word.
    pub word: Word,
    /// Operand of all but increment, decrement and clear; at most the largest value of a word.
    pub operand: u64,
    /// Comparand of compare and swap; at most the largest value of a word.
    pub comparand: u64,
}

impl Atomic {
    /// The value of the word after the operation, if it was `before`.
    pub fn apply(&self, before: u64) -> u64 {
        let Atomic {
            operand, comparand, ..
        } = *self;
        let after = match self.kind {
            FetchOpKind::Add => before.wrapping_add(operand),
            FetchOpKind::Increment => before.wrapping_add(1),
            FetchOpKind::Decrement => before.wrapping_sub(1),
            FetchOpKind::Clear => 0,
            FetchOpKind::Swap => operand,
            FetchOpKind::CompareAndSwap if before == comparand => operand,
            FetchOpKind::CompareAndSwap => before,
            FetchOpKind::And => before & operand,
            FetchOpKind::Or => before | operand,
            FetchOpKind::Xor => before ^ operand,
            FetchOpKind::Min => before.min(operand),
            FetchOpKind::Max => before.max(operand),
        };
        after & self.word.max()
    }
}

/// Options of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkFlags {
    /// Report success too, not failure alone.
    pub signalled: bool,
    /// Begin only when all earlier requests are complete.
    pub fence: bool,
    /// A caller waits for completion: the peer must confirm at once, not with its next transmission.
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

/// A work request (verbs): an operation on a connection, posted together with local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkRequest<'a> {
    /// Sends the memory as one Transfer.
    Send {
        /// Delivery mode at the receiver.
        delivery: Delivery,
    },
    /// Receives the next Transfer that matches no earlier receive into the memory.
    Receive,
    /// Offers the memory to the peer's next Read (Request_To_Receive).
    Offer {
        /// Delivery mode at the receiver.
        delivery: Delivery,
    },
    /// Reads memory that the peer offers into the memory (Read sequence: Request_To_Receive first).
    Read,
    /// Puts the memory into the peer's memory.
    Put {
        /// Destination.
        place: RemotePlace,
        /// A number that the peer is shown once the bytes are placed.
        immediate: Option<u32>,
        /// Options.
        flags: WorkFlags,
    },
    /// Gets bytes of the peer's memory into the memory.
    Get {
        /// Source.
        place: RemotePlace,
        /// Options.
        flags: WorkFlags,
    },
    /// Executes an atomic operation on a word of the peer's memory, exactly once. Takes no local memory.
    /// [`Event::Fetched`](crate::Event::Fetched) follows.
    FetchOp {
        /// The word.
        place: RemotePlace,
        /// The operation.
        atomic: Atomic,
        /// Options.
        flags: WorkFlags,
    },
    /// Sends a message. The memory, if any, is its payload.
    Message {
        /// Control data, up to [`MAX_CONTROL`](crate::limits::MAX_CONTROL) bytes, which are copied.
        control: &'a [u8],
        /// Options.
        flags: WorkFlags,
    },
    /// Receives the next message that matches no earlier receive, its payload into the memory.
    ReceiveMessage {
        /// Room for control data, [`MAX_CONTROL`](crate::limits::MAX_CONTROL) bytes.
        control: Span,
    },
    /// Sends the memory as a datagram, which may be lost, and is never sent again. [`Event::Sent`](crate::Event::Sent)
    /// follows when it left, or expired.
    Datagram {
        /// How long it may wait to leave.
        lifetime: Duration,
        /// The DSCP of its packets (RFC 2474), 0 to 63.
        dscp: u8,
    },
    /// Asks for a region of the peer by name. Takes no local memory. [`Event::Region`](crate::Event::Region) follows.
    OpenRegion {
        /// The name.
        name: RegionName,
        /// The rights wanted.
        rights: zerolane_wire::Rights,
    },
}

impl WorkRequest<'_> {
    /// The options of the request, if it has any.
    pub fn flags_mut(&mut self) -> Option<&mut WorkFlags> {
        match self {
            WorkRequest::Put { flags, .. }
            | WorkRequest::Get { flags, .. }
            | WorkRequest::FetchOp { flags, .. }
            | WorkRequest::Message { flags, .. } => Some(flags),
            _ => None,
        }
    }

    /// Whether the request writes the local memory, as opposed to reading it.
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
    /// A region of that name is already exported.
    NameTaken,
    /// A region of that number is already exported.
    NumberTaken,
    /// The peer has no persistent memory.
    Unsupported,
    /// The word's offset is not a multiple of its length, 8 or 4 bytes.
    Misaligned,
    /// The place named lies outside the region.
    OutOfBounds,
    /// The region is not exported with that right.
    Denied,
    /// A message has more than [`limits::MAX_CONTROL`] bytes of control.
    ControlTooLong,
    /// A request with several pieces has none.
    NoPieces,
    /// The pieces exceed the longest request, 2^63 - 1 bytes, together.
    TooLong,
    /// A datagram is empty, or longer than the longest.
    DatagramLength,
    /// The peer takes no datagrams.
    NoDatagrams,
    /// This end has finished sending.
    Finished,
    /// This process is a fork of the connection's process. The driver detects this; the core knows no processes.
    Forked,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PostError::Closed => f.write_str("the connection is closed"),
            PostError::Full => f.write_str("too many requests are in flight"),
            PostError::TooManyExports => write!(
                f,
                "{} regions are exported, the maximum: revoke one first",
                limits::MAX_EXPORTS
            ),
            PostError::NameTaken => f.write_str("a region with that name is already exported"),
            PostError::NumberTaken => {
                f.write_str("a region with that number is already exported: revoke it first")
            }
            PostError::Unsupported => f.write_str("the peer has no persistent memory"),
            PostError::Misaligned => {
                f.write_str("the word's offset is not a multiple of 8 (of 4 for a word of 32 bits)")
            }
            PostError::OutOfBounds => f.write_str("outside the region"),
            PostError::Denied => f.write_str("the region is not exported with that right"),
            PostError::ControlTooLong => {
                write!(f, "more than {} bytes of control data", limits::MAX_CONTROL)
            }
            PostError::NoPieces => f.write_str("a request needs at least one piece"),
            PostError::TooLong => f.write_str("the pieces total more than 2^63 - 1 bytes"),
            PostError::DatagramLength => {
                write!(
                    f,
                    "a datagram has 1 to {} bytes",
                    zerolane_wire::MAX_DATAGRAM
                )
            }
            PostError::NoDatagrams => f.write_str("the peer takes no datagrams"),
            PostError::Finished => f.write_str("this end finished sending"),
            PostError::Forked => f.write_str("the connection belongs to the parent process"),
        }
    }
}

impl core::error::Error for PostError {}

/// Bytes of a copy that lie in the request itself. Longer copies are on the heap.
const NEAR: usize = 64;

/// The bytes that a numbered operation carries.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// Memory, which is read when the operation leaves.
    Memory(Span),
    /// A copy.
    Inline(SmallVec<[u8; NEAR]>),
    /// None: the lane placed this many itself.
    Placed(u64),
}

impl Content {
    /// No bytes.
    pub(crate) const NONE: Content = Content::Memory(Span::EMPTY);

    pub(crate) fn copy(bytes: &[u8]) -> Content {
        Content::Inline(SmallVec::from_slice(bytes))
    }

    pub(crate) fn is_inline(&self) -> bool {
        matches!(self, Content::Inline(_))
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Content::Memory(span) => span.len,
            Content::Inline(bytes) => bytes.len() as u64,
            Content::Placed(_) => 0,
        }
    }

    /// The `len` bytes from `start` on. The caller ensures that they are there.
    pub(crate) fn part(&self, start: u64, len: u64) -> Content {
        match self {
            Content::Memory(span) => Content::Memory(span.part(start, len)),
            Content::Inline(bytes) => Content::copy(&bytes[start as usize..][..len as usize]),
            Content::Placed(_) => Content::NONE,
        }
    }
}

/// A request on the peer's memory.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) id: TransferId,
    pub(crate) flags: WorkFlags,
    pub(crate) kind: RequestKind,
}

/// The operation of a request.
#[derive(Clone, Debug)]
pub(crate) enum RequestKind {
    Put {
        place: RemotePlace,
        content: Content,
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
        control: Content,
        payload: Option<Span>,
    },
    /// A message whose payload of so many bytes follows in operations of its own.
    MessageHead {
        control: Content,
        length: u32,
    },
    /// A part of the payload of the message before it.
    Payload(Content),
    /// The immediate of the put before it. It follows the Transfers announced before this number.
    Immediate {
        value: u32,
        announced: u32,
    },
    /// The number of an operation that was cancelled after it left.
    Nothing,
}

impl RequestKind {
    /// Bytes of the numbered operation behind its header and in front of a seal.
    pub(crate) fn content_len(&self) -> u32 {
        match self {
            RequestKind::Put { content, .. } | RequestKind::Payload(content) => {
                content.len() as u32
            }
            RequestKind::Message { control, .. } | RequestKind::MessageHead { control, .. } => {
                control.len() as u32
            }
            RequestKind::Fetch { .. } => zerolane_wire::OPTIONS_LEN as u32,
            RequestKind::Get { .. } | RequestKind::Immediate { .. } | RequestKind::Nothing => 0,
        }
    }

    /// Whether it neither changes the peer's memory nor matches a receive: a put of no bytes, with or without an
    /// immediate.
    pub(crate) fn is_notice(&self) -> bool {
        matches!(self, RequestKind::Put { content, .. } if content.len() == 0)
    }

    /// The immediate.
    pub(crate) fn immediate(&self) -> Option<u32> {
        match self {
            RequestKind::Put { immediate, .. } => *immediate,
            _ => None,
        }
    }
}

/// An atomic operation that the lane must execute now, before any later operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// The aligned 8 bytes that are or hold the word.
    pub word: Span,
    /// Where in them the word begins, bytes: 0, or 4 if it has 32 bits and is their second half.
    pub skip: usize,
    /// The operation.
    pub atomic: Atomic,
}
