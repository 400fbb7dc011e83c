//! Shows received operations to the core, and takes payload to the place that the core names.

use super::batch::Slot;
use super::unseal::Unsealer;
use crate::account::{Account, MoveCause};
use crate::arrival::{self, CONTROL_DATAGRAM, checksum_holds, deliver_operation, is_of_frames};
use crate::error::LaneError;
use crate::lane::Turn;
use crate::memory::cleanup::{self, Move, Source};
use crate::socket::MAX_MESSAGES;
use zerolane_core::{DropReason, Placement, RegionId, Span};
use zerolane_wire::{Flags, Frames, HEADER_LEN, Header, Op, Train, checksum::Sum};

/// How long bytes outside of any place remain valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lives {
    /// Until the whole batch is delivered and moved.
    ToEndOfBatch,
    /// Until the call returns.
    Now,
}

/// STUs with consecutive headers, shown to the core as one.
pub(super) struct Group {
    first: Header,
    /// Slot of the last header.
    last_slot: usize,
    stu: u32,
    last_len: u32,
    landed: Span,
}

impl Group {
    pub(super) fn of(header: &[u8; HEADER_LEN], slot: usize, landed: Span) -> Option<Group> {
        let len = landed.len as u32;
        Some(Group {
            first: Header::parse(header).ok()?,
            last_slot: slot,
            stu: len,
            last_len: len,
            landed,
        })
    }

    /// Whether the header in `slot` continues it.
    pub(super) fn is_continued(&self, slot: usize, slots: &[Slot]) -> bool {
        let last = &slots[self.last_slot].header;
        Header::continues(last, self.last_len, &slots[slot].header)
    }

    /// Appends the `landed` payload of the header in `slot`.
    pub(super) fn append(&mut self, slot: usize, landed: Span) {
        (self.last_slot, self.last_len) = (slot, landed.len as u32);
        self.landed.len += landed.len;
    }
}

/// The results of one batch: nothing of them is left when it ends.
#[derive(Debug, Default)]
pub(super) struct Dispatcher {
    moves: Vec<Move>,
    /// Bytes to move that were granted, so a forecast could have placed them.
    missed: usize,
    /// A region whose memory was found to be gone.
    fault: Option<RegionId>,
    /// The message brought payload, or a part of a train.
    pub(super) brought_payload: bool,
    /// Linear copies of messages that did not fit the prediction, allocated when needed. Sources of moves stay here
    /// until the end of the batch.
    pub(super) linear: Vec<Vec<u8>>,
    /// A put or a control operation that landed where other bytes were predicted.
    copy: Vec<u8>,
}

impl Dispatcher {
    pub(super) fn allocate() -> Dispatcher {
        Dispatcher {
            linear: vec![Vec::new(); MAX_MESSAGES],
            ..Dispatcher::default()
        }
    }

    /// Counts a call that received, by what it brought.
    pub(super) fn count_call(&mut self, account: &mut Account) {
        match std::mem::take(&mut self.brought_payload) {
            true => account.rx_data_syscalls += 1,
            false => account.rx_control_syscalls += 1,
        }
    }

    /// Moves misplaced payload. In strict mode this is the last step if any of it was granted: bytes reported complete
    /// by then are right, and the connection ends.
    pub(super) fn finish(&mut self, strict: bool) -> Result<(), LaneError> {
        self.brought_payload = false;
        let bytes = std::mem::take(&mut self.missed);
        // SAFETY: sources are places, or linear buffers that live to the end of the batch. Targets are spans that the
        // core accepted once each, so they are disjoint, and open for writing.
        let moved = unsafe { cleanup::perform(&mut self.moves) };
        let fault = self.fault.take().or(moved.err());
        match fault {
            _ if strict && bytes > 0 => Err(LaneError::Strict { bytes }),
            Some(region) => Err(LaneError::Fault(region)),
            None => Ok(()),
        }
    }

    /// Shows payload to the core, which names its place.
    fn place(
        &mut self,
        header: &Header,
        (len, stu): (u32, u32),
        landed: Option<Span>,
        turn: &mut Turn<'_>,
    ) -> Placement {
        self.brought_payload = true;
        turn.on_data(header, len, stu, landed)
    }

    /// Delivers a group in its place, if there is one.
    pub(super) fn deliver_group(&mut self, group: Option<Group>, turn: &mut Turn<'_>) {
        let Some(group) = group else { return };
        let landed = group.landed;
        let len = landed.len as u32;
        if turn.core.uses_checksums() {
            match turn.memory.sum(landed) {
                Ok(sum) if checksum_holds(&group.first, sum) => {}
                Ok(_) => return turn.core.on_dropped(DropReason::Checksum),
                Err(_) => return self.fault = Some(landed.region),
            }
        }
        if is_of_frames(&group.first, turn) {
            return self.with_copy(landed, turn, |it, copy, turn| {
                it.deliver_frames(&group.first, copy, Lives::Now, turn);
            });
        }
        let (span, cause) = match self.place(&group.first, (len, group.stu), Some(landed), turn) {
            Placement::InPlace => return turn.account.bytes_placed += landed.len,
            Placement::Drop(_) => return,
            Placement::Move(span) => (span, MoveCause::Mispredicted),
            Placement::Unannounced(span) => (span, MoveCause::Unannounced),
            Placement::Eager(span) => (span, MoveCause::Eager),
            small @ (Placement::Store(_)
            | Placement::Value { .. }
            | Placement::Hold(_)
            | Placement::Datagram(_)) => {
                return self.with_copy(landed, turn, |it, copy, turn| {
                    it.deliver_small(small, copy, turn);
                });
            }
        };
        let from = turn.memory.source(landed).map(|start| Source {
            start,
            file: turn.memory.is_file(landed.region),
            shared: turn.memory.bounds(landed.region),
        });
        self.push_move(from, span, cause, turn);
    }

    /// Passes to `deliver` a copy of a datagram that landed in the wrong place.
    fn with_copy(
        &mut self,
        landed: Span,
        turn: &mut Turn<'_>,
        deliver: impl FnOnce(&mut Dispatcher, &[u8], &mut Turn<'_>),
    ) {
        let mut copy = std::mem::take(&mut self.copy);
        copy.resize(landed.len as usize, 0);
        if turn.memory.read(landed, &mut copy) {
            deliver(self, &copy, turn);
        }
        self.copy = copy;
    }

    /// Delivers a control operation of `len` bytes, of which `gather` copies the start.
    pub(super) fn deliver_control(
        &mut self,
        len: usize,
        unsealer: &mut Unsealer,
        turn: &mut Turn<'_>,
        gather: impl FnOnce(&mut [u8], &Turn<'_>) -> bool,
    ) {
        // A sealed operation must be complete before it can be opened.
        let count = match unsealer.sealed {
            true => len,
            false => len.min(CONTROL_DATAGRAM),
        };
        self.copy.resize(count, 0);
        // Otherwise the page of its place is gone: treated as lost.
        if gather(&mut self.copy, turn)
            && let Some(opened) = unsealer.unseal(&mut self.copy, turn)
        {
            let shown = &opened[..opened.len().min(CONTROL_DATAGRAM)];
            deliver_operation(turn, shown, len);
        }
    }

    /// Carries out, at once and in order, a put or a value that came without announcement.
    fn deliver_small(&mut self, placement: Placement, payload: &[u8], turn: &mut Turn<'_>) {
        if let Err(region) = arrival::deliver_small(placement, payload, turn) {
            self.fault = Some(region);
        }
    }

    /// Delivers operations that share a datagram or a train: each is shown as a Data of its own, and carried out before the next.
    pub(super) fn deliver_frames(
        &mut self,
        header: &Header,
        content: &[u8],
        lives: Lives,
        turn: &mut Turn<'_>,
    ) {
        let Ok(frames) = Frames::parse(header, content) else {
            return turn.core.on_dropped(DropReason::Malformed);
        };
        for (header, payload) in frames {
            let len = payload.len() as u32;
            match (self.place(&header, (len, len), None, turn), lives) {
                (Placement::Unannounced(span), Lives::ToEndOfBatch) => {
                    let cause = MoveCause::Unannounced;
                    self.push_move(Some(Source::own(payload)), span, cause, turn);
                }
                (Placement::Unannounced(span), Lives::Now) => {
                    turn.account.count_moved(MoveCause::Unannounced, span.len);
                    if turn.memory.fill(span, payload).is_err() {
                        self.fault = Some(span.region);
                    }
                }
                (placement, _) => self.deliver_small(placement, payload, turn),
            }
        }
    }

    pub(super) fn push_move(
        &mut self,
        from: Option<Source>,
        span: Span,
        cause: MoveCause,
        turn: &mut Turn<'_>,
    ) {
        let bytes = self.push_copy(from, span, turn);
        turn.account.count_moved(cause, bytes);
        if !matches!(cause, MoveCause::Unannounced | MoveCause::Eager) {
            self.missed += bytes as usize;
        }
    }

    /// Schedules a fill of `span` at the end of the batch. Returns the number of bytes.
    fn push_copy(&mut self, from: Option<Source>, span: Span, turn: &Turn<'_>) -> u64 {
        // A repair does not rewrite the part that had already arrived and was handed out.
        let settled = turn.memory.settled(span);
        let (from, span) = (
            from.map(|it| it.behind(settled)),
            span.part(settled, span.len - settled),
        );
        let (Some(from), Some(to)) = (from, turn.memory.target(span)) else {
            self.fault = Some(span.region);
            return 0;
        };
        self.moves.push(Move {
            from,
            to,
            len: span.len as usize,
            region: span.region,
            file: turn.memory.is_file(span.region),
            shared: turn.memory.bounds(span.region),
        });
        span.len
    }

    /// Takes the operations among the datagrams of `piece`. Returns how many bytes are left at its start.
    pub(super) fn take_operations(
        &mut self,
        piece: &mut [u8],
        segment: usize,
        unsealer: &mut Unsealer,
        turn: &mut Turn<'_>,
    ) -> usize {
        // Sources of moves stay there until the end of the batch.
        let mut copy = std::mem::take(&mut self.linear[0]);
        copy.clear();
        copy.extend_from_slice(piece);
        let mut left = 0;
        for datagram in copy.chunks_mut(segment) {
            if is_operation(datagram, turn) {
                self.deliver_whole(datagram, Some(MoveCause::Unexpected), unsealer, turn);
            } else {
                piece[left..left + datagram.len()].copy_from_slice(datagram);
                left += datagram.len();
            }
        }
        self.linear[0] = copy;
        left
    }

    /// Delivers an operation that lies in one piece. Opens granted payload into its place if possible, and otherwise
    /// copies it, for `cause`.
    pub(super) fn deliver_whole(
        &mut self,
        datagram: &mut [u8],
        cause: Option<MoveCause>,
        unsealer: &mut Unsealer,
        turn: &mut Turn<'_>,
    ) {
        if unsealer.opens_trains()
            && let Some((head, rest)) = datagram.split_first_chunk()
            && let Some((payload, trailer)) = rest.split_last_chunk()
            && let Ok(header) = Header::parse(head)
            && header.op == Op::Data
            && !header.flags.contains(Flags::FRAMES)
            && let Ok(claim) = turn.core.claim(&header, payload.len() as u32)
            && let Some(opened) =
                unsealer.open_into_place(head, payload, trailer, claim.span(), turn.memory)
        {
            let stu = payload.len() as u32;
            match opened {
                Ok(()) => {
                    self.brought_payload = true;
                    let noted = turn.core.on_placed(turn.now, &header, claim, stu);
                    note_placed(noted, claim.span(), turn);
                }
                Err(reason) => turn.core.on_dropped(reason),
            }
            return;
        }
        self.deliver_datagram(datagram, cause, unsealer, turn);
    }

    /// Delivers a datagram outside any place. Without a `cause`, the single copy is the lane's by design.
    pub(super) fn deliver_datagram(
        &mut self,
        datagram: &mut [u8],
        cause: Option<MoveCause>,
        unsealer: &mut Unsealer,
        turn: &mut Turn<'_>,
    ) {
        let len = datagram.len();
        let Some(opened) = unsealer.unseal(datagram, turn) else {
            return;
        };
        let header = match Header::parse(opened) {
            Ok(header) if header.op == Op::Data => header,
            _ => {
                let shown = &opened[..opened.len().min(CONTROL_DATAGRAM)];
                return deliver_operation(turn, shown, len);
            }
        };
        let payload = &opened[HEADER_LEN..];
        if turn.core.uses_checksums() && !checksum_holds(&header, Sum::of(payload)) {
            return turn.core.on_dropped(DropReason::Checksum);
        }
        if is_of_frames(&header, turn) {
            return self.deliver_frames(&header, payload, Lives::ToEndOfBatch, turn);
        }
        let (len, from) = (payload.len() as u32, Some(Source::own(payload)));
        match self.place(&header, (len, len), None, turn) {
            Placement::Move(span) => {
                let cause = match unsealer.opens_out_of_place(turn.memory, span.region) {
                    true => Some(MoveCause::OpenedOutOfPlace),
                    false => cause,
                };
                match cause {
                    Some(cause) => self.push_move(from, span, cause, turn),
                    None => turn.account.bytes_placed += self.push_copy(from, span, turn),
                }
            }
            Placement::Unannounced(span) => {
                self.push_move(from, span, MoveCause::Unannounced, turn);
            }
            Placement::Eager(span) => self.push_move(from, span, MoveCause::Eager, turn),
            other => self.deliver_small(other, payload, turn),
        }
    }
}

/// Counts payload that is in its place, if the core took it.
pub(super) fn note_placed(noted: Result<(), DropReason>, place: Span, turn: &mut Turn<'_>) {
    if noted.is_ok() {
        turn.account.bytes_placed += place.len;
    }
}

/// Whether a datagram begins with a header of this connection. All others are parts of trains, or invalid. A message of
/// the key exchange, which has no such header, is late: payload granted under its keys is already arriving.
pub(super) fn is_operation(datagram: &[u8], turn: &Turn<'_>) -> bool {
    let ours = |it: Header| turn.core.owns(&it) && Train::of(&it) == Ok(None);
    Header::parse(datagram).is_ok_and(ours)
}
