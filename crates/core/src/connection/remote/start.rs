//! What begins when: in order, as far as order and room permit.

use crate::connection::Connection;
use crate::connection::memory::Following;
use crate::limits::{MAX_FETCHES, MAX_POSTED, MAX_SMALL};
use crate::work::{Task, Work};
use crate::{Delivery, Instant, Life};
use zerolane_wire::{Profile, Target};

impl Connection {
    /// Begins what was asked for, in order, as far as order and room permit.
    pub(in crate::connection) fn start_works(&mut self, now: Instant) {
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
    pub(super) fn is_short(&self, len: u64) -> bool {
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
}
