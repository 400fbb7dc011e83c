//! Holds the state that the parts of a connection share.
//!
//! This is the time of the entry, the negotiated capabilities, timers, control operations owed, events, counters, and
//! the debts that are settled at the end of the entry.

use crate::config::Config;
use crate::counters::{Counters, DropReason};
use crate::endings::Endings;
use crate::event::{Event, TransferError};
use crate::limits;
use crate::links::{Links, PathLife};
use crate::path::Path;
use crate::profile::Conduct;
use crate::recovery::{Recovery, Timed};
use crate::request::RemotePlace;
use crate::time::Instant;
use crate::timers::{Timer, Timers};
use crate::transfer::{HANDLE, TransferId};
use crate::transmit::split;
use alloc::collections::VecDeque;
use core::time::Duration;
use zerolane_wire::encapsulation::Encapsulation;
use zerolane_wire::{
    Answer, Capabilities, Eager, End, MAX_DATAGRAM, Nop, Occasion, Operation, Place, Profile,
    Reason, Report, RequestAnswer, Route, State,
};

/// log2 of the peer's buffer size while its capabilities are unknown: the largest possible.
const UNKNOWN_BUFFER_LOG2: u8 = 30;

/// A consequence of an entry. Debts are settled once, in this order, at the end of the entry: a debt owed twice is
/// settled once, and no side effect calls another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Debt {
    /// The peer did what it was asked for: reset the back-off.
    Progress,
    /// The operation that found no room may have it now: ask for it.
    Ready,
    /// Announcements may match posted receives.
    Match,
    /// Reads of the peer may match offers.
    Offer,
    /// Requests on the peer's memory may begin.
    Start,
    /// Queued Transfers may be announced.
    Announce,
    /// This end finishes sending, and everything posted before may be announced; or the peer finished sending, and
    /// everything sent before may have arrived.
    Finish,
    /// Queued Reads may be sent.
    Read,
    /// Blocks may be granted.
    Grant,
    /// Immediates of puts may be shown.
    Show,
    /// A request depends on the peer: watch that it is alive.
    Peer,
}

impl Debt {
    /// All debts in order of settlement.
    const ALL: [Debt; 11] = [
        Debt::Progress,
        Debt::Ready,
        Debt::Match,
        Debt::Offer,
        Debt::Start,
        Debt::Announce,
        Debt::Finish,
        Debt::Read,
        Debt::Grant,
        Debt::Show,
        Debt::Peer,
    ];
}

const _: () = {
    let mut at = 0;
    while at < Debt::ALL.len() {
        assert!(Debt::ALL[at] as usize == at);
        at += 1;
    }
};

/// The debts of an entry, as a bit set. The first debt has the lowest bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Debts(u16);

/// State shared by the parts of a connection.
#[derive(Debug)]
pub(crate) struct Context {
    /// Time of the entry.
    pub(crate) now: Instant,
    /// How long the current datagram had waited in the socket.
    pub(crate) waited: Duration,
    pub(crate) config: Config,
    pub(crate) route: Route,
    /// The peer's capabilities, once known.
    pub(crate) peer: Option<Capabilities>,
    pub(crate) profile: Profile,
    pub(crate) path: Path,
    /// Recovery of the path that carries control operations.
    pub(crate) recovery: Recovery,
    pub(crate) links: Links,
    pub(crate) timers: Timers,
    control: VecDeque<Operation>,
    pub(crate) endings: Endings,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: Counters,
    /// Payload bytes received outside numbered bursts. The peer does not count them as delivered either.
    pub(crate) unnumbered: u64,
    /// A State of a message's payload confirms numbered operations below this.
    pub(crate) confirmed_below: Option<u32>,
    next_id: TransferId,
    next_sync: u32,
    debts: Debts,
}

impl Context {
    pub(crate) fn new(now: Instant, config: Config, route: Route, sync: u32) -> Context {
        Context {
            now,
            waited: Duration::ZERO,
            route,
            peer: None,
            profile: Profile::Extended,
            path: Path::new(config.encapsulation, config.path_datagram),
            recovery: Recovery::adaptive(),
            links: Links::new(),
            timers: Timers::default(),
            control: VecDeque::new(),
            endings: Endings::default(),
            events: VecDeque::new(),
            counters: Counters::default(),
            unnumbered: 0,
            confirmed_below: None,
            next_id: 1,
            next_sync: sync,
            debts: Debts::default(),
            config,
        }
    }

    /// Whether a scheduler bounds grants. The classic profile grants one Block at a time; shared memory has no link,
    /// and no queue in front of the receiver.
    pub(crate) fn is_scheduled(&self) -> bool {
        self.profile.grants_ahead() && self.config.encapsulation != Encapsulation::Memory
    }

    /// Begins an entry at time `now`.
    pub(crate) fn enter(&mut self, now: Instant) {
        self.now = now;
        self.mark_dirty();
    }

    /// Notes that there may be something to send.
    pub(crate) fn mark_dirty(&mut self) {
        self.links.mark_dirty();
    }

    /// Notes that nothing was found to send.
    pub(crate) fn found_nothing(&mut self) {
        self.links.found_nothing();
    }

    /// Whether there is nothing to send before the next entry or timer.
    pub(crate) fn is_quiet(&self) -> bool {
        self.links.is_quiet()
    }

    /// Notes that `debt` must be settled before the entry returns.
    pub(crate) fn owe(&mut self, debt: Debt) {
        self.debts.0 |= 1 << debt as u8;
    }

    /// Removes and returns the debt to settle next.
    pub(crate) fn next_debt(&mut self) -> Option<Debt> {
        let first = Debt::ALL.get(self.debts.0.trailing_zeros() as usize)?;
        self.debts.0 &= self.debts.0 - 1;
        Some(*first)
    }

    /// Drops all debts: the connection is over.
    pub(crate) fn forgive_debts(&mut self) {
        self.debts = Debts::default();
    }

    /// A new identifier of a Transfer or a request, not used recently.
    pub(crate) fn new_id(&mut self) -> TransferId {
        let id = self.next_id;
        self.next_id = self.next_id % (HANDLE - 1) + 1;
        id
    }

    /// A number for an operation that requires an answer.
    pub(crate) fn new_sync(&mut self) -> u32 {
        self.next_sync = self.next_sync.wrapping_add(1);
        self.next_sync
    }

    /// Continues as if this many identifiers and numbers had been assigned before.
    #[cfg(test)]
    pub(crate) fn age(&mut self, id: TransferId, sync: u32) {
        (self.next_id, self.next_sync) = (id, sync);
    }

    /// Queues a control operation. A timer repeats each of them, so a full queue only delays an operation.
    pub(crate) fn push_control(&mut self, operation: Operation) {
        if self.control.len() < limits::MAX_CONTROL_QUEUE {
            self.control.push_back(operation);
        } else {
            self.counters.count_drop(DropReason::Limit, 1);
        }
    }

    /// Queues a State of payload. Progress leaves by the path of the burst that it reports. By another path, the
    /// measured round trip would belong to neither, and a longer way back would look like a queue.
    pub(crate) fn push_state(&mut self, state: State) {
        let (Occasion::Seen(burst) | Occasion::Reply(burst)) = state.occasion;
        let tells_progress = matches!(state.report, Report::Progress(_));
        if !tells_progress || !self.links.is_several() {
            return self.push_control(Operation::State(state));
        }
        let path = self.links.of_burst(burst);
        let answers = self.links.life(path) != PathLife::Suspect && !self.links.is_doubted(path);
        if answers && self.links.owe(path, Operation::State(state)) {
            return;
        }
        self.push_control(Operation::State(State {
            report: Report::NOTHING,
            ..state
        }));
    }

    /// Whether a control operation waits to leave.
    pub(crate) fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// The control operation that leaves next.
    pub(crate) fn pop_control(&mut self) -> Option<Operation> {
        self.control.pop_front()
    }

    /// Drops all queued control operations.
    pub(crate) fn clear_control(&mut self) {
        self.control.clear();
    }

    /// Defers an announcement or a Read of the peer.
    pub(crate) fn answer_later(&mut self, d_id: u32) {
        self.push_control(Operation::RequestAnswer(RequestAnswer {
            answer: Answer::Later(Reason::NotReady),
            d_id,
            room: 0,
            numbered: false,
        }));
    }

    /// Refuses a request of the peer.
    pub(crate) fn refuse(&mut self, d_id: u32, why: Refusal) {
        self.push_control(Operation::RequestAnswer(RequestAnswer {
            answer: Answer::Refused(why.reason),
            d_id,
            room: why.room,
            numbered: false,
        }));
    }

    /// Sends an End until the peer confirms it.
    pub(crate) fn send_end(&mut self, end: End) {
        self.send_end_behind(end, None);
    }

    /// As [`Context::send_end`], but not before the message of number `follows` was executed.
    pub(crate) fn send_end_behind(&mut self, end: End, follows: Option<u32>) {
        self.counters.records_dropped += self.endings.push(self.now, end, follows);
        self.timers.set_earlier(Timer::Answers, self.now);
        self.owe(Debt::Peer);
    }

    /// Asks the peer for an answer.
    pub(crate) fn ping(&mut self) {
        let sync = self.new_sync();
        self.recovery.time(Timed::Nop(sync), self.now);
        self.push_control(Operation::Nop(Nop {
            send_state: true,
            sync,
            ..Nop::default()
        }));
    }

    /// Payload bytes of one datagram that every path carries.
    pub(crate) fn room(&self) -> u32 {
        let first = self.path.confirmed();
        let least = self.links.datagrams().fold(first, usize::min);
        (least as u32).saturating_sub(self.overhead()).max(1)
    }

    /// `path` lost a datagram: checks from time to time whether its length was the reason.
    pub(crate) fn doubt_path(&mut self, path: usize) {
        match path {
            0 if self.path.doubt(self.now) => {
                self.timers.set_earlier(Timer::PathProbe, self.now);
            }
            1.. if self.links.doubt_size(self.now, path) => self.arm_links(),
            _ => {}
        }
    }

    /// Datagrams are repeated in vain: checks whether the path carries the least size, if that is in use.
    pub(crate) fn verify_least_size(&mut self) {
        if self.path.verify_least() {
            self.timers.set_earlier(Timer::PathProbe, self.now);
        }
    }

    /// A datagram of the size in use arrived by `path`.
    pub(crate) fn prove_path(&mut self, path: usize) {
        match path {
            0 => self.path.proven(),
            _ => self.links.proven(path),
        }
    }

    /// The size of the datagrams of `path`.
    pub(crate) fn size_of(&self, path: usize) -> &Path {
        self.links.size_of(path).unwrap_or(&self.path)
    }

    /// Payload bytes of an STU sent at present.
    pub(crate) fn stu(&self) -> u32 {
        let path = self.room();
        let peer = self.peer.map_or(u32::MAX, |peer| peer.max_stu);
        let limit = path.min(peer).max(1);
        match self.profile.has_any_lengths() {
            false => crate::tiling::power_of_two_stu(limit),
            // Multiples of 8 keep the destination as aligned as the source.
            true if limit >= 64 => limit & !7,
            true => limit,
        }
    }

    /// The recovery of `path`.
    pub(crate) fn recovery_of(&self, path: usize) -> &Recovery {
        match path == self.links.control {
            true => &self.recovery,
            false => self.links.parked(path).unwrap_or(&self.recovery),
        }
    }

    /// As [`Context::recovery_of`], mutable.
    pub(crate) fn recovery_of_mut(&mut self, path: usize) -> &mut Recovery {
        match path != self.links.control {
            true => self.links.parked_mut(path).unwrap_or(&mut self.recovery),
            false => &mut self.recovery,
        }
    }

    /// The longest round trip of the carrying paths.
    pub(crate) fn longest_rtt(&self) -> Duration {
        self.longest(Recovery::rtt).unwrap_or_default()
    }

    /// The longest of their shortest round trips.
    pub(crate) fn longest_min_rtt(&self) -> Option<Duration> {
        self.longest(Recovery::min_rtt)
    }

    /// The longest wait for payload, or for an answer to it, of the carrying paths.
    pub(crate) fn longest_data_timeout(&self) -> Duration {
        self.longest(|it| Some(it.data_timeout()))
            .unwrap_or_else(|| self.recovery.data_timeout())
    }

    /// The longest wait for a repair, of the carrying paths.
    pub(crate) fn longest_repair_timeout(&self) -> Duration {
        self.longest(|it| Some(it.repair_timeout()))
            .unwrap_or_else(|| self.recovery.repair_timeout())
    }

    /// Payload leaves or arrives: watches closely for paths that bring nothing.
    pub(crate) fn watch_payload(&mut self) {
        if self.links.is_several() {
            self.links.on_payload(self.now);
            self.arm_links();
        }
    }

    /// A request depends on the peer, and so on its paths.
    pub(crate) fn watch_links(&mut self) {
        if self.links.is_several() {
            self.links.watch(self.now);
            self.arm_links();
        }
    }

    /// Sets the timer of the next path check.
    pub(crate) fn arm_links(&mut self) {
        match self.links.next_due() {
            Some(at) => self.timers.set(Timer::Links, at.max(self.now)),
            None => self.timers.stop(Timer::Links),
        }
    }

    fn longest(&self, of: impl Fn(&Recovery) -> Option<Duration>) -> Option<Duration> {
        if !self.links.is_several() {
            return of(&self.recovery);
        }
        let carrying = self.links.carrying();
        carrying.filter_map(|path| of(self.recovery_of(path))).max()
    }

    /// Sends control operations by `path` from now on.
    pub(crate) fn set_control(&mut self, path: usize) {
        self.links.set_control(path, &mut self.recovery);
    }

    /// Bytes of a datagram that are not payload: header and seal.
    pub(crate) fn overhead(&self) -> u32 {
        (zerolane_wire::HEADER_LEN + self.config.seal) as u32
    }

    /// Bytes around the payload of a train: its header, and the seal or digest that proves it complete.
    pub(crate) fn train_overhead(&self) -> u32 {
        let check = match self.config.seal {
            0 => zerolane_wire::DIGEST_LEN,
            seal => seal,
        };
        (zerolane_wire::HEADER_LEN + check) as u32
    }

    /// Binary logarithm of this end's buffer size.
    pub(crate) fn buffer_log2(&self) -> u8 {
        self.config.buffer_log2
    }

    /// Binary logarithm of the peer's buffer size.
    pub(crate) fn peer_buffer_log2(&self) -> u8 {
        self.peer
            .map_or(UNKNOWN_BUFFER_LOG2, |peer| peer.buffer_log2)
    }

    /// A place of the peer's memory, as operations name it.
    pub(crate) fn wire_place(&self, place: RemotePlace) -> Place {
        let (bufx, offset) = split(place.address, self.peer_buffer_log2());
        Place {
            handle: place.handle,
            mx: place.mx,
            bufx,
            offset,
        }
    }

    /// Announcements and Reads of the peer that this end holds.
    pub(crate) fn slots(&self) -> u16 {
        self.config.slots.clamp(1, limits::MAX_SLOTS)
    }

    /// Announcements, or Reads, that the peer holds for this end.
    pub(crate) fn peer_slots(&self) -> u16 {
        self.peer
            .map_or(1, |peer| peer.slots.min(limits::MAX_SLOTS))
    }

    /// The eager limits of this end.
    pub(crate) fn eager(&self) -> Eager {
        self.config.eager()
    }

    /// The eager limits of the peer, as far as this end uses them.
    pub(crate) fn peer_eager(&self) -> Eager {
        let peer = self.peer.map_or(Eager::NONE, |peer| peer.eager);
        Eager {
            limit: peer.limit.min(self.eager().limit),
            ..peer
        }
    }

    /// Fails receives that nothing of the peer will match.
    pub(crate) fn fail_finished(&mut self, receives: impl Iterator<Item = TransferId>) {
        let error = TransferError::Finished;
        let failed = receives.map(|id| Event::Failed { id, error });
        self.events.extend(failed);
    }

    /// Whether this end accepts several numbered operations in one datagram.
    pub(crate) fn takes_frames(&self) -> bool {
        self.config.frames
    }

    /// Whether this end accepts datagrams.
    pub(crate) fn takes_datagrams(&self) -> bool {
        self.config.datagrams
    }

    /// Longest datagram that the peer accepts, bytes; 0: none.
    pub(crate) fn max_datagram(&self) -> u32 {
        let accepts = self.takes_datagrams() && self.peer.is_some_and(|peer| peer.datagrams);
        if accepts { MAX_DATAGRAM } else { 0 }
    }

    /// Whether this end accepts advance grants.
    pub(crate) fn takes_advance_grants(&self) -> bool {
        self.config.advance_grants
    }

    /// Whether this end gives advance grants.
    pub(crate) fn gives_advance_grants(&self) -> bool {
        self.takes_advance_grants() && self.peer.is_some_and(|peer| peer.advance_grants)
    }

    /// Whether this end gives advance grants to receives of messages.
    pub(crate) fn gives_advance_to_messages(&self) -> bool {
        self.takes_advance_grants() && self.peer.is_some_and(|peer| peer.advance_messages)
    }

    /// Whether this end sends several numbered operations in one datagram.
    pub(crate) fn sends_frames(&self) -> bool {
        self.takes_frames() && self.peer.is_some_and(|peer| peer.frames)
    }

    /// Whether Data carries checksums: either end asked for them.
    pub(crate) fn uses_checksums(&self) -> bool {
        self.config.checksum || self.peer.is_some_and(|peer| peer.checksum)
    }

    /// Time between two keep-alives.
    pub(crate) fn keepalive(&self) -> Duration {
        self.config.idle_timeout / limits::KEEPALIVES_PER_IDLE_TIMEOUT
    }

    pub(crate) fn assert_bounded(&self) {
        assert!(self.control.len() <= limits::MAX_CONTROL_QUEUE);
        self.endings.assert_bounded();
    }
}

/// The reason for a permanent refusal of a request of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    /// With [`Reason::MessageTooLarge`]: the room of the receive, bytes.
    pub(crate) room: u64,
}

impl Refusal {
    pub(crate) const CANCELLED: Refusal = Refusal::because(Reason::Cancelled);

    pub(crate) const fn because(reason: Reason) -> Refusal {
        Refusal { reason, room: 0 }
    }
}
