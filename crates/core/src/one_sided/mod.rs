//! One-sided: the peer's memory as Initiator, and this end's exported memory as Responder.
//!
//! What fits one datagram is numbered and sent without announcement; a longer put is announced and
//! granted as a Transfer into the peer's region, a longer get is granted by its Gets. Order is kept
//! here: numbered operations wait for the puts before them that are Transfers, and such a put for
//! the numbered ones before it.

mod answers;
mod get;
mod operations;
mod outcome;
mod post;
mod repeat;
mod serve;
mod start;

pub(crate) use self::post::in_bounds;

use crate::executor::Executor;
use crate::exports::Exports;
use crate::gets::{Questions, Replies};
use crate::stream::Stream;
use crate::work::{Order, RemotePlace, Work, WorkFlags};
use crate::{Instant, RegionName, Span, TransferId, limits};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use zerolane_wire::Rights;

/// Mx of an operation to the messages that is nothing but its number.
const NOTHING: u16 = u16::MAX;

/// A region asked for by name.
#[derive(Clone, Copy, Debug)]
struct RegionRequest {
    id: TransferId,
    name: RegionName,
    rights: Rights,
    ask_at: Instant,
}

/// A posted receive of a message.
#[derive(Clone, Copy, Debug)]
struct MessageReceive {
    id: TransferId,
    control: Span,
    payload: Option<Span>,
}

/// A message whose payload is not announced yet.
#[derive(Clone, Copy, Debug)]
struct AwaitedPayload {
    number: u32,
    id: TransferId,
    /// The sender's identifier.
    peer: u32,
    span: Span,
    control: u32,
}

/// The immediate of a Put that is under way as a Transfer: it follows when that is complete.
#[derive(Clone, Copy, Debug)]
struct Following {
    id: TransferId,
    place: RemotePlace,
    immediate: u32,
    flags: WorkFlags,
}

/// The atomic operation that the lane has to do now.
#[derive(Clone, Copy, Debug)]
struct Ordered {
    order: Order,
    id: TransferId,
}

/// What is done with memory by name.
#[derive(Debug)]
pub(crate) struct OneSided {
    // As Initiator.
    /// Asked for and not begun.
    works: VecDeque<Work>,
    stream: Stream,
    questions: Questions,
    requests: Vec<RegionRequest>,
    following: Vec<Following>,
    // As Responder.
    exports: Exports,
    executor: Executor,
    replies: Replies,
    receives: VecDeque<MessageReceive>,
    payloads: Vec<AwaitedPayload>,
    order: Option<Ordered>,
    /// Events polled that the user has not looked at.
    unread: usize,
    /// Values to be sent: number, the Initiator's identifier, value.
    values: VecDeque<(u32, TransferId, u64)>,
}

impl OneSided {
    pub(crate) fn new(seed: u32) -> OneSided {
        OneSided {
            works: VecDeque::new(),
            stream: Stream::default(),
            questions: Questions::default(),
            requests: vec![],
            following: vec![],
            exports: Exports::new(seed),
            executor: Executor::default(),
            replies: Replies::default(),
            receives: VecDeque::new(),
            payloads: vec![],
            order: None,
            values: VecDeque::new(),
            unread: 0,
        }
    }

    /// Whether something asked for is not over.
    pub(crate) fn is_working(&self) -> bool {
        !self.works.is_empty()
            || !self.stream.is_empty()
            || !self.questions.is_empty()
            || !self.requests.is_empty()
    }

    /// Everything asked for here that is not over, and is no Transfer.
    pub(crate) fn ids(&self) -> impl Iterator<Item = TransferId> + '_ {
        let works = self.works.iter().map(|work| work.id);
        let requests = self.requests.iter().map(|request| request.id);
        let receives = self.receives.iter().map(|receive| receive.id);
        let payloads = self.payloads.iter().map(|payload| payload.id);
        works
            .chain(self.stream.ids())
            .chain(self.questions.ids())
            .chain(requests)
            .chain(receives)
            .chain(payloads)
    }

    /// All of it is over.
    pub(crate) fn clear(&mut self) {
        self.works.clear();
        self.stream.clear();
        self.questions.clear();
        self.requests.clear();
        self.following.clear();
        self.replies.clear();
        self.values.clear();
        self.receives.clear();
        self.payloads.clear();
    }

    /// Whether a small operation waits to be sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.stream.has_unsent()
    }

    /// Requests that have not begun.
    pub(crate) fn waiting(&self) -> usize {
        self.works.len()
    }

    /// Regions asked for by name.
    pub(crate) fn requested(&self) -> usize {
        self.requests.len()
    }

    /// Receives of messages that are not over.
    pub(crate) fn receives(&self) -> usize {
        self.receives.len() + self.payloads.len()
    }

    /// Whether the peer executed the operation of that number.
    pub(crate) fn has_executed(&self, number: u32) -> bool {
        self.stream.has_executed(number)
    }

    /// Number of the operation of the peer that is expected next.
    pub(crate) fn expected(&self) -> u32 {
        self.executor.expected()
    }

    /// Whether answers to Gets wait that are under congestion control.
    pub(crate) fn is_answering(&self) -> bool {
        self.replies.is_next_numbered().is_some()
    }

    /// As if `number` operations had been executed in both directions before.
    #[cfg(test)]
    pub(crate) fn age(&mut self, number: u32) {
        self.stream.age(number);
        self.executor.age(number);
    }

    pub(crate) fn assert_bounded(&self) {
        self.stream.assert_bounded();
        self.executor.assert_bounded();
        assert!(self.values.len() <= limits::MAX_VALUES);
        assert!(self.works.len() <= limits::MAX_POSTED);
        assert!(self.requests.len() <= limits::MAX_POSTED);
        assert!(self.receives.len() + self.payloads.len() <= 2 * limits::MAX_POSTED);
    }
}
