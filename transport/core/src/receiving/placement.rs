//! Finds the place of granted payload in the receiver's table of granted Blocks, and records its arrival. Payload that
//! claims a grant has a place only inside a live one.
//!
//! The table lists Blocks in the order of the grants. Mx is an index into a table of [`MAX_LIVE_BLOCKS`] entries (low
//! bits) with a generation (high bits). An entry checks the Transfer's identifier, which is never reused while late
//! packets may live, the Block number and the bounds. This is the thesis's receive validation (Figure 14) plus the
//! generation it lacks. Port and key belong to the connection and are checked before.

mod predict;
mod reserve;

use super::datagrams::DatagramSlot;
use super::eager::Hold;
use super::gaps::{Filled, Gaps};
use crate::counters::DropReason;
use crate::limits::{
    BLACK_HOLE_REPAIRS, MAX_GRANTS_REPEATED, MAX_LIVE_BLOCKS, MAX_REMEMBERED_BLOCKS, MAX_RTO,
};
use crate::span::Span;
use crate::time::Instant;
use crate::transfer::TransferId;
use crate::transmit::join;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::time::Duration;
use zerolane_wire::{Header, Range};

/// The lane's action for the payload of a Data operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// It is in its place.
    InPlace,
    /// Move it there (it landed elsewhere, or nowhere yet): it was granted, so a forecast could have placed it.
    Move(Span),
    /// Move it there: it came without a grant, so no forecast could place it. The answer to a single-datagram Get, or
    /// the control of a message.
    Unannounced(Span),
    /// Move it there: it came with its announcement, so no forecast could place it.
    Eager(Span),
    /// Hold it: it came with its announcement, and no receive is posted for it yet.
    /// [`Connection::poll_hold`](crate::Connection::poll_hold) returns the later orders for it.
    Hold(Hold),
    /// It is part of a datagram, or all of it: it goes to this slot of the lane, now.
    Datagram(DatagramSlot),
    /// Store it there now, before anything else is passed to the core: later puts may overlap it.
    Store(Span),
    /// It is the value of an atomic operation, 8 bytes, big-endian: pass it to [`crate::Connection::on_value`].
    Value {
        /// Number of the operation.
        number: u32,
        /// The request.
        id: TransferId,
    },
    /// Drop it. Missing bytes that a forecast let it overwrite are still to come.
    Drop(DropReason),
}

/// A granted Block.
#[derive(Clone, Debug)]
pub(crate) struct GrantedBlock {
    pub(crate) mx: u16,
    pub(crate) transfer: TransferId,
    pub(crate) b_num: u32,
    /// Its start in the receiver's address space (Bufx and Offset joined).
    pub(crate) address: u64,
    /// Its place.
    pub(crate) span: Span,
    pub(crate) transfer_offset: u64,
    pub(crate) gaps: Gaps,
    /// End of the furthest received byte.
    pub(crate) reached: u32,
    granted: Instant,
    /// It was granted again before anything of it had come.
    repeated: bool,
    /// It may come as trains.
    pub(crate) trains: bool,
    advance: Advance,
    live: bool,
}

/// Whether a Block was granted before its Transfer was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Advance {
    No,
    /// Yes, and the Transfer is not yet announced. The Block is no part of the payload stream, but its payload is
    /// placed.
    Reserved,
    /// Yes, and the Transfer is announced by now.
    Claimed,
}

impl GrantedBlock {
    /// Whether it was granted in advance for a Transfer that is not yet announced.
    pub(crate) fn is_reserved(&self) -> bool {
        self.advance == Advance::Reserved
    }

    /// Whether it is part of the payload stream.
    fn is_expected(&self) -> bool {
        self.live && !self.is_reserved()
    }

    pub(crate) fn len(&self) -> u32 {
        self.span.len as u32
    }
}

/// The place of payload whose header names a grant. It marks nothing as received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    span: Span,
    /// Number of the grant.
    sequence: u32,
    /// Offset in the Block.
    start: u32,
}

impl Claim {
    /// Where the payload belongs.
    pub fn span(&self) -> Span {
        self.span
    }
}

/// Accepted payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepted {
    /// Its place.
    pub(crate) span: Span,
    /// Where it ends in its Transfer.
    pub(crate) transfer_end: u64,
    /// Bytes received for the first time.
    pub(crate) new_bytes: u32,
    /// Number of the grant.
    pub(crate) sequence: u32,
    /// Offset in the Block.
    pub(crate) start: u32,
    /// Whether it completes the Block.
    pub(crate) block_complete: bool,
    /// Its position relative to the stream.
    pub(crate) order: Arrival,
}

impl Accepted {
    /// Whether `len` bytes that came in STUs of `stu` show the size of future STUs. The last STU of a Block, without
    /// `more` behind it, may be short, and so may a repair.
    pub(crate) fn shows_size(&self, len: u32, stu: u32, more: bool) -> bool {
        len > stu || self.order == Arrival::Next && more
    }
}

/// A position in the payload stream: number of the grant, and offset in its Block.
pub(crate) type Position = (u32, u32);

/// Position of a Data operation relative to the payload stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The first position of the forecast.
    Next,
    /// Further ahead: the payload from this position up to it was overtaken.
    Ahead(Position),
    /// Behind the furthest arrival: late, or a repair.
    Behind,
}

/// How long nothing has come, and how long that is usual.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quiet {
    /// When payload last came, was requested, or was granted with nothing else in flight.
    since: Instant,
    asked: bool,
    /// Consecutive times that payload was requested because nothing came.
    breaks: u32,
    /// Recent time between two arrivals: a decaying peak.
    usual: Duration,
}

impl Quiet {
    fn arrived(&mut self, now: Instant) {
        let pause = now - self.since;
        if !pause.is_zero() {
            self.usual -= self.usual / 8;
            if !self.asked {
                // A longer pause means that an end was suspended, or a clock jumped.
                self.usual = self.usual.max(pause.min(MAX_RTO));
            }
            (self.since, self.asked) = (now, false);
        }
        self.breaks = 0;
    }

    /// Payload was granted: the next arrival is an answer, and tells nothing about the stream's pace.
    fn started(&mut self, now: Instant) {
        (self.since, self.asked, self.breaks) = (now, true, 0);
    }

    /// Payload was requested because nothing came: the next arrival is an answer, too.
    pub(crate) fn broken(&mut self, now: Instant) {
        (self.since, self.asked) = (now, true);
        self.breaks = self.breaks.saturating_add(1);
    }

    /// When the silence exceeds both `wait` and the usual pause on so slow a path.
    pub(crate) fn ends(&self, wait: Duration) -> Instant {
        self.since + wait.max(self.usual * 2)
    }
}

/// All grants of a connection.
#[derive(Clone, Debug)]
pub(crate) struct PlacementTable {
    /// Grant number of the entry, by low bits of Mx.
    table: Vec<Option<u32>>,
    next_mx: u16,
    blocks: VecDeque<GrantedBlock>,
    /// Grant number of the first of `blocks`.
    base: u32,
    live: usize,
    /// Number of Blocks that may come as trains.
    trains: usize,
    /// Number of Blocks granted in advance for Transfers that are not yet announced.
    reserved: usize,
    /// Bytes granted and missing, except those of reserved Blocks.
    outstanding: u64,
    /// Missing bytes of reserved Blocks.
    reserved_bytes: u64,
    /// Position of the next expected STU.
    cursor: Position,
    quiet: Quiet,
    /// Shortest time from a grant to its first byte, since the last call of `take_delay`.
    delay: Option<Duration>,
    buffer_log2: u8,
}

impl PlacementTable {
    pub(crate) fn new(buffer_log2: u8) -> PlacementTable {
        PlacementTable {
            table: vec![None; MAX_LIVE_BLOCKS],
            next_mx: 0,
            blocks: VecDeque::new(),
            base: 0,
            live: 0,
            trains: 0,
            reserved: 0,
            outstanding: 0,
            reserved_bytes: 0,
            cursor: (0, 0),
            quiet: Quiet::default(),
            delay: None,
            buffer_log2,
        }
    }

    /// Bytes granted and missing of announced Transfers.
    pub(crate) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Bytes granted in advance and missing.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }

    /// Blocks granted in advance that are live.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved
    }

    /// Shortest time from a grant to its first byte, since the last call.
    pub(crate) fn take_delay(&mut self) -> Option<Duration> {
        self.delay.take()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.live < MAX_LIVE_BLOCKS && self.blocks.len() < MAX_REMEMBERED_BLOCKS
    }

    /// Whether no payload is expected.
    pub(crate) fn is_idle(&self) -> bool {
        self.live == self.reserved
    }

    /// Whether no other Block is granted.
    pub(crate) fn is_only(&self, sequence: u32) -> bool {
        let expected = self.get(sequence).is_some_and(GrantedBlock::is_expected);
        self.live - self.reserved == 1 && expected
    }

    /// Grants a Block; [`PlacementTable::has_room`] must hold. Returns the number of the grant.
    pub(crate) fn grant(
        &mut self,
        now: Instant,
        transfer: TransferId,
        b_num: u32,
        span: Span,
        transfer_offset: u64,
    ) -> u32 {
        let sequence = self.base.wrapping_add(self.blocks.len() as u32);
        let mx = self.allocate_mx(sequence);
        self.expect_from(now, sequence);
        self.live += 1;
        self.outstanding += span.len;
        self.blocks.push_back(GrantedBlock {
            mx,
            transfer,
            b_num,
            address: span.offset,
            span,
            transfer_offset,
            gaps: Gaps::whole(span.len as u32),
            reached: 0,
            granted: now,
            repeated: false,
            trains: false,
            advance: Advance::No,
            live: true,
        });
        sequence
    }

    /// Expects payload of Block `sequence`. If nothing else is expected, the stream continues there.
    fn expect_from(&mut self, now: Instant, sequence: u32) {
        if self.is_idle() {
            self.cursor = (sequence, 0);
            self.quiet.started(now);
        }
    }

    /// Whether payload was requested repeatedly, and none came.
    pub(crate) fn is_stuck(&self) -> bool {
        !self.is_idle() && self.quiet.breaks >= BLACK_HOLE_REPAIRS
    }

    /// The Block just granted may come as trains.
    pub(crate) fn offer_trains(&mut self, sequence: u32) {
        if let Some(block) = self.get_mut(sequence) {
            block.trains = true;
            self.trains += 1;
        }
    }

    /// Whether trains may come.
    pub(crate) fn expects_trains(&self) -> bool {
        self.trains > 0
    }

    /// Finds the place of `len` bytes of payload (a run of STUs that continue each other), if `header` names a live
    /// grant that covers them.
    pub(crate) fn claim(&self, header: &Header, len: u32) -> Result<Claim, DropReason> {
        let sequence = self.find(header).ok_or(DropReason::NoGrant)?;
        let block = &self.blocks[self.index(sequence)];
        let start = bounds(block, self.buffer_log2, header, len)?;
        Ok(Claim {
            span: block.span.part(start.into(), len.into()),
            sequence,
            start,
        })
    }

    /// Whether none of the claimed bytes has arrived.
    pub(crate) fn is_missing(&self, claim: &Claim) -> bool {
        let end = claim.start + claim.span.len as u32;
        let block = self.get(claim.sequence);
        let missing = block.and_then(|it| it.gaps.from(claim.start));
        missing.is_some_and(|(from, to)| from == claim.start && to >= end)
    }

    fn allocate_mx(&mut self, sequence: u32) -> u16 {
        loop {
            let mx = self.next_mx;
            self.next_mx = self.next_mx.wrapping_add(1);
            let entry = &mut self.table[usize::from(mx) % MAX_LIVE_BLOCKS];
            if entry.is_none() {
                *entry = Some(sequence);
                return mx;
            }
        }
    }

    pub(crate) fn get(&self, sequence: u32) -> Option<&GrantedBlock> {
        let block = self.blocks.get(sequence.wrapping_sub(self.base) as usize)?;
        block.live.then_some(block)
    }

    pub(crate) fn get_mut(&mut self, sequence: u32) -> Option<&mut GrantedBlock> {
        let block = self
            .blocks
            .get_mut(sequence.wrapping_sub(self.base) as usize)?;
        block.live.then_some(block)
    }

    /// Live Blocks with their grant numbers, in the order of the grants.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &GrantedBlock)> {
        self.blocks
            .iter()
            .enumerate()
            .map(|(index, block)| (self.base.wrapping_add(index as u32), block))
            .filter(|(_, block)| block.live)
    }

    /// Whether a Block granted after `sequence` already has payload.
    pub(crate) fn overtaken(&self, sequence: u32) -> bool {
        self.index(sequence) < self.index(self.cursor.0)
    }

    /// Untouched Blocks that were granted before `time`, each returned once.
    pub(crate) fn take_overdue(&mut self, time: Instant) -> Vec<u32> {
        let base = self.base;
        let blocks = self.blocks.iter_mut().enumerate();
        let overdue = blocks
            .filter(|(_, it)| it.is_expected() && it.reached == 0)
            .filter(|(_, it)| !it.repeated && it.granted <= time);
        overdue
            .map(|(index, block)| {
                block.repeated = true;
                base.wrapping_add(index as u32)
            })
            .take(MAX_GRANTS_REPEATED)
            .collect()
    }

    /// Block `sequence` is granted again.
    pub(crate) fn repeated(&mut self, sequence: u32) {
        if let Some(block) = self.get_mut(sequence) {
            block.repeated = true;
        }
    }

    /// Index of grant `sequence` among the remembered ones.
    fn index(&self, sequence: u32) -> usize {
        sequence.wrapping_sub(self.base) as usize
    }

    /// The silence since the last arrival or request.
    pub(crate) fn quiet(&mut self) -> &mut Quiet {
        &mut self.quiet
    }

    /// Missing bytes of the stream between two positions, by Block: number of the grant, and range.
    pub(crate) fn between(
        &self,
        from: Position,
        to: Position,
    ) -> impl Iterator<Item = (u32, u32, u32)> + '_ {
        let (first, last) = (self.index(from.0), self.index(to.0));
        let blocks = self.blocks.iter().enumerate().take(last + 1).skip(first);
        blocks
            .filter(|(_, block)| block.is_expected())
            .flat_map(move |(index, block)| {
                let sequence = self.base.wrapping_add(index as u32);
                let start = if index == first { from.1 } else { 0 };
                let end = if index == last { to.1 } else { block.len() };
                PlacementTable::missing(block, start, end)
                    .map(move |it| (sequence, it.start, it.start + it.len))
            })
    }

    /// Continues as if `number` Blocks had been granted before.
    #[cfg(test)]
    pub(crate) fn age(&mut self, number: u32) {
        self.base = number;
        self.cursor = (number, 0);
    }

    /// The number of the live grant that `header` names.
    pub(crate) fn find(&self, header: &Header) -> Option<u32> {
        let sequence = self.table[usize::from(header.b_id) % MAX_LIVE_BLOCKS]?;
        let block = &self.blocks[self.index(sequence)];
        let named = (header.b_id, header.d_id, header.b_num);
        ((block.mx, block.transfer, block.b_num) == named).then_some(sequence)
    }

    /// Marks the claimed bytes as received.
    pub(crate) fn accept(&mut self, now: Instant, claim: Claim) -> Result<Accepted, DropReason> {
        let Claim {
            span,
            sequence,
            start,
        } = claim;
        let end = start + span.len as u32;
        let block = self.get_mut(sequence).ok_or(DropReason::NoGrant)?;
        // An announcement may have shortened the Block since the claim was made.
        if end > block.len() {
            return Err(DropReason::OutOfBounds);
        }
        let new_bytes = match block.gaps.fill(start, end) {
            Filled::New(bytes) => bytes,
            Filled::Duplicate => return Err(DropReason::Duplicate),
            Filled::TooFragmented => return Err(DropReason::Limit),
        };
        // The first byte of a Block that was granted again may answer either grant (Karn's algorithm). The first byte
        // of an advance grant waited for its Transfer, and does not measure the path.
        let measures = block.reached == 0 && !block.repeated && block.advance == Advance::No;
        let delay = measures.then(|| now - block.granted);
        block.reached = block.reached.max(end);
        let transfer_end = block.transfer_offset + u64::from(end);
        let block_complete = block.gaps.is_empty();
        let is_reserved = block.is_reserved();
        self.delay = self.delay.into_iter().chain(delay).min();
        let order = match is_reserved {
            true => {
                self.reserved_bytes -= u64::from(new_bytes);
                Arrival::Behind
            }
            false => {
                self.quiet.arrived(now);
                self.outstanding -= u64::from(new_bytes);
                self.advance_cursor((sequence, start), end)
            }
        };
        Ok(Accepted {
            span,
            transfer_end,
            new_bytes,
            sequence,
            start,
            block_complete,
            order,
        })
    }

    /// Payload came from `start` to `end` of a Block. The sender continues behind it, unless it was late or a repair.
    fn advance_cursor(&mut self, start: Position, end: u32) -> Arrival {
        let expected = self.cursor;
        let base = self.base;
        let rank = |it: Position| (it.0.wrapping_sub(base), it.1);
        if rank((start.0, end)) > rank(expected) {
            self.cursor = (start.0, end);
        }
        match rank(start).cmp(&rank(expected)) {
            Ordering::Less => Arrival::Behind,
            Ordering::Equal => Arrival::Next,
            Ordering::Greater => Arrival::Ahead(expected),
        }
    }

    /// Panics if the counts and the table disagree, or grew beyond their limits.
    pub(crate) fn assert_bounded(&self) {
        let missing = |reserved: bool| -> u64 {
            let such = self.iter().filter(|(_, it)| it.is_reserved() == reserved);
            such.map(|(_, it)| u64::from(it.gaps.missing())).sum()
        };
        assert_eq!(missing(false), self.outstanding);
        assert_eq!(missing(true), self.reserved_bytes);
        let reserved = self.iter().filter(|(_, it)| it.is_reserved()).count();
        assert_eq!(reserved, self.reserved);
        assert_eq!(self.iter().count(), self.live);
        assert_eq!(self.iter().filter(|(_, it)| it.trains).count(), self.trains);
        assert_eq!(self.table.iter().flatten().count(), self.live);
        assert!(self.live <= MAX_LIVE_BLOCKS && self.blocks.len() <= MAX_REMEMBERED_BLOCKS);
    }

    /// Ends a grant: complete, cancelled or to be granted anew. Its Mx no longer places anything.
    pub(crate) fn revoke(&mut self, sequence: u32) {
        let Some(block) = self.get_mut(sequence) else {
            return;
        };
        block.live = false;
        // The entry may stay for long behind an incomplete one, so its gaps are freed.
        let gaps = core::mem::take(&mut block.gaps);
        let (mx, missing) = (block.mx, u64::from(gaps.missing()));
        let trains = usize::from(block.trains);
        let reserved = block.is_reserved();
        self.table[usize::from(mx) % MAX_LIVE_BLOCKS] = None;
        match reserved {
            true => self.reserved_bytes -= missing,
            false => self.outstanding -= missing,
        }
        self.reserved -= usize::from(reserved);
        self.live -= 1;
        self.trains -= trains;
        while self.blocks.front().is_some_and(|block| !block.live) {
            self.blocks.pop_front();
            if self.cursor.0 == self.base {
                self.cursor = (self.base.wrapping_add(1), 0);
            }
            self.base = self.base.wrapping_add(1);
        }
    }

    /// Ends all grants of `transfer`.
    pub(crate) fn revoke_transfer(&mut self, transfer: TransferId) {
        let of_it: Vec<u32> = self
            .iter()
            .filter(|(_, b)| b.transfer == transfer)
            .map(|(s, _)| s)
            .collect();
        of_it.into_iter().for_each(|sequence| self.revoke(sequence));
    }

    /// The missing ranges of a Block from `start` to `end`.
    pub(crate) fn missing(
        block: &GrantedBlock,
        start: u32,
        end: u32,
    ) -> impl Iterator<Item = Range> + '_ {
        let mut at = start;
        core::iter::from_fn(move || {
            let (start, gap_end) = block.gaps.from(at).filter(|&(start, _)| start < end)?;
            at = gap_end;
            let len = gap_end.min(end) - start;
            Some(Range { start, len })
        })
    }
}

/// The offset of the operation's payload in `block`, if all of it lies inside and in one buffer.
fn bounds(
    block: &GrantedBlock,
    buffer_log2: u8,
    header: &Header,
    len: u32,
) -> Result<u32, DropReason> {
    let within_buffer = u64::from(header.offset) + u64::from(len) <= 1 << buffer_log2;
    let address = join(header.bufx, header.offset, buffer_log2);
    let start = address
        .checked_sub(block.address)
        .ok_or(DropReason::OutOfBounds)?;
    let end = start
        .checked_add(u64::from(len))
        .ok_or(DropReason::OutOfBounds)?;
    if !within_buffer || len == 0 || end > block.span.len {
        return Err(DropReason::OutOfBounds);
    }
    Ok(start as u32)
}

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;
