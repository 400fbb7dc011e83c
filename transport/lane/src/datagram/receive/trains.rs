//! Assembles trains, payload with one header behind it, and shows them to the core when they are complete and checked.
//!
//! Sealed trains, which only AEGIS-128X2 has, are assembled in one buffer. The buffer is reused, so the kernel's copy
//! stays in the cache. Decryption writes from it to the train's place, before the tag is checked: if the tag does not
//! match, the place has unspecified bytes, and nothing is reported. Plain trains land in place, by the forecast; see
//! [`super::landing`].

use super::Receiver;
use super::layout::Message;
use super::train_buffer::is_operation;
use crate::account::MoveCause;
use crate::lane::Turn;
use crate::memory::cleanup::Source;
use crate::seal::Trailer;
use std::ops::Range;
use zerolane_core::{Claim, DropReason, Span};
use zerolane_wire::{Assembled, Flags, HEADER_LEN, Header, OPTIONS_LEN, Op};

impl Receiver {
    /// Tells the core whether trains are accepted, when that has changed.
    pub(super) fn offer_trains(&mut self, strict: bool, turn: &mut Turn<'_>) {
        // A broken train is copied, which strict mode forbids.
        let lands = self.incoming.lands_trains() && !strict;
        let takes = self.wants_trains && self.merges && (lands || self.incoming.opens_trains());
        if takes != self.takes_trains {
            self.takes_trains = takes;
            turn.core.set_takes_trains(takes);
        }
    }

    /// Delivers a message appended to a part of a train: operations, datagrams of trains, or both.
    pub(super) fn deliver_collected(&mut self, message: Message, turn: &mut Turn<'_>) {
        let Message { total, segment, .. } = message;
        let (mut bytes, start) = self.trains.take_bytes();
        let piece = &mut bytes[start..start + total];
        let operations = piece.chunks(segment).filter(|it| is_operation(it, turn));
        match operations.count() {
            0 => {
                self.trains.expect_headers(false);
                self.assemble(&mut bytes, (total, segment), turn);
            }
            count if count == total.div_ceil(segment) => {
                let is_payload = |it| Header::is_data(it) && segment > HEADER_LEN + OPTIONS_LEN;
                if piece.first_chunk().is_some_and(is_payload) {
                    self.trains.expect_headers(true);
                }
                for datagram in piece.chunks_mut(segment) {
                    self.deliver_whole(datagram, Some(MoveCause::Unexpected), turn);
                }
            }
            _ => {
                let len = self.deliver_operations_of(piece, segment, turn);
                self.assemble(&mut bytes, (len, segment), turn);
            }
        }
        self.trains.put_back(bytes);
    }

    /// Takes the operations out of `piece`. Returns how many bytes are left at its start.
    fn deliver_operations_of(
        &mut self,
        piece: &mut [u8],
        segment: usize,
        turn: &mut Turn<'_>,
    ) -> usize {
        // Sources of moves stay there until the end of the batch.
        let mut copy = std::mem::take(&mut self.buffers.linear[0]);
        copy.clear();
        copy.extend_from_slice(piece);
        let mut left = 0;
        for datagram in copy.chunks_mut(segment) {
            if is_operation(datagram, turn) {
                self.deliver_whole(datagram, Some(MoveCause::Unexpected), turn);
            } else {
                piece[left..left + datagram.len()].copy_from_slice(datagram);
                left += datagram.len();
            }
        }
        self.buffers.linear[0] = copy;
        left
    }

    /// Delivers an operation that lies in one piece. Opens granted payload into its place if possible, and otherwise
    /// copies it, for `cause`.
    pub(super) fn deliver_whole(
        &mut self,
        datagram: &mut [u8],
        cause: Option<MoveCause>,
        turn: &mut Turn<'_>,
    ) {
        let len = datagram.len();
        if self.incoming.opens_trains()
            && let Some((head, rest)) = datagram.split_first_chunk()
            && let Some((payload, trailer)) = rest.split_last_chunk()
            && let Ok(header) = Header::parse(head)
            && header.op == Op::Data
            && !header.flags.contains(Flags::FRAMES)
            && let Ok(claim) = turn.core.claim(&header, payload.len() as u32)
            && let Some(opened) = self.open_into_place(head, payload, trailer, claim, turn)
        {
            match opened {
                Ok(()) => {
                    let stu = payload.len() as u32;
                    let noted = turn.core.on_placed(turn.now, &header, claim, stu);
                    self.note_placed(noted, claim, turn);
                }
                Err(reason) => turn.core.on_dropped(reason),
            }
        } else if let Some(opened) = self.unseal(datagram, turn) {
            self.deliver_opened(opened, len, cause, turn);
        }
    }

    /// Appends a piece of a train: `len` bytes in datagrams of `segment`.
    fn assemble(&mut self, bytes: &mut [u8], piece: (usize, usize), turn: &mut Turn<'_>) {
        let owns = |header: &Header| turn.core.owns(header);
        let check = self.incoming.train_check();
        match self.trains.assemble(bytes, piece, check, owns) {
            // A shorter datagram that ends no train was left out of it.
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
        // The datagrams before the payload belonged to no train, or to one that lost its end.
        for _ in 0..payload.start.div_ceil(datagram.max(1) as usize) {
            turn.core.on_dropped(DropReason::Malformed);
        }
        let behind = payload.end + usize::from(header.param);
        let (front, head) = bytes.split_at_mut(behind);
        let payload = &mut front[payload];
        let Some((head, rest)) = head.split_first_chunk() else {
            return;
        };
        let check = &rest[..self.incoming.train_check()];
        let claim = turn.core.claim_train(header);
        let into_place = match (check.try_into(), claim) {
            (Ok(trailer), Ok(claim)) => self.open_into_place(head, payload, trailer, claim, turn),
            _ => None,
        };
        let is_in_place = into_place.is_some();
        let opened = into_place.unwrap_or_else(|| self.incoming.open_train(head, payload, check));
        if let Err(reason) = opened {
            turn.core.on_dropped(reason);
            return turn.core.on_spoiled_train();
        }
        match claim {
            Ok(claim) => {
                let noted = turn.core.on_train(turn.now, header, claim, datagram);
                match is_in_place {
                    true => self.note_placed(noted, claim, turn),
                    false if noted.is_ok() => self.move_train(payload, claim.span(), turn),
                    false => {}
                }
            }
            Err(reason) => turn.core.on_dropped(reason),
        }
    }

    /// Copies a train that could not be opened into its place: a mapped file, whose pages may be gone.
    fn move_train(&mut self, payload: &[u8], span: Span, turn: &mut Turn<'_>) {
        let cause = match self.incoming.can_open_in(turn.memory, span.region) {
            true => MoveCause::Unexpected,
            false => MoveCause::OpenedOutOfPlace,
        };
        turn.core.on_moved(span.len);
        self.push_move(Some(Source::own(payload)), span, cause, turn);
    }

    /// Opens `payload` into its place. `None`: that memory is not of a kind that can be opened into.
    fn open_into_place(
        &mut self,
        head: &[u8; HEADER_LEN],
        payload: &[u8],
        trailer: &Trailer,
        claim: Claim,
        turn: &Turn<'_>,
    ) -> Option<Result<(), DropReason>> {
        let place = claim.span();
        if !self.incoming.opens_trains() || !self.incoming.can_open_in(turn.memory, place.region) {
            return None;
        }
        let to = turn.memory.target(place)?;
        // SAFETY: the registry has these bytes open for writing, for this turn. They are granted, and none of them was
        // reported. Others access exported memory atomically only; mapped files are not opened here; all other memory
        // is the lane's alone.
        Some(unsafe { self.incoming.open_into(head, payload, to, trailer) })
    }

    /// Counts payload that is in its place, if the core took it.
    pub(super) fn note_placed(
        &mut self,
        noted: Result<(), DropReason>,
        claim: Claim,
        turn: &mut Turn<'_>,
    ) {
        if noted.is_ok() {
            turn.account.bytes_placed += claim.span().len;
        }
    }
}
