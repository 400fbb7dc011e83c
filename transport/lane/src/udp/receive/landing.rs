//! Plain trains, which land where they belong: the forecast says where the next one begins, and all that comes goes there
//! and behind it.
//!
//! How long it is need not be known: as long as it is the next, its payload is where it belongs, and its end, which lies
//! behind that, says the rest. Nothing of it is believed before its digest was made of the bytes in their place. What is no
//! such train is taken out again and put together in the buffer, as is one of which a part landed and the rest did not.

use super::layout::Message;
use super::train_buffer::{Expected, Landing, is_operation};
use super::{Receiver, SPILL};
use crate::udp::send::iovec;
use crate::{Registry, Turn};
use zerolane_core::limits::{LARGE_TRAIN, MIN_TRAIN};
use zerolane_core::{Forecast, Run};
use zerolane_wire::{DIGEST_LEN, HEADER_LEN, Header, MAX_TRAIN, Train};

/// Bytes of a train's end, padding aside.
const END: usize = HEADER_LEN + DIGEST_LEN;

/// What stands behind the payload of a train that landed.
struct LandedEnd {
    bytes: [u8; END],
    header: Header,
    train: Train,
}

impl Receiver {
    /// Whether what comes while trains may come is put together apart, wherever it belongs.
    pub(super) fn is_collecting(&self) -> bool {
        !self.incoming.lands_trains() || !self.trains.is_empty()
    }

    /// What is expected while trains may come; a prediction of one that lands is made.
    pub(super) fn expect(&mut self, forecast: &Forecast, memory: &Registry) -> Expected {
        if self.is_collecting() {
            return Expected::Collected;
        }
        let next = forecast.runs().next().filter(|run| run.trains);
        let Some(run) = next.filter(|_| !self.trains.expects_headers()) else {
            return Expected::Headers;
        };
        // What is left of a Block is no train if it is short.
        let short =
            run.span.len <= u64::from(MIN_TRAIN * run.stu) && run.span.len < LARGE_TRAIN.into();
        let begun = self.trains.landing.is_some_and(|it| it.filled > 0);
        if short && !begun {
            return Expected::Headers;
        }
        match self.predict_landing(run, memory) {
            true => Expected::Landing,
            false => Expected::Collected,
        }
    }

    /// Predicts that the next message belongs to the train that is landing, or to one that begins where `run` does. False
    /// if that has no place.
    fn predict_landing(&mut self, run: Run, memory: &Registry) -> bool {
        let before = self.trains.landing.take();
        let place = run.span.part(0, run.span.len.min(MAX_TRAIN.into()));
        // What was landing elsewhere is lost: it came by other ways.
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

    /// A message that was predicted to be of the train that is landing.
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

    /// The last bytes of the first `all`, if they are the end of a train, and what they say.
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

    /// Takes the train of this `end`, if all of it is where it belongs. False if it is not.
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
        let place = turn.core.place_of(&Train::data(header), train.len);
        let Some(place) = place.filter(|it| {
            let begins = (it.region, it.offset) == (landing.place.region, landing.place.offset);
            begins && all == train.len as usize + around
        }) else {
            return false;
        };
        if turn.memory.digest(head, place).as_ref().map(|it| &it[..]) != Some(digest) {
            return false;
        }
        let datagram = message.segment.max(landing.datagram) as u32;
        let placement = turn.core.on_train(turn.now, header, datagram, Some(place));
        self.note_placed(placement, place, turn);
        true
    }

    /// Whether `message`, which has no end, is part of the train that is landing, so far as can be told.
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

    /// Reads what landed, from byte `at` of the train on.
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

    /// Takes out of its place what does not belong there, with what landed before it.
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

    /// Puts a message behind what the buffer has, and delivers it from there.
    pub(super) fn collect(&mut self, message: Message, turn: &mut Turn<'_>) {
        let (mut bytes, at) = self.trains.take_bytes();
        // Else part of it landed in a page that is gone already: as if lost.
        let there = self.linearize(message, turn.memory, &mut bytes[at..at + message.total]);
        self.trains.put_back(bytes);
        if there {
            self.deliver_collected(message, turn);
        }
    }

    /// Whether each datagram of `message`, which fits the pairs predicted, has a header in front.
    pub(super) fn has_headers(&self, message: Message, turn: &Turn<'_>) -> bool {
        let slots = &self.buffers.slots[..message.segments()];
        slots.iter().all(|it| is_operation(&it.header, turn))
    }
}
