//! The peer's memory, as Initiator: puts, gets, atomic operations, messages.
//!
//! What fits one datagram is numbered and sent without announcement; a longer put is announced and
//! granted as a Transfer into the peer's region, a longer get is granted by its Gets. Order is kept
//! here: numbered operations wait for the puts before them that are Transfers, and such a put for
//! the numbered ones before it.

use super::Connection;
use super::memory::{Following, RegionRequest};
use crate::exports::{HANDLE, MESSAGES};
use crate::gets::Question;
use crate::inbound::Origin;
use crate::limits::{self, MAX_CONTROL, MAX_FETCHES, MAX_POSTED, MAX_SMALL};
use crate::stream::{Outcome, Over};
use crate::timers::Timer;
use crate::transmit::{Outgoing, join, split};
use crate::work::{Task, Work};
use crate::{
    Atomic, BurstLimit, Delivery, DropReason, Event, Instant, Life, OperationBurst, Placement,
    PostError, RegionName, RemotePlace, RemoteRegion, Span, TransferError, TransferId, Transmit,
    WorkFlags,
};
use zerolane_wire::{
    Answer, FetchOp, Flags, Get, Header, MemoryRegionAvailable, MemoryState, OPTIONS_LEN, Op,
    Operation, Packet, Place, Profile, Range, Reason, RequestAnswer, RequestMemoryRegion, Rights,
    Target,
};

/// Mx of an operation to the messages that is nothing but its number.
pub(super) const NOTHING: u16 = u16::MAX;

impl Connection {
    /// Asks for a region of the peer by name. [`Event::Region`] follows.
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

    /// Does `atomic` on a word of the peer's memory, once. [`Event::Fetched`] follows.
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

    /// Sends a message: up to [`limits::MAX_CONTROL`] bytes, and a payload of any length.
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

    /// Begins what was asked for, in order, as far as order and room permit.
    pub(super) fn start_works(&mut self, now: Instant) {
        if self.life != Life::Established {
            return;
        }
        while let Some(&work) = self.memory.works.front() {
            if !self.may_start(&work) {
                break;
            }
            self.memory.works.pop_front();
            self.start(now, work);
            self.expect_peer(now);
        }
    }

    fn may_start(&self, work: &Work) -> bool {
        let stream = &self.memory.stream;
        let putting = self.outbox.is_putting();
        if work.flags.fence && self.has_outstanding() {
            return false;
        }
        match &work.task {
            Task::Put { place, span, .. } if !self.is_small(place.address, span.len) => {
                stream.is_empty() && self.outbox.len() < MAX_POSTED
            }
            Task::Get { span, .. } if !self.is_short(span.len) => {
                !putting && self.inbox.len() < MAX_POSTED
            }
            Task::Get { .. } => !putting && self.memory.questions.has_room(),
            task => !putting && stream.has_room(task, self.max_fetches()),
        }
    }

    /// The thesis's Responder takes one FetchOp at a time.
    fn max_fetches(&self) -> usize {
        match self.profile {
            Profile::Classic => 1,
            Profile::Extended => MAX_FETCHES,
        }
    }

    /// Whether anything asked of the peer's memory is not complete.
    fn has_outstanding(&self) -> bool {
        !self.memory.stream.is_empty()
            || !self.memory.questions.is_empty()
            || self.outbox.is_putting()
            || self.inbox.is_getting()
    }

    /// Whether a put is one datagram: short, and within one buffer of the peer.
    fn is_small(&self, address: u64, len: u64) -> bool {
        let peer = |peer: zerolane_wire::Capabilities| (peer.max_stu, peer.buffer_log2);
        let (max_stu, log2) = self.peer.map_or((MAX_SMALL, 30), peer);
        let in_buffer = address & ((1 << log2) - 1);
        self.is_short(len) && len <= u64::from(max_stu) && in_buffer + len <= 1 << log2
    }

    /// Whether so many bytes and what is around them fit a datagram that every path carries.
    fn is_short(&self, len: u64) -> bool {
        len + self.config.seal as u64 <= u64::from(MAX_SMALL)
    }

    fn start(&mut self, now: Instant, work: Work) {
        let Work { id, flags, task } = work;
        match task {
            Task::Put {
                place,
                span,
                immediate,
            } if !self.is_small(place.address, span.len) => {
                if let Some(immediate) = immediate {
                    self.memory.following.push(Following {
                        id,
                        place,
                        immediate,
                        flags,
                    });
                }
                let target = Target::Region(self.wire_place(place));
                self.outbox.post(id, span, Delivery::Silent, target);
                self.announce(now);
            }
            Task::Get { span, .. } if span.len == 0 => self.got(id, 0),
            Task::Get { place, span } => self.start_get(now, id, place, span),
            Task::Message {
                payload: Some(payload),
                ..
            } => {
                let number = self.memory.stream.push(now, work);
                let target = Target::Message(number);
                self.outbox.post(id, payload, Delivery::Interrupt, target);
                self.announce(now);
            }
            _ => {
                self.memory.stream.push(now, work);
            }
        }
    }

    fn got(&mut self, id: TransferId, length: u64) {
        let delivery = Delivery::Interrupt;
        self.events.push_back(Event::Received {
            id,
            length,
            delivery,
        });
    }

    fn wire_place(&self, place: RemotePlace) -> Place {
        let log2 = self.peer.map_or(30, |peer| peer.buffer_log2);
        let (bufx, offset) = split(place.address, log2);
        Place {
            handle: place.handle,
            mx: place.mx,
            bufx,
            offset,
        }
    }

    fn start_get(&mut self, now: Instant, id: TransferId, place: RemotePlace, span: Span) {
        let after = self.memory.stream.next_number();
        if !self.is_short(span.len) {
            self.inbox.begin_got(id, span, place, after);
            return self.grant(now);
        }
        let ask_at = now + self.recovery.control_timeout();
        self.memory.questions.push(Question {
            id,
            place,
            span,
            after,
            ask_at,
            tries: 0,
        });
        self.ask_question(id);
        self.timers.set_earlier(Timer::Memory, ask_at);
    }

    /// Sends the Get of question `id`.
    fn ask_question(&mut self, id: TransferId) {
        let Some(&it) = self.memory.questions.find(id) else {
            return;
        };
        let from = self.wire_place(it.place);
        self.push_control(Operation::Get(Get {
            mx: from.mx,
            bufx: from.bufx,
            offset: from.offset,
            handle: from.handle,
            s_id: id,
            return_mx: 0,
            return_bufx: 0,
            return_offset: 0,
            length: it.span.len as u32,
            after: it.after,
            b_num: 0,
            numbered: false,
            repeated: it.tries > 0,
        }));
    }

    /// The Get that grants a Block, if its Transfer is a Get's.
    pub(super) fn get_block(&self, sequence: u32) -> Option<Get> {
        let len = self.inbox.grants.get(sequence)?.len();
        self.get_part(sequence, Range { start: 0, len })
    }

    fn get_part(&self, sequence: u32, range: Range) -> Option<Get> {
        let block = self.inbox.grants.get(sequence)?;
        let Origin::Got { place, after } = self.inbox.get(block.transfer)?.origin else {
            return None;
        };
        let skip = block.transfer_offset + u64::from(range.start);
        let from = self.wire_place(RemotePlace {
            address: place.address + skip,
            ..place
        });
        let landing = block.address + u64::from(range.start);
        let (return_bufx, return_offset) = split(landing, self.buffer_log2());
        Some(Get {
            mx: from.mx,
            bufx: from.bufx,
            offset: from.offset,
            handle: from.handle,
            s_id: block.transfer,
            return_mx: block.mx,
            return_bufx,
            return_offset,
            length: range.len,
            after,
            b_num: block.b_num,
            numbered: self.profile == Profile::Extended,
            repeated: false,
        })
    }

    /// Gets again what is missing of a Block.
    pub(super) fn get_ranges(&mut self, sequence: u32, missing: &[Range]) {
        for &range in missing {
            if let Some(get) = self.get_part(sequence, range) {
                self.counters.reports_sent += 1;
                self.push_control(Operation::Get(Get {
                    repeated: true,
                    ..get
                }));
            }
        }
    }

    /// Data that answers a Get of one datagram, or a FetchOp. `None` if it does neither.
    pub(super) fn on_reply(
        &mut self,
        now: Instant,
        header: &Header,
        len: u32,
    ) -> Result<Option<Placement>, DropReason> {
        let (number, id) = (header.sync, header.d_id);
        if !self.memory.stream.is_empty() && self.memory.stream.awaits_value(number, id) {
            self.on_piggyback(now, header.param);
            return Ok((len == 8).then_some(Placement::Value { number, id }));
        }
        let Some(question) = self.memory.questions.find(id) else {
            return Ok(None);
        };
        if u64::from(len) != question.span.len || header.bufx != 0 || header.offset != 0 {
            return Err(DropReason::OutOfBounds);
        }
        let span = question.span;
        self.memory.questions.remove(id);
        self.counters.bytes_received += span.len;
        self.memory.apart += span.len;
        self.got(id, span.len);
        self.start_works(now);
        Ok(Some(Placement::Move(span)))
    }

    /// The value that [`Placement::Value`] was told of.
    pub fn on_value(&mut self, now: Instant, number: u32, id: TransferId, value: u64) {
        if !self.memory.stream.value(now, number, id, value) {
            return;
        }
        if self.profile == Profile::Classic {
            let complete = Operation::FetchOpComplete {
                sync: number,
                s_id: id,
            };
            self.push_control(complete);
        }
        self.collect_over(now);
    }

    /// The peer told the low half of the number it expects next.
    pub(super) fn on_piggyback(&mut self, now: Instant, low: u16) {
        if self.memory.stream.is_empty() {
            return;
        }
        self.on_executed(now, self.memory.stream.widen(low));
    }

    /// The peer executed all numbered operations below `expected`.
    pub(super) fn on_executed(&mut self, now: Instant, expected: u32) {
        if self.memory.stream.confirm(now, expected) {
            self.collect_over(now);
        }
    }

    pub(super) fn on_memory_state(
        &mut self,
        now: Instant,
        it: &MemoryState,
    ) -> Result<(), DropReason> {
        if !self.memory.stream.confirm(now, it.expected) {
            return Err(DropReason::Duplicate);
        }
        if it.resend {
            self.memory.stream.go_back(now);
        }
        self.collect_over(now);
        Ok(())
    }

    /// Tells of what is over, and begins what waited for it.
    fn collect_over(&mut self, now: Instant) {
        if !self.endings.is_empty() {
            // Perhaps one may leave now.
            self.timers.set_earlier(Timer::Answers, now);
        }
        while let Some(over) = self.memory.stream.pop() {
            if !over.cancelled {
                self.tell(now, &over);
            }
        }
        self.start_works(now);
    }

    fn tell(&mut self, now: Instant, over: &Over) {
        let Work { id, flags, task } = over.work;
        let with_payload = matches!(
            task,
            Task::Message {
                payload: Some(_),
                ..
            }
        );
        let event = match over.outcome {
            // Its Transfer tells.
            Outcome::Done if with_payload => return,
            Outcome::Failed(error) => {
                if with_payload && !self.abort_outbound(now, id, Reason::Cancelled) {
                    return;
                }
                Event::Failed { id, error }
            }
            _ if !flags.signalled => return,
            Outcome::Done => Event::Sent { id },
            Outcome::Value(value) => Event::Fetched { id, value },
        };
        self.events.push_back(event);
    }

    /// An outgoing Transfer is complete at the peer.
    pub(super) fn sent(&mut self, now: Instant, id: TransferId) {
        let following = self.memory.following.iter().position(|it| it.id == id);
        let Some(index) = following else {
            return self.events.push_back(Event::Sent { id });
        };
        let it = self.memory.following.swap_remove(index);
        // Only the number is left to be shown: an empty put carries it, before all that waits.
        let region = crate::RegionId {
            index: 0,
            generation: 0,
        };
        let span = Span {
            region,
            offset: 0,
            len: 0,
        };
        let flags = WorkFlags {
            fence: false,
            ..it.flags
        };
        let task = Task::Put {
            place: it.place,
            span,
            immediate: Some(it.immediate),
        };
        self.memory.works.push_front(Work { id, flags, task });
        self.start_works(now);
    }

    /// An answer to a request of ours that is no Transfer's. False if it is to something else.
    pub(super) fn on_work_answered(&mut self, now: Instant, it: &RequestAnswer) -> bool {
        let id = it.d_id;
        if it.numbered {
            self.on_numbered_answered(now, it);
            return true;
        }
        let Answer::Refused(reason) = it.answer else {
            return false;
        };
        let getting = |origin: Origin| matches!(origin, Origin::Got { .. });
        if self.memory.questions.remove(id).is_some() || self.forget_request(id) {
            self.fail_work(now, id, TransferError::Refused(reason));
        } else if self.inbox.get(id).is_some_and(|it| getting(it.origin)) {
            self.inbox.end(id, crate::inbound::Happening::Cancelled);
            self.fail_work(now, id, TransferError::Refused(reason));
        } else {
            return false;
        }
        true
    }

    fn on_numbered_answered(&mut self, now: Instant, it: &RequestAnswer) {
        let (id, stream) = (it.d_id, &mut self.memory.stream);
        if let Answer::Later(_) = it.answer {
            let until = now + limits::NOT_READY_INTERVAL;
            if stream.pause(now, id, until) {
                self.timers.set_earlier(Timer::Memory, until);
            }
        } else if let Some(number) = stream.refuse(now, id, |task| error(task, it)) {
            self.push_control(Operation::FetchOpComplete {
                sync: number,
                s_id: id,
            });
        }
        self.collect_over(now);
    }

    fn fail_work(&mut self, now: Instant, id: TransferId, error: TransferError) {
        self.events.push_back(Event::Failed { id, error });
        self.grant(now);
        self.start_works(now);
    }

    /// An outgoing Transfer failed: nothing follows.
    pub(super) fn unsent(&mut self, id: TransferId) {
        self.memory.following.retain(|it| it.id != id);
    }

    fn forget_request(&mut self, id: TransferId) -> bool {
        let before = self.memory.requests.len();
        self.memory.requests.retain(|it| it.id != id);
        before != self.memory.requests.len()
    }

    pub(super) fn on_region_available(
        &mut self,
        now: Instant,
        it: &MemoryRegionAvailable,
    ) -> Result<(), DropReason> {
        let log2 = self.peer.map_or(30, |peer| peer.buffer_log2);
        let start = RemotePlace {
            handle: it.handle,
            mx: it.mx,
            address: join(it.bufx, it.offset, log2),
        };
        if it.handle & HANDLE == 0 || start.address.checked_add(it.length).is_none() {
            return Err(DropReason::Malformed);
        }
        if !self.forget_request(it.d_id) {
            return Err(DropReason::Duplicate);
        }
        self.recovery.progress();
        let region = RemoteRegion {
            start,
            length: it.length,
            rights: it.rights,
        };
        let id = it.d_id;
        self.events.push_back(Event::Region { id, region });
        self.start_works(now);
        Ok(())
    }

    /// Takes back something asked for. What left already may be done all the same.
    pub(super) fn abort_work(&mut self, id: TransferId) -> bool {
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

    /// Sends again what was neither confirmed nor answered.
    pub(super) fn on_memory_timeout(&mut self, now: Instant) {
        if self.life != Life::Established {
            return;
        }
        let wait = self.recovery.control_timeout();
        self.repeat_numbered(now, wait);
        self.repeat_questions(now, wait);
        self.repeat_requests(now, wait);
        let stream = &self.memory.stream;
        let numbered = stream.awaits().then(|| stream.repeat_at(wait));
        let requests = self.memory.requests.iter().map(|it| it.ask_at).min();
        let next = [numbered, self.memory.questions.next_repeat(), requests];
        if let Some(at) = next.into_iter().flatten().min() {
            self.timers.set_earlier(Timer::Memory, at);
        }
    }

    fn repeat_numbered(&mut self, now: Instant, wait: std::time::Duration) {
        let stream = &mut self.memory.stream;
        if stream.awaits() && stream.repeat_at(wait) <= now {
            self.counters.timeouts += u64::from(stream.paused.is_none());
            stream.go_back(now);
        }
    }

    fn repeat_questions(&mut self, now: Instant, wait: std::time::Duration) {
        let mut again = vec![];
        for it in self.memory.questions.iter_mut() {
            if it.ask_at <= now {
                it.tries = it.tries.saturating_add(1);
                it.ask_at = now + wait * (1 << it.tries.min(4));
                again.push(it.id);
            }
        }
        self.counters.timeouts += again.len() as u64;
        again.into_iter().for_each(|id| self.ask_question(id));
    }

    fn repeat_requests(&mut self, now: Instant, wait: std::time::Duration) {
        let mut again = vec![];
        for it in self
            .memory
            .requests
            .iter_mut()
            .filter(|it| it.ask_at <= now)
        {
            it.ask_at = now + wait;
            again.push(Operation::RequestMemoryRegion(RequestMemoryRegion {
                rights: it.rights,
                length: 0,
                s_id: it.id,
                name: it.name,
            }));
        }
        again.into_iter().for_each(|it| self.push_control(it));
    }

    /// The numbered operations that leave next.
    pub(super) fn next_operations(&mut self, now: Instant, limit: BurstLimit) -> Option<Transmit> {
        let stream = &self.memory.stream;
        if !stream.has_unsent() || self.life != Life::Established {
            return None;
        }
        let first = stream.upcoming(0)?;
        let around = self.around();
        let datagram_len = |work: &Work| around + content_len(work);
        let segment = datagram_len(first);
        let carries = !matches!(first.task, Task::Fetch { .. });
        let most = limit.segments.min(limit.bytes / segment).max(1);
        let mut count = 1;
        while count < most {
            let Some(len) = stream.upcoming(count as usize).map(datagram_len) else {
                break;
            };
            if len > segment {
                break;
            }
            count += 1;
            if len < segment {
                break;
            }
        }
        let first = self.memory.stream.take(now, count as usize);
        let at = self
            .memory
            .stream
            .repeat_at(self.recovery.control_timeout());
        self.timers.set_earlier(Timer::Memory, at);
        // Data carries the confirmation of the peer's own operations.
        if carries {
            self.memory.executor.confirmed();
            self.timers.stop(Timer::Confirm);
        }
        Some(Transmit::Operations(OperationBurst {
            count,
            segment,
            first,
        }))
    }

    /// Operation `index` of `burst`; `None` if it is over by now.
    pub fn operation(&self, burst: &OperationBurst, index: u32) -> Option<Outgoing> {
        let number = burst.first.wrapping_add(index);
        let work = self.memory.stream.get(number)?;
        let last = index + 1 == burst.count;
        // Who repeats, waits, or is of the thesis, wants to hear of it at once.
        let press = self.profile == Profile::Classic
            || last && (self.memory.stream.is_repeat(number) || self.is_awaited(burst));
        let header = Header {
            flags: Flags::NONE.with_if(Flags::SEND_STATE, press),
            param: self.memory.executor.expected() as u16,
            d_port: self.route.d_port,
            s_port: self.route.s_port,
            d_key: self.route.d_key,
            sync: number,
            s_id: work.id,
            ..Header::new(Op::Data)
        };
        Some(match work.task {
            Task::Put {
                place,
                span,
                immediate,
            } => {
                let to = self.wire_place(place);
                let shown = match immediate {
                    None => Flags::SILENT,
                    Some(_) => Flags::INTERRUPT,
                };
                let header = Header {
                    flags: header.flags.with_if(shown, true),
                    b_id: to.mx,
                    bufx: to.bufx,
                    offset: to.offset,
                    b_num: immediate.unwrap_or(0),
                    d_id: to.handle,
                    ..header
                };
                Outgoing::data(&header, Some(span).filter(|span| span.len > 0))
            }
            Task::Message { control, payload } => {
                let header = Header {
                    flags: header.flags.with_if(Flags::INTERRUPT, true),
                    d_id: MESSAGES,
                    ..header
                }
                .with_wide(payload.map_or(0, |span| span.len));
                Outgoing::data(&header, Some(control).filter(|span| span.len > 0))
            }
            Task::Fetch { place, atomic } => self.fetch_op(number, work.id, place, atomic),
            Task::Get { .. } | Task::Nothing => {
                let header = Header {
                    flags: header.flags.with_if(Flags::SILENT, true),
                    b_id: NOTHING,
                    d_id: MESSAGES,
                    ..header
                };
                Outgoing::data(&header, None)
            }
        })
    }

    fn is_awaited(&self, burst: &OperationBurst) -> bool {
        (0..burst.count).any(|index| {
            let work = self.memory.stream.get(burst.first.wrapping_add(index));
            work.is_some_and(|work| work.flags.awaited)
        })
    }

    fn fetch_op(
        &self,
        number: u32,
        id: TransferId,
        place: RemotePlace,
        atomic: Atomic,
    ) -> Outgoing {
        let on = self.wire_place(place);
        Outgoing::control(&Packet {
            route: self.route,
            operation: Operation::FetchOp(FetchOp {
                kind: atomic.kind,
                mx: on.mx,
                bufx: on.bufx,
                offset: on.offset,
                handle: on.handle,
                s_id: id,
                sync: number,
                confirmed: self.memory.stream.confirmed(),
                operand: atomic.operand,
                comparand: atomic.comparand,
            }),
        })
    }
}

/// Bytes of the datagram behind its header, and in front of its seal.
fn content_len(work: &Work) -> u32 {
    match work.task {
        Task::Put { span, .. } => span.len as u32,
        Task::Message { control, .. } => control.len as u32,
        Task::Fetch { .. } => OPTIONS_LEN as u32,
        Task::Get { .. } | Task::Nothing => 0,
    }
}

/// What a refusal means to who asked.
fn error(task: &Task, it: &RequestAnswer) -> TransferError {
    let reason = match it.answer {
        Answer::Refused(reason) | Answer::Later(reason) => reason,
    };
    match (task, reason) {
        (Task::Message { payload, .. }, Reason::MessageTooLarge) => {
            TransferError::MessageTooLarge {
                length: payload.map_or(0, |span| span.len),
                room: it.room,
            }
        }
        _ => TransferError::Refused(reason),
    }
}
