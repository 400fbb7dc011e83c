//! Tracks pending gets: single-datagram gets of the Initiator, and all gets at the Responder.
//!
//! A Get is not numbered. It changes nothing, and an Initiator without an answer asks again (thesis, 4.3.2).

use crate::limits::{BLACK_HOLE_REPAIRS, MAX_GETS, MAX_REPLIES};
use crate::request::RemotePlace;
use crate::sending::{Cut, Shape};
use crate::span::Span;
use crate::time::Instant;
use crate::transfer::TransferId;
use crate::transmit::{DataBurst, split};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;
use zerolane_wire::{Flags, Header, Op};

/// An unanswered Get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingGet {
    pub(crate) id: TransferId,
    pub(crate) place: RemotePlace,
    pub(crate) span: Span,
    /// It follows all numbered operations below this.
    pub(crate) after: u32,
    pub(crate) ask_at: Instant,
    pub(crate) tries: u32,
}

/// All pending Gets, in the order they were sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingGets {
    list: VecDeque<PendingGet>,
}

impl PendingGets {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.list.len() < MAX_GETS
    }

    pub(crate) fn push(&mut self, question: PendingGet) {
        self.list.push_back(question);
    }

    pub(crate) fn find(&self, id: TransferId) -> Option<&PendingGet> {
        self.list.iter().find(|it| it.id == id)
    }

    pub(crate) fn remove(&mut self, id: TransferId) -> Option<PendingGet> {
        let index = self.list.iter().position(|it| it.id == id)?;
        self.list.remove(index)
    }

    /// The Gets that are due at `now`. Each waits longer the next time; the first wait is `wait`.
    pub(crate) fn take_due(&mut self, now: Instant, wait: Duration) -> Vec<TransferId> {
        let due = self.list.iter_mut().filter(|it| it.ask_at <= now);
        due.map(|it| {
            it.tries = it.tries.saturating_add(1);
            it.ask_at = now + wait * (1 << it.tries.min(4));
            it.id
        })
        .collect()
    }

    /// Whether a Get of more than half a datagram of `room` bytes was repeated in vain.
    pub(crate) fn is_stuck(&self, room: u32) -> bool {
        let long = |it: &PendingGet| it.span.len > u64::from(room / 2);
        let repeated = |it: &PendingGet| it.tries >= BLACK_HOLE_REPAIRS;
        self.list.iter().any(|it| long(it) && repeated(it))
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = TransferId> + '_ {
        self.list.iter().map(|it| it.id)
    }

    pub(crate) fn next_repeat(&self) -> Option<Instant> {
        self.list.iter().map(|it| it.ask_at).min()
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }
}

/// Bytes of an exported region on their way to the Initiator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GetResponse {
    pub(crate) handle: u32,
    pub(crate) span: Span,
    /// Destination: the Initiator's identifier, Mx and address.
    pub(crate) d_id: TransferId,
    pub(crate) mx: u16,
    pub(crate) b_num: u32,
    pub(crate) address: u64,
    /// Its bursts are numbered, and under congestion control.
    pub(crate) numbered: bool,
    /// It is a repetition.
    pub(crate) repeated: bool,
    /// It may leave as trains.
    pub(crate) trains: bool,
}

/// Identifies an answer's bursts among those in flight, in place of a Transfer's identifier, a Block's number, and the
/// offset in the Block. No Transfer of this end has such an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseKey {
    pub(crate) id: u32,
    pub(crate) b_num: u32,
    pub(crate) start: u32,
}

impl ResponseKey {
    /// For bytes with destination `address`, by the Initiator's identifier and Mx.
    pub(crate) fn new(d_id: u32, mx: u16, address: u64) -> ResponseKey {
        ResponseKey {
            id: d_id | 1 << 31,
            b_num: mx.into(),
            // A Block is far shorter than the remaining range of the address.
            start: (address & (u64::from(u32::MAX) >> 1)) as u32,
        }
    }
}

/// Result of queueing an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enqueued {
    /// It waits to be sent.
    New,
    /// It was already waiting.
    Before,
    /// The queue is full.
    Full,
}

/// A burst of an answer.
pub(crate) struct ReplyBurst {
    pub(crate) burst: DataBurst,
    /// Its bytes were sent before.
    pub(crate) repeated: bool,
}

impl GetResponse {
    /// Whether `self` covers all of `other`.
    fn covers(&self, other: &GetResponse) -> bool {
        (self.d_id, self.mx) == (other.d_id, other.mx)
            && self.address <= other.address
            && other.address + other.span.len <= self.address + self.span.len
    }
}

/// All answers in flight.
#[derive(Clone, Debug, Default)]
pub(crate) struct GetResponses {
    queue: VecDeque<GetResponse>,
}

impl GetResponses {
    /// Whether the next answer is numbered; `None` if there is none.
    pub(crate) fn is_next_numbered(&self) -> Option<bool> {
        self.queue.front().map(|it| it.numbered)
    }

    /// Bytes that wait to be sent, counted up to `most`.
    pub(crate) fn unsent(&self, most: u64) -> u64 {
        let mut left = 0;
        for it in &self.queue {
            left += it.span.len;
            if left >= most {
                break;
            }
        }
        left
    }

    /// Queues an answer.
    pub(crate) fn push(&mut self, reply: GetResponse) -> Enqueued {
        // Requested again while it waits: it is sent once.
        if self.queue.iter().any(|it| it.covers(&reply)) {
            return Enqueued::Before;
        }
        if self.queue.len() >= MAX_REPLIES {
            return Enqueued::Full;
        }
        self.queue.push_back(reply);
        Enqueued::New
    }

    /// Removes and returns an answer from region `handle`, if there is one.
    pub(crate) fn take_of(&mut self, handle: u32) -> Option<GetResponse> {
        let index = self.queue.iter().position(|it| it.handle == handle)?;
        self.queue.remove(index)
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }

    /// Bytes of the next answer.
    pub(crate) fn next_len(&self) -> u32 {
        let next = self.queue.front();
        next.map_or(0, |it| u32::try_from(it.span.len).unwrap_or(u32::MAX))
    }

    /// The next burst of the next answer.
    pub(crate) fn next_burst(&mut self, shape: &Shape) -> Option<ReplyBurst> {
        let reply = self.queue.front_mut()?;
        let Shape {
            route, buffer_log2, ..
        } = *shape;
        let rest = u32::try_from(reply.span.len).unwrap_or(u32::MAX);
        let Cut {
            bytes,
            stu,
            segments,
            train,
        } = shape.cut(reply.address, rest, buffer_log2, reply.trains);
        let address = reply.address;
        let (bufx, offset) = split(address, buffer_log2);
        let first = Header {
            flags: Flags::SILENT,
            d_port: route.d_port,
            s_port: route.s_port,
            d_key: route.d_key,
            b_id: reply.mx,
            bufx,
            offset,
            b_num: reply.b_num,
            d_id: reply.d_id,
            ..Header::new(Op::Data)
        };
        let len = u64::from(bytes);
        let span = reply.span.part(0, len);
        let ends = len == reply.span.len;
        let repeated = reply.repeated;
        if ends {
            self.queue.pop_front();
        } else {
            reply.address += len;
            reply.span = reply.span.part(len, reply.span.len - len);
        }
        let last_flags = if ends { Flags::NONE } else { Flags::SILENT };
        let burst = DataBurst {
            span,
            stu,
            segments,
            announces: None,
            train,
            first,
            address,
            buffer_log2,
            last_flags: last_flags.with_if(Flags::SEND_STATE, shape.ask),
        };
        Some(ReplyBurst { burst, repeated })
    }
}
