//! Keeps the operations that a program posted until they complete.

use crate::errno::Cause;
use crate::libfabric::*;
use std::ffi::c_void;
use std::sync::Arc;
use zerolane::{Error, RequestId};

/// What an operation does: the counter that it advances, and the queue that it reports to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    Receive,
    Read,
    Write,
}

impl Kind {
    /// The flags of its completion.
    pub(crate) fn flags(self) -> u64 {
        u64::from(match self {
            Kind::Send => FI_SEND | FI_MSG,
            Kind::Receive => FI_RECV | FI_MSG,
            Kind::Read => FI_READ | FI_RMA,
            Kind::Write => FI_WRITE | FI_RMA,
        })
    }
}

/// The endpoint of a connection, as the engine tells it what happened.
pub(crate) trait Owner: Send + Sync {
    /// An operation is over.
    fn on_finished(&self, operation: Operation, length: usize, data: Option<u32>);

    /// A number came with a put. False if the queue is full.
    fn on_immediate(&self, number: u32, length: usize) -> bool;

    /// The peer answered. False if the connection must close.
    fn on_connected(&self, data: &[u8]) -> bool;

    /// The connection is over.
    fn on_closed(&self, reason: &Error);
}

/// Where bytes go when an operation completes. The program keeps the memory until then.
#[derive(Debug, Default)]
pub(crate) enum Place {
    #[default]
    Nowhere,
    /// Pieces of one received message: address and length of each.
    Pieces(Vec<(usize, usize)>),
    /// Words before an atomic operation, each with the bytes of a word.
    Words { at: Vec<usize>, bytes: usize },
}

/// An operation between its call and its completion.
pub(crate) struct Operation {
    /// None for a receive of a shared context: its message tells.
    pub(crate) owner: Option<Arc<dyn Owner>>,
    /// The program's context, as a number.
    pub(crate) context: usize,
    pub(crate) kind: Kind,
    /// Flags of its completion.
    pub(crate) flags: u64,
    /// Whether success is reported to the queue.
    pub(crate) reported: bool,
    /// Start of the program's memory.
    pub(crate) buffer: usize,
    pub(crate) place: Place,
    /// Its place among the receives of its endpoint.
    pub(crate) sequence: Option<u64>,
    /// Requests that make it up and are not over.
    pub(crate) left: usize,
    pub(crate) requests: Vec<RequestId>,
    /// The first failure of its requests.
    pub(crate) failure: Option<Cause>,
}

impl Operation {
    pub(crate) fn new(kind: Kind, context: *mut c_void, reported: bool) -> Operation {
        Operation {
            owner: None,
            context: context as usize,
            kind,
            flags: kind.flags(),
            reported,
            buffer: 0,
            place: Place::Nowhere,
            sequence: None,
            left: 1,
            requests: Vec::new(),
            failure: None,
        }
    }
}

/// The context of requests that report nothing: their failures are the connection's.
pub(crate) const SILENT: u64 = u64::MAX;

/// Names an operation: its slot, and how often the slot was used before. A completion may come after its operation was
/// given up with its endpoint, and must not meet the next in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    slot: u32,
    use_: u32,
}

/// Bits of a context above the slot: the index of a request among those of its operation, then the use of the slot.
const INDEX_AT: u32 = 32;
const USE_AT: u32 = 40;
const USES: u32 = 1 << 23;
const _: () = assert!(crate::attributes::WORDS <= 1 << (USE_AT - INDEX_AT));

impl Number {
    /// The context of the operation's `index`-th request. Never [`SILENT`].
    pub(crate) fn context(self, index: usize) -> u64 {
        u64::from(self.slot) | (index as u64) << INDEX_AT | u64::from(self.use_) << USE_AT
    }

    /// The number, and the index.
    pub(crate) fn of_context(context: u64) -> (Number, usize) {
        let number = Number {
            slot: context as u32,
            use_: (context >> USE_AT) as u32,
        };
        (number, (context >> INDEX_AT & 0xff) as usize)
    }
}

#[derive(Default)]
struct Slot {
    use_: u32,
    operation: Option<Operation>,
}

/// The operations that are not over.
#[derive(Default)]
pub(crate) struct Operations {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Operations {
    pub(crate) fn insert(&mut self, operation: Operation) -> Number {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            // Operations in flight are far fewer: limits of connections and memory.
            (self.slots.len() - 1) as u32
        });
        let taken = &mut self.slots[slot as usize];
        taken.operation = Some(operation);
        Number {
            slot,
            use_: taken.use_,
        }
    }

    fn slot(&mut self, number: Number) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(number.slot as usize)?;
        (slot.use_ == number.use_).then_some(slot)
    }

    pub(crate) fn get(&mut self, number: Number) -> Option<&mut Operation> {
        self.slot(number)?.operation.as_mut()
    }

    pub(crate) fn remove(&mut self, number: Number) -> Option<Operation> {
        let slot = self.slot(number)?;
        let operation = slot.operation.take()?;
        slot.use_ = (slot.use_ + 1) % USES;
        self.free.push(number.slot);
        Some(operation)
    }

    /// The numbers of the operations for which `wanted` holds.
    pub(crate) fn find(&self, mut wanted: impl FnMut(&Operation) -> bool) -> Vec<Number> {
        let all = self.slots.iter().enumerate();
        all.filter(|(_, it)| it.operation.as_ref().is_some_and(&mut wanted))
            .map(|(at, it)| Number {
                slot: at as u32,
                use_: it.use_,
            })
            .collect()
    }
}

/// Whether an operation belongs to `owner`.
pub(crate) fn is_of<T>(operation: &Operation, owner: &Arc<T>) -> bool {
    let own = operation.owner.as_ref();
    own.is_some_and(|it| std::ptr::addr_eq(Arc::as_ptr(it), Arc::as_ptr(owner)))
}

/// Copies what arrived to the pieces of the program.
pub(crate) fn scatter(mut bytes: &[u8], pieces: &[(usize, usize)]) {
    for &(start, length) in pieces {
        let (now, later) = bytes.split_at(length.min(bytes.len()));
        // SAFETY: the program keeps its memory until the completion, which follows.
        unsafe { (start as *mut u8).copy_from_nonoverlapping(now.as_ptr(), now.len()) };
        bytes = later;
    }
}

/// Stores a result.
pub(crate) fn store(at: usize, bytes: usize, word: u64) {
    // SAFETY: the program keeps the memory of results until the completion, which follows.
    unsafe {
        match bytes {
            8 => (at as *mut u64).write_unaligned(word),
            _ => (at as *mut u32).write_unaligned(word as u32),
        }
    }
}
