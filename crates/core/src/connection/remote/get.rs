//! Gets: of one datagram, which are questions, and longer ones, which grant themselves.

use crate::connection::Connection;
use crate::gets::Question;
use crate::inbound::Origin;
use crate::timers::Timer;
use crate::transmit::split;
use crate::{Delivery, DropReason, Event, Instant, Placement, RemotePlace, Span, TransferId};
use zerolane_wire::{Get, Header, Operation, Profile, Range};

impl Connection {
    pub(super) fn start_get(
        &mut self,
        now: Instant,
        id: TransferId,
        place: RemotePlace,
        span: Span,
    ) {
        let after = self.memory.stream.next_number();
        if !self.is_short(span.len) {
            self.inbox.begin_got(id, span, place, after);
            return self.grant(now);
        }
        let ask_at = now + self.recovery.patience();
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
    pub(super) fn ask_question(&mut self, id: TransferId) {
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
    pub(in crate::connection) fn get_block(&self, sequence: u32) -> Option<Get> {
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

    /// Gets again what is missing of a Block. Where nothing of it came, the Get itself may not have been
    /// heard, or not yet obeyed: that is no payload lost.
    pub(in crate::connection) fn get_ranges(&mut self, sequence: u32, missing: &[Range]) {
        let block = self.inbox.grants.get(sequence);
        let repeated = block.is_some_and(|block| block.reached > 0);
        for &range in missing {
            if let Some(get) = self.get_part(sequence, range) {
                self.counters.reports_sent += 1;
                self.push_control(Operation::Get(Get { repeated, ..get }));
            }
        }
    }

    /// Data that answers a Get of one datagram, or a FetchOp. `None` if it does neither.
    pub(in crate::connection) fn on_reply(
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
        self.note_obeyed(now);
        self.got(id, span.len);
        self.start_works(now);
        Ok(Some(Placement::Unannounced(span)))
    }

    pub(super) fn got(&mut self, id: TransferId, length: u64) {
        let delivery = Delivery::Interrupt;
        self.events.push_back(Event::Received {
            id,
            length,
            delivery,
        });
    }
}
