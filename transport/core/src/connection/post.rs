//! Accepts the requests that users post, and their exports of memory.

use super::Connection;
use crate::limits;
use crate::request::{
    AtomicRequest, Content, ExportAs, PostError, RemotePlace, RequestKind, WorkFlags, WorkRequest,
};
use crate::span::Span;
use crate::time::Instant;
use crate::transfer::TransferId;
use zerolane_wire::{Rights, Target};

/// The pending work that a request on the peer's memory would follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// Nothing.
    Nothing,
    /// Puts of no bytes alone, for example immediates whose bytes are already in place. A direct write to the peer's
    /// memory overtakes no bytes of theirs. They are still pending, so later requests must complete behind them.
    Notices,
    /// Work that must take effect first; or the connection is not open.
    Work,
}

impl Connection {
    fn can_post(&self, posted: usize) -> Result<(), PostError> {
        if !self.session.may_post() {
            Err(PostError::Closed)
        } else if posted >= limits::MAX_POSTED {
            Err(PostError::Full)
        } else {
            Ok(())
        }
    }

    /// Posts a request on `memory`, or on [`Span::EMPTY`] where it takes none. Until the request is over, memory that
    /// is read must not change, and memory that is written is undefined.
    ///
    /// # Errors
    /// The connection is closed, or too much is posted; or as [`PostError`] describes.
    pub fn post(
        &mut self,
        now: Instant,
        request: WorkRequest<'_>,
        memory: Span,
    ) -> Result<TransferId, PostError> {
        self.can_post(self.posted(&request))?;
        let meets = matches!(
            request,
            WorkRequest::Send { .. } | WorkRequest::Message { .. }
        );
        if meets && self.sending.is_finishing() {
            return Err(PostError::Finished);
        }
        self.cx.enter(now);
        let id = self.begin(request, memory)?;
        self.settle();
        Ok(id)
    }

    /// Posts a put of a copy of `bytes`, at most [`limits::MAX_INLINE`], to `place`.
    ///
    /// # Errors
    /// As [`Connection::post`].
    ///
    /// # Panics
    /// There are more bytes.
    pub fn post_inline(
        &mut self,
        now: Instant,
        place: RemotePlace,
        bytes: &[u8],
        immediate: Option<u32>,
        flags: WorkFlags,
    ) -> Result<TransferId, PostError> {
        assert!(bytes.len() <= limits::MAX_INLINE, "{} bytes", bytes.len());
        self.put(now, place, Content::copy(bytes), immediate, flags)
    }

    /// Posts the rest of a put to `place` whose bytes the lane has placed itself, `placed` of them: its end, and its
    /// immediate.
    ///
    /// # Errors
    /// As [`Connection::post`].
    pub fn post_placed(
        &mut self,
        now: Instant,
        place: RemotePlace,
        placed: u64,
        immediate: Option<u32>,
        flags: WorkFlags,
    ) -> Result<TransferId, PostError> {
        self.put(now, place, Content::Placed(placed), immediate, flags)
    }

    fn put(
        &mut self,
        now: Instant,
        place: RemotePlace,
        content: Content,
        immediate: Option<u32>,
        flags: WorkFlags,
    ) -> Result<TransferId, PostError> {
        self.can_post(self.initiator.waiting())?;
        self.cx.enter(now);
        let kind = RequestKind::Put {
            place,
            content,
            immediate,
        };
        let is_open = self.session.is_established();
        let open = is_open.then_some((&mut self.sending, &mut self.receiving));
        let id = self.initiator.post(&mut self.cx, kind, flags, open)?;
        self.settle();
        Ok(id)
    }

    /// The time of the last entry, if operations wait to be sent since: a request posted now leaves with them.
    pub fn unsent_since(&self) -> Option<Instant> {
        self.initiator.has_unsent().then_some(self.cx.now)
    }

    /// Finishes sending. Everything posted is delivered; further Transfers and messages are refused; the peer's
    /// receives that match nothing fail with [`TransferError::Finished`]. The other direction continues, and so do
    /// requests on memory and answers to Reads. A second call does nothing.
    ///
    /// # Errors
    /// The connection is closed.
    ///
    /// [`TransferError::Finished`]: crate::TransferError::Finished
    pub fn finish(&mut self, now: Instant) -> Result<(), PostError> {
        self.can_post(0)?;
        self.cx.enter(now);
        self.sending.ask_finish(&mut self.cx);
        self.settle();
        Ok(())
    }

    /// How many more puts, gets, atomic operations and messages may be posted now.
    pub fn room_for_operations(&self) -> usize {
        limits::MAX_POSTED.saturating_sub(self.initiator.waiting())
    }

    /// Posted requests that count with `request` towards [`limits::MAX_POSTED`].
    fn posted(&self, request: &WorkRequest<'_>) -> usize {
        match request {
            WorkRequest::Send { .. } => self.sending.len(),
            WorkRequest::Offer { .. } => self.sending.posted(),
            WorkRequest::Receive | WorkRequest::Read => self.receiving.len(),
            WorkRequest::ReceiveMessage { .. } => self.responder.receives(),
            WorkRequest::OpenRegion { .. } => self.initiator.requested(),
            // Their queue has a limit of its own.
            WorkRequest::Datagram { .. } => 0,
            WorkRequest::Put { .. }
            | WorkRequest::Get { .. }
            | WorkRequest::FetchOp { .. }
            | WorkRequest::Message { .. } => self.initiator.waiting(),
        }
    }

    fn begin(&mut self, request: WorkRequest<'_>, memory: Span) -> Result<TransferId, PostError> {
        let Connection {
            cx,
            session,
            sending,
            receiving,
            initiator,
            responder,
        } = self;
        let (kind, flags) = match request {
            WorkRequest::Send { delivery } => {
                let id = cx.new_id();
                sending.post(cx, id, memory, delivery, Target::Receive);
                return Ok(id);
            }
            WorkRequest::Receive => return Ok(receiving.post(cx, memory)),
            WorkRequest::Offer { delivery } => return Ok(sending.offer(cx, memory, delivery)),
            WorkRequest::Read => return Ok(receiving.post_read(cx, memory)),
            WorkRequest::Put {
                place,
                immediate,
                flags,
            } => {
                let content = Content::Memory(memory);
                let kind = RequestKind::Put {
                    place,
                    content,
                    immediate,
                };
                (kind, flags)
            }
            WorkRequest::Get { place, flags } => {
                let span = memory;
                (RequestKind::Get { place, span }, flags)
            }
            WorkRequest::FetchOp {
                place,
                atomic,
                flags,
            } => {
                let len = u64::from(atomic.word.bytes());
                if !place.address.is_multiple_of(len) {
                    return Err(PostError::Misaligned);
                }
                (RequestKind::Fetch { place, atomic }, flags)
            }
            WorkRequest::Message { control, flags } => {
                if control.len() > limits::MAX_CONTROL as usize {
                    return Err(PostError::ControlTooLong);
                }
                let control = Content::copy(control);
                let payload = Some(memory).filter(|span| span.len > 0);
                (RequestKind::Message { control, payload }, flags)
            }
            WorkRequest::ReceiveMessage { control } => {
                let payload = Some(memory).filter(|span| span.len > 0);
                return Ok(responder.post_receive(cx, receiving, control, payload));
            }
            WorkRequest::Datagram { lifetime, dscp } => {
                return sending.post_datagram(cx, memory, lifetime, dscp);
            }
            WorkRequest::OpenRegion { name, rights } => {
                return Ok(initiator.request_region(cx, name, rights));
            }
        };
        let open = session.is_established().then_some((sending, receiving));
        initiator.post(cx, kind, flags, open)
    }

    /// The pending work ahead of a request on the peer's memory, for a caller that could execute the request at once by
    /// other means.
    pub fn ahead(&self) -> Ahead {
        let transfers = self.sending.is_putting() || self.receiving.is_getting();
        if !self.session.is_established() || transfers || self.initiator.has_work() {
            Ahead::Work
        } else if self.initiator.is_working() {
            Ahead::Notices
        } else {
            Ahead::Nothing
        }
    }

    /// Whether a put of `len` bytes to `place` would leave at once, unannounced, so that no message behind it would
    /// have to wait for its end.
    pub fn puts_at_once(&mut self, place: RemotePlace, len: u64) -> bool {
        let (cx, sending) = (&self.cx, &self.sending);
        self.session.is_established() && self.initiator.puts_at_once(cx, sending, place, len)
    }

    /// An identifier for a request that is executed by other means.
    pub fn new_id(&mut self) -> TransferId {
        self.cx.new_id()
    }
}

/// Receives of messages that are posted when a message needs one: see [`Connection::lacks_receive`].
impl Connection {
    /// Whether the peer was told that its message found no receive, and there still is none. A receive that is posted
    /// now requests the message again.
    pub fn wants_receive(&self) -> bool {
        self.session.is_established() && self.responder.wants_receive()
    }

    /// The number of the peer's next operation.
    pub fn next_operation(&self) -> u32 {
        self.responder.expected()
    }

    /// Cancels receive `id` if no message has matched it. False if it is matched, or over.
    pub fn cancel_unmatched(&mut self, now: Instant, id: TransferId) -> bool {
        self.responder.is_unmatched(id) && self.cancel(now, id)
    }
}

/// This end's memory.
impl Connection {
    /// Lets the peer use `span` with `rights`, as `named`. Returns handle and Mx; the peer addresses the region from 0.
    ///
    /// # Errors
    /// The connection is closed, the name or number is taken, or too many regions are exported.
    pub fn export(
        &mut self,
        span: Span,
        rights: Rights,
        named: ExportAs,
    ) -> Result<(u32, u16), PostError> {
        self.can_post(0)?;
        self.responder.export(span, rights, named)
    }

    /// Ends an export at once: nothing is placed into the region or read from it any more. False if `handle` names
    /// none.
    pub fn revoke(&mut self, now: Instant, handle: u32) -> bool {
        self.cx.enter(now);
        let revoked = self.responder.revoke(&mut self.cx, handle);
        if revoked {
            self.receiving.revoke(&mut self.cx, handle);
            self.settle();
        }
        revoked
    }

    /// The atomic operation that the lane must execute before it passes anything else in. The lane answers with
    /// [`Connection::on_atomic_done`].
    pub fn pending_atomic(&self) -> Option<AtomicRequest> {
        self.responder.pending_atomic()
    }

    /// Completes the pending atomic operation with the word's previous value, or `None` if the word was inaccessible.
    pub fn on_atomic_done(&mut self, now: Instant, before: Option<u64>) {
        self.cx.enter(now);
        self.responder.on_atomic_done(&mut self.cx, before);
    }
}
