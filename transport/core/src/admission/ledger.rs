//! Tracks the demands of all connections at one receiver, and answers each with an allowance.

use super::budget::{Budget, News};
use super::fast::{FastAnswer, FastTrial, HOLD};
use super::share::{self, Bid, SharingRule};
use super::{Allowance, Demand, Schedule};
use crate::limits::ADMISSION_SLICE;
use crate::time::Instant;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

/// Intervals without any payload after which a stream's outstanding bytes are written off.
const STALLED_AFTER: u32 = 2;

/// A stream is limited if it brings less than this part of its allowance, relative to all streams.
const UNUSED_PART: u64 = 4;

/// Fewest rounds in a slice: a change of turns costs about one.
const ROUNDS_PER_SLICE: u32 = 16;

/// A stream alone for this long no longer considers the others' outstanding bytes.
const ALONE_AFTER: Duration = Duration::from_millis(10);

/// The state of one connection.
#[derive(Clone, Debug)]
struct Member {
    weight: u32,
    demand: Demand,
    /// Bytes it may have granted, as last dealt.
    share: u64,
    /// Bytes it is likely to use: bounded for a connection that used little of its share.
    likely: u64,
    /// `demand.arrived` at the last limit.
    arrived_before: u64,
    /// Bytes that its allowances since then permitted.
    good_for: u64,
    /// Whether it lost payload in this interval.
    lost: bool,
    /// Intervals in a row without arrivals although bytes were outstanding.
    silent: u32,
    /// Bytes counted as outstanding, its latest allowance included.
    reserved: u64,
    /// Its place in the line of streams without a share, from 1; 0: it has a share.
    place: u32,
}

impl Member {
    fn is_active(&self) -> bool {
        self.demand.remaining() > 0
    }

    fn bid(&self) -> Bid {
        Bid {
            weight: self.weight,
            useful: self.demand.remaining(),
            likely: self.likely,
            stu: u64::from(self.demand.stu.max(1)),
        }
    }

    /// Rounds until it has all it wants, with its present share.
    fn rounds_left(&self) -> u32 {
        let rounds = self.demand.remaining() / self.share.max(1);
        u32::try_from(rounds).unwrap_or(u32::MAX)
    }

    /// Bytes that arrived since the last limit.
    fn brought(&self) -> u64 {
        self.demand.arrived - self.arrived_before
    }

    /// Limits it if it brought less than [`UNUSED_PART`] of what its allowance permitted, where all streams together
    /// brought `all_brought` of `all_good_for`.
    fn limit_share(&mut self, all_brought: u64, all_good_for: u64) {
        let brought = self.brought();
        let fair = u128::from(self.good_for) * u128::from(all_brought);
        let fair = (fair / u128::from(all_good_for.max(1))) as u64;
        self.likely = if brought >= fair / UNUSED_PART {
            u64::MAX
        } else {
            let twice = u128::from(self.share) * u128::from(2 * brought) / u128::from(fair);
            (twice as u64).max(2 * u64::from(self.demand.stu))
        };
        self.silent = match brought == 0 && self.demand.outstanding > 0 {
            true => self.silent.saturating_add(1),
            false => 0,
        };
        self.arrived_before = self.demand.arrived;
        self.good_for = 0;
    }

    /// Bytes in flight that the budget must allow for.
    fn counted(&self) -> u64 {
        match self.silent {
            0..STALLED_AFTER => self.reserved.min(self.likely),
            _ => 0,
        }
    }
}

/// The present rule for dealing shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// All streams have a part.
    Weighted,
    /// One stream is fast, in turns.
    Turns,
    /// This stream asked to be fast.
    Asked(u64),
    /// The connection that needs least comes first.
    Shortest,
}

/// The books of all connections that receive at one end: their demands, their shares, and whose turn it is. All times
/// must share an epoch.
#[derive(Debug)]
pub struct Ledger {
    schedule: Schedule,
    streams: BTreeMap<u64, Member>,
    next_id: u64,
    budget: Budget,
    fast_trial: FastTrial,
    /// Streams with demand or outstanding bytes.
    active: usize,
    /// Sum of the streams' counted bytes.
    counted: u64,
    dealt_at: Instant,
    /// The set of streams with demand has changed since the last deal.
    stale: bool,
    slice_ends: Instant,
    /// The earliest time at which a stream with a share can have all it wants.
    first_end: Instant,
    /// Shares change at the end of the slice, even if nothing else does.
    rotating: bool,
    /// First stream of the present turn.
    turn: u64,
    /// The connection in fast mode at its own request, and since when.
    fast: Option<(u64, Instant)>,
    alone_since: Option<Instant>,
}

impl Ledger {
    /// A ledger without connections.
    pub fn new(schedule: Schedule) -> Ledger {
        Ledger {
            schedule,
            streams: BTreeMap::new(),
            next_id: 0,
            budget: Budget::new(),
            fast_trial: FastTrial::new(),
            active: 0,
            counted: 0,
            dealt_at: Instant::ZERO,
            rotating: false,
            stale: true,
            slice_ends: Instant::ZERO,
            first_end: Instant::ZERO,
            turn: 0,
            fast: None,
            alone_since: None,
        }
    }

    /// The schedule.
    pub fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// Number of members.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Adds a connection of weight 1. Returns its number.
    pub fn join(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.streams.insert(
            id,
            Member {
                weight: 1,
                demand: Demand::default(),
                share: 0,
                likely: u64::MAX,
                arrived_before: 0,
                good_for: 0,
                lost: false,
                silent: 0,
                reserved: 0,
                place: 0,
            },
        );
        id
    }

    /// Removes connection `id`, and frees what it held.
    pub fn leave(&mut self, id: u64) {
        if let Some(stream) = self.streams.remove(&id) {
            self.active -= usize::from(stream.is_active());
            self.counted = self.counted.saturating_sub(stream.counted());
            self.stale = true;
        }
        self.fast.take_if(|fast| fast.0 == id);
    }

    /// Sets a connection's share of the link relative to others', 1 unless set. 0 counts as 1.
    pub fn set_weight(&mut self, id: u64, weight: u32) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.weight = weight.max(1);
            self.stale = true;
        }
    }

    /// Requests fast mode for a connection (P2.4).
    pub fn request_fast(&mut self, id: u64, now: Instant) -> FastAnswer {
        let refused = self.fast.is_some_and(|(holder, since)| {
            let busy = self.streams.get(&holder).is_some_and(Member::is_active);
            let held = now - since;
            match holder == id {
                // After its turn, the others have the link for as long.
                true => held >= HOLD && held < HOLD * 2,
                false => held < HOLD && busy,
            }
        });
        if refused {
            return FastAnswer::Refused;
        }
        if self
            .fast
            .is_none_or(|(holder, since)| holder != id || now - since >= HOLD)
        {
            self.fast = Some((id, now));
        }
        self.stale = true;
        FastAnswer::Granted
    }

    /// Takes a connection's demand; returns its allowance.
    pub fn review(&mut self, id: u64, now: Instant, demand: &Demand) -> Allowance {
        let Some(interval_over) = self.hear(id, now, demand) else {
            return Allowance::UNLIMITED;
        };
        if demand.remaining() == 0 {
            self.reserve(id, 0);
            return Allowance {
                bytes: 0,
                review_at: None,
            };
        }
        if self.is_alone(now) {
            // Reserves everything it may grant until it asks again: a connection that joins meanwhile begins with a
            // trickle.
            self.reserve(id, demand.remaining().min(u64::from(u32::MAX)));
            return Allowance::UNLIMITED;
        }
        // Streams come and go with every small Transfer; shares need not follow each of them.
        let soon = now - self.dealt_at >= self.budget.round() / 4;
        if interval_over || now >= self.slice_ends || self.stale && soon {
            self.accrue(now);
            if interval_over {
                self.limit_shares();
            }
            self.deal(now);
        }
        self.allow(id, now, demand)
    }

    /// Takes the stream's report. `None` if it is no member, otherwise whether an interval ended.
    fn hear(&mut self, id: u64, now: Instant, demand: &Demand) -> Option<bool> {
        let contended = self.active > 1;
        let short = self.counted >= self.budget.bytes(now) / 8 * 7;
        let stream = self.streams.get_mut(&id)?;
        let was_active = stream.is_active();
        let arrived = demand.arrived - stream.demand.arrived;
        let missing = demand.missing - stream.demand.missing;
        let news = News {
            arrived,
            missing,
            delay: demand.delay,
            first_loss: missing > 0 && !stream.lost,
            streams: self.active as u64,
            short,
        };
        stream.lost |= missing > 0;
        let moved = demand.moved - stream.demand.moved;
        let counted = stream.counted();
        stream.demand = *demand;
        if arrived > 0 {
            stream.silent = 0;
        }
        self.counted = (self.counted + stream.counted()).saturating_sub(counted);
        if stream.is_active() != was_active {
            stream.arrived_before = demand.arrived;
            stream.good_for = 0;
            stream.place = 0;
            self.stale = true;
            match was_active {
                true => self.active -= 1,
                false => self.active += 1,
            }
            // Until the next deal.
            stream.share = self.budget.bytes(now) / self.active.max(1) as u64;
        }
        if contended {
            self.fast_trial.record(now, arrived, moved);
        }
        let over = self.budget.hear(now, news);
        if over {
            self.streams.values_mut().for_each(|it| it.lost = false);
        }
        if self.active == 0 {
            self.budget.stop_interval();
        }
        Some(over)
    }

    /// Whether the one active stream may ignore the others: there are none, or they have been quiet long enough for
    /// their payload to have arrived.
    fn is_alone(&mut self, now: Instant) -> bool {
        if self.active != 1 {
            self.alone_since = None;
            return false;
        }
        let since = *self.alone_since.get_or_insert(now);
        self.streams.len() == 1 || self.budget.is_measured() && now - since >= ALONE_AFTER
    }

    /// Sets a stream's counted bytes.
    fn reserve(&mut self, id: u64, bytes: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            let before = stream.counted();
            stream.reserved = bytes;
            self.counted = (self.counted + stream.counted()).saturating_sub(before);
        }
    }

    /// Credits the streams with what their shares permitted, before the shares change.
    fn accrue(&mut self, now: Instant) {
        let round = self.budget.round().as_nanos().max(1);
        let elapsed = (now - self.dealt_at).as_nanos();
        for stream in self.streams.values_mut().filter(|it| it.is_active()) {
            let used = u128::from(stream.share.min(stream.reserved));
            let bytes = u64::try_from(used * elapsed / round).unwrap_or(u64::MAX);
            stream.good_for = stream.good_for.saturating_add(bytes);
        }
    }

    /// Limits the streams that used much less of their allowance in the past interval than all did together: when hosts
    /// are late, all are.
    fn limit_shares(&mut self) {
        let active = || self.streams.values().filter(|it| it.is_active());
        let brought: u64 = active().map(Member::brought).sum();
        let good_for: u64 = active().map(|it| it.good_for).fold(0, u64::saturating_add);
        for stream in self.streams.values_mut().filter(|it| it.is_active()) {
            stream.limit_share(brought, good_for);
        }
    }

    /// Divides the budget anew.
    fn deal(&mut self, now: Instant) {
        let plan = self.plan(now);
        if now >= self.slice_ends {
            self.next_turn(now, plan);
        }
        let (order, ids, admitted) = self.line_up(now, plan);
        let bids: Vec<Bid> = ids.iter().map(|id| self.streams[id].bid()).collect();
        let shares = share::divide(order, self.budget.bytes(now), &bids[..admitted]);
        let shares = shares.into_iter().chain(core::iter::repeat(0));
        let places = core::iter::repeat_n(0, admitted).chain(1..);
        for ((id, share), place) in ids.iter().zip(shares).zip(places) {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.share = share;
                stream.place = place;
            }
        }
        let admitted_streams = ids[..admitted].iter().map(|id| &self.streams[id]);
        let rounds = admitted_streams.map(Member::rounds_left).min();
        let left = self.budget.round().saturating_mul(rounds.unwrap_or(0));
        self.first_end = now + left;
        self.rotating = plan != Plan::Weighted || admitted < ids.len();
        self.counted = self.streams.values().map(Member::counted).sum();
        self.dealt_at = now;
        self.stale = false;
    }

    fn plan(&self, now: Instant) -> Plan {
        let asked = self.fast.filter(|&(id, since)| {
            let stream = self.streams.get(&id);
            stream.is_some_and(Member::is_active) && now - since < HOLD
        });
        match (asked, self.schedule) {
            (Some((id, _)), _) => Plan::Asked(id),
            (None, Schedule::Fast) => Plan::Turns,
            (None, Schedule::Shortest) => Plan::Shortest,
            (None, Schedule::Automatic) if self.fast_trial.is_fast() => Plan::Turns,
            (None, Schedule::Automatic | Schedule::Fair) => Plan::Weighted,
        }
    }

    /// The active streams in order of service, and how many of them get a share.
    fn line_up(&self, now: Instant, plan: Plan) -> (SharingRule, Vec<u64>, usize) {
        let order = match plan {
            Plan::Weighted => SharingRule::ByWeight,
            Plan::Turns | Plan::Asked(_) | Plan::Shortest => SharingRule::InTurn,
        };
        let mut ids: Vec<u64> = self.active_from(self.turn).collect();
        let remaining = |id: &u64| self.streams[id].demand.remaining();
        let first = match plan {
            Plan::Weighted | Plan::Turns => None,
            Plan::Asked(id) => ids.iter().position(|&it| it == id),
            Plan::Shortest => (0..ids.len()).min_by_key(|&index| remaining(&ids[index])),
        };
        if let Some(first) = first {
            ids[..=first].rotate_right(1);
        }
        let bids: Vec<Bid> = ids.iter().map(|id| self.streams[id].bid()).collect();
        let admitted = share::admitted(order, self.budget.bytes(now), &bids);
        if plan == Plan::Shortest {
            ids[..admitted].sort_by_key(remaining);
        }
        (order, ids, admitted)
    }

    /// The active streams, from `first` on, wrapping around.
    fn active_from(&self, first: u64) -> impl Iterator<Item = u64> + '_ {
        let round = self
            .streams
            .range(first..)
            .chain(self.streams.range(..first));
        round.filter(|(_, it)| it.is_active()).map(|(&id, _)| id)
    }

    /// Advances the turn: with [`Plan::Turns`] to the next active stream, otherwise to the next one that got nothing.
    fn next_turn(&mut self, now: Instant, plan: Plan) {
        let slice = ADMISSION_SLICE.max(self.budget.round() * ROUNDS_PER_SLICE);
        self.slice_ends = now + slice;
        let due = |id: &u64| plan == Plan::Turns || self.streams[id].share == 0;
        let next = self.active_from(self.turn + 1).find(due);
        self.turn = next.unwrap_or(self.turn);
    }

    /// The stream's present allowance: its share, as far as others left room for it.
    fn allow(&mut self, id: u64, now: Instant, demand: &Demand) -> Allowance {
        let budget = self.budget.bytes(now);
        let round = self.budget.round();
        let Some(stream) = self.streams.get(&id) else {
            return Allowance::UNLIMITED;
        };
        let others = self.counted.saturating_sub(stream.counted());
        let room = budget.saturating_sub(others).min(stream.share);
        // A grant below an STU is useless.
        let least = u64::from(demand.stu).min(stream.share);
        let bytes = if room < least { 0 } else { room };
        let review_at = if demand.wanted == 0 {
            None
        } else if self.stale || bytes < stream.share {
            Some(now + round / 4)
        } else if stream.place > 0 && self.first_end < self.slice_ends {
            // A stream in front may end before the slice does, and a turn ends with its work. Streams further back ask
            // less often: n of them together about ln n times as often as the first.
            let at = now + (round / 4).saturating_mul(stream.place);
            Some(at.min(self.slice_ends))
        } else if self.rotating {
            Some(self.slice_ends)
        } else {
            None
        };
        self.reserve(id, bytes.min(demand.remaining()).max(demand.outstanding));
        Allowance { bytes, review_at }
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
