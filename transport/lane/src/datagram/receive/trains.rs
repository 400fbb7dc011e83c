//! Assembles trains, payload with one header behind it, and tells what is expected next.
//!
//! Sealed trains, which only AEGIS-128X2 has, are assembled in one buffer. The buffer is reused, so the kernel's copy
//! stays in the cache. Decryption writes from it to the train's place, before the tag is checked: if the tag does not
//! match, the place has unspecified bytes, and nothing is reported. Plain trains land in place, by the forecast; see
//! [`super::landing`].

use super::Receiver;
use super::batch::{Batch, SPILL};
use super::dispatch::{Lives, is_operation, note_placed};
use super::layout::Message;
use super::predict::{forecast, predict_super_packet};
use super::unseal::Unsealer;
use crate::account::MoveCause;
use crate::arrival::is_of_frames;
use crate::lane::Turn;
use crate::memory::cleanup::Source;
use std::ops::Range;
use zerolane_core::{DropReason, Span};
use zerolane_wire::{Assembled, Assembler, DatagramPart, HEADER_LEN, Header, OPTIONS_LEN};

/// Keeps parts of trains until the rest arrives.
#[derive(Debug, Default)]
pub(super) struct TrainAssembler {
    pub(super) assembler: Assembler,
    /// The thread's room, for the length of a call. The connection keeps it while a part of a train is in it.
    pub(super) bytes: Box<[u8]>,
    /// The prediction for the next message.
    pub(super) expected: Expected,
    /// The train that is landing.
    pub(super) landing: Option<Landing>,
    /// Whether each datagram of the last payload had a header.
    pub(super) headers: bool,
}

/// Where the next message is predicted to belong, while trains may come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Expected {
    /// After the content of the buffer.
    #[default]
    Collected,
    /// In the place of its train.
    Landing,
    /// In pairs of header and place.
    Headers,
}

/// A train that lands in its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Landing {
    /// Its start, with the granted and missing bytes from there on: at most as much as a train may have.
    pub(super) place: Span,
    /// Bytes of it that arrived.
    pub(super) filled: usize,
    /// Bytes of each of its datagrams so far.
    pub(super) datagram: usize,
}

impl TrainAssembler {
    /// Takes the thread's room if trains are `expected` and the connection has none; if not expected, discards the
    /// content.
    pub(super) fn begin(&mut self, expected: bool, room: &mut Box<[u8]>) {
        if !expected {
            (self.assembler, self.landing) = (Assembler::default(), None);
            self.headers = false;
            self.end(room);
        } else if !self.has_buffer() {
            self.bytes = match room.is_empty() {
                true => vec![0; Assembler::BUFFER].into(),
                false => std::mem::take(room),
            };
        }
    }

    /// Returns the room to the thread if it is empty.
    pub(super) fn end(&mut self, room: &mut Box<[u8]>) {
        if self.has_buffer() && self.assembler.filled() == 0 {
            *room = std::mem::take(&mut self.bytes);
        }
    }

    /// Whether trains may come: the connection has the thread's room.
    pub(super) fn has_buffer(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Whether there is no part of a train, in the buffer or in place.
    pub(super) fn is_empty(&self) -> bool {
        self.assembler.filled() == 0 && self.landing.is_none_or(|it| it.filled == 0)
    }

    /// Predicts the next message, while trains may come: after the content of the buffer unless `lands`.
    pub(super) fn predict(
        &mut self,
        batch: &mut Batch,
        unsealer: &Unsealer,
        turn: &Turn<'_>,
        lands: bool,
    ) {
        if !lands || self.assembler.filled() > 0 {
            self.expected = Expected::Collected;
        } else {
            let forecast = forecast(turn.core);
            self.expected = self.expect(&forecast, batch, turn.memory);
            if self.expected == Expected::Headers {
                predict_super_packet(batch, &forecast, unsealer, turn.memory);
            }
        }
        if self.expected == Expected::Collected {
            let place = self.place();
            batch.push(place.as_mut_ptr(), place.len());
        }
    }

    /// Where the next collected message goes.
    pub(super) fn place(&mut self) -> &mut [u8] {
        let rest = &mut self.bytes[self.assembler.filled()..];
        let len = rest.len().min(SPILL);
        &mut rest[..len]
    }
}

impl Receiver {
    /// Delivers a message appended to a part of a train: operations, datagrams of trains, or both.
    pub(super) fn deliver_collected(&mut self, message: Message, turn: &mut Turn<'_>) {
        let Message {
            mut total, segment, ..
        } = message;
        let trains = &mut self.trains;
        let dispatcher = &mut self.buffers.dispatcher;
        let piece = &mut trains.place()[..total];
        let operations = piece.chunks(segment).filter(|it| is_operation(it, turn));
        match operations.count() {
            0 => trains.headers = false,
            count if count == message.segments() => {
                let is_payload = |it| Header::is_data(it) && segment > HEADER_LEN + OPTIONS_LEN;
                let headers = piece.first_chunk().is_some_and(is_payload);
                for datagram in piece.chunks_mut(segment) {
                    let cause = Some(MoveCause::Unexpected);
                    dispatcher.deliver_whole(datagram, cause, &mut self.unsealer, turn);
                }
                trains.headers |= headers;
                return;
            }
            _ => {
                total = dispatcher.take_operations(piece, segment, &mut self.unsealer, turn);
            }
        }
        let owns = |header: &Header| turn.core.owns(header);
        let (piece, check) = ((total, segment), self.unsealer.train_check());
        let assembled = trains.assembler.take(&trains.bytes, piece, check, owns);
        dispatcher.brought_payload |= !matches!(assembled, Assembled::Stray);
        match assembled {
            // A shorter datagram that ends no train was left out of it.
            Assembled::Part if total.is_multiple_of(segment) => {}
            Assembled::Part | Assembled::Stray => turn.core.on_dropped(DropReason::Malformed),
            Assembled::Incomplete => turn.core.on_spoiled_train(),
            Assembled::Train {
                header,
                payload,
                datagram,
            } => self.deliver_train((&header, payload, datagram), turn),
        }
    }

    /// Decrypts a buffered train into its place, or checks its digest and has it moved there. Shows it to the core.
    fn deliver_train(
        &mut self,
        (header, payload, datagram): (&Header, Range<usize>, u32),
        turn: &mut Turn<'_>,
    ) {
        // The datagrams before the payload belonged to no train, or to one that lost its end.
        for _ in 0..payload.start.div_ceil(datagram.max(1) as usize) {
            turn.core.on_dropped(DropReason::Malformed);
        }
        let behind = payload.end + usize::from(header.param);
        let (front, head) = self.trains.bytes.split_at_mut(behind);
        let payload = &mut front[payload];
        let Some((head, rest)) = head.split_first_chunk() else {
            return;
        };
        let unsealer = &mut self.unsealer;
        let check = &rest[..unsealer.train_check()];
        let has_frames = is_of_frames(header, turn);
        if has_frames || DatagramPart::is(header) {
            if let Err(reason) = unsealer.open_train(head, payload, check) {
                turn.core.on_dropped(reason);
                return turn.core.on_spoiled_train();
            }
            if has_frames {
                let datagrams = (payload.len() as u32).div_ceil(datagram.max(1));
                turn.core.on_frames_train(datagrams);
                self.buffers
                    .dispatcher
                    .deliver_frames(header, payload, Lives::ToEndOfBatch, turn);
            } else if let Ok(slot) = turn.core.on_datagram_train(turn.now, header) {
                turn.datagrams.store(slot, payload, turn.account);
            }
            return;
        }
        let claim = turn.core.claim_train(header);
        let into_place = match (check.try_into(), claim) {
            (Ok(trailer), Ok(claim)) => {
                unsealer.open_into_place(head, payload, trailer, claim.span(), turn.memory)
            }
            _ => None,
        };
        let is_in_place = into_place.is_some();
        let opened = into_place.unwrap_or_else(|| unsealer.open_train(head, payload, check));
        if let Err(reason) = opened {
            turn.core.on_dropped(reason);
            return turn.core.on_spoiled_train();
        }
        let claim = match claim {
            Ok(claim) => claim,
            Err(reason) => return turn.core.on_dropped(reason),
        };
        let (noted, span) = (
            turn.core.on_train(turn.now, header, claim, datagram),
            claim.span(),
        );
        if is_in_place || noted.is_err() {
            return note_placed(noted, span, turn);
        }
        // A mapped file, whose pages may be gone, or a plain train that did not land.
        let cause = match unsealer.can_open_in(turn.memory, span.region) {
            true => MoveCause::Unexpected,
            false => MoveCause::OpenedOutOfPlace,
        };
        turn.core.on_moved(span.len);
        let from = Some(Source::own(payload));
        self.buffers.dispatcher.push_move(from, span, cause, turn);
    }
}
