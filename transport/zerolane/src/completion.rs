//! Defines the completion of a request: its result, and what it gives back.

use crate::error::{Error, Result};
use crate::id::{Poster, RequestId};
use crate::key::RegionKey;
use zerolane_lane::{
    Delivery, Memory, MessageControl, ReceivePool, Region, TransferError, WorkKind,
};

/// A completed request, or an immediate from the peer.
///
/// A program that knows which request it was takes what it gave back with one call; one that does not matches
/// [`Completion::output`]:
///
/// ```
/// use zerolane::Completion;
/// use zerolane::request::Output;
/// fn handle(completion: Completion) -> zerolane::Result<()> {
///     let bytes = completion.result?;
///     match completion.output {
///         Output::Receive { memory, .. } => println!("{bytes} of {} bytes received", memory.len()),
///         Output::MessageReceived { control, .. } => println!("a message: {:?}", &control[..]),
///         Output::Immediate(it) => println!("number {}: {} bytes of {:?}", it.number, it.length, it.region),
///         _ => {}
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Completion {
    /// The request's identifier; that of no request for an immediate from the peer.
    pub id: RequestId,
    /// The context that the request was posted with: see [`Put::context`](crate::request::Put::context).
    pub context: u64,
    /// Bytes moved, or why the request failed.
    pub result: std::result::Result<usize, TransferError>,
    /// What the request gives back, whether it succeeded or failed.
    pub output: Output,
    /// The pool that its memory came from.
    pub(crate) pool: Option<ReceivePool>,
}

/// What a request gives back when it completes, by its kind.
#[derive(Debug)]
#[non_exhaustive]
pub enum Output {
    /// Of a [`Transfer`](crate::request::Transfer).
    Send {
        /// The memory sent.
        memory: Memory,
    },
    /// Of a [`Receive`](crate::request::Receive).
    Receive {
        /// The memory to fill.
        memory: Memory,
        /// See [`Completion::arrived`].
        arrived: usize,
        /// The delivery mode that the sender chose.
        delivery: Delivery,
    },
    /// Of an [`Offer`](crate::advanced::Offer).
    Offer {
        /// The memory offered.
        memory: Memory,
    },
    /// Of a [`Read`](crate::advanced::Read).
    Read {
        /// The memory to fill.
        memory: Memory,
        /// See [`Completion::arrived`].
        arrived: usize,
        /// The delivery mode that the sender chose.
        delivery: Delivery,
    },
    /// Of a [`Put`](crate::request::Put), [`PutPieces`](crate::request::PutPieces) or
    /// [`PutInline`](crate::request::PutInline).
    Put {
        /// The memory written from; none for an inline put.
        memory: Option<Memory>,
    },
    /// Of a [`Get`](crate::request::Get) or [`GetPieces`](crate::request::GetPieces).
    Get {
        /// The memory to fill.
        memory: Memory,
        /// See [`Completion::arrived`].
        arrived: usize,
    },
    /// Of a [`Fetch`](crate::request::Fetch).
    FetchOp {
        /// The word's value before; none if the request failed.
        before: Option<u64>,
    },
    /// Of a [`Message`](crate::request::Message) or [`MessageInline`](crate::request::MessageInline).
    Message {
        /// The payload sent; none for an inline message.
        payload: Option<Memory>,
    },
    /// Of a [`ReceiveMessage`](crate::request::ReceiveMessage), or of memory of a [`ReceivePool`](crate::ReceivePool).
    MessageReceived {
        /// The message's control; empty if the request failed.
        control: MessageControl,
        /// The memory for the payload.
        payload: Option<Memory>,
        /// See [`Completion::arrived`].
        arrived: usize,
    },
    /// Of a put of the peer with an immediate. Nothing was posted for it.
    Immediate(Immediate),
    /// Of an [`OpenRegion`](crate::request::OpenRegion).
    Open {
        /// The peer's region; none if the request failed.
        key: Option<RegionKey>,
    },
}

/// A number that the peer sent with a put: see [`Put::immediate`](crate::request::Put::immediate).
///
/// A program that exported the memory under a number of its own compares
/// [`RegionKey::number`](crate::RegionKey::number) instead of the key:
///
/// ```
/// use zerolane::request::Immediate;
/// use zerolane::{RegionKey, RegionNumber};
/// fn is_told_of(it: &Immediate, exported: &RegionKey) -> bool {
///     it.region == *exported
/// }
/// fn is_told_of_number(it: &Immediate, exported: RegionNumber) -> bool {
///     it.region.number() == Some(exported)
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Immediate {
    /// The peer's number.
    pub number: u32,
    /// The memory of this end that the put wrote: the key that exporting it on this connection returned.
    pub region: RegionKey,
    /// Bytes of the put; of a [`PutPieces`](crate::request::PutPieces), those of its last piece.
    pub length: usize,
}

impl Completion {
    /// The kind of the request.
    pub fn kind(&self) -> WorkKind {
        match self.output {
            Output::Send { .. } => WorkKind::Send,
            Output::Receive { .. } => WorkKind::Receive,
            Output::Offer { .. } => WorkKind::Offer,
            Output::Read { .. } => WorkKind::Read,
            Output::Put { .. } => WorkKind::Put,
            Output::Get { .. } => WorkKind::Get,
            Output::FetchOp { .. } => WorkKind::FetchOp,
            Output::Message { .. } => WorkKind::Message,
            Output::MessageReceived { .. } => WorkKind::MessageReceived,
            Output::Immediate(_) => WorkKind::Immediate,
            Output::Open { .. } => WorkKind::Open,
        }
    }

    /// Bytes at the start of the memory of a receive, get or message that are verified and in place: all of them, or,
    /// if the request failed or was cancelled, those that had arrived by then. The bytes after them are undefined.
    /// `None` for requests that fill no memory.
    pub fn arrived(&self) -> Option<usize> {
        match self.output {
            Output::Receive { arrived, .. }
            | Output::Read { arrived, .. }
            | Output::Get { arrived, .. }
            | Output::MessageReceived { arrived, .. } => Some(arrived),
            _ => None,
        }
    }

    /// The memory that was posted. `None` if the request had none.
    pub fn memory(&self) -> Option<&Memory> {
        match &self.output {
            Output::Send { memory }
            | Output::Receive { memory, .. }
            | Output::Offer { memory }
            | Output::Read { memory, .. }
            | Output::Get { memory, .. } => Some(memory),
            Output::Put { memory } => memory.as_ref(),
            Output::Message { payload } | Output::MessageReceived { payload, .. } => {
                payload.as_ref()
            }
            Output::FetchOp { .. } | Output::Immediate(_) | Output::Open { .. } => None,
        }
    }

    /// Takes the memory that was posted. `None` if the request had none.
    pub fn into_memory(self) -> Option<Memory> {
        match self.output {
            Output::Send { memory }
            | Output::Receive { memory, .. }
            | Output::Offer { memory }
            | Output::Read { memory, .. }
            | Output::Get { memory, .. } => Some(memory),
            Output::Put { memory } => memory,
            Output::Message { payload } | Output::MessageReceived { payload, .. } => payload,
            Output::FetchOp { .. } | Output::Immediate(_) | Output::Open { .. } => None,
        }
    }

    /// Takes the region that was posted, exclusively owned. Memory that was shared is a region again once no other
    /// reference is left ([`SharedRegion::try_unique`](crate::SharedRegion::try_unique)).
    ///
    /// # Errors
    /// [`Error::NoRegion`]: another reference is left, or the request had a mapped file, several pieces or no memory.
    /// [`Completion::into_memory`] takes any memory.
    pub fn into_region(self) -> Result<Region> {
        let region = self.into_memory().and_then(Memory::into_region);
        region.ok_or(Error::NoRegion)
    }

    /// Takes the pieces of a request posted in several pieces, in the order of posting; a single piece if it was posted
    /// in one. Empty if the request had no memory.
    pub fn into_pieces(self) -> Vec<Memory> {
        match self.into_memory() {
            Some(Memory::Gathered(pieces)) => pieces,
            memory => memory.into_iter().collect(),
        }
    }

    /// The word's value before an atomic operation. `None` for other requests and if it failed.
    pub fn before(&self) -> Option<u64> {
        match self.output {
            Output::FetchOp { before } => before,
            _ => None,
        }
    }

    /// The control of a received message. `None` for other requests.
    pub fn control(&self) -> Option<&[u8]> {
        match &self.output {
            Output::MessageReceived { control, .. } => Some(control),
            _ => None,
        }
    }

    /// An immediate from the peer. `None` for requests.
    pub fn immediate(&self) -> Option<Immediate> {
        match self.output {
            Output::Immediate(immediate) => Some(immediate),
            _ => None,
        }
    }

    /// The peer's region that was opened. `None` for other requests and if it failed.
    pub fn key(&self) -> Option<RegionKey> {
        match self.output {
            Output::Open { key } => key,
            _ => None,
        }
    }

    /// Whether its memory came from a pool.
    pub(crate) fn is_pooled(&self) -> bool {
        self.pool.is_some()
    }

    /// The completion of a request of `poster`, with memory of `pool`.
    pub(crate) fn new(
        it: zerolane_lane::Completion,
        poster: Poster,
        pool: Option<ReceivePool>,
    ) -> Completion {
        let delivery = it.delivery;
        // The lane uses one number for what only a success has, and for what only a failure has.
        let (before, arrived) = match it.result {
            Ok(bytes) => (Some(it.value), bytes as usize),
            Err(_) => (None, it.value as usize),
        };
        let key = it.region.map(RegionKey::new);
        let output = match it.kind {
            WorkKind::Send => Output::Send {
                memory: posted(it.memory),
            },
            WorkKind::Receive => Output::Receive {
                memory: posted(it.memory),
                arrived,
                delivery,
            },
            WorkKind::Offer => Output::Offer {
                memory: posted(it.memory),
            },
            WorkKind::Read => Output::Read {
                memory: posted(it.memory),
                arrived,
                delivery,
            },
            WorkKind::Put => Output::Put { memory: it.memory },
            WorkKind::Get => Output::Get {
                memory: posted(it.memory),
                arrived,
            },
            WorkKind::FetchOp => Output::FetchOp { before },
            WorkKind::Message => Output::Message { payload: it.memory },
            WorkKind::MessageReceived => Output::MessageReceived {
                control: it.control,
                payload: it.memory,
                arrived,
            },
            WorkKind::Immediate if let Some(region) = key => Output::Immediate(Immediate {
                number: it.value as u32,
                region,
                length: arrived,
            }),
            // `WorkKind::Open`: there is no other kind.
            _ => Output::Open { key },
        };
        Completion {
            id: match it.kind {
                WorkKind::Immediate => RequestId::NONE,
                _ => poster.request(it.id),
            },
            context: it.context,
            result: it.result.map(|bytes| bytes as usize),
            output,
            pool,
        }
    }
}

/// The memory of a request that cannot be posted without any; those that borrow theirs are not reported.
fn posted(memory: Option<Memory>) -> Memory {
    memory.unwrap_or_else(|| Vec::new().into())
}

#[cfg(test)]
#[path = "completion_tests.rs"]
mod tests;
