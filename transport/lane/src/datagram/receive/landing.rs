//! Receives plain trains in place: the forecast says where the next one begins, and all arrivals go there, one after
//! the other.
//!
//! Its length need not be known. As long as the train is the next one, its payload is in place, and its end, after the
//! payload, tells the rest. Nothing of it is trusted before its digest was computed from the bytes in place. If a
//! message is not part of such a train, or only a part of the train landed, its bytes are taken out again and assembled
//! in the buffer.

use super::layout::Message;
use super::train_buffer::{Expected, Landing, is_operation};
use super::{Receiver, SPILL};
use crate::datagram::message::iovec;
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

impl Receiver {
    /// Whether arrivals, which may be trains, are assembled in the buffer, whatever their place.
    pub(super) fn is_collecting(&self) -> bool {
        !self.incoming.lands_trains() || !self.trains.is_empty()
    }

    /// The expectation while trains may come. Predicts a train that lands, if that is it.
    pub(super) fn expect(&mut self, forecast: &Forecast, memory: &Registry) -> Expected {
        if self.is_collecting() {
            return Expected::Collected;
        }
        let next = forecast.runs().next().filter(|run| run.trains);
        let Some(run) = next.filter(|_| !self.trains.expects_headers()) else {
            return Expected::Headers;
        };
        // The short rest of a Block is no train.
        let short =
            run.span.len <= u64::from(MIN_TRAIN * run.stu) && run.span.len < LARGE_TRAIN.into();
        let started = self.trains.landing.is_some_and(|it| it.filled > 0);
        if short && !started {
            return Expected::Headers;
        }
        match self.predict_landing(run, memory) {
            true => Expected::Landing,
            false => Expected::Collected,
        }
    }

    /// Predicts that the next message belongs to the train that is landing, or to one that begins where `run` does.
    /// False if `run` has no place.
    fn predict_landing(&mut self, run: Run, memory: &Registry) -> bool {
        let before = self.trains.landing.take();
        let place = run.span.part(0, run.span.len.min(MAX_TRAIN.into()));
        // A train that was landing elsewhere is lost: its bytes came another way.
        let landing = before.filter(|it| it.place == place).unwrap_or(Landing {
            place,
            filled: 0,
            datagram: 0,
        });
        let rest = landing.rest();
        let Some(start) = memory.prediction(rest) else {
            return false;
        };
        self.trains.landing = Some(landing);
        self.buffers.layouts[0].runs.push(Run { span: rest, ..run });
        let spill = self.buffers.spill.as_mut_ptr();
        self.buffers.iovs.push(iovec(start, rest.len as usize));
        self.buffers.iovs.push(iovec(spill, SPILL));
        true
    }

    /// Delivers a message that was predicted to belong to the train that is landing.
    pub(super) fn deliver_landed(&mut self, message: Message, turn: &mut Turn<'_>) {
        let Some(landing) = self.trains.landing.take() else {
            return;
        };
        let all = landing.filled + message.total;
        match self.landed_end(&landing, all, turn) {
            Some(end) if self.take_landed_train(&landing, message, &end, turn) => {}
            None if self.is_part(&landing, message, turn) => {
                self.trains.landing = Some(Landing {
                    filled: all,
                    datagram: message.segment,
                    ..landing
                });
            }
            _ => self.take_out(&landing, message, turn),
        }
    }

    /// Reads the last of the first `all` bytes, if they are the end of a train.
    fn landed_end(&self, landing: &Landing, all: usize, turn: &Turn<'_>) -> Option<LandedEnd> {
        let mut bytes = [0; END];
        let at = all.checked_sub(END)?;
        if !self.read_landed(landing, at, &mut bytes, turn.memory) {
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

    /// Takes the train of this `end`, if all of it is in place. False if not.
    fn take_landed_train(
        &mut self,
        landing: &Landing,
        message: Message,
        end: &LandedEnd,
        turn: &mut Turn<'_>,
    ) -> bool {
        let LandedEnd {
            bytes,
            header,
            train,
        } = end;
        let Some((head, digest)) = bytes.split_first_chunk() else {
            return false;
        };
        let all = landing.filled + message.total;
        let around = END + usize::from(train.padding);
        let Ok(claim) = turn.core.claim_train(header) else {
            return false;
        };
        let place = claim.span();
        let begins = (place.region, place.offset) == (landing.place.region, landing.place.offset);
        if !begins || all != train.len as usize + around {
            return false;
        }
        if turn.memory.digest(head, place).as_ref().map(|it| &it[..]) != Some(digest) {
            return false;
        }
        let datagram = message.segment.max(landing.datagram) as u32;
        let noted = turn.core.on_train(turn.now, header, claim, datagram);
        self.note_placed(noted, claim, turn);
        true
    }

    /// Whether `message`, which has no end, can be part of the train that is landing.
    fn is_part(&self, landing: &Landing, message: Message, turn: &Turn<'_>) -> bool {
        let Message { total, segment, .. } = message;
        let fits = (landing.filled + total) as u64 <= landing.place.len;
        let continues = landing.datagram == 0 || landing.datagram == segment;
        let mut starts = (landing.filled..landing.filled + total).step_by(segment);
        total > 0
            && total.is_multiple_of(segment)
            && fits
            && continues
            && starts.all(|at| {
                let mut head = [0; HEADER_LEN];
                self.read_landed(landing, at, &mut head, turn.memory) && !is_operation(&head, turn)
            })
    }

    /// Reads landed bytes, from byte `at` of the train on.
    fn read_landed(
        &self,
        landing: &Landing,
        at: usize,
        into: &mut [u8],
        memory: &Registry,
    ) -> bool {
        let place = landing.place;
        let placed = place.len.saturating_sub(at as u64).min(into.len() as u64);
        let (first, rest) = into.split_at_mut(placed as usize);
        let spilled = (at as u64 + placed - place.len.min(at as u64 + placed)) as usize;
        rest.copy_from_slice(&self.buffers.spill[spilled..][..rest.len()]);
        first.is_empty() || memory.read(place.part(at as u64, placed), first)
    }

    /// Takes the message out of its place, with the bytes that landed before it, because they do not belong there.
    fn take_out(&mut self, landing: &Landing, message: Message, turn: &mut Turn<'_>) {
        let Landing {
            place,
            filled,
            datagram,
        } = *landing;
        let check = self.incoming.train_check();
        let memory = turn.memory;
        let read = |bytes: &mut [u8]| memory.read(place, bytes);
        if filled == 0 || self.trains.take_over((filled, datagram), check, read) {
            self.collect(message, turn);
        }
    }

    /// Appends a message to the buffer, and delivers it from there.
    pub(super) fn collect(&mut self, message: Message, turn: &mut Turn<'_>) {
        let (mut bytes, at) = self.trains.take_bytes();
        // Otherwise part of it landed in a page that is gone: treated as lost.
        let there = self.linearize(message, turn.memory, &mut bytes[at..at + message.total]);
        self.trains.put_back(bytes);
        if there {
            self.deliver_collected(message, turn);
        }
    }

    /// Whether each datagram of `message`, which fits the predicted pairs, begins with a header.
    pub(super) fn has_headers(&self, message: Message, turn: &Turn<'_>) -> bool {
        let slots = &self.buffers.slots[..message.segments()];
        slots.iter().all(|it| is_operation(&it.header, turn))
    }
}
