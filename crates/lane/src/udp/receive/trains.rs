//! Trains: payload without headers, put together in one buffer and opened from there into its place.
//!
//! The buffer is used over and over, so the kernel's copy ends in the cache, and the pass that opens the train is the
//! one that writes its place: nothing is written there before the peer sealed it, and nothing is copied twice.

use super::deliver::Message;
use super::{Receiver, SINGLES, SPILL};
use crate::cleanup::Source;
use crate::seal::{TRAILER_LEN, Trailer};
use crate::{MoveCause, Turn};
use std::ops::Range;
use zerolane_core::{DropReason, Placement, Span};
use zerolane_wire::{Assembled, Assembler, Flags, HEADER_LEN, Header, Op, Train};

/// Where a connection's trains are put together.
#[derive(Debug, Default)]
pub(super) struct TrainBuffer {
    assembler: Assembler,
    /// The thread's, for the length of a call; the connection's own as long as there is a part of a train in it.
    bytes: Box<[u8]>,
}

impl TrainBuffer {
    /// Takes the thread's room if trains are `expected` and none is at hand; forgets what is there if not.
    pub(super) fn begin(&mut self, expected: bool, room: &mut Box<[u8]>) {
        if !expected {
            self.assembler = Assembler::default();
            self.end(room);
        } else if !self.is_lent() {
            self.bytes = match room.is_empty() {
                true => vec![0; Assembler::BUFFER].into(),
                false => std::mem::take(room),
            };
        }
    }

    /// Leaves the room to the thread's other connections, if there is nothing in it.
    pub(super) fn end(&mut self, room: &mut Box<[u8]>) {
        if self.is_lent() && self.assembler.filled() == 0 {
            *room = std::mem::take(&mut self.bytes);
        }
    }

    /// Whether what comes goes here.
    pub(super) fn is_lent(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Where the next message goes.
    pub(super) fn place(&mut self) -> &mut [u8] {
        let rest = &mut self.bytes[self.assembler.filled()..];
        let len = rest.len().min(SPILL);
        &mut rest[..len]
    }
}

impl Receiver {
    /// Tells the core whether trains are taken, when that has changed.
    pub(super) fn offer_trains(&mut self, turn: &mut Turn<'_>) {
        self.merges &= self.singles < SINGLES;
        let takes = self.merges && self.incoming.opens_trains();
        if takes != self.takes_trains {
            self.takes_trains = takes;
            turn.core.set_takes_trains(takes);
        }
    }

    /// A message that lies behind what is there of a train: operations, datagrams of trains, or both.
    pub(super) fn deliver_collected(&mut self, message: Message, turn: &mut Turn<'_>) {
        let Message { total, segment, .. } = message;
        let start = self.trains.assembler.filled();
        let mut bytes = std::mem::take(&mut self.trains.bytes);
        let piece = &mut bytes[start..start + total];
        let operations = piece.chunks(segment).filter(|it| is_operation(it, turn));
        match operations.count() {
            0 => self.assemble(&mut bytes, (total, segment), turn),
            count if count == total.div_ceil(segment) => {
                for datagram in piece.chunks_mut(segment) {
                    self.deliver_whole(datagram, turn);
                }
            }
            _ => {
                let len = self.deliver_operations_of(piece, segment, turn);
                self.assemble(&mut bytes, (len, segment), turn);
            }
        }
        self.trains.bytes = bytes;
    }

    /// Takes the operations out of `piece`. How many bytes are left at its start.
    fn deliver_operations_of(
        &mut self,
        piece: &mut [u8],
        segment: usize,
        turn: &mut Turn<'_>,
    ) -> usize {
        // What is moved from there stays until the end of the batch.
        let mut copy = std::mem::take(&mut self.buffers.linear[0]);
        copy.clear();
        copy.extend_from_slice(piece);
        let mut left = 0;
        for datagram in copy.chunks_mut(segment) {
            if is_operation(datagram, turn) {
                self.deliver_whole(datagram, turn);
            } else {
                piece[left..left + datagram.len()].copy_from_slice(datagram);
                left += datagram.len();
            }
        }
        self.buffers.linear[0] = copy;
        left
    }

    /// An operation that lies in one piece. Payload that was granted is opened into its place.
    fn deliver_whole(&mut self, datagram: &mut [u8], turn: &mut Turn<'_>) {
        let len = datagram.len();
        if let Some((head, rest)) = datagram.split_first_chunk()
            && let Some((payload, trailer)) = rest.split_last_chunk()
            && let Ok(header) = Header::parse(head)
            && header.op == Op::Data
            && !header.flags.contains(Flags::FRAMES)
            && let Some(opened) = self.open_into_place((head, &header), payload, trailer, turn)
        {
            match opened {
                Ok(place) => {
                    let len = payload.len() as u32;
                    let now = turn.now;
                    let placement = turn.core.on_data(now, &header, len, len, Some(place));
                    self.note_placed(placement, place, turn);
                }
                Err(reason) => turn.core.on_dropped(reason),
            }
        } else if let Some(opened) = self.unseal(datagram, turn) {
            self.deliver_opened(opened, len, MoveCause::Unexpected, turn);
        }
    }

    /// A piece of a train: `len` bytes behind what is there, in datagrams of `segment`.
    fn assemble(&mut self, bytes: &mut [u8], piece: (usize, usize), turn: &mut Turn<'_>) {
        let owns = |header: &Header| turn.core.owns(header);
        match self.trains.assembler.take(bytes, piece, TRAILER_LEN, owns) {
            // A shorter one that ends no train was left out of it.
            Assembled::Part if piece.0.is_multiple_of(piece.1) => {}
            Assembled::Part | Assembled::Stray => turn.core.on_dropped(DropReason::Malformed),
            Assembled::Incomplete => turn.core.on_spoiled_train(),
            Assembled::Train {
                header,
                payload,
                datagram,
            } => self.deliver_train(bytes, &header, payload, datagram, turn),
        }
    }

    fn deliver_train(
        &mut self,
        bytes: &mut [u8],
        header: &Header,
        payload: Range<usize>,
        datagram: u32,
        turn: &mut Turn<'_>,
    ) {
        let behind = payload.end + usize::from(header.param);
        let (front, head) = bytes.split_at_mut(behind);
        let payload = &mut front[payload];
        let Some((head, rest)) = head.split_first_chunk() else {
            return;
        };
        let Some(trailer) = rest.first_chunk() else {
            return;
        };
        let data = Train::data(header);
        let opened = match self.open_into_place((head, &data), payload, trailer, turn) {
            Some(opened) => opened.map(|place| {
                let placement = turn.core.on_train(turn.now, header, datagram, Some(place));
                self.note_placed(placement, place, turn);
            }),
            None => {
                let opened = self.incoming.open(head, payload, trailer);
                opened.map(|()| self.move_train(header, payload, datagram, turn))
            }
        };
        if let Err(reason) = opened {
            turn.core.on_dropped(reason);
            turn.core.on_spoiled_train();
        }
    }

    /// A train that could not be opened into its place: a mapped file's, whose pages may be gone.
    fn move_train(&mut self, header: &Header, payload: &[u8], datagram: u32, turn: &mut Turn<'_>) {
        if let Placement::Move(span) = turn.core.on_train(turn.now, header, datagram, None) {
            let cause = match self.incoming.can_open_in(turn.memory, span.region) {
                true => MoveCause::Unexpected,
                false => MoveCause::OpenedApart,
            };
            self.push_move(Some(Source::own(payload)), span, cause, turn);
        }
    }

    /// Opens `payload` into its place, if that was granted, none of it is there yet, and it can be. Where that is.
    fn open_into_place(
        &mut self,
        (head, header): (&[u8; HEADER_LEN], &Header),
        payload: &[u8],
        trailer: &Trailer,
        turn: &Turn<'_>,
    ) -> Option<Result<Span, DropReason>> {
        let place = turn.core.place_of(header, payload.len() as u32)?;
        if !self.incoming.opens_trains() || !self.incoming.can_open_in(turn.memory, place.region) {
            return None;
        }
        let to = turn.memory.target(place)?;
        // SAFETY: the registry has these bytes open for writing, for this turn. They are granted, and none of them was
        // reported. Exported memory is touched by others with atomic accesses alone; a mapped file is not opened
        // here; the rest is the lane's.
        let opened = unsafe { self.incoming.open_into(head, payload, to, trailer) };
        Some(opened.map(|()| place))
    }

    /// What the core says of payload that was opened into `place`.
    fn note_placed(&mut self, placement: Placement, place: Span, turn: &mut Turn<'_>) {
        debug_assert!(matches!(placement, Placement::InPlace | Placement::Drop(_)));
        if placement == Placement::InPlace {
            turn.account.bytes_placed += place.len;
        }
    }
}

/// Whether a datagram has a header of this connection in front: all others are parts of trains, or nothing. A message
/// of the key exchange, which has none, is late: what was granted under its keys comes already.
fn is_operation(datagram: &[u8], turn: &Turn<'_>) -> bool {
    let ours = |it: Header| turn.core.owns(&it) && Train::of(&it) == Ok(None);
    Header::parse(datagram).is_ok_and(ours)
}
