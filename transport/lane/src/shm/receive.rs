//! Receives records from the ring, one after the other, each copied before it is parsed.

use super::link::{Kind, Reading};
use super::peer::{Copied, MAX_RUNS, ReadError};
use super::send::{MAX_BURST, RUN};
use super::{LOOK_INTERVAL, ShmLane};
use crate::account::MoveCause;
use crate::arrival::{Delivered, deliver_data, deliver_now};
use crate::error::LaneError;
use crate::lane::Turn;
use crate::memory::fault;
use crate::unavailable::RingFault;
use std::cell::Cell;
use zerolane_core::{Claim, DropReason, HandshakeOutcome, RegionId};
use zerolane_wire::handshake::HandshakeMessage;
use zerolane_wire::{HEADER_LEN, Header, Op};

/// Records, and bytes of their payload, taken in one turn; the rest waits for the next one. A sender of a few short
/// Transfers can continue only after it learns of one, at the end of a turn.
const RECORDS_PER_TURN: usize = 64;
const BYTES_PER_TURN: usize = 128 << 10;

thread_local! {
    /// The buffer for records of all connections that this thread drives.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Payload of consecutive STUs, in the peer's memory.
struct Run {
    header: Header,
    address: u64,
    len: u32,
    stu: u32,
}

impl Run {
    fn parse(bytes: &[u8; RUN]) -> Option<Run> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let (address, rest) = rest.split_first_chunk()?;
        let (len, stu) = rest.split_first_chunk()?;
        let run = Run {
            header: Header::parse(header).ok().filter(|it| it.op == Op::Data)?,
            address: u64::from_ne_bytes(*address),
            len: u32::from_ne_bytes(*len),
            stu: u32::from_ne_bytes(stu.try_into().ok()?),
        };
        let fits = run.len <= MAX_BURST && run.stu > 0;
        fits.then_some(run)
    }
}

/// What records brought, unless the peer violated the protocol.
#[derive(Default)]
struct Taken {
    /// Bytes copied from the peer's memory to their place.
    placed: u64,
    /// What became of payload in the ring.
    delivered: Delivered,
}

impl Taken {
    fn add(&mut self, next: Taken) {
        self.placed += next.placed;
        self.delivered = self.delivered.and(next.delivered);
    }
}

impl ShmLane {
    /// Takes a bounded number of records from the ring. True if there were any.
    pub(super) fn take_arrived(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError> {
        if self.fault.is_some() {
            return Ok(false);
        }
        if !self.link.has_more() {
            turn.account.rx_empty_polls += 1;
            return self.look_at_peer(turn);
        }
        self.link.disarm(false);
        self.link.try_reading();
        if self.sent == Some(turn.now) {
            // Such an answer comes later than the turn's start. Otherwise no system call lies between the turn's time
            // and this.
            turn.refresh();
        }
        let mut record = SPARE.take();
        let taken = self.take_records(&mut record, turn);
        SPARE.set(record);
        // Whatever their results, all records were copied, or are retired.
        self.link.release();
        taken
    }

    fn take_records(
        &mut self,
        record: &mut Vec<u8>,
        turn: &mut Turn<'_>,
    ) -> Result<bool, LaneError> {
        let (mut bytes, mut all) = (0, Taken::default());
        for number in 1..=RECORDS_PER_TURN {
            let next = self.link.next(record).map_err(|it| self.broken(it))?;
            let Some((kind, position)) = next else {
                break;
            };
            let taken = match kind {
                Kind::Datagram => self.datagram(record, turn),
                Kind::Reference => self.reference(record, position, turn)?,
                // An unauthenticated peer may not lend memory.
                Kind::Region if self.waiting => return Err(self.broken(RingFault::Record)),
                Kind::Region => {
                    self.region(record, turn)?;
                    Taken::default()
                }
            };
            bytes += record.len() + taken.placed as usize;
            all.add(taken);
            turn.more = number == RECORDS_PER_TURN || bytes >= BYTES_PER_TURN;
            if turn.more {
                break;
            }
        }
        let Delivered { moved, fault } = all.delivered;
        match fault {
            _ if self.strict && moved > 0 => Err(LaneError::Strict {
                bytes: moved as usize,
            }),
            Some(region) => Err(LaneError::Fault(region)),
            None => Ok(true),
        }
    }

    /// With nothing to receive, checks whether the peer is still there.
    fn look_at_peer(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError> {
        // This end may have been woken by the peer's end.
        let due = turn.now >= self.next_look || self.link.is_armed();
        if due {
            self.next_look = turn.now + LOOK_INTERVAL;
            self.link.look_at_process();
            self.reached.forget_ended(&self.link);
        }
        self.link.disarm(due);
        // Records that it wrote before it ended are taken first.
        let gone = self.link.is_closed() && !self.link.has_more();
        match gone && turn.core.life() != zerolane_core::Life::Closed {
            true => Err(LaneError::Gone),
            false => Ok(false),
        }
    }

    fn datagram(&mut self, record: &[u8], turn: &mut Turn<'_>) -> Taken {
        turn.account.datagrams_received += 1;
        if HandshakeMessage::is(record) && self.exchange.is_some() {
            self.take_handshake(record, turn);
            return Taken::default();
        }
        if self.waiting {
            turn.core.on_dropped(DropReason::Unprotected);
            return Taken::default();
        }
        Taken {
            placed: 0,
            delivered: deliver_now(record, MoveCause::Ring, turn),
        }
    }

    /// Takes a message of the key exchange, and tells the core the result.
    fn take_handshake(&mut self, record: &[u8], turn: &mut Turn<'_>) {
        let request = turn.core.request();
        let outcome = match &mut self.exchange {
            Some(exchange) => {
                let (outcome, session) = exchange.take(record, request.bytes());
                if let Some(session) = session {
                    // The keys are not used: see the module.
                    self.peer_key = Some(session.peer);
                    self.waiting = false;
                }
                outcome
            }
            None => HandshakeOutcome::Nothing,
        };
        turn.core.on_handshake(turn.now, outcome);
    }

    /// Copies the payload that the record at `position` names to its place.
    fn reference(
        &mut self,
        record: &[u8],
        position: u64,
        turn: &mut Turn<'_>,
    ) -> Result<Taken, LaneError> {
        let (runs, rest) = record.as_chunks::<RUN>();
        if runs.is_empty() || runs.len() > MAX_RUNS || !rest.is_empty() {
            return Err(self.broken(RingFault::Record));
        }
        let mut taken = Taken::default();
        let mut placed = Vec::with_capacity(MAX_RUNS);
        for bytes in runs {
            let Some(run) = Run::parse(bytes) else {
                return Err(self.broken(RingFault::Record));
            };
            turn.account.datagrams_received += u64::from(run.len.div_ceil(run.stu));
            if self.waiting {
                turn.core.on_dropped(DropReason::Unprotected);
                continue;
            }
            let claim = turn.core.claim(&run.header, run.len).ok();
            let target = claim.and_then(|it| turn.memory.target(it.span()).map(|to| (it, to)));
            match target {
                Some((claim, to)) => placed.push((run, claim, to)),
                // A part may already be in place: the core names the missing part only when it sees the payload.
                None => {
                    let fault = self.copy_through_buffer(&run, position, turn)?;
                    taken.delivered.fault = taken.delivered.fault.or(fault);
                }
            }
        }
        if placed.is_empty() {
            return Ok(taken);
        }
        let parts: Vec<Copied> = placed
            .iter()
            .map(|(run, _, to)| Copied {
                from: run.address,
                to: *to,
                len: run.len as usize,
            })
            .collect();
        if !self.copy(&parts, position, turn, |turn| is_missing(&placed, turn))? {
            return Ok(taken);
        }
        for (run, claim, _) in &placed {
            let noted = turn.core.on_placed(turn.now, &run.header, *claim, run.stu);
            if noted.is_ok() {
                turn.account.bytes_placed += u64::from(run.len);
                taken.placed += u64::from(run.len);
            }
        }
        Ok(taken)
    }

    /// Copies `parts` out of the peer's memory. False if they must not be used, and count as lost.
    fn copy(
        &mut self,
        parts: &[Copied],
        position: u64,
        turn: &mut Turn<'_>,
        missing: impl FnOnce(&Turn<'_>) -> Option<RegionId>,
    ) -> Result<bool, LaneError> {
        if self.link.is_retired(position) {
            turn.account.dropped_revoked += 1;
            return Ok(false);
        }
        let Reading::Works(mark) = self.link.reading else {
            // The peer was told that its memory cannot be read, perhaps after it wrote this record.
            return Ok(false);
        };
        turn.account.rx_data_syscalls += 1;
        // SAFETY: the targets are open for writing in the Registry, for this turn, and long enough; they are granted
        // and not reported yet, or our own. Others access exported memory atomically only.
        let read = unsafe { self.link.process.read(parts, mark) };
        // Retired memory may hold any bytes, or not be mapped.
        if self.link.is_retired(position) {
            turn.account.dropped_revoked += 1;
            return Ok(false);
        }
        match read {
            Ok(()) => Ok(true),
            // The socket reports that.
            Err(ReadError::Gone) => Ok(false),
            Err(ReadError::Refused) => {
                self.link.stop_reading();
                Ok(false)
            }
            Err(ReadError::Fault) => match missing(turn) {
                Some(region) => Err(LaneError::Fault(region)),
                None => Err(self.broken(RingFault::Address)),
            },
        }
    }

    /// Copies a run into the lane's own memory, and its missing part to its place from there. Returns the region of that
    /// place if its memory is gone.
    fn copy_through_buffer(
        &mut self,
        run: &Run,
        position: u64,
        turn: &mut Turn<'_>,
    ) -> Result<Option<RegionId>, LaneError> {
        let mut buffer = vec![0; run.len as usize];
        let part = Copied {
            from: run.address,
            to: buffer.as_mut_ptr(),
            len: buffer.len(),
        };
        if !self.copy(&[part], position, turn, |_| None)? {
            return Ok(None);
        }
        let cause = MoveCause::Mispredicted;
        Ok(deliver_data(&run.header, &buffer, run.stu, cause, turn).fault)
    }
}

/// The first region that cannot be written: a mapped file that shrank.
fn is_missing(placed: &[(Run, Claim, *mut u8)], turn: &Turn<'_>) -> Option<RegionId> {
    let files = placed
        .iter()
        .filter(|(_, claim, _)| turn.memory.is_file(claim.span().region));
    files
        .filter(|(run, _, to)| {
            // SAFETY: the registry has these bytes open, so they are mapped.
            let writable = unsafe { fault::is_writable(*to, run.len as usize) };
            writable != Some(true)
        })
        .map(|(_, claim, _)| claim.span().region)
        .next()
}
