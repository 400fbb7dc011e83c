//! Sends single-datagram gets, and matches the datagrams that answer them.
//!
//! A Get is not numbered. It changes nothing, and an Initiator without an answer asks again (thesis, 4.3.2).

use super::Initiator;
use crate::context::{Context, Debt};
use crate::counters::DropReason;
use crate::event::Event;
use crate::limits::{BLACK_HOLE_REPAIRS, MAX_GETS};
use crate::receiving::Placement;
use crate::request::RemotePlace;
use crate::sending::Sending;
use crate::span::Span;
use crate::time::Instant;
use crate::timers::Timer;
use crate::transfer::{Delivery, TransferId};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;
use zerolane_wire::{Flags, Get, Header, Operation};

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

impl Initiator {
    /// Sends a Get that one datagram can answer.
    pub(super) fn ask(&mut self, cx: &mut Context, id: TransferId, place: RemotePlace, span: Span) {
        let ask_at = cx.now + cx.recovery.patience();
        self.gets.push(PendingGet {
            id,
            place,
            span,
            after: self.send_queue.next_number(),
            ask_at,
            tries: 0,
        });
        self.send_question(cx, id);
        cx.timers.set_earlier(Timer::Memory, ask_at);
    }

    /// Sends, or repeats, the Get of question `id`.
    pub(super) fn send_question(&self, cx: &mut Context, id: TransferId) {
        let Some(&it) = self.gets.find(id) else {
            return;
        };
        let from = cx.wire_place(it.place);
        cx.push_control(Operation::Get(Get {
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
            trains: false,
        }));
    }

    /// Whether ungranted Data may come.
    pub(crate) fn awaits_answers(&self) -> bool {
        !self.gets.is_empty() || self.send_queue.awaits_values()
    }

    /// Takes ungranted Data: the answer to a single-datagram Get, or to a FetchOp. `None` if it is neither.
    pub(crate) fn on_answer(
        &mut self,
        cx: &mut Context,
        sending: &mut Sending,
        header: &Header,
        len: u32,
    ) -> Result<Option<Placement>, DropReason> {
        let (number, id) = (header.sync, header.d_id);
        if self.send_queue.awaits_value(number, id) {
            self.on_piggyback(cx, sending, header.param);
            return Ok((len == 8).then_some(Placement::Value { number, id }));
        }
        let Some(question) = self.gets.find(id) else {
            // A repeated value is no burst: its number is an operation's.
            return match header.flags.contains(Flags::MEMORY) {
                true => Err(DropReason::Duplicate),
                false => Ok(None),
            };
        };
        if u64::from(len) != question.span.len || header.bufx != 0 || header.offset != 0 {
            return Err(DropReason::OutOfBounds);
        }
        let span = question.span;
        self.gets.remove(id);
        cx.counters.bytes_received += span.len;
        cx.unnumbered += span.len;
        cx.owe(Debt::Progress);
        got(cx, id, span.len);
        cx.owe(Debt::Start);
        Ok(Some(Placement::Unannounced(span)))
    }
}

/// Reports that a Get is complete.
pub(super) fn got(cx: &mut Context, id: TransferId, length: u64) {
    let delivery = Delivery::Interrupt;
    cx.events.push_back(Event::Received {
        id,
        length,
        delivery,
    });
}
