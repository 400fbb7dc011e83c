//! Shows received datagrams to the core: in place if the prediction held, else from a linear copy.

use super::cmsg::{Ancillary, ECN_MASK};
use super::layout::Message;
use super::train_buffer::Expected;
use super::{LARGE_DATAGRAM, Receiver, SINGLES, SPILL};
use crate::account::MoveCause;
use crate::arrival::{self, CONTROL_DATAGRAM, checksum_holds, deliver_operation, is_of_frames};
use crate::lane::Turn;
use crate::memory::Registry;
use crate::memory::cleanup::{Move, Source};
use zerolane_core::{DropReason, Placement, Run, Span};
use zerolane_wire::{Frames, HEADER_LEN, Header, OPTIONS_LEN, Op, checksum::Sum};

/// How long bytes outside of any place remain valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lives {
    /// Until the whole batch is delivered and moved.
    ToEndOfBatch,
    /// Until the call returns.
    Now,
}

/// STUs with consecutive headers, shown to the core as one.
struct Group {
    first: Header,
    /// Slot of the last header.
    last_slot: usize,
    len: u32,
    stu: u32,
    last_len: u32,
    landed: Span,
}

impl Group {
    fn of(header: &[u8; HEADER_LEN], slot: usize, landed: Span) -> Option<Group> {
        let len = landed.len as u32;
        Some(Group {
            first: Header::parse(header).ok()?,
            last_slot: slot,
            len,
            stu: len,
            last_len: len,
            landed,
        })
    }
}

impl Receiver {
    /// Delivers one message.
    pub(super) fn deliver(&mut self, index: usize, turn: &mut Turn<'_>) {
        if let Some(message) = self.note(index, turn) {
            self.deliver_noted(message, turn);
        }
    }

    /// Records a message and what the kernel reports about it. `None`: it is dropped, and counted.
    pub(super) fn note(&mut self, index: usize, turn: &mut Turn<'_>) -> Option<Message> {
        let total = self.buffers.messages[index].msg_len as usize;
        let dropped = turn.account.dropped_socket_buffer;
        let Ancillary {
            segment,
            ecn,
            waited,
        } = self.read_ancillary(index, turn.account);
        if let Some(waited) = waited {
            turn.core.on_waited(waited);
        }
        if turn.account.dropped_socket_buffer > dropped {
            turn.core.on_overrun(turn.now);
        }
        let message = Message {
            index,
            total,
            segment: segment.unwrap_or(total).max(1),
        };
        if self.buffers.messages[index].msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            turn.account.dropped_truncated += 1;
            return None;
        }
        let message = self.unwrap(message, turn)?;
        let total = message.total;
        turn.account.datagrams_received += message.segments() as u64;
        if ecn != 0 {
            let segments = message.segments() as u32;
            let marked = if ecn == ECN_MASK { segments } else { 0 };
            turn.core.on_marks(segments, marked);
        }
        let predicted = self.buffers.layouts[index].pairs > 0 || self.trains.is_lent();
        if message.segments() > 1 {
            (self.singles, self.small_singles, self.merges) = (0, 0, true);
        } else if predicted && total > self.incoming.around() + OPTIONS_LEN {
            // An unpredicted datagram says nothing about predicted ones: small puts come singly.
            self.singles = self.singles.saturating_add(1);
            if total >= LARGE_DATAGRAM {
                (self.small_singles, self.merges) = (0, true);
            } else {
                self.small_singles = self.small_singles.saturating_add(1);
                self.merges &= self.small_singles < SINGLES;
            }
        }
        Some(message)
    }

    /// Delivers a recorded message that lies where it was predicted.
    pub(super) fn deliver_noted(&mut self, message: Message, turn: &mut Turn<'_>) {
        let around = self.incoming.around();
        let Message {
            index,
            total,
            segment,
        } = message;
        let fits = |it: &Receiver| it.buffers.layouts[index].fits(total, segment, around);
        if !self.trains.is_lent() {
            match fits(self) {
                true => self.deliver_in_place(message, turn),
                false => self.deliver_linear(message, turn),
            }
            return;
        }
        match self.trains.expected {
            Expected::Collected => self.deliver_collected(message, turn),
            Expected::Landing => self.deliver_landed(message, turn),
            Expected::Headers if fits(self) && self.has_headers(message, turn) => {
                self.deliver_in_place(message, turn);
            }
            Expected::Headers => self.collect(message, turn),
        }
    }

    /// Delivers STUs in place, consecutive ones as one: the prediction's pattern held.
    fn deliver_in_place(&mut self, message: Message, turn: &mut Turn<'_>) {
        let layout = std::mem::take(&mut self.buffers.layouts[message.index]);
        let mut group: Option<Group> = None;
        let around = self.incoming.around();
        let (mut at, mut slot) = (0, layout.slot);
        for run in &layout.runs {
            let mut start = 0;
            while start < run.span.len && at < message.total {
                let datagram = message.segment.min(message.total - at);
                let place = run
                    .span
                    .part(start, u64::from(run.stu).min(run.span.len - start));
                let payload = datagram.saturating_sub(around) as u32;
                let landed = run.span.part(start, u64::from(payload));
                let whole = datagram >= around;
                let continues = whole && start > 0 && self.continues(group.as_ref(), slot);
                if !(continues || whole && Header::is_data(&self.buffers.slots[slot].header)) {
                    self.deliver_any(group.take(), turn);
                    self.deliver_control((message.index, slot), place, datagram, turn);
                } else if !self.unseal_in_place(slot, landed, place.len, turn) {
                    self.deliver_any(group.take(), turn);
                } else if let (true, Some(group)) = (continues, &mut group) {
                    group.len += payload;
                    group.last_len = payload;
                    group.last_slot = slot;
                    group.landed.len += u64::from(payload);
                } else {
                    self.deliver_any(group.take(), turn);
                    group = Group::of(&self.buffers.slots[slot].header, slot, landed);
                    if group.is_none() {
                        turn.core.on_dropped(DropReason::Malformed);
                    }
                }
                at += datagram;
                start += place.len;
                slot += 1;
            }
        }
        self.deliver_any(group, turn);
        self.buffers.layouts[message.index] = layout;
    }

    /// Whether the header in `slot` continues `group`.
    fn continues(&self, group: Option<&Group>, slot: usize) -> bool {
        group.is_some_and(|group| {
            let last = &self.buffers.slots[group.last_slot].header;
            Header::continues(last, group.last_len, &self.buffers.slots[slot].header)
        })
    }

    /// Delivers a control operation whose header lies in a slot, and the rest in the place and after it.
    fn deliver_control(
        &mut self,
        at: (usize, usize),
        place: Span,
        len: usize,
        turn: &mut Turn<'_>,
    ) {
        let mut bytes = std::mem::take(&mut self.buffers.copy);
        // A sealed operation must be complete before it can be opened.
        let sealed = self.incoming.is_protected();
        let count = if sealed {
            len
        } else {
            len.min(CONTROL_DATAGRAM)
        };
        bytes.resize(count, 0);
        // Otherwise the page of its place is gone: treated as lost.
        if self.gather(at, place, &mut bytes, turn)
            && let Some(opened) = self.unseal(&mut bytes, turn)
        {
            let shown = &opened[..opened.len().min(CONTROL_DATAGRAM)];
            deliver_operation(turn, shown, len);
        }
        self.buffers.copy = bytes;
    }

    /// Passes to `deliver` a copy of a datagram that landed in the wrong place.
    fn with_copy(
        &mut self,
        landed: Span,
        turn: &mut Turn<'_>,
        deliver: impl FnOnce(&mut Receiver, &[u8], &mut Turn<'_>),
    ) {
        let mut copy = std::mem::take(&mut self.buffers.copy);
        copy.resize(landed.len as usize, 0);
        if turn.memory.read(landed, &mut copy) {
            deliver(self, &copy, turn);
        }
        self.buffers.copy = copy;
    }

    fn deliver_any(&mut self, group: Option<Group>, turn: &mut Turn<'_>) {
        if let Some(group) = group {
            self.deliver_group(&group, turn);
        }
    }

    fn deliver_group(&mut self, group: &Group, turn: &mut Turn<'_>) {
        let (landed, len) = (group.landed, group.len);
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
        let placement = turn
            .core
            .on_data(turn.now, &group.first, len, group.stu, Some(landed));
        match placement {
            Placement::InPlace => turn.account.bytes_placed += u64::from(len),
            Placement::Move(span) => self.move_landed(landed, span, MoveCause::Mispredicted, turn),
            Placement::Unannounced(span) => {
                self.move_landed(landed, span, MoveCause::Unannounced, turn);
            }
            Placement::Eager(span) => self.move_landed(landed, span, MoveCause::Eager, turn),
            Placement::Store(_) | Placement::Value { .. } | Placement::Hold(_) => {
                self.with_copy(landed, turn, |it, copy, turn| {
                    it.deliver_small(placement, copy, turn);
                });
            }
            Placement::Drop(_) => {}
        }
    }

    /// Moves bytes that landed where others were predicted to `span`.
    pub(super) fn move_landed(
        &mut self,
        landed: Span,
        span: Span,
        cause: MoveCause,
        turn: &mut Turn<'_>,
    ) {
        let from = turn.memory.source(landed).map(|start| Source {
            start,
            file: turn.memory.is_file(landed.region),
            shared: turn.memory.bounds(landed.region),
        });
        self.push_move(from, span, cause, turn);
    }

    /// Carries out, at once and in order, a put or a value that came without announcement.
    fn deliver_small(&mut self, placement: Placement, payload: &[u8], turn: &mut Turn<'_>) {
        if let Err(region) = arrival::deliver_small(placement, payload, turn) {
            self.fault = Some(region);
        }
    }

    /// Delivers operations that share a datagram: each is shown as a Data of its own, and carried out before the next.
    fn deliver_frames(
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
            match (turn.core.on_data(turn.now, &header, len, len, None), lives) {
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
        self.buffers.moves.push(Move {
            from,
            to,
            len: span.len as usize,
            region: span.region,
            file: turn.memory.is_file(span.region),
            shared: turn.memory.bounds(span.region),
        });
        span.len
    }

    /// Makes a message linear and delivers it datagram by datagram: the pattern did not hold.
    fn deliver_linear(&mut self, message: Message, turn: &mut Turn<'_>) {
        if self.buffers.layouts[message.index].pairs == 0 {
            // Nothing was predicted: the whole message lies in the spill, in one piece.
            let mut spill = std::mem::take(&mut self.buffers.spill);
            let bytes = &mut spill[message.index * SPILL..][..message.total];
            self.deliver_datagrams(message, bytes, MoveCause::Unexpected, turn);
            self.buffers.spill = spill;
            return;
        }
        let mut bytes = std::mem::take(&mut self.buffers.linear[message.index]);
        bytes.resize(message.total, 0);
        // Otherwise part of it landed in a page that is gone: treated as lost.
        if self.linearize(message, turn.memory, &mut bytes) {
            self.deliver_datagrams(message, &mut bytes, MoveCause::Pattern, turn);
        }
        self.buffers.linear[message.index] = bytes;
    }

    /// Delivers datagram by datagram. `bytes` live until the moves are done.
    fn deliver_datagrams(
        &mut self,
        message: Message,
        bytes: &mut [u8],
        cause: MoveCause,
        turn: &mut Turn<'_>,
    ) {
        for datagram in bytes.chunks_mut(message.segment) {
            let len = datagram.len();
            if let Some(opened) = self.unseal(datagram, turn) {
                self.deliver_opened(opened, len, Some(cause), turn);
            }
        }
    }

    /// Delivers a datagram of `len` bytes outside any place, of which `opened` are header and payload. Without a
    /// `cause`, the single copy is the lane's by design.
    pub(super) fn deliver_opened(
        &mut self,
        opened: &[u8],
        len: usize,
        cause: Option<MoveCause>,
        turn: &mut Turn<'_>,
    ) {
        let header = match Header::parse(opened) {
            Ok(header) if header.op == Op::Data => header,
            _ => {
                let shown = &opened[..opened.len().min(CONTROL_DATAGRAM)];
                deliver_operation(turn, shown, len);
                return;
            }
        };
        let payload = &opened[HEADER_LEN..];
        if turn.core.uses_checksums() && !checksum_holds(&header, Sum::of(payload)) {
            turn.core.on_dropped(DropReason::Checksum);
            return;
        }
        if is_of_frames(&header, turn) {
            return self.deliver_frames(&header, payload, Lives::ToEndOfBatch, turn);
        }
        let len = payload.len() as u32;
        match turn.core.on_data(turn.now, &header, len, len, None) {
            Placement::Move(span) => {
                let out_of_place = self.incoming.opens_out_of_place(turn.memory, span.region);
                let cause = match out_of_place {
                    true => Some(MoveCause::OpenedOutOfPlace),
                    false => cause,
                };
                let from = Some(Source::own(payload));
                match cause {
                    Some(cause) => self.push_move(from, span, cause, turn),
                    None => turn.account.bytes_placed += self.push_copy(from, span, turn),
                }
            }
            Placement::Unannounced(span) => {
                let cause = MoveCause::Unannounced;
                self.push_move(Some(Source::own(payload)), span, cause, turn);
            }
            Placement::Eager(span) => {
                self.push_move(Some(Source::own(payload)), span, MoveCause::Eager, turn);
            }
            other => self.deliver_small(other, payload, turn),
        }
    }

    /// Copies the message into `bytes`, which has its length. False if a part lies in a mapped file's page that is
    /// gone.
    pub(super) fn linearize(&self, message: Message, memory: &Registry, bytes: &mut [u8]) -> bool {
        let index = message.index;
        let mut rest = bytes;
        let runs = &self.buffers.layouts[index].runs;
        let message = &self.buffers.messages[index].msg_hdr;
        // SAFETY: msg_iov and msg_iovlen still name the iovecs made for this call, which nothing has
        // touched since.
        let iovs = unsafe { std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen) };
        for iov in &iovs[self.envelope.pieces()..] {
            let (part, others) = rest.split_at_mut(iov.iov_len.min(rest.len()));
            let from = source_at(iov.iov_base.cast(), runs, memory);
            // SAFETY: the kernel wrote the first `total` bytes of the iovecs: into places that the
            // registry has open, in memory of the kind that `source_at` found, or into our own.
            if unsafe { from.read(part) }.is_err() {
                return false;
            }
            rest = others;
        }
        true
    }
}

/// The memory that `start` lies in: the place of one of `runs`, or the lane's own.
fn source_at(start: *const u8, runs: &[Run], memory: &Registry) -> Source {
    let lies_in = |run: &&Run| {
        let place = memory.source(run.span);
        place.is_some_and(|it| (start as usize).wrapping_sub(it as usize) < run.span.len as usize)
    };
    let region = runs.iter().find(lies_in).map(|run| run.span.region);
    Source {
        start,
        file: region.is_some_and(|it| memory.is_file(it)),
        shared: region.and_then(|it| memory.bounds(it)),
    }
}
