//! What a connection holds for persistent memory: `remote.rs` asks for things to be done with the
//! peer's, `serve.rs` does what the peer asks for with ours.

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

/// A region asked for by name.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionRequest {
    pub(super) id: TransferId,
    pub(super) name: RegionName,
    pub(super) rights: Rights,
    pub(super) ask_at: Instant,
}

/// A posted receive of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageReceive {
    pub(super) id: TransferId,
    pub(super) control: Span,
    pub(super) payload: Option<Span>,
}

/// A message whose payload is not announced yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct AwaitedPayload {
    pub(super) number: u32,
    pub(super) id: TransferId,
    /// The sender's identifier.
    pub(super) peer: u32,
    pub(super) span: Span,
    pub(super) control: u32,
}

/// The immediate of a Put that is under way as a Transfer: it follows when that is complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Following {
    pub(super) id: TransferId,
    pub(super) place: RemotePlace,
    pub(super) immediate: u32,
    pub(super) flags: WorkFlags,
}

/// The atomic operation that the lane has to do now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ordered {
    pub(super) order: Order,
    pub(super) id: TransferId,
}

/// All of it.
#[derive(Debug)]
pub(super) struct Memory {
    // As Initiator.
    /// Asked for and not begun.
    pub(super) works: VecDeque<Work>,
    pub(super) stream: Stream,
    pub(super) questions: Questions,
    pub(super) requests: Vec<RegionRequest>,
    pub(super) following: Vec<Following>,
    // As Responder.
    pub(super) exports: Exports,
    pub(super) executor: Executor,
    pub(super) replies: Replies,
    pub(super) receives: VecDeque<MessageReceive>,
    pub(super) payloads: Vec<AwaitedPayload>,
    pub(super) order: Option<Ordered>,
    /// Bytes received that belong to no Transfer of the peer: it does not count them either.
    pub(super) apart: u64,
    /// Events polled that the user has not looked at.
    pub(super) unread: usize,
    /// Values to be sent: number, the Initiator's identifier, value.
    pub(super) values: VecDeque<(u32, TransferId, u64)>,
}

impl Memory {
    pub(super) fn new(seed: u32) -> Memory {
        Memory {
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
            apart: 0,
        }
    }

    /// Whether something asked for is not over.
    pub(super) fn is_working(&self) -> bool {
        !self.works.is_empty()
            || !self.stream.is_empty()
            || !self.questions.is_empty()
            || !self.requests.is_empty()
    }

    /// Everything asked for here that is not over, and is no Transfer.
    pub(super) fn ids(&self) -> impl Iterator<Item = TransferId> + '_ {
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
    pub(super) fn clear(&mut self) {
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

    pub(super) fn assert_bounded(&self) {
        self.stream.assert_bounded();
        self.executor.assert_bounded();
        assert!(self.values.len() <= limits::MAX_VALUES);
        assert!(self.works.len() <= limits::MAX_POSTED);
        assert!(self.requests.len() <= limits::MAX_POSTED);
        assert!(self.receives.len() + self.payloads.len() <= 2 * limits::MAX_POSTED);
    }
}
