//! Sends datagrams through the ring, and references to payload that stays in place.

use super::ShmLane;
use super::link::{Kind, Link, MAX_RECORD, record_len};
use super::peer::MAX_RUNS;
use crate::error::LaneError;
use crate::lane::Turn;
use std::cell::Cell;
use std::collections::VecDeque;
use zerolane_core::{BurstLimit, DataBurst, Life, OperationBurst, RegionId, Transmit};
use zerolane_wire::{Flags, HEADER_LEN, Header};

/// Most STUs in one burst.
pub(super) const MAX_STUS: u32 = 64;
/// Most bytes of one burst: a Block of the usual length, so that one system call of the peer copies it.
pub(super) const MAX_BURST: u32 = 1 << 20;
/// Bursts sent before the receive side gets a turn.
const BURSTS_PER_TURN: usize = 16;
/// Bytes of a run in a reference: header, address, length, STU.
pub(super) const RUN: usize = HEADER_LEN + 16;

thread_local! {
    /// The buffer for datagrams of all connections that this thread drives.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Records that the peer has not taken, and transmissions that found no room.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// Regions that records name, each with the end of the record, until the peer has taken the record.
    referenced: VecDeque<(u64, RegionId)>,
    /// The transmission that found no room, and how many of its datagrams are in the ring.
    held: Option<(Transmit, u32)>,
}

impl Outgoing {
    /// Whether a transmission waits for room.
    pub(super) fn is_full(&self) -> bool {
        self.held.is_some()
    }

    /// Prepares to return `region` to its owner.
    pub(super) fn recall(&mut self, region: RegionId, link: &mut Link) {
        let is_named = |it: &Option<(Transmit, u32)>| match it {
            Some((Transmit::Data(burst), _)) => burst.span.region == region,
            _ => false,
        };
        if is_named(&self.held) {
            self.held = None;
        }
        if self.referenced.is_empty() {
            return;
        }
        self.forget_taken(link);
        if self.referenced.iter().any(|(_, it)| *it == region) {
            // The other records are retired as well: the core sends their payload again, as if lost.
            link.retire();
            self.referenced.clear();
        }
    }

    fn forget_taken(&mut self, link: &mut Link) {
        let taken = link.taken();
        while self
            .referenced
            .front()
            .is_some_and(|(end, _)| *end <= taken)
        {
            self.referenced.pop_front();
        }
    }
}

impl ShmLane {
    /// Sends what the core owes, for one turn. True if anything was sent.
    pub(super) fn send_owed(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError> {
        let quiet = self.outgoing.held.is_none() && turn.core.is_quiet();
        if quiet && !self.lending.has_offers() || self.fault.is_some() {
            return Ok(false);
        }
        let written = self.link.written();
        if self.lending.has_offers() && turn.core.life() == Life::Established && !self.waiting {
            // Before the peer learns the name of the memory.
            let lent = self.lending.lend_offered(&mut self.link);
            lent.map_err(|it| self.broken(it))?;
        }
        let mut scratch = SPARE.take();
        let sent = self.send_bursts(&mut scratch, turn);
        SPARE.set(scratch);
        if self.link.written() != written {
            self.sent = Some(turn.now);
            self.link.wake_if_asleep();
        }
        // An end that announced sleep must be woken by room as well.
        if self.outgoing.is_full() && self.link.is_armed() {
            turn.more |= !self.link.arm(true);
        }
        sent
    }

    fn send_bursts(
        &mut self,
        scratch: &mut Vec<u8>,
        turn: &mut Turn<'_>,
    ) -> Result<bool, LaneError> {
        let mut sent = false;
        for burst in 1..=BURSTS_PER_TURN {
            // Usually none is held, and moving an empty value costs as much as a full one.
            let held = match self.outgoing.is_full() {
                true => self.outgoing.held.take(),
                false => None,
            };
            let Some((transmit, done)) = held.or_else(|| next(turn).map(|it| (it, 0))) else {
                break;
            };
            match self.send(&transmit, done, scratch, turn)? {
                None => sent = true,
                Some(done) => {
                    match transmit {
                        // Operations that are over by the next turn need not leave.
                        Transmit::Operations(it) => turn.core.take_back(&it),
                        transmit => self.outgoing.held = Some((transmit, done)),
                    }
                    // Later transmissions have no room either.
                    return Ok(sent);
                }
            }
            turn.more = burst == BURSTS_PER_TURN;
        }
        Ok(sent)
    }

    /// Sends `transmit`, of which `done` datagrams were sent before. `None`: all of it is sent; else the number sent so
    /// far.
    fn send(
        &mut self,
        transmit: &Transmit,
        done: u32,
        scratch: &mut Vec<u8>,
        turn: &mut Turn<'_>,
    ) -> Result<Option<u32>, LaneError> {
        let pushed = match transmit {
            Transmit::Handshake => {
                let draw = || crate::seal::random().ok();
                match self.exchange.as_mut().map(|it| it.message(turn.now, draw)) {
                    Some(Some(it)) => self.link.push(Kind::Datagram, &[it.bytes()]),
                    _ => return Ok(None),
                }
            }
            // Before there is a session, no operation may leave.
            _ if self.waiting => return Ok(None),
            Transmit::Control(it) => self.link.push(Kind::Datagram, &[it.bytes()]),
            Transmit::Operations(it) => return self.operations(it, scratch, turn),
            Transmit::Data(it) => return self.data(it, done, scratch, turn),
        };
        match pushed.map_err(|it| self.broken(it))? {
            true => {
                turn.account.datagrams_sent += 1;
                Ok(None)
            }
            false => Ok(Some(0)),
        }
    }

    /// Sends all of them or none.
    fn operations(
        &mut self,
        burst: &OperationBurst,
        scratch: &mut Vec<u8>,
        turn: &mut Turn<'_>,
    ) -> Result<Option<u32>, LaneError> {
        let len = burst.datagrams().map(|it| {
            let payload = |span: Option<zerolane_core::Span>| span.map_or(0, |it| it.len as usize);
            let of = it.operations();
            let len = of.map(|it| it.head.len() + payload(it.payload) + it.padding as usize);
            record_len(len.sum())
        });
        let len = len.sum();
        if !self.link.has_room(len).map_err(|it| self.broken(it))? {
            return Ok(Some(0));
        }
        for datagram in burst.datagrams() {
            scratch.clear();
            for it in datagram.operations() {
                scratch.extend_from_slice(it.head);
                if let Some(payload) = it.payload {
                    let at = scratch.len();
                    scratch.resize(at + payload.len as usize, 0);
                    if !turn.memory.read(payload, &mut scratch[at..]) {
                        return Err(LaneError::Fault(payload.region));
                    }
                }
                let len = scratch.len();
                scratch.resize(len + it.padding as usize, 0);
            }
            let pushed = self.link.push(Kind::Datagram, &[scratch]);
            pushed.map_err(|it| self.broken(it))?;
        }
        turn.account.datagrams_sent += u64::from(burst.segments);
        Ok(None)
    }

    fn data(
        &mut self,
        burst: &DataBurst,
        done: u32,
        scratch: &mut Vec<u8>,
        turn: &mut Turn<'_>,
    ) -> Result<Option<u32>, LaneError> {
        let flags = burst.header(0).flags;
        // The peer has no place for eager payload; the memory of a datagram is free as soon as that is in the ring.
        let copied = flags.contains(Flags::EAGER) || flags.contains(Flags::DATAGRAM);
        let long = burst.span.len >= u64::from(self.link.by_reference_from());
        if done == 0
            && long
            && !copied
            && turn.memory.is_exclusive(burst.span.region)
            && let Some(start) = turn.memory.source(burst.span)
        {
            let record = reference(burst, start);
            let pushed = self.link.push(Kind::Reference, &[&record]);
            if !pushed.map_err(|it| self.broken(it))? {
                return Ok(Some(0));
            }
            self.outgoing.forget_taken(&mut self.link);
            let named = (self.link.written(), burst.span.region);
            self.outgoing.referenced.push_back(named);
            turn.account.datagrams_sent += u64::from(burst.segments);
            turn.account.bytes_sent += burst.span.len;
            turn.account.bytes_sent_zerocopy += burst.span.len;
            return Ok(None);
        }
        for index in done..burst.segments {
            let start = u64::from(index) * u64::from(burst.stu);
            let len = u64::from(burst.stu).min(burst.span.len - start);
            let header = burst.header(index).emit();
            let span = burst.span.part(start, len);
            let pushed = match turn.memory.bytes(span) {
                Some(payload) => self.link.push(Kind::Datagram, &[&header, payload]),
                None => {
                    scratch.resize(len as usize, 0);
                    if !turn.memory.read(span, scratch) {
                        return Err(LaneError::Fault(span.region));
                    }
                    self.link.push(Kind::Datagram, &[&header, scratch])
                }
            };
            if !pushed.map_err(|it| self.broken(it))? {
                return Ok(Some(index));
            }
            turn.account.datagrams_sent += 1;
            turn.account.bytes_sent += len;
        }
        Ok(None)
    }
}

fn next(turn: &mut Turn<'_>) -> Option<Transmit> {
    let limit = BurstLimit {
        segments: MAX_STUS,
        bytes: MAX_BURST + MAX_STUS * HEADER_LEN as u32,
        train: 0,
    };
    turn.core.poll_transmit(turn.now, limit)
}

/// The record that names a burst: its STUs, and the last one separately if its flags differ.
fn reference(burst: &DataBurst, start: *const u8) -> Vec<u8> {
    let address = start.expose_provenance() as u64;
    let last = burst.segments - 1;
    let before = u64::from(last) * u64::from(burst.stu);
    let run = |header: Header, from: u64, len: u64| {
        let mut run = [0; RUN];
        run[..HEADER_LEN].copy_from_slice(&header.emit());
        run[HEADER_LEN..HEADER_LEN + 8].copy_from_slice(&(address + from).to_ne_bytes());
        run[HEADER_LEN + 8..HEADER_LEN + 12].copy_from_slice(&(len as u32).to_ne_bytes());
        run[HEADER_LEN + 12..].copy_from_slice(&burst.stu.to_ne_bytes());
        run
    };
    let differs = last > 0 && burst.header(last).flags != burst.header(0).flags;
    match differs {
        false => run(burst.header(0), 0, burst.span.len).to_vec(),
        true => {
            let first = run(burst.header(0), 0, before);
            let rest = run(burst.header(last), before, burst.span.len - before);
            [first, rest].concat()
        }
    }
}

const _: () = assert!(MAX_RUNS * RUN <= MAX_RECORD);
