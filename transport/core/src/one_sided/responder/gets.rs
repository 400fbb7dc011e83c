//! Answers the peer's Gets.

use super::Responder;
use super::exports::Named;
use crate::context::{Context, Debt, Refusal};
use crate::counters::DropReason;
use crate::limits::{MAX_REPLIES, MAX_SMALL};
use crate::profile::Conduct;
use crate::receiving::Receiving;
use crate::sending::{Cut, Lost, Sending, Shape, shape, without};
use crate::span::Span;
use crate::transfer::TransferId;
use crate::transmit::{BurstLimit, DataBurst, join, split};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use zerolane_wire::{Flags, Get, Header, Op, Rights};

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
            dscp: 0,
            first,
            address,
            buffer_log2,
            last_flags: last_flags.with_if(Flags::SEND_STATE, shape.ask),
        };
        Some(ReplyBurst { burst, repeated })
    }
}

impl Responder {
    /// Takes a Get, and queues its answer.
    pub(crate) fn on_get(
        &mut self,
        cx: &mut Context,
        sending: &mut Sending,
        receiving: &mut Receiving,
        it: &Get,
    ) -> Result<(), DropReason> {
        if self.defers {
            // Its Initiator asks again.
            return Err(DropReason::Limit);
        }
        let behind = self.sequence.expected().wrapping_sub(it.after) > u32::MAX / 2;
        if behind {
            // Handled like an operation that would be next in order.
            return self.let_through(cx, receiving, it.after, self.sequence.is_refusing());
        }
        let reply = self.reply_to(cx, it)?;
        cx.owe(Debt::Peer);
        if reply.repeated || has_left(sending, &reply) {
            cx.doubt_path(cx.links.control);
        }
        for (start, end) in unanswered(cx, sending, &reply) {
            let part = GetResponse {
                span: reply.span.part(start.into(), (end - start).into()),
                address: reply.address + u64::from(start),
                ..reply
            };
            match self.responses.push(part) {
                Enqueued::New if part.numbered && part.repeated => {
                    let key = ResponseKey::new(part.d_id, part.mx, part.address);
                    let end = key.start.saturating_add(part.span.len as u32);
                    let path = sending.carrier(key.id, key.b_num, (key.start, end));
                    sending.on_lost(cx, path, Lost::datagrams(part.span.len));
                }
                Enqueued::New | Enqueued::Before => {}
                Enqueued::Full => return Err(DropReason::Limit),
            }
        }
        Ok(())
    }

    /// The answer to a Get, if the peer has the rights.
    fn reply_to(&self, cx: &mut Context, it: &Get) -> Result<GetResponse, DropReason> {
        let place = Named {
            handle: it.handle,
            mx: it.mx,
            bufx: it.bufx,
            offset: it.offset,
        };
        let (len, log2) = (it.length.into(), cx.buffer_log2());
        let span = match self.exports.check(place, len, Rights::READ, log2) {
            Ok((span, _)) => span,
            Err(reason) => {
                cx.refuse(it.s_id, Refusal::because(reason));
                return Err(DropReason::NoGrant);
            }
        };
        let address = join(it.return_bufx, it.return_offset, cx.peer_buffer_log2());
        address
            .checked_add(span.len)
            .ok_or(DropReason::OutOfBounds)?;
        Ok(GetResponse {
            handle: it.handle,
            span,
            d_id: it.s_id,
            mx: it.return_mx,
            b_num: it.b_num,
            address,
            numbered: it.numbered && cx.profile.numbers_gets(),
            repeated: it.repeated,
            trains: it.trains,
        })
    }

    /// The next answer to a Get: bytes that the peer granted by asking, as far as the congestion controller allows. An
    /// answer of one datagram waits for no controller, like small operations.
    pub(crate) fn next_answer(
        &mut self,
        cx: &mut Context,
        sending: &mut Sending,
        limit: BurstLimit,
    ) -> Option<DataBurst> {
        let numbered = self.responses.is_next_numbered()?;
        let shape = match numbered {
            true if sending.may_carry(cx, |most| self.unsent_answers(most)) => {
                sending.controlled_shape(cx, limit)?
            }
            // The other end does not reassemble it: on a narrower path it leaves in one piece all the same.
            false if cx.links.carries_control() => {
                let mut shape = shape(cx, limit);
                let len = self.responses.next_len();
                if len <= MAX_SMALL {
                    shape.stu = shape.stu.max(len);
                }
                shape
            }
            _ => return None,
        };
        let reply = self.responses.next_burst(&shape)?;
        let (mut burst, len) = (reply.burst, reply.burst.span.len);
        cx.counters.bytes_sent += len;
        cx.counters.bytes_resent += if reply.repeated { len } else { 0 };
        if numbered {
            let (d_id, mx) = (burst.first.d_id, burst.first.b_id);
            let ResponseKey { id, b_num, start } = ResponseKey::new(d_id, mx, burst.address);
            let more = self.is_answering();
            burst.first.sync = sending.number_answer(cx, (id, b_num, start), len, more);
        }
        Some(burst)
    }

    /// Bytes of waiting answers, counted up to `most`.
    pub(crate) fn unsent_answers(&self, most: u64) -> u64 {
        self.responses.unsent(most)
    }
}

/// Whether an answer to the same question left, and is not known to have arrived.
fn has_left(sending: &Sending, reply: &GetResponse) -> bool {
    let ResponseKey { id, b_num, start } = ResponseKey::new(reply.d_id, reply.mx, reply.address);
    let end = start.saturating_add(u32::try_from(reply.span.len).unwrap_or(u32::MAX));
    let log = sending.sent_log(0);
    reply.numbered && log.carried(id, b_num, (start, end)).is_some()
}

/// The parts of an answer that did not leave within the last round trip of their path. An Initiator that asks for parts
/// that did leave has not seen them yet.
fn unanswered(cx: &Context, sending: &Sending, reply: &GetResponse) -> Vec<(u32, u32)> {
    let len = u32::try_from(reply.span.len).unwrap_or(u32::MAX);
    let ResponseKey { id, b_num, start } = ResponseKey::new(reply.d_id, reply.mx, reply.address);
    let Some(end) = start.checked_add(len).filter(|_| reply.numbered) else {
        return vec![(0, len)];
    };
    let known = |path| Some((path, cx.recovery_of(path).rtt()?));
    let paths = cx.links.carrying().filter_map(known);
    let mut left: Vec<_> = paths
        .flat_map(|(path, rtt)| {
            let log = sending.sent_log(path);
            log.left_after(id, b_num, cx.now.before(rtt))
        })
        .collect();
    left.sort_unstable();
    let parts = without(start, end, &left).into_iter();
    parts.map(|(from, to)| (from - start, to - start)).collect()
}
