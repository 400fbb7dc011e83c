//! What users post: it waits in order until it may begin.

use crate::connection::Connection;
use crate::connection::memory::RegionRequest;
use crate::limits::MAX_CONTROL;
use crate::timers::Timer;
use crate::work::{Task, Work};
use crate::{Atomic, Instant, PostError, RegionName, RemotePlace, Span, TransferId, WorkFlags};
use zerolane_wire::Rights;

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
        self.can_post(self.memory.requests.len())?;
        let id = self.new_id();
        self.memory.requests.push(RegionRequest {
            id,
            name,
            rights,
            ask_at: now,
        });
        self.timers.set_earlier(Timer::Memory, now);
        self.expect_peer(now);
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
        self.in_bounds(place, span.len)?;
        let task = Task::Put {
            place,
            span,
            immediate,
        };
        self.post_work(now, task, flags)
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
        self.in_bounds(place, span.len)?;
        self.post_work(now, Task::Get { place, span }, flags)
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
        self.in_bounds(place, 8)?;
        self.post_work(now, Task::Fetch { place, atomic }, flags)
    }

    /// Sends a message: up to [`MAX_CONTROL`](crate::limits::MAX_CONTROL) bytes, and a payload of any length.
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
        if control.len > u64::from(MAX_CONTROL) {
            return Err(PostError::ControlTooLong);
        }
        let payload = payload.filter(|span| span.len > 0);
        self.post_work(now, Task::Message { control, payload }, flags)
    }

    /// The place exists in the peer's address space. Whether the region has it, the peer checks.
    fn in_bounds(&self, place: RemotePlace, len: u64) -> Result<(), PostError> {
        let log2 = self.peer.map_or(30, |peer| peer.buffer_log2);
        let end = place.address.checked_add(len);
        let most = (u64::from(u32::MAX) << log2) | ((1 << log2) - 1);
        match end {
            Some(end) if end <= most => Ok(()),
            _ => Err(PostError::OutOfBounds),
        }
    }

    fn post_work(
        &mut self,
        now: Instant,
        task: Task,
        flags: WorkFlags,
    ) -> Result<TransferId, PostError> {
        self.can_post(self.memory.works.len())?;
        if self.peer.is_some_and(|peer| !peer.persistent) {
            return Err(PostError::Unsupported);
        }
        let id = self.new_id();
        self.memory.works.push_back(Work { id, flags, task });
        self.start_works(now);
        Ok(id)
    }

    /// The identifier of the oldest numbered operation that may still be sent, and thus read.
    pub fn oldest_work(&self) -> Option<TransferId> {
        let numbered = self.memory.stream.oldest();
        numbered.or_else(|| self.memory.works.front().map(|work| work.id))
    }

    /// Takes back something asked for. What left already may be done all the same.
    pub(in crate::connection) fn abort_work(&mut self, id: TransferId) -> bool {
        let memory = &mut self.memory;
        let waiting = memory.works.len() + memory.receives.len() + memory.payloads.len();
        memory.works.retain(|work| work.id != id);
        memory.receives.retain(|receive| receive.id != id);
        memory.payloads.retain(|payload| payload.id != id);
        memory.following.retain(|it| it.id != id);
        waiting != memory.works.len() + memory.receives.len() + memory.payloads.len()
            || memory.questions.remove(id).is_some()
            || memory.stream.cancel(id)
            || self.forget_request(id)
    }
}
