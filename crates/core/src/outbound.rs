//! The source's side of Transfers: announced, granted Block by Block, sent in the order of the
//! grants, repaired where the receiver says so, done when it says so.

use crate::limits::{BLACK_HOLE_REPORTS, MAX_HELD_GRANTS, MAX_REPAIRS};
use crate::transmit::{BurstLimit, DataBurst, join, split};
use crate::window::Window;
use crate::{Delivery, DropReason, Instant, Span, TransferId, tiling};
use std::collections::{BTreeMap, VecDeque};
use zerolane_wire::{ClearToSend, Flags, Header, Op, Profile, Route, State};

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
    stuck: Stuck,
}

/// Whether repairs of a Block do any good.
#[derive(Clone, Copy, Debug, Default)]
struct Stuck {
    /// First missing byte of the last report's first State.
    first: u32,
    /// First missing byte of the last State: one that starts later goes on with the same report.
    last: u32,
    /// Reports in a row that began with `first`.
    reports: u32,
}

impl Stuck {
    /// Notes a State whose first missing byte is `start`; true if large datagrams seem to vanish.
    fn note(&mut self, start: u32) -> bool {
        let begins_report = start <= self.last;
        self.last = start;
        if !begins_report {
            return false;
        }
        self.reports = if start == self.first {
            self.reports + 1
        } else {
            1
        };
        self.first = start;
        let black_hole = self.reports >= BLACK_HOLE_REPORTS;
        if black_hole {
            self.reports = 0;
        }
        black_hole
    }
}

/// What a report of missing payload, or a grant made anew, amounts to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Bytes to be sent again.
    pub(crate) bytes: u64,
    /// The same bytes were reported again and again: perhaps the path swallows large datagrams.
    pub(crate) black_hole: bool,
}

/// An outgoing Transfer.
#[derive(Clone, Debug)]
pub(crate) struct Outbound {
    pub(crate) span: Span,
    pub(crate) delivery: Delivery,
    pub(crate) state: OutboundState,
    /// The reader's identifier, in a Read sequence.
    pub(crate) reader: Option<u32>,
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

    /// The next burst of bytes never sent of a Block, marked as sent, and how many bytes are left.
    fn next_fresh(&mut self, b_num: u32, shape: &Shape) -> Option<(DataBurst, u32)> {
        let held = self.held.get(&b_num)?;
        let (start, rest) = (held.sent, held.len - held.sent);
        if rest == 0 {
            return None;
        }
        let burst = cut(self, b_num, start, rest, shape)?;
        self.held.get_mut(&b_num)?.sent += burst.span.len as u32;
        self.sent += burst.span.len;
        Some((burst, rest - burst.span.len as u32))
    }

    /// Forgets the Blocks below `b_num`; returns how many were held.
    /// A number beyond what was granted says no more than that all of it is complete.
    fn forget_below(&mut self, b_num: u32) -> usize {
        let before = self.held.len();
        if let Some((&last, _)) = self.held.last_key_value() {
            self.held = self.held.split_off(&b_num);
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

/// All outgoing Transfers of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    transfers: BTreeMap<TransferId, Outbound>,
    queued: VecDeque<TransferId>,
    /// Granted Blocks with bytes never sent, in the order of the grants.
    ready: VecDeque<(u32, TransferId, u32)>,
    repairs: VecDeque<Repair>,
    window: Window,
    held: usize,
}

/// What a burst is made of, and for the counters.
pub(crate) struct NextBurst {
    pub(crate) burst: DataBurst,
    pub(crate) repair: bool,
}

impl Outbox {
    pub(crate) fn new() -> Outbox {
        Outbox {
            transfers: BTreeMap::new(),
            queued: VecDeque::new(),
            ready: VecDeque::new(),
            repairs: VecDeque::new(),
            window: Window::default(),
            held: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.transfers.len()
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

    pub(crate) fn post(
        &mut self,
        id: TransferId,
        span: Span,
        delivery: Delivery,
        reader: Option<u32>,
    ) {
        let transfer = Outbound {
            span,
            delivery,
            state: OutboundState::Queued,
            reader,
            sequence: 0,
            peer: 0,
            tries: 0,
            resend_at: Instant::ZERO,
            held: BTreeMap::new(),
            first_open: 0,
            classic_start: None,
            sent: 0,
        };
        self.transfers.insert(id, transfer);
        self.queued.push_back(id);
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
            held.stuck = old.stuck;
            missing.bytes = u64::from(old.sent);
            missing.black_hole = old.sent > 0 && held.stuck.note(0);
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

    /// Takes a report; `None` if it is about nothing of ours.
    pub(crate) fn report(&mut self, state: &State) -> Option<Missing> {
        let transfer = self.transfers.get_mut(&state.d_id)?;
        self.held -= transfer.forget_below(state.blocks_complete);
        let mut missing = Missing::default();
        let Some(held) = transfer.held.get_mut(&state.b_num) else {
            return Some(missing);
        };
        let ranges = state.missing.as_slice();
        if let Some(first) = ranges.first()
            && first.start < held.sent
        {
            missing.black_hole = held.stuck.note(first.start);
        }
        for range in ranges {
            // Only what has been sent can have been lost; the rest is still to come anyway.
            let end = range.start.saturating_add(range.len).min(held.sent);
            let len = end.saturating_sub(range.start);
            if len == 0 || self.repairs.len() >= MAX_REPAIRS {
                continue;
            }
            missing.bytes += u64::from(len);
            let repair = Repair {
                id: state.d_id,
                b_num: state.b_num,
                start: range.start,
                len,
            };
            if !self.repairs.iter().any(|r| overlaps(r, &repair)) {
                self.repairs.push_back(repair);
            }
        }
        Some(missing)
    }

    pub(crate) fn has_data(&self) -> bool {
        !self.ready.is_empty() || !self.repairs.is_empty()
    }

    /// Stops the program if what the peer makes us hold grew beyond its limits.
    pub(crate) fn assert_bounded(&self) {
        let held: usize = self.transfers.values().map(|it| it.held.len()).sum();
        assert!(held == self.held && held <= MAX_HELD_GRANTS);
        assert!(self.repairs.len() <= MAX_REPAIRS && self.ready.len() <= MAX_HELD_GRANTS);
    }

    /// The next burst: repairs first, then fresh data in the order of the grants.
    pub(crate) fn next_burst(&mut self, shape: &Shape) -> Option<NextBurst> {
        self.next_repair(shape).or_else(|| self.next_fresh(shape))
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
            repair.start += burst.span.len as u32;
            repair.len -= burst.span.len as u32;
            if repair.len == 0 {
                self.repairs.pop_front();
            }
            return Some(NextBurst {
                burst,
                repair: true,
            });
        }
        None
    }

    fn next_fresh(&mut self, shape: &Shape) -> Option<NextBurst> {
        while let Some(&(_, id, b_num)) = self.ready.front() {
            let transfer = self.transfers.get_mut(&id);
            let Some((burst, rest)) = transfer.and_then(|t| t.next_fresh(b_num, shape)) else {
                self.ready.pop_front();
                continue;
            };
            if rest == 0 {
                self.ready.pop_front();
            }
            return Some(NextBurst {
                burst,
                repair: false,
            });
        }
        None
    }
}

fn overlaps(a: &Repair, b: &Repair) -> bool {
    a.id == b.id && a.b_num == b.b_num && a.start < b.start + b.len && b.start < a.start + a.len
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
    // Nothing computed from a place the peer names may overflow later.
    address
        .checked_add(u64::from(len))
        .ok_or(DropReason::OutOfBounds)?;
    Ok(Held {
        mx: cts.mx,
        address,
        transfer_offset,
        len,
        sent: 0,
        sequence: cts.sequence,
        stuck: Stuck::default(),
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
}

impl Shape {
    fn segments(&self) -> u32 {
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
    };
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
