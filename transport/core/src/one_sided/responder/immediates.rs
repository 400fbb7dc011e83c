//! Shows each immediate of the peer's puts once, when its put and all earlier operations are placed.

use super::exports::Named;
use super::sequence::NotReady;
use super::serve::Nak;
use super::{Continued, LastPut, Responder};
use crate::context::{Context, Debt, Refusal};
use crate::event::Event;
use crate::limits::{MAX_EAGER_PUT, MAX_UNREAD};
use crate::receiving::{InboundState, Origin, Placement, Receiving};
use crate::request::RemoteRegion;
use crate::span::Span;
use alloc::collections::VecDeque;
use zerolane_wire::{Header, Immediate, Place, RequestToSend, Rights};

/// The immediate of a put that is announced and pending, or that follows a pending operation.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    /// Number of its announcement; for a numbered operation, of the first announcement behind it.
    sequence: u32,
    immediate: Immediate,
    /// The region that its put writes.
    region: RemoteRegion,
    /// Bytes of its put.
    length: u64,
    /// It is announced, not numbered.
    announced: bool,
    /// All of the put arrived.
    placed: bool,
}

/// All immediates not yet shown, in the order of their announcements.
#[derive(Clone, Debug, Default)]
pub(super) struct Immediates {
    list: VecDeque<Awaited>,
}

impl Immediates {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The put of announcement `sequence`, of `length` bytes into `region`, is being received. It carries `immediate`.
    pub(super) fn push(
        &mut self,
        sequence: u32,
        immediate: Immediate,
        region: RemoteRegion,
        length: u64,
    ) {
        let follows =
            |it: &Awaited| (1..=u32::MAX / 2).contains(&it.sequence.wrapping_sub(sequence));
        let index = self.list.iter().position(follows);
        let awaited = Awaited {
            sequence,
            immediate,
            region,
            length,
            announced: true,
            placed: false,
        };
        self.list.insert(index.unwrap_or(self.list.len()), awaited);
    }

    /// Whether any of these was posted before numbered operation `number`, which carries an immediate.
    pub(super) fn precede(&self, number: u32) -> bool {
        self.behind(number) > 0
    }

    /// Numbered operation `number`, which carries the immediate `value` of `put`, was executed. The immediate is shown
    /// behind those that precede it, and if `announced` is set, after all puts announced before that number.
    pub(super) fn push_numbered(
        &mut self,
        number: u32,
        value: u32,
        put: &LastPut,
        announced: Option<u32>,
    ) {
        let index = self.behind(number);
        let before = index.checked_sub(1).and_then(|it| self.list.get(it));
        let behind = before.map(|it| it.sequence.wrapping_add(it.announced.into()));
        let awaited = Awaited {
            sequence: announced.or(behind).unwrap_or_default(),
            immediate: Immediate {
                value,
                after: number,
            },
            region: put.region,
            length: put.placed,
            announced: false,
            placed: true,
        };
        self.list.insert(index, awaited);
    }

    /// How many precede numbered operation `number`.
    fn behind(&self, number: u32) -> usize {
        let before = |it: &&Awaited| number.wrapping_sub(it.immediate.after) <= u32::MAX / 2;
        self.list.iter().take_while(before).count()
    }

    /// Updates which puts are over. Must be called before the slots of finished puts are reused.
    pub(super) fn update(&mut self, receiving: &Receiving) {
        self.list.retain_mut(|it| {
            let state = match it.placed {
                true => return true,
                false => receiving.state_of_announcement(it.sequence),
            };
            it.placed = state == Some(InboundState::Complete);
            it.placed || state == Some(InboundState::Receiving)
        });
    }

    /// Removes and returns the next immediate that may be shown. The peer's operations below `executed` were executed.
    pub(super) fn take(&mut self, receiving: &Receiving, executed: u32) -> Option<Event> {
        let it = self.list.front().filter(|it| it.placed)?;
        let follows = it.immediate.after.wrapping_sub(executed).wrapping_sub(1) <= u32::MAX / 2;
        if follows || !receiving.are_puts_over_before(it.sequence) {
            return None;
        }
        let it = self.list.pop_front()?;
        Some(Event::Immediate {
            value: it.immediate.value,
            region: it.region,
            length: it.length,
        })
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
    }
}

/// Announced puts, and the immediates of all.
impl Responder {
    /// Takes an announced put: receives it at once if the rights permit and there is room for its immediate.
    pub(crate) fn on_put_announced(
        &mut self,
        cx: &mut Context,
        receiving: &mut Receiving,
        place: Place,
        immediate: Option<Immediate>,
        rts: &RequestToSend,
    ) {
        cx.owe(Debt::Match);
        let named = Named {
            handle: place.handle,
            mx: place.mx,
            bufx: place.bufx,
            offset: place.offset,
        };
        if self.defers {
            self.puts_wait = true;
            return cx.answer_later(rts.s_id);
        }
        let (len, log2) = (rts.length, cx.buffer_log2());
        if len <= MAX_EAGER_PUT {
            self.note_bytes(cx, len);
        }
        let (span, region) = match self.exports.check(named, len, Rights::WRITE, log2) {
            Ok(checked) => checked,
            Err(reason) => {
                cx.owe(Debt::Show);
                return receiving.refuse_announcement(cx, rts, Refusal::because(reason));
            }
        };
        if let Some(immediate) = immediate {
            if !self.has_room_to_show(cx) {
                self.puts_wait = true;
                return cx.answer_later(rts.s_id);
            }
            let length = rts.length;
            self.immediates
                .push(rts.sequence, immediate, region, length);
        }
        let (id, origin) = (cx.new_id(), Origin::Region(place.handle));
        receiving.begin(cx, id, span, rts, origin);
    }

    /// Whether another immediate can be stored until its put is placed. Numbered operations may use less room, so that
    /// announced puts never wait for operations that wait for them.
    fn has_room_to_show(&self, cx: &Context) -> bool {
        !self.defers && cx.events.len() + self.unread + self.immediates.len() < MAX_UNREAD
    }

    /// Receives waiting puts as far as there is room for their immediates.
    pub(super) fn receive_waiting(&mut self, cx: &mut Context, receiving: &mut Receiving) {
        while self.puts_wait && self.has_room_to_show(cx) {
            match receiving.waiting_put() {
                Some((place, immediate, rts)) => {
                    self.on_put_announced(cx, receiving, place, immediate, &rts);
                }
                None => self.puts_wait = false,
            }
        }
    }

    /// Shows the immediates of placed puts, in order.
    pub(crate) fn show_immediates(&mut self, cx: &mut Context, receiving: &Receiving) {
        self.immediates.update(receiving);
        let executed = self.sequence.expected();
        while let Some(shown) = self.immediates.take(receiving, executed) {
            cx.events.push_back(shown);
        }
    }

    /// The immediate of the put before it, which follows puts that are Transfers.
    pub(super) fn take_immediate(
        &mut self,
        cx: &mut Context,
        receiving: &Receiving,
        header: &Header,
    ) -> Result<Placement, Nak> {
        let announced = header.bufx;
        let waits =
            self.immediates.precede(header.sync) || !receiving.are_puts_over_before(announced);
        // Otherwise that put was cancelled.
        if let Continued::Put(put) = self.continued
            && put.rest == 0
        {
            self.show(cx, header, &put, waits, Some(announced))?;
        }
        Ok(Placement::Store(Span::EMPTY))
    }

    /// Shows the immediate of `put`, which a numbered operation carries, now or, if it `waits`, behind the puts that it
    /// follows.
    pub(super) fn show(
        &mut self,
        cx: &mut Context,
        header: &Header,
        put: &LastPut,
        waits: bool,
        announced: Option<u32>,
    ) -> Result<(), Nak> {
        let (number, value) = (header.sync, header.b_num);
        if self.is_unread(cx) || waits && !self.has_room_to_show(cx) {
            return Err(Nak::NotReady(NotReady::Room));
        }
        match waits {
            true => self.immediates.push_numbered(number, value, put, announced),
            false => cx.events.push_back(Event::Immediate {
                value,
                region: put.region,
                length: put.placed,
            }),
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "immediates_tests.rs"]
mod tests;
