//! Sends the Responder's answers: payload for Gets, values for atomic operations.

use super::OneSided;
use super::exports::Named;
use super::gets::{Enqueued, GetResponse, ResponseKey};
use crate::context::{Context, Debt, Refusal};
use crate::counters::DropReason;
use crate::limits::{MAX_SMALL, MAX_VALUES};
use crate::sending::without;
use crate::sending::{Lost, Sending, shape};
use crate::timers::Timer;
use crate::transfer::TransferId;
use crate::transmit::{BurstLimit, ControlDatagram, DataBurst, join};
use alloc::vec;
use alloc::vec::Vec;
use zerolane_wire::{Flags, Get, Header, Op, Profile, Rights};

impl OneSided {
    /// Takes a Get, and queues its answer.
    pub(crate) fn on_get(
        &mut self,
        cx: &mut Context,
        sending: &mut Sending,
        it: &Get,
    ) -> Result<(), DropReason> {
        let behind = self.responder.expected().wrapping_sub(it.after) > u32::MAX / 2;
        if behind {
            // Handled like an operation that would be next in order.
            return self.let_through(cx, it.after, self.is_refusing());
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
        let span = match self.check(cx, place, u64::from(it.length), Rights::READ) {
            Ok(span) => span,
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
            numbered: it.numbered && cx.profile == Profile::Extended,
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

    pub(super) fn answer_value(&mut self, number: u32, id: TransferId, value: u64) {
        if self.values.len() < MAX_VALUES {
            self.values.push_back((number, id, value));
        }
    }

    /// The atomic operation's value that leaves next.
    pub(crate) fn next_value(&mut self, cx: &mut Context) -> Option<ControlDatagram> {
        let (number, id, value) = self.values.pop_front()?;
        self.responder.confirmed();
        cx.timers.stop(Timer::DelayedAck);
        let header = Header {
            flags: Flags::MEMORY,
            param: self.responder.expected() as u16,
            d_port: cx.route.d_port,
            s_port: cx.route.s_port,
            d_key: cx.route.d_key,
            sync: number,
            d_id: id,
            ..Header::new(Op::Data)
        };
        Some(ControlDatagram::value(header, value, cx.uses_checksums()))
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
