//! Receives plain trains in place: the forecast says where the next one begins, and all arrivals go there, one after
//! the other.
//!
//! Its length need not be known. As long as the train is the next one, its payload is in place, and its end, after the
//! payload, tells the rest. Nothing of it is trusted before its digest was computed from the bytes in place. If a
//! message is not part of such a train, or only a part of the train landed, its bytes are taken out again and assembled
//! in the buffer.

use super::Receiver;
use super::batch::Batch;
use super::dispatch::{is_operation, note_placed};
use super::layout::Message;
use super::trains::{Expected, Landing, TrainAssembler};
use crate::lane::Turn;
use crate::memory::Registry;
use zerolane_core::limits::{LARGE_TRAIN, MIN_TRAIN};
use zerolane_core::{Forecast, Run};
use zerolane_wire::{DIGEST_LEN, HEADER_LEN, Header, MAX_TRAIN, Train};

/// Bytes of a train's end, without padding.
const END: usize = HEADER_LEN + DIGEST_LEN;

/// The end after the payload of a train that landed.
struct LandedEnd {
    bytes: [u8; END],
    header: Header,
    train: Train,
}

impl Landing {
    /// Reads landed bytes, from byte `at` of the train on.
    fn read(&self, at: usize, into: &mut [u8], batch: &Batch, memory: &Registry) -> bool {
        let place = self.place;
        let placed = place.len.saturating_sub(at as u64).min(into.len() as u64);
        let (first, rest) = into.split_at_mut(placed as usize);
        let spilled = (at as u64 + placed - place.len.min(at as u64 + placed)) as usize;
        rest.copy_from_slice(&batch.spill[spilled..][..rest.len()]);
        first.is_empty() || memory.read(place.part(at as u64, placed), first)
    }

    /// Reads the last of the first `all` bytes, if they are the end of a train.
    fn end(&self, all: usize, batch: &Batch, turn: &Turn<'_>) -> Option<LandedEnd> {
        let mut bytes = [0; END];
        let at = all.checked_sub(END)?;
        if !self.read(at, &mut bytes, batch, turn.memory) {
            return None;
        }
        let header = Header::parse(&bytes).ok()?;
        let train = Train::of(&header).ok()??;
        turn.core.owns(&header).then_some(LandedEnd {
            bytes,
            header,
            train,
        })
    }

    /// Whether `message`, which has no end, can be part of the train.
    fn takes(&self, message: Message, batch: &Batch, turn: &Turn<'_>) -> bool {
        let Message { total, segment, .. } = message;
        let fits = (self.filled + total) as u64 <= self.place.len;
        let continues = self.datagram == 0 || self.datagram == segment;
        let mut starts = (self.filled..self.filled + total).step_by(segment);
        total > 0
            && total.is_multiple_of(segment)
            && fits
            && continues
            && starts.all(|at| {
                let mut head = [0; HEADER_LEN];
                self.read(at, &mut head, batch, turn.memory) && !is_operation(&head, turn)
            })
    }

    /// Takes the train of this `end`, the last part of which is `message`, if all of it is in place. False if not.
    fn finish(&self, message: Message, end: &LandedEnd, turn: &mut Turn<'_>) -> bool {
        let LandedEnd {
            bytes,
            header,
            train,
        } = end;
        let Some((head, digest)) = bytes.split_first_chunk() else {
            return false;
        };
        let all = self.filled + message.total;
        let around = END + usize::from(train.padding);
        let Ok(claim) = turn.core.claim_train(header) else {
            return false;
        };
        let place = claim.span();
        let begins = (place.region, place.offset) == (self.place.region, self.place.offset);
        if !begins || all != train.len as usize + around {
            return false;
        }
        if turn.memory.digest(head, place).as_ref().map(|it| &it[..]) != Some(digest) {
            return false;
        }
        let datagram = message.segment.max(self.datagram) as u32;
        let noted = turn.core.on_train(turn.now, header, claim, datagram);
        note_placed(noted, place, turn);
        true
    }
}

impl TrainAssembler {
    /// The expectation while plain trains may come. Predicts a train that lands, if that is it.
    pub(super) fn expect(
        &mut self,
        forecast: &Forecast,
        batch: &mut Batch,
        memory: &Registry,
    ) -> Expected {
        let Some(next) = forecast.runs().next() else {
            return Expected::Collected;
        };
        let Some(run) = Some(next).filter(|it| it.trains && !self.headers) else {
            return Expected::Headers;
        };
        // The short rest of a Block is no train.
        let short =
            run.span.len <= u64::from(MIN_TRAIN * run.stu) && run.span.len < LARGE_TRAIN.into();
        let started = self.landing.is_some_and(|it| it.filled > 0);
        if short && !started {
            return Expected::Headers;
        }
        match self.predict_landing(run, batch, memory) {
            true => Expected::Landing,
            false => Expected::Collected,
        }
    }

    /// Predicts that the next message belongs to the train that is landing, or to one that begins where `run` does.
    /// False if `run` has no place.
    fn predict_landing(&mut self, run: Run, batch: &mut Batch, memory: &Registry) -> bool {
        let place = run.span.part(0, run.span.len.min(MAX_TRAIN.into()));
        // A train that was landing elsewhere is lost: its bytes came another way.
        let before = self.landing.take().filter(|it| it.place == place);
        let landing = before.unwrap_or(Landing {
            place,
            filled: 0,
            datagram: 0,
        });
        let filled = landing.filled as u64;
        let rest = place.part(filled, place.len - filled);
        let Some(start) = memory.prediction(rest) else {
            return false;
        };
        self.landing = Some(landing);
        batch.layouts[0].runs.push(Run { span: rest, ..run });
        batch.push(start, rest.len as usize);
        batch.push_spill(0);
        true
    }

    /// Takes over a part of a train that landed in place. False if the page of its place is gone.
    fn take_over(&mut self, landing: &Landing, check: usize, memory: &Registry) -> bool {
        let there = memory.read(landing.place, &mut self.bytes[..landing.filled]);
        if there {
            let piece = (landing.filled, landing.datagram);
            self.assembler.take(&self.bytes, piece, check, |_| false);
        }
        there
    }
}

impl Receiver {
    /// Delivers a message that was predicted to belong to the train that is landing.
    pub(super) fn deliver_landed(&mut self, message: Message, turn: &mut Turn<'_>) {
        let Some(landing) = self.trains.landing.take() else {
            return;
        };
        let batch = &self.buffers.batch;
        let all = landing.filled + message.total;
        let is_taken = match landing.end(all, batch, turn) {
            Some(end) => landing.finish(message, &end, turn),
            None if landing.takes(message, batch, turn) => {
                self.trains.landing = Some(Landing {
                    filled: all,
                    datagram: message.segment,
                    ..landing
                });
                true
            }
            None => false,
        };
        if is_taken {
            self.buffers.dispatcher.brought_payload = true;
            return;
        }
        // Takes the message out of its place, with the bytes that landed before it: they do not belong there.
        let check = self.unsealer.train_check();
        if landing.filled == 0 || self.trains.take_over(&landing, check, turn.memory) {
            self.collect(message, turn);
        }
    }

    /// Appends a message to the buffer, and delivers it from there.
    pub(super) fn collect(&mut self, message: Message, turn: &mut Turn<'_>) {
        let to = &mut self.trains.place()[..message.total];
        // Otherwise part of it landed in a page that is gone: treated as lost.
        if self.buffers.batch.linearize(message, turn.memory, to) {
            self.deliver_collected(message, turn);
        }
    }

    /// Whether each datagram of `message`, which fits the predicted pairs, begins with a header.
    pub(super) fn has_headers(&self, message: Message, turn: &Turn<'_>) -> bool {
        let slots = &self.buffers.batch.slots[..message.segments()];
        slots.iter().all(|it| is_operation(&it.header, turn))
    }
}
