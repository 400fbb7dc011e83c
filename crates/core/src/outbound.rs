//! The source's side of Transfers: announced, granted Block by Block, sent in the order of the
//! grants, repaired where the receiver says so, done when it says so.

use crate::flight::Flight;
use crate::limits::{BLACK_HOLE_REPAIRS, MAX_HELD_GRANTS, MAX_REPAIRS};
use crate::transmit::{BurstLimit, DataBurst, join, split};
use crate::window::Window;
use crate::{Delivery, DropReason, Instant, Span, TransferId, tiling};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use zerolane_wire::{ClearToSend, Flags, Header, Op, Profile, Range, Reason, Route, State, Target};

/// Where an outgoing Transfer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutboundState {
    /// Waits for a slot at the peer.
    Queued,
    /// Request_To_Send sent.
    Announced,
    /// The peer keeps it until it has room.
    Waiting,
    /// At least one Block was granted.
    Sending,
    /// Confirmed, refused, aborted or cancelled.
    Ended,
}

/// What can happen to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Happening {
    SlotFree,
    AnsweredLater,
    Refused,
    Granted,
    Confirmed,
    EndedByPeer,
    Cancelled,
}

impl OutboundState {
    /// The next state, if `happening` means something in this one.
    pub(crate) fn step(self, happening: Happening) -> Option<OutboundState> {
        use Happening as H;
        use OutboundState as S;
        match (self, happening) {
            (S::Queued, H::SlotFree) => Some(S::Announced),
            (S::Queued, H::Cancelled) => Some(S::Ended),
            (S::Queued | S::Ended, _) | (_, H::SlotFree) => None,
            (S::Announced | S::Waiting, H::AnsweredLater) => Some(S::Waiting),
            (S::Sending, H::AnsweredLater) => None,
            (_, H::Granted) => Some(S::Sending),
            // A Transfer of no bytes is confirmed without a grant.
            (_, H::Confirmed | H::Refused | H::EndedByPeer | H::Cancelled) => Some(S::Ended),
        }
    }
}

/// A Block that the peer granted and has not confirmed.
#[derive(Clone, Debug)]
struct Held {
    mx: u16,
    address: u64,
    transfer_offset: u64,
    len: u32,
    sent: u32,
    sequence: u32,
    /// Times it was granted anew in a row (classic profile).
    regrants: u32,
}

/// Whether repairs do any good.
#[derive(Clone, Copy, Debug, Default)]
struct Stuck {
    /// Newest burst the receiver had seen at the last repair.
    seen: u32,
    /// When that repair was made.
    at: Instant,
    /// Repairs in a row that brought nothing to light.
    repairs: u32,
}

impl Stuck {
    /// Notes a repair; true if large datagrams seem to vanish.
    fn repaired(&mut self, now: Instant, seen: u32, flight_time: Duration) -> bool {
        if seen != self.seen {
            *self = Stuck {
                seen,
                at: now,
                repairs: 1,
            };
        } else if now - self.at >= flight_time {
            self.at = now;
            self.repairs += 1;
        }
        if self.repairs < BLACK_HOLE_REPAIRS {
            return false;
        }
        self.repairs = 0;
        true
    }
}

/// What a report of missing payload, or a grant made anew, amounts to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Bytes to be sent again.
    pub(crate) bytes: u64,
    /// Ranges beyond [`MAX_REPAIRS`], to be asked for again.
    pub(crate) beyond: u64,
    /// The same bytes were reported again and again: perhaps the path swallows large datagrams.
    pub(crate) black_hole: bool,
}

/// An outgoing Transfer.
#[derive(Clone, Debug)]
pub(crate) struct Outbound {
    pub(crate) span: Span,
    pub(crate) delivery: Delivery,
    pub(crate) state: OutboundState,
    /// What it is to meet at the peer.
    pub(crate) target: Target,
    /// Number of the announcement, once announced.
    pub(crate) sequence: u32,
    /// The peer's identifier, 0 until it granted.
    pub(crate) peer: u32,
    pub(crate) tries: u32,
    pub(crate) resend_at: Instant,
    /// By Block number.
    held: BTreeMap<u32, Held>,
    /// Blocks below this number are complete.
    first_open: u32,
    /// Where Block 0 starts at the receiver (classic profile).
    classic_start: Option<u64>,
    /// Bytes of it sent at least once.
    sent: u64,
}

impl Outbound {
    /// Whether every byte went out at least once, so that only the confirmation is missing.
    pub(crate) fn all_sent(&self) -> bool {
        self.state == OutboundState::Sending && self.sent >= self.span.len
    }

    /// The lowest Block that is not known to be complete.
    pub(crate) fn first_open(&self) -> u32 {
        self.first_open
    }

    /// The next burst of bytes never sent of a Block, marked as sent; where it starts, and how many
    /// bytes are left.
    fn next_fresh(&mut self, b_num: u32, shape: &Shape) -> Option<(DataBurst, u32, u32)> {
        let held = self.held.get(&b_num)?;
        let (start, rest) = (held.sent, held.len - held.sent);
        if rest == 0 {
            return None;
        }
        let burst = cut(self, b_num, start, rest, shape)?;
        self.held.get_mut(&b_num)?.sent += burst.span.len as u32;
        self.sent += burst.span.len;
        Some((burst, start, rest - burst.span.len as u32))
    }

    /// Forgets the Blocks below `b_num`; returns how many were held.
    /// A number beyond what was granted says no more than that all of it is complete.
    fn forget_below(&mut self, b_num: u32) -> usize {
        let before = self.held.len();
        if let Some((&last, _)) = self.held.last_key_value() {
            while let Some(block) = self.held.first_entry()
                && *block.key() < b_num
            {
                block.remove();
            }
            self.first_open = self.first_open.max(b_num.min(last.saturating_add(1)));
        }
        before - self.held.len()
    }
}

/// A range to be sent again.
#[derive(Clone, Copy, Debug)]
struct Repair {
    id: TransferId,
    b_num: u32,
    start: u32,
    len: u32,
}

/// The payload of a message that was cancelled before it was announced. The peer waits for it, or will.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Withdrawn {
    pub(crate) id: TransferId,
    /// Number of the message.
    pub(crate) message: u32,
    pub(crate) reason: Reason,
}

/// All outgoing Transfers of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    transfers: BTreeMap<TransferId, Outbound>,
    queued: VecDeque<TransferId>,
    withdrawn: VecDeque<Withdrawn>,
    /// Granted Blocks with bytes never sent, in the order of the grants.
    ready: VecDeque<(u32, TransferId, u32)>,
    repairs: VecDeque<Repair>,
    window: Window,
    held: usize,
    /// Transfers into regions of the peer.
    puts: usize,
    pub(crate) flight: Flight,
    stuck: Stuck,
}

/// What a burst is made of, and for the counters.
pub(crate) struct NextBurst {
    pub(crate) burst: DataBurst,
    pub(crate) repair: bool,
    piece: Piece,
}

/// Where a burst starts.
#[derive(Clone, Copy, Debug)]
struct Piece {
    id: TransferId,
    b_num: u32,
    start: u32,
}

impl Outbox {
    pub(crate) fn new() -> Outbox {
        Outbox {
            transfers: BTreeMap::new(),
            queued: VecDeque::new(),
            withdrawn: VecDeque::new(),
            ready: VecDeque::new(),
            repairs: VecDeque::new(),
            window: Window::default(),
            held: 0,
            puts: 0,
            flight: Flight::new(),
            stuck: Stuck::default(),
        }
    }

    /// Whether a Put is under way.
    pub(crate) fn is_putting(&self) -> bool {
        self.puts > 0
    }

    /// Transfers that are not over, or of which the peer does not know that.
    pub(crate) fn len(&self) -> usize {
        self.transfers.len() + self.withdrawn.len()
    }

    pub(crate) fn ids(&self) -> Vec<TransferId> {
        self.transfers.keys().copied().collect()
    }

    pub(crate) fn get(&self, id: TransferId) -> Option<&Outbound> {
        self.transfers.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: TransferId) -> Option<&mut Outbound> {
        self.transfers.get_mut(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (TransferId, &Outbound)> {
        self.transfers.iter().map(|(&id, it)| (id, it))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (TransferId, &mut Outbound)> {
        self.transfers.iter_mut().map(|(&id, it)| (id, it))
    }

    /// The Transfers announced under a number that `is_named`.
    pub(crate) fn announced(&self, is_named: impl Fn(u32) -> bool) -> Vec<TransferId> {
        let named = |it: &Outbound| it.state != OutboundState::Queued && is_named(it.sequence);
        let all = self.iter().filter(|(_, it)| named(it));
        all.map(|(id, _)| id).collect()
    }

    pub(crate) fn post(&mut self, id: TransferId, span: Span, delivery: Delivery, target: Target) {
        let transfer = Outbound {
            span,
            delivery,
            state: OutboundState::Queued,
            target,
            sequence: 0,
            peer: 0,
            tries: 0,
            resend_at: Instant::ZERO,
            held: BTreeMap::new(),
            first_open: 0,
            classic_start: None,
            sent: 0,
        };
        self.puts += usize::from(matches!(target, Target::Region(_)));
        self.transfers.insert(id, transfer);
        self.queued.push_back(id);
    }

    /// What is gone is to be ended under a number of its own.
    pub(crate) fn withdraw(&mut self, it: Withdrawn) {
        self.withdrawn.push_back(it);
    }

    /// The next one withdrawn and its number, if the peer's `slots` leave room.
    pub(crate) fn number_withdrawn(&mut self, slots: u16) -> Option<(Withdrawn, u32)> {
        self.withdrawn.front()?;
        let sequence = self.window.open(slots)?;
        Some((self.withdrawn.pop_front()?, sequence))
    }

    /// What is withdrawn needs no number any more.
    pub(crate) fn forget_withdrawn(&mut self) {
        self.withdrawn.clear();
    }

    /// The next Transfer to announce, if the peer's `slots` leave room.
    pub(crate) fn announce_next(&mut self, slots: u16) -> Option<TransferId> {
        while self
            .queued
            .front()
            .is_some_and(|id| !self.transfers.contains_key(id))
        {
            self.queued.pop_front();
        }
        let &id = self.queued.front()?;
        let transfer = self.transfers.get_mut(&id)?;
        let state = transfer.state.step(Happening::SlotFree)?;
        transfer.sequence = self.window.open(slots)?;
        transfer.state = state;
        self.queued.pop_front();
        Some(id)
    }

    /// Applies `happening`; ends and returns the Transfer if that ended it. Its announcement keeps
    /// its slot until [`Outbox::resolve`].
    pub(crate) fn happen(&mut self, id: TransferId, happening: Happening) -> Option<Outbound> {
        let transfer = self.transfers.get_mut(&id)?;
        transfer.state = transfer.state.step(happening)?;
        if transfer.state != OutboundState::Ended {
            return None;
        }
        let transfer = self.transfers.remove(&id)?;
        self.held -= transfer.held.len();
        self.puts -= usize::from(matches!(transfer.target, Target::Region(_)));
        self.ready.retain(|entry| entry.1 != id);
        self.repairs.retain(|repair| repair.id != id);
        Some(transfer)
    }

    /// The peer knows that announcement `sequence` is over: its slot is free.
    pub(crate) fn resolve(&mut self, sequence: u32) {
        self.window.resolve(sequence);
    }

    /// As if `number` Transfers had been announced before.
    #[cfg(test)]
    pub(crate) fn age(&mut self, number: u32) {
        self.window.age(number);
    }

    /// Takes a grant. `buffer_log2` is the receiver's.
    pub(crate) fn grant(
        &mut self,
        cts: &ClearToSend,
        profile: Profile,
        buffer_log2: u8,
    ) -> Result<Missing, DropReason> {
        let transfer = self
            .transfers
            .get_mut(&cts.d_id)
            .ok_or(DropReason::NoGrant)?;
        if transfer.peer != 0 && transfer.peer != cts.s_id {
            return Err(DropReason::NoGrant);
        }
        let mut held = granted(transfer, cts, profile, buffer_log2)?;
        let complete = match cts.grant {
            Some(grant) => grant.blocks_complete,
            // One Block at a time: this grant says that those before it are complete.
            None => cts.b_num,
        };
        self.held -= transfer.forget_below(complete);
        if cts.b_num < transfer.first_open {
            return Err(DropReason::Duplicate);
        }
        let old = transfer.held.get(&cts.b_num);
        if old.is_some_and(|old| cts.sequence.wrapping_sub(old.sequence) as i32 <= 0) {
            return Err(DropReason::Duplicate);
        }
        if old.is_none() && self.held >= MAX_HELD_GRANTS {
            return Err(DropReason::Limit);
        }
        transfer.state = transfer
            .state
            .step(Happening::Granted)
            .ok_or(DropReason::Unexpected)?;
        transfer.peer = cts.s_id;
        let mut missing = Missing::default();
        if let Some(old) = old {
            // Granted anew (classic repair): the whole Block again.
            missing.bytes = u64::from(old.sent);
            held.regrants = old.regrants + u32::from(old.sent > 0);
            missing.black_hole = held.regrants >= BLACK_HOLE_REPAIRS;
            if missing.black_hole {
                held.regrants = 0;
            }
            transfer.sent -= u64::from(old.sent);
            self.ready
                .retain(|entry| (entry.1, entry.2) != (cts.d_id, cts.b_num));
            self.repairs
                .retain(|r| (r.id, r.b_num) != (cts.d_id, cts.b_num));
        } else {
            self.held += 1;
        }
        transfer.held.insert(cts.b_num, held);
        self.make_ready(cts.sequence, cts.d_id, cts.b_num);
        Ok(missing)
    }

    fn make_ready(&mut self, sequence: u32, id: TransferId, b_num: u32) {
        let after = |entry: &(u32, TransferId, u32)| sequence.wrapping_sub(entry.0) as i32 >= 0;
        let place = self
            .ready
            .iter()
            .rposition(after)
            .map_or(0, |index| index + 1);
        self.ready.insert(place, (sequence, id, b_num));
    }

    /// Takes a report about a Block; `None` if it is about nothing of ours. Bursts younger than
    /// `flight_time` may still be under way, unless the receiver has seen a later one.
    pub(crate) fn report(
        &mut self,
        now: Instant,
        state: &State,
        ranges: &[Range],
        flight_time: Duration,
    ) -> Option<Missing> {
        let transfer = self.transfers.get_mut(&state.d_id)?;
        self.held -= transfer.forget_below(state.blocks_complete);
        let mut missing = Missing::default();
        let Some(held) = transfer.held.get(&state.b_num) else {
            return Some(missing);
        };
        let (id, b_num, sent) = (state.d_id, state.b_num, held.sent);
        let under_way = self.flight.under_way(id, b_num, now, flight_time);
        let mut excepted: Vec<(u32, u32)> = under_way.collect();
        let queued = self
            .repairs
            .iter()
            .filter(|r| (r.id, r.b_num) == (id, b_num));
        excepted.extend(queued.map(|r| (r.start, r.start + r.len)));
        for range in ranges {
            // Only what has been sent can have been lost; the rest is still to come anyway.
            let end = range.start.saturating_add(range.len).min(sent);
            for (start, end) in without(range.start, end, &excepted) {
                match self.queue_repair(id, b_num, start, end - start) {
                    true => missing.bytes += u64::from(end - start),
                    false => missing.beyond += 1,
                }
            }
        }
        if missing.bytes > 0 {
            self.flight.settle(now, flight_time);
            let seen = self.flight.seen();
            missing.black_hole = self.stuck.repaired(now, seen, flight_time);
        }
        Some(missing)
    }

    /// `false` if there are too many already.
    fn queue_repair(&mut self, id: TransferId, b_num: u32, start: u32, len: u32) -> bool {
        if self.repairs.len() >= MAX_REPAIRS {
            return false;
        }
        self.repairs.push_back(Repair {
            id,
            b_num,
            start,
            len,
        });
        true
    }

    pub(crate) fn has_data(&self) -> bool {
        !self.ready.is_empty() || !self.repairs.is_empty()
    }

    /// Stops the program if what the peer makes us hold grew beyond its limits.
    pub(crate) fn assert_bounded(&self) {
        let held: usize = self.transfers.values().map(|it| it.held.len()).sum();
        assert!(held == self.held && held <= MAX_HELD_GRANTS);
        assert!(self.flight.len() <= crate::limits::MAX_FLIGHT);
        assert!(self.repairs.len() <= MAX_REPAIRS && self.ready.len() <= MAX_HELD_GRANTS);
    }

    /// The next burst: repairs first, then fresh data in the order of the grants.
    pub(crate) fn next_burst(&mut self, now: Instant, shape: &Shape) -> Option<NextBurst> {
        let mut next = self.next_repair(shape).or_else(|| self.next_fresh(shape))?;
        if shape.profile == Profile::Extended {
            let Piece { id, b_num, start } = next.piece;
            let len = next.burst.span.len as u32;
            next.burst.first.sync = self.flight.next_number();
            self.flight.sent(now, id, b_num, start, len);
        }
        Some(next)
    }

    fn next_repair(&mut self, shape: &Shape) -> Option<NextBurst> {
        while let Some(repair) = self.repairs.front_mut() {
            let Some(transfer) = self.transfers.get(&repair.id) else {
                self.repairs.pop_front();
                continue;
            };
            let Some(burst) = cut(transfer, repair.b_num, repair.start, repair.len, shape) else {
                self.repairs.pop_front();
                continue;
            };
            let piece = Piece {
                id: repair.id,
                b_num: repair.b_num,
                start: repair.start,
            };
            repair.start += burst.span.len as u32;
            repair.len -= burst.span.len as u32;
            if repair.len == 0 {
                self.repairs.pop_front();
            }
            return Some(NextBurst {
                burst,
                repair: true,
                piece,
            });
        }
        None
    }

    fn next_fresh(&mut self, shape: &Shape) -> Option<NextBurst> {
        while let Some(&(_, id, b_num)) = self.ready.front() {
            let transfer = self.transfers.get_mut(&id);
            let Some((burst, start, rest)) = transfer.and_then(|t| t.next_fresh(b_num, shape))
            else {
                self.ready.pop_front();
                continue;
            };
            if rest == 0 {
                self.ready.pop_front();
            }
            return Some(NextBurst {
                burst,
                repair: false,
                piece: Piece { id, b_num, start },
            });
        }
        None
    }
}

/// The parts of `start..end` that none of `excepted` covers, in order.
fn without(start: u32, end: u32, excepted: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut parts = vec![];
    let mut at = start;
    while at < end {
        match excepted.iter().find(|&&(a, b)| a <= at && at < b) {
            Some(&(_, covered)) => at = covered,
            None => {
                let later = excepted.iter().map(|&(a, _)| a).filter(|&a| a > at);
                let until = later.min().map_or(end, |a| a.min(end));
                parts.push((at, until));
                at = until;
            }
        }
    }
    parts
}

/// The Block that a grant makes, if it lies in the Transfer and in addresses that exist.
fn granted(
    transfer: &mut Outbound,
    cts: &ClearToSend,
    profile: Profile,
    buffer_log2: u8,
) -> Result<Held, DropReason> {
    let address = join(cts.bufx, cts.offset, buffer_log2);
    let (transfer_offset, len) =
        granted_range(transfer, cts, profile, address).ok_or(DropReason::OutOfBounds)?;
    // Nothing computed from a place the peer names may overflow later, nor does a place exist that has
    // no Bufx.
    let end = address.checked_add(u64::from(len));
    let last = end.map(|end| end.saturating_sub(1) >> buffer_log2);
    if last.is_none_or(|bufx| bufx > u64::from(u32::MAX)) {
        return Err(DropReason::OutOfBounds);
    }
    Ok(Held {
        mx: cts.mx,
        address,
        transfer_offset,
        len,
        sent: 0,
        sequence: cts.sequence,
        regrants: 0,
    })
}

/// Which bytes of the Transfer a grant covers; `None` if none such exist.
fn granted_range(
    transfer: &mut Outbound,
    cts: &ClearToSend,
    profile: Profile,
    address: u64,
) -> Option<(u64, u32)> {
    let length = transfer.span.len;
    match (profile, cts.grant) {
        (Profile::Extended, Some(grant)) => {
            let end = grant.transfer_offset.checked_add(u64::from(grant.length))?;
            (end <= length).then_some((grant.transfer_offset, grant.length))
        }
        // Options in the wrong profile.
        (Profile::Extended, None) | (Profile::Classic, Some(_)) => None,
        (Profile::Classic, None) => {
            if cts.b_num == 0 {
                transfer.classic_start = Some(address);
            }
            let start = transfer.classic_start?;
            let first = u64::from(tiling::classic_block(start, 0, length, cts.block_log2));
            let offset = match cts.b_num {
                0 => 0,
                n => first.checked_add(u64::from(n - 1) << cts.block_log2)?,
            };
            (offset < length && address == start.checked_add(offset)?).then(|| {
                (
                    offset,
                    tiling::classic_block(start, offset, length, cts.block_log2),
                )
            })
        }
    }
}

/// How Data of a connection looks at present.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) route: Route,
    pub(crate) stu: u32,
    pub(crate) profile: Profile,
    /// The receiver's buffer size.
    pub(crate) buffer_log2: u8,
    pub(crate) limit: BurstLimit,
    /// Bytes around the payload of a datagram.
    pub(crate) around: u32,
    /// The burst asks the receiver how it gets on (extended profile).
    pub(crate) ask: bool,
}

impl Shape {
    pub(crate) fn segments(&self) -> u32 {
        self.limit
            .segments
            .min(self.limit.bytes / (self.stu + self.around))
            .max(1)
    }
}

/// A burst from `start` of a Block, of at most `rest` bytes; `None` if the Block is not held.
fn cut(transfer: &Outbound, b_num: u32, start: u32, rest: u32, shape: &Shape) -> Option<DataBurst> {
    let held = transfer.held.get(&b_num)?;
    let Shape {
        route,
        stu,
        profile,
        buffer_log2,
        ..
    } = *shape;
    let address = held.address + u64::from(start);
    let (bytes, segments) = tiling::burst(address, rest, stu, buffer_log2, shape.segments());
    let (bufx, offset) = split(address, buffer_log2);
    let ends_block = start + bytes == held.len;
    let ends_transfer =
        ends_block && held.transfer_offset + u64::from(held.len) == transfer.span.len;
    let first = Header {
        flags: Flags::SILENT,
        param: (start / stu) as u16,
        d_port: route.d_port,
        s_port: route.s_port,
        d_key: route.d_key,
        b_id: held.mx,
        bufx,
        offset,
        b_num,
        d_id: transfer.peer,
        ..Header::new(Op::Data)
    };
    let last_flags = match (ends_transfer, ends_block) {
        (true, _) => ending_flags(transfer.delivery),
        (_, true) if profile == Profile::Classic => Flags::SEND_STATE,
        (_, true) => Flags::NONE,
        _ => Flags::SILENT,
    }
    .with_if(Flags::SEND_STATE, shape.ask);
    Some(DataBurst {
        span: transfer
            .span
            .part(held.transfer_offset + u64::from(start), u64::from(bytes)),
        stu,
        segments,
        first,
        address,
        buffer_log2,
        last_flags,
    })
}

/// Flags of the STU that ends a Transfer.
fn ending_flags(delivery: Delivery) -> Flags {
    Flags::SEND_STATE.with(match delivery {
        Delivery::Silent => Flags::SILENT,
        Delivery::Polled => Flags::NONE,
        Delivery::Interrupt => Flags::INTERRUPT,
    })
}

#[cfg(test)]
#[path = "outbound_tests.rs"]
mod tests;
