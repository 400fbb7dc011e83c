//! What the peer says of what was asked for, and what the user is told.

use crate::connection::Connection;
use crate::exports::HANDLE;
use crate::inbound::Origin;
use crate::limits;
use crate::stream::{Outcome, Over};
use crate::timers::Timer;
use crate::transmit::join;
use crate::work::{Task, Work};
use crate::{
    DropReason, Event, Instant, RemotePlace, RemoteRegion, Span, TransferError, TransferId,
    WorkFlags,
};
use zerolane_wire::{
    Answer, MemoryRegionAvailable, MemoryState, Operation, Profile, Reason, RequestAnswer,
};

impl Connection {
    /// The value that [`Placement::Value`](crate::Placement::Value) was told of.
    pub fn on_value(&mut self, now: Instant, number: u32, id: TransferId, value: u64) {
        if !self.memory.stream.value(now, number, id, value) {
            return;
        }
        self.note_obeyed(now);
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
    pub(in crate::connection) fn on_piggyback(&mut self, now: Instant, low: u16) {
        if self.memory.stream.is_empty() {
            return;
        }
        self.on_executed(now, self.memory.stream.widen(low));
    }

    /// The peer executed all numbered operations below `expected`.
    pub(in crate::connection) fn on_executed(&mut self, now: Instant, expected: u32) {
        if self.confirm(now, expected) {
            self.collect_over(now);
        }
    }

    /// The peer executed all below `expected`. False if that cannot be.
    fn confirm(&mut self, now: Instant, expected: u32) -> bool {
        let news = !self.memory.stream.has_executed(expected.wrapping_sub(1));
        let right = self.memory.stream.confirm(now, expected);
        if news && right {
            self.note_obeyed(now);
        }
        right
    }

    /// The peer did something that it was asked for: nothing is to be waited for the longer because of
    /// what was lost before. A long Get may just have got its turn.
    pub(super) fn note_obeyed(&mut self, now: Instant) {
        if !self.recovery.is_backed_off() {
            return;
        }
        self.recovery.progress();
        if !self.inbox.grants.is_idle() {
            let wait = self.recovery.data_timeout();
            let ends = self.inbox.grants.quiet().ends(wait);
            self.timers.set_earlier(Timer::Payload, ends.max(now));
        }
    }

    pub(in crate::connection) fn on_memory_state(
        &mut self,
        now: Instant,
        it: &MemoryState,
    ) -> Result<(), DropReason> {
        if !self.confirm(now, it.expected) {
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
    pub(in crate::connection) fn sent(&mut self, now: Instant, id: TransferId) {
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

    /// An outgoing Transfer failed: nothing follows.
    pub(in crate::connection) fn unsent(&mut self, id: TransferId) {
        self.memory.following.retain(|it| it.id != id);
    }

    /// An answer to a request of ours that is no Transfer's. False if it is to something else.
    pub(in crate::connection) fn on_work_answered(
        &mut self,
        now: Instant,
        it: &RequestAnswer,
    ) -> bool {
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

    pub(super) fn forget_request(&mut self, id: TransferId) -> bool {
        let before = self.memory.requests.len();
        self.memory.requests.retain(|it| it.id != id);
        before != self.memory.requests.len()
    }

    pub(in crate::connection) fn on_region_available(
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
