//! What users ask for.

use super::{Connection, PostError};
use crate::one_sided::in_bounds;
use crate::request::{AtomicRequest, RequestKind};
use crate::{
    Atomic, Delivery, Instant, RegionName, RemotePlace, Span, TransferId, WorkFlags, limits,
};
use zerolane_wire::{Rights, Target};

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
}

/// Transfers.
impl Connection {
    /// Sends `span` as one Transfer. Its bytes must stay as they are until the Transfer is over.
    ///
    /// # Errors
    /// The connection is closed, or too many Transfers are posted.
    pub fn post_send(
        &mut self,
        now: Instant,
        span: Span,
        delivery: Delivery,
    ) -> Result<TransferId, PostError> {
        self.can_post(self.sending.len())?;
        self.cx.now = now;
        let id = self.cx.new_id();
        self.sending
            .post(&mut self.cx, id, span, delivery, Target::Receive);
        self.settle();
        Ok(id)
    }

    /// Receives the next Transfer that no earlier receive takes into `span`. Its bytes are undefined
    /// until the Transfer is over.
    ///
    /// # Errors
    /// The connection is closed, or too many Transfers are posted.
    pub fn post_receive(&mut self, now: Instant, span: Span) -> Result<TransferId, PostError> {
        self.can_post(self.receiving.len())?;
        self.cx.now = now;
        let id = self.cx.new_id();
        self.receiving.post(&mut self.cx, id, span);
        self.settle();
        Ok(id)
    }

    /// Offers `span` to the peer's next Read (Request_To_Receive).
    ///
    /// # Errors
    /// The connection is closed, or too many Transfers are posted.
    pub fn post_offer(
        &mut self,
        now: Instant,
        span: Span,
        delivery: Delivery,
    ) -> Result<TransferId, PostError> {
        self.can_post(self.sending.posted())?;
        self.cx.now = now;
        let id = self.cx.new_id();
        self.sending.offer(&mut self.cx, id, span, delivery);
        self.settle();
        Ok(id)
    }

    /// Reads what the peer offers into `span` (Read sequence: Request_To_Receive first).
    ///
    /// # Errors
    /// The connection is closed, or too many Transfers are posted.
    pub fn post_read(&mut self, now: Instant, span: Span) -> Result<TransferId, PostError> {
        self.can_post(self.receiving.len())?;
        self.cx.now = now;
        let id = self.cx.new_id();
        self.receiving.post_read(&mut self.cx, id, span);
        self.settle();
        Ok(id)
    }
}

/// The peer's memory, and messages to it.
impl Connection {
    /// Asks for a region of the peer by name. [`Event::Region`](crate::Event::Region) follows.
    ///
    /// # Errors
    /// The connection is closed, or too much is posted.
    pub fn request_region(
        &mut self,
        now: Instant,
        name: RegionName,
        rights: Rights,
    ) -> Result<TransferId, PostError> {
        self.can_post(self.one_sided.requested())?;
        self.cx.now = now;
        let id = self.one_sided.request_region(&mut self.cx, name, rights);
        self.settle();
        Ok(id)
    }

    /// Puts `span` into the peer's memory, and shows the peer `immediate` when it is there. The
    /// bytes of `span` must stay as they are until that is over.
    ///
    /// # Errors
    /// The connection is closed, the peer has no persistent memory, or too much is posted.
    pub fn post_put(
        &mut self,
        now: Instant,
        place: RemotePlace,
        span: Span,
        immediate: Option<u32>,
        flags: WorkFlags,
    ) -> Result<TransferId, PostError> {
        in_bounds(&self.cx, place, span.len)?;
        let kind = RequestKind::Put {
            place,
            span,
            immediate,
        };
        self.post_request(now, kind, flags)
    }

    /// Gets bytes of the peer's memory into `span`.
    ///
    /// # Errors
    /// As of [`Connection::post_put`].
    pub fn post_get(
        &mut self,
        now: Instant,
        place: RemotePlace,
        span: Span,
        flags: WorkFlags,
    ) -> Result<TransferId, PostError> {
        in_bounds(&self.cx, place, span.len)?;
        self.post_request(now, RequestKind::Get { place, span }, flags)
    }

    /// Does `atomic` on a word of the peer's memory, once. [`Event::Fetched`](crate::Event::Fetched) follows.
    ///
    /// # Errors
    /// As of [`Connection::post_put`]; or the word is not aligned.
    pub fn post_fetch_op(
        &mut self,
        now: Instant,
        place: RemotePlace,
        atomic: Atomic,
        flags: WorkFlags,
    ) -> Result<TransferId, PostError> {
        if !place.address.is_multiple_of(8) {
            return Err(PostError::Misaligned);
        }
        in_bounds(&self.cx, place, 8)?;
        self.post_request(now, RequestKind::Fetch { place, atomic }, flags)
    }

    /// Sends a message: up to [`MAX_CONTROL`](limits::MAX_CONTROL) bytes, and a payload of any length.
    ///
    /// # Errors
    /// As of [`Connection::post_put`]; or `control` is too long.
    pub fn post_message(
        &mut self,
        now: Instant,
        control: Span,
        payload: Option<Span>,
        flags: WorkFlags,
    ) -> Result<TransferId, PostError> {
        if control.len > u64::from(limits::MAX_CONTROL) {
            return Err(PostError::ControlTooLong);
        }
        let payload = payload.filter(|span| span.len > 0);
        self.post_request(now, RequestKind::Message { control, payload }, flags)
    }

    fn post_request(
        &mut self,
        now: Instant,
        kind: RequestKind,
        flags: WorkFlags,
    ) -> Result<TransferId, PostError> {
        self.can_post(self.one_sided.waiting())?;
        self.cx.now = now;
        let id = self.one_sided.post(&mut self.cx, kind, flags)?;
        self.settle();
        Ok(id)
    }

    /// The identifier of the oldest numbered operation that may still be sent, and thus read.
    pub fn oldest_work(&self) -> Option<TransferId> {
        self.one_sided.oldest()
    }
}

/// This end's memory, and messages to it.
impl Connection {
    /// Lets the peer use `span` with `rights`, by its handle or by `name`. Returns handle and Mx;
    /// for the peer, the region starts at address 0.
    ///
    /// # Errors
    /// The connection is closed, the name is taken, or too many regions are exported.
    pub fn export(
        &mut self,
        span: Span,
        rights: Rights,
        name: Option<RegionName>,
    ) -> Result<(u32, u16), PostError> {
        self.can_post(0)?;
        self.one_sided.export(span, rights, name)
    }

    /// Ends an export, at once: from here on nothing is placed into the region or read from it. False
    /// if `handle` names none.
    pub fn revoke(&mut self, now: Instant, handle: u32) -> bool {
        self.cx.now = now;
        let revoked = self.one_sided.revoke(&mut self.cx, handle);
        if revoked {
            self.receiving.revoke(&mut self.cx, handle);
            self.settle();
        }
        revoked
    }

    /// Receives the next message that no earlier receive takes: its control into `control`, which
    /// has [`MAX_CONTROL`](limits::MAX_CONTROL) bytes, its payload into `payload`.
    ///
    /// # Errors
    /// The connection is closed, or too much is posted.
    pub fn post_message_receive(
        &mut self,
        control: Span,
        payload: Option<Span>,
    ) -> Result<TransferId, PostError> {
        self.can_post(self.one_sided.receives())?;
        let id = self.one_sided.post_receive(&mut self.cx, control, payload);
        self.settle();
        Ok(id)
    }

    /// The atomic operation that the lane has to do before it shows the core anything else, and
    /// answer with [`Connection::on_atomic_done`].
    pub fn pending_atomic(&self) -> Option<AtomicRequest> {
        self.one_sided.pending_atomic()
    }

    /// The order was done: the word before, or `None` if it could not be accessed.
    pub fn on_atomic_done(&mut self, now: Instant, before: Option<u64>) {
        self.cx.now = now;
        self.one_sided.on_atomic_done(&mut self.cx, before);
    }
}
