//! Drives one connection over one lane in the calling thread.

mod arrived;
mod borrowed;
mod completion;
mod completions;
mod controls;
mod datagrams;
mod direct;
mod error;
mod exports;
mod ids;
mod incoming;
mod kind;
mod messages;
mod post;
mod receives;
#[cfg(test)]
mod scripted;
mod wait;

pub use completion::{Completion, MessageControl};
pub use error::{DriverError, NotPosted};
pub use ids::IdHasher;
pub use kind::WorkKind;
pub use post::Report;
pub use wait::OnWake;

use crate::account::{Account, MoveCause};
use crate::error::LaneError;
use crate::lane::{Lane, Turn};
use crate::memory::{Datagrams, Holds, Registry};
use crate::options::Options;
use crate::threads::Process;
use crate::wait::{Clock, Waker};
use completion::Held;
use completions::Completions;
use core::fmt;
use exports::Exports;
use post::Posted;
use receives::Receives;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::time::Duration;
use wait::Nap;
use zerolane_core::{
    CloseReason, Connection, FastAnswer, HoldOrder, Instant, Life, PathState, PostError, RegionId,
    SendingMark, Span, TransferId,
};
use zerolane_wire::Reason;

/// What a turn of the loop does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Takes arrivals, fires due timers, and sends what the connection owes.
    Whole,
    /// The same for a socket in which nothing has arrived, which it does not read. If the peer is silent, this is a
    /// whole turn, which looks for the peer at other addresses.
    WithoutInput,
    /// Sends what the connection owes.
    Send,
    /// The same, and control operations that could otherwise wait for a later datagram: the caller is about to sleep.
    BeforeSleep,
}

/// The result of one turn of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something was received or sent.
    Moved,
    /// Nothing to do until a datagram arrives or a timer expires.
    Idle,
}

/// One connection over one lane. It makes progress only inside its calls.
pub struct Driver<L: Lane> {
    lane: L,
    core: Connection,
    memory: Registry,
    /// Payload that came before its receive was posted.
    holds: Holds,
    /// Datagrams of the peer.
    datagrams: Datagrams,
    posted: HashMap<TransferId, Posted, BuildHasherDefault<IdHasher>>,
    exports: Exports,
    receives: Receives,
    completions: Completions,
    /// Completions that were taken and not yet read by the user.
    unread_external: usize,
    /// Completions whose memory the lane still holds.
    held: Vec<Held>,
    account: Account,
    clock: Clock,
    /// The time of the last turn.
    turned: Instant,
    waker: Waker,
    max_spin: Duration,
    /// Longest wait of a call for the end of its request.
    request_timeout: Option<Duration>,
    spin: Duration,
    nap: Nap,
    /// The process that owns the connection. A child of fork has a copy, and must not use it.
    process: Process,
    connected: bool,
    closed: Option<CloseReason>,
    /// The last turn moved something, so the next one may find more.
    moved: bool,
    /// The lane stopped at the limit of the last turn.
    more: bool,
    /// The next whole turn ends what [`Driver::defer_operations`] began.
    resumes: bool,
}

impl<L: Lane + fmt::Debug> fmt::Debug for Driver<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("lane", &self.lane)
            .field("core", &self.core)
            .finish_non_exhaustive()
    }
}

/// Tells the peer once, if the network accepts the datagram. Otherwise the peer detects the end by its timeout.
impl<L: Lane> Drop for Driver<L> {
    fn drop(&mut self) {
        // The socket belongs to the parent as well, which continues to use it.
        if self.process.is_current() {
            self.say_goodbye();
        }
        if self.process.is_current() {
            // A child has no other thread that could access it.
            self.memory.delegations.call_back_all();
        }
        self.leave_what_is_held();
    }
}

impl<L: Lane> Driver<L> {
    fn say_goodbye(&mut self) {
        self.core.refuse(self.clock.now());
        if self.core.life() == Life::Answered {
            // A refusal leaves. The operation that proves the peer's address may be in the socket; before that proof,
            // the peer is told nothing.
            let _ = self.turn(Step::Whole);
        }
        if self.core.life() != Life::Established {
            return;
        }
        let now = self.clock.now();
        self.core.close_with(now, Reason::GoingAway);
        self.core.on_timeout(now);
        // There is no caller left to take an error.
        let _ = self.turn(Step::Send);
    }

    /// Recalls sent memory, and leaks memory that the kernel still reads, because otherwise the bytes of its next owner
    /// would be sent.
    fn leave_what_is_held(&mut self) {
        let posted = self.posted.drain().map(|(_, it)| {
            let context = it.info.report.context;
            (it.region, it.memory, it.pooled, context)
        });
        let held = self.held.drain(..);
        let done = held.map(
            |Held {
                 region,
                 completion: it,
                 ..
             }| { (Some(region), it.memory, it.pooled, it.context) },
        );
        for (region, memory, pooled, context) in posted.chain(done) {
            let Some(region) = region else { continue };
            self.lane.recall(region);
            match self.lane.holds(region) {
                true => std::mem::forget(memory),
                false => self.receives.give_back(pooled, memory, context),
            }
        }
        while let Some(completion) = self.completions.discard() {
            self.recycle(completion);
        }
    }
}

impl<L: Lane> Driver<L> {
    pub(crate) fn new(
        lane: L,
        options: &Options,
        core: impl FnOnce(Instant) -> Connection,
    ) -> Driver<L> {
        let made: Result<_, (std::convert::Infallible, L)> =
            Driver::try_new(lane, options, |now| Ok(core(now)));
        match made {
            Ok(driver) => driver,
        }
    }

    /// # Errors
    /// That of `core`, with the lane.
    pub(crate) fn try_new<E>(
        lane: L,
        options: &Options,
        core: impl FnOnce(Instant) -> Result<Connection, E>,
    ) -> Result<Driver<L>, (E, L)> {
        let clock = Clock::start();
        let mut core = match core(clock.now()) {
            Ok(core) => core,
            Err(error) => return Err((error, lane)),
        };
        if let Some(scheduler) = &options.rate.scheduler {
            core.set_admission(scheduler.join());
        }
        Ok(Driver {
            lane,
            core,
            memory: Registry::default(),
            holds: Holds::default(),
            datagrams: Datagrams::default(),
            posted: HashMap::default(),
            exports: Exports::default(),
            receives: Receives::default(),
            completions: Completions::default(),
            unread_external: 0,
            held: Vec::new(),
            account: Account::default(),
            clock,
            turned: Instant::ZERO,
            waker: Waker::default(),
            max_spin: options.times.spin,
            request_timeout: None,
            spin: options.times.spin,
            nap: Nap::default(),
            process: Process::current(),
            connected: false,
            closed: None,
            moved: false,
            more: false,
            resumes: false,
        })
    }

    /// Measures time as [`Clock::of_this_thread`] from now on.
    #[cfg(test)]
    pub(crate) fn count_time_of_thread(&mut self) {
        self.clock = Clock::of_this_thread(self.clock.now());
    }

    /// The lane.
    pub fn lane_mut(&mut self) -> &mut L {
        &mut self.lane
    }

    /// The time until the next turn is due, if nothing arrives. Zero after a turn that moved something: a turn is
    /// bounded and may have left more.
    pub fn next_timeout(&self) -> Option<Duration> {
        // A child of fork must turn at once to learn that it has no connection: a lane in shared memory would tell the
        // peer that this end sleeps.
        if self.moved || self.resumes || self.receives.may_take() || !self.process.is_current() {
            return Some(Duration::ZERO);
        }
        let of_core = self.core.next_timeout().map(|at| at - self.clock.now());
        of_core.into_iter().chain(self.lane.longest_sleep()).min()
    }

    /// The time until a timer of the connection is due; `None`: no timer runs. Unlike [`Driver::next_timeout`], this
    /// leaves out the lane's periodic checks, which a worker performs by its own means.
    pub fn next_timer(&self) -> Option<Duration> {
        self.core.next_timeout().map(|at| at - self.clock.now())
    }

    /// Whether the last turn moved something.
    pub fn has_moved(&self) -> bool {
        self.moved
    }

    /// Whether a turn is due that neither the socket nor a timer announces: the last one stopped at its limit.
    pub fn has_more(&self) -> bool {
        self.more
    }

    /// Whether a turn is also due when the socket has room to send.
    pub fn wants_write(&self) -> bool {
        self.lane.wants_write()
    }

    /// The lane.
    pub fn lane(&self) -> &L {
        &self.lane
    }

    /// # Errors
    /// [`DriverError::Forked`]: this process is a child of the process that owns the connection. The parent continues
    /// with the numbers, keys and socket.
    pub fn check_process(&self) -> Result<(), DriverError> {
        match self.process.is_current() {
            true => Ok(()),
            false => Err(DriverError::Forked),
        }
    }

    /// A handle with which another thread ends a [`Driver::wait`] early. It ends no request.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Cancels a Transfer: its completion follows at once, or when the kernel releases memory that it was lent. False
    /// if the Transfer is over, or belongs to the parent of this process.
    pub fn cancel(&mut self, id: TransferId) -> bool {
        if !self.process.is_current() {
            return false;
        }
        let cancelled = self.core.cancel(self.clock.now(), id);
        self.collect();
        cancelled
    }

    /// Finishes sending: posted requests are delivered, and no later request that needs a receive may be posted.
    ///
    /// # Errors
    /// The connection is closed, or belongs to the parent of this process.
    pub fn finish(&mut self) -> Result<(), PostError> {
        self.check_poster()?;
        self.core.finish(self.clock.now())
    }

    /// Requests fast mode: this connection receives at full speed, and others to this end at a trickle.
    pub fn request_fast(&mut self) -> FastAnswer {
        self.core.request_fast(self.clock.now())
    }

    /// Sets the connection's share of this end's link while others of its scheduler receive too, relative to theirs: 1
    /// unless set, 0 counts as 1.
    pub fn set_weight(&mut self, weight: u32) {
        self.core.set_weight(weight);
    }

    /// Sets the most payload to send from now on, in bytes per second, as
    /// [`RateOptions::max`](crate::options::RateOptions::max).
    pub fn set_max_rate(&mut self, max_rate: Option<u64>) {
        self.core.set_max_rate(max_rate);
    }

    /// The paths of the connection, by index: the first is 0.
    pub fn paths(&self) -> Vec<(usize, PathState)> {
        let now = self.clock.now();
        let all = 0..self.core.max_paths();
        all.filter_map(|path| Some((path, self.core.state_of(now, path)?)))
            .collect()
    }

    /// Stops using path `path`, which must not be the first: other paths retransmit what it had in flight.
    pub fn remove_path(&mut self, path: usize) {
        self.core.remove_path(self.clock.now(), path);
    }

    /// Makes the peer's puts, gets, atomic operations, messages and requests for regions wait, because the program has
    /// not taken the connection yet. Nothing is refused meanwhile.
    pub fn defer_operations(&mut self) {
        self.core.defer_operations(self.clock.now(), true);
    }

    /// Ends that with the next whole turn, so that the program can export memory and post receives before.
    pub fn resume_operations(&mut self) {
        self.resumes = true;
    }

    /// Starts to disconnect.
    pub fn close(&mut self) {
        self.core.close(self.clock.now());
        self.collect();
    }

    /// Whether the handshake is done.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Why the connection ended, if it has.
    pub fn closed(&self) -> Option<CloseReason> {
        self.closed
    }

    /// The state of the connection.
    pub fn life(&self) -> Life {
        self.core.life()
    }

    /// Length of the announced Transfer that waits for a receive, if there is one.
    pub fn announced(&self) -> Option<u64> {
        self.core.announced()
    }

    /// Requests in progress, without puts posted inline.
    pub fn in_flight(&self) -> usize {
        self.posted.len() + self.held.len()
    }

    /// Whether no request is in progress, without puts posted inline, and no completion waits to be taken.
    pub fn is_idle(&self) -> bool {
        self.in_flight() == 0 && self.completions.len() == 0
    }

    /// Whether there is a completion that is not deferred.
    pub fn has_completion(&self) -> bool {
        self.completions.visible() > 0
    }

    /// Whether there is a completion that wakes, or for which a caller waits: see [`Delivery`](zerolane_core::Delivery).
    pub fn has_notice(&self) -> bool {
        self.completions.notified() > 0
    }

    /// Whether a [`Waker`] was used since the last call.
    pub fn take_wake(&mut self) -> bool {
        self.waker.take()
    }

    /// Whether a send is in progress.
    pub fn is_sending(&self) -> bool {
        self.core.is_sending()
    }

    /// How far posted requests have progressed: see [`SendingMark`].
    pub fn sending_mark(&self) -> SendingMark {
        self.core.sending_mark()
    }

    /// The counters so far.
    pub fn account(&self) -> Account {
        let mut account = self.account;
        account.protocol = *self.core.counters();
        account.stu = self.core.stu();
        account.path = self.core.path_state(self.clock.now());
        self.lane.describe(&mut account);
        account
    }

    /// Does one turn. Never sleeps.
    ///
    /// # Errors
    /// A system call failed, strict mode would have needed a copy, or [`Driver::check_process`] failed.
    pub fn turn(&mut self, step: Step) -> Result<Progress, DriverError> {
        self.check_process()?;
        let now = self.clock.now();
        self.enter_exports(now);
        let moved = self.turn_entered(step, now);
        self.exports.leave();
        self.collect();
        let moved = moved?;
        self.moved |= moved;
        Ok(if moved {
            Progress::Moved
        } else {
            Progress::Idle
        })
    }

    /// True if something was received or sent.
    fn turn_entered(&mut self, step: Step, now: Instant) -> Result<bool, DriverError> {
        match step {
            Step::Whole => return self.turn_whole(now),
            Step::WithoutInput if self.core.is_peer_silent(now) => return self.turn_whole(now),
            Step::WithoutInput => {
                (self.more, self.moved) = (false, false);
                self.supply_deferred();
                if self.core.is_due(now) {
                    self.core.on_timeout(now);
                }
            }
            Step::Send => {}
            Step::BeforeSleep => {
                self.supply_deferred();
                self.core.confirm_now();
            }
        }
        self.transmit(now)
    }

    fn turn_whole(&mut self, now: Instant) -> Result<bool, DriverError> {
        (self.more, self.moved) = (false, false);
        if std::mem::take(&mut self.resumes) {
            self.core.defer_operations(now, false);
        }
        self.supply_deferred();
        // New requests are sent before the socket is read.
        let eager = self.core.is_eager() && self.transmit(now)?;
        let (lane, mut turn) = self.lend(now);
        let received = lane.receive(&mut turn);
        let (more, received_at) = (turn.more, turn.now);
        self.note_supplied();
        // The time of the turn's start may be old: see `Turn::refresh`. It suffices if nothing arrived, because then
        // nothing is sent by it.
        let now = match received {
            Ok(true) => received_at,
            Ok(false) if self.core.is_quiet() && !self.core.is_due(now) => now,
            _ => self.clock.now(),
        };
        self.turned = now;
        self.more |= more;
        let received = self.survive(received)?;
        if self.core.is_due(now) {
            self.core.on_timeout(now);
        }
        Ok(self.transmit(now)? || received || eager)
    }

    /// The lane, and the parts that it works with.
    fn lend(&mut self, now: Instant) -> (&mut L, Turn<'_>) {
        let turn = Turn {
            now,
            core: &mut self.core,
            memory: &mut self.memory,
            receives: self.receives.supplier(),
            holds: &mut self.holds,
            datagrams: &mut self.datagrams,
            account: &mut self.account,
            more: false,
            clock: self.clock,
        };
        (&mut self.lane, turn)
    }

    /// Carries out the core's orders for held payload, before the peer or the user learns of it.
    fn place_held(&mut self) {
        while let Some(order) = self.core.poll_hold() {
            match order {
                HoldOrder::Free(number) => self.holds.free(number),
                HoldOrder::Move { number, start, to } => self.place(number, start, to),
            }
        }
    }

    fn place(&mut self, number: u32, start: u32, to: Span) {
        let held = self.holds.bytes(number, start, to.len);
        let placed = held.is_some_and(|bytes| self.memory.fill(to, bytes).is_ok());
        self.account.count_moved(MoveCause::Held, to.len);
        if !placed {
            self.fault(to.region);
        }
    }

    #[inline]
    fn survive(&mut self, outcome: Result<bool, LaneError>) -> Result<bool, DriverError> {
        outcome.or_else(|error| self.survive_error(error))
    }

    /// Ends only the affected Transfer, not the connection, if the memory of a Transfer faults.
    #[cold]
    fn survive_error(&mut self, error: LaneError) -> Result<bool, DriverError> {
        match error {
            LaneError::Io(error) => Err(DriverError::Io(error)),
            LaneError::Strict { bytes } => {
                self.core.close(self.clock.now());
                Err(DriverError::Strict { bytes })
            }
            LaneError::Fault(region) => {
                self.fault(region);
                Ok(true)
            }
            LaneError::Gone => {
                self.core
                    .on_lane_lost(self.clock.now(), CloseReason::PeerDead);
                Ok(true)
            }
            LaneError::Broken => {
                self.core
                    .on_lane_lost(self.clock.now(), CloseReason::Violation);
                Ok(true)
            }
        }
    }

    /// Handles the loss of `region`'s memory.
    fn fault(&mut self, region: RegionId) {
        let ours = |it: &Posted| it.region == Some(region);
        let named = self.posted.iter_mut().find(|(_, it)| ours(it));
        match named {
            Some((&id, posted)) => {
                posted.faulted = true;
                self.core.fault(self.clock.now(), id);
            }
            None => self.revoke_faulted(region),
        }
    }

    fn transmit(&mut self, now: Instant) -> Result<bool, DriverError> {
        self.place_held();
        let (lane, mut turn) = self.lend(now);
        let sent = lane.transmit(&mut turn);
        self.more |= turn.more;
        self.survive(sent)
    }
}
