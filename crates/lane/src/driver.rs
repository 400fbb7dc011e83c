//! The loop: one connection over one lane, driven by whoever calls.

use crate::clock::Clock;
use crate::registry::Access;
use crate::{Account, Memory, Options, Registry, Waker};
use core::fmt;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::time::Duration;
use zerolane_core::{
    CloseReason, Connection, Delivery, Event, Instant, Life, PostError, RegionId, Span,
    TransferError, TransferId,
};
use zerolane_wire::Reason;

/// A datapath in three verbs. The control plane stays out of it: what to send and where payload
/// belongs is the core's to say.
pub trait Lane {
    /// Takes what has arrived, one batch. True if there was anything.
    ///
    /// # Errors
    /// See [`LaneError`].
    fn receive(
        &mut self,
        now: Instant,
        core: &mut Connection,
        memory: &Registry,
        account: &mut Account,
    ) -> Result<bool, LaneError>;

    /// Sends what the core owes, for one turn. True if anything was sent.
    ///
    /// # Errors
    /// See [`LaneError`].
    fn transmit(
        &mut self,
        now: Instant,
        core: &mut Connection,
        memory: &Registry,
        account: &mut Account,
    ) -> Result<bool, LaneError>;

    /// Sleeps until something arrives, or room to send if it waits for that, or `waker` is used, or
    /// `timeout`. True if woken by the network.
    ///
    /// # Errors
    /// The datapath is broken.
    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<bool>;

    /// Writes down what it is using at present.
    fn describe(&self, account: &mut Account);
}

/// Why a lane gave up.
#[derive(Debug)]
pub enum LaneError {
    /// The kernel refused, for a reason that is not the network's.
    Io(io::Error),
    /// Strict mode: payload had to be copied in user space.
    Strict {
        /// Bytes to be copied.
        bytes: usize,
    },
    /// Memory of this region could not be accessed: a mapped file shrank.
    Fault(RegionId),
}

/// Why a driver cannot go on.
#[derive(Debug)]
pub enum DriverError {
    /// The kernel refused.
    Io(io::Error),
    /// Strict mode: this many bytes would have had to be copied in user space.
    Strict {
        /// Bytes to be copied.
        bytes: usize,
    },
    /// The connection ended.
    Closed(CloseReason),
    /// A Transfer could not be posted.
    Post(PostError),
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriverError::Io(error) => write!(f, "network: {error}"),
            DriverError::Strict { bytes } => {
                write!(
                    f,
                    "strict mode: {bytes} bytes would have been copied in user space"
                )
            }
            DriverError::Closed(reason) => write!(f, "connection: {reason}"),
            DriverError::Post(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DriverError {}

impl From<io::Error> for DriverError {
    fn from(error: io::Error) -> DriverError {
        DriverError::Io(error)
    }
}

impl From<PostError> for DriverError {
    fn from(error: PostError) -> DriverError {
        DriverError::Post(error)
    }
}

/// A Transfer that is over, and the memory that was posted.
#[derive(Debug)]
pub struct Completion {
    /// Which.
    pub id: TransferId,
    /// Bytes moved, or why not.
    pub result: Result<u64, TransferError>,
    /// What was posted; `None` if it was borrowed.
    pub memory: Option<Memory>,
    /// How the sender asked for it to be delivered (receives only).
    pub delivery: Delivery,
    /// It was a send or an offer.
    pub is_send: bool,
}

/// What one turn of the loop did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something moved.
    Moved,
    /// Nothing to do until something arrives or a timer strikes.
    Idle,
}

#[derive(Debug)]
struct Posted {
    region: RegionId,
    len: u64,
    memory: Option<Memory>,
    is_send: bool,
    /// Its memory turned out to be gone after the core had taken it for complete.
    faulted: bool,
}

const BORROWED_TO_SEND: Access = Access {
    writable: false,
    file: false,
};
const BORROWED_TO_RECEIVE: Access = Access {
    writable: true,
    file: false,
};

/// Shortest spin, as a part of the longest: below, it finds nothing any more.
const MIN_SPIN_PART: u32 = 16;

/// Spin hints between two looks: about a microsecond, the time a burst of 8 KiB takes at 64 Gb/s.
const PAUSE_LOOPS: u32 = 32;

/// Payload under way above which a receiver naps instead of spinning, bytes.
const NAP_BYTES: u64 = 1 << 20;
/// Length of a nap; the kernel's timer slack adds about 50 us.
const NAP: Duration = Duration::from_micros(5);

/// One connection over one lane. All progress is made inside its calls.
pub struct Driver<L: Lane> {
    lane: L,
    core: Connection,
    memory: Registry,
    posted: HashMap<TransferId, Posted>,
    completions: VecDeque<Completion>,
    account: Account,
    clock: Clock,
    waker: Waker,
    max_spin: Duration,
    spin: Duration,
    connected: bool,
    closed: Option<CloseReason>,
}

impl<L: Lane + fmt::Debug> fmt::Debug for Driver<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("lane", &self.lane)
            .field("core", &self.core)
            .finish_non_exhaustive()
    }
}

/// Tells the peer, once and as far as the network takes it, so that it need not find out by its
/// timeout.
impl<L: Lane> Drop for Driver<L> {
    fn drop(&mut self) {
        if self.core.life() != Life::Established {
            return;
        }
        let now = self.clock.now();
        self.core.close_with(now, Reason::GoingAway);
        self.core.on_timeout(now);
        // Nobody is left to be told of an error.
        let _ = self.transmit(now);
    }
}

impl<L: Lane> Driver<L> {
    pub(crate) fn new(
        lane: L,
        options: &Options,
        core: impl FnOnce(Instant) -> Connection,
    ) -> Driver<L> {
        let made: Result<_, std::convert::Infallible> =
            Driver::try_new(lane, options, |now| Ok(core(now)));
        match made {
            Ok(driver) => driver,
        }
    }

    pub(crate) fn try_new<E>(
        lane: L,
        options: &Options,
        core: impl FnOnce(Instant) -> Result<Connection, E>,
    ) -> Result<Driver<L>, E> {
        let clock = Clock::start();
        Ok(Driver {
            lane,
            core: core(clock.now())?,
            memory: Registry::default(),
            posted: HashMap::new(),
            completions: VecDeque::new(),
            account: Account::default(),
            clock,
            waker: Waker::new(),
            max_spin: options.spin,
            spin: options.spin,
            connected: false,
            closed: None,
        })
    }

    /// The lane.
    pub fn lane(&self) -> &L {
        &self.lane
    }

    /// Sends `memory` as one Transfer.
    ///
    /// # Errors
    /// The connection is closed, or too many Transfers are posted.
    pub fn post_send(
        &mut self,
        memory: Memory,
        delivery: Delivery,
    ) -> Result<TransferId, PostError> {
        self.post(memory, false, |core, now, span| {
            core.post_send(now, span, delivery)
        })
    }

    /// Receives the next Transfer that no earlier receive takes.
    ///
    /// # Errors
    /// The connection is closed, or too many Transfers are posted.
    pub fn post_receive(&mut self, region: crate::Region) -> Result<TransferId, PostError> {
        self.post(region.into(), true, |core, now, span| {
            core.post_receive(now, span)
        })
    }

    /// Offers `memory` to the peer's next Read.
    ///
    /// # Errors
    /// The connection is closed, or too many Transfers are posted.
    pub fn post_offer(
        &mut self,
        memory: Memory,
        delivery: Delivery,
    ) -> Result<TransferId, PostError> {
        self.post(memory, false, |core, now, span| {
            core.post_offer(now, span, delivery)
        })
    }

    /// Reads what the peer offers.
    ///
    /// # Errors
    /// The connection is closed, or too many Transfers are posted.
    pub fn post_read(&mut self, region: crate::Region) -> Result<TransferId, PostError> {
        self.post(region.into(), true, |core, now, span| {
            core.post_read(now, span)
        })
    }

    fn post(
        &mut self,
        memory: Memory,
        writable: bool,
        post: impl FnOnce(&mut Connection, Instant, Span) -> Result<TransferId, PostError>,
    ) -> Result<TransferId, PostError> {
        let (start, len) = memory.bytes();
        let file = memory.is_file();
        // SAFETY: `memory` is kept in `posted` until the entry is closed, so its bytes stay mapped;
        // an exclusive region is ours alone, a shared one is only read.
        let span = unsafe { self.memory.open(start, len, Access { writable, file }) };
        self.begin(span, !writable, Some(memory), post)
    }

    fn begin(
        &mut self,
        span: Span,
        is_send: bool,
        memory: Option<Memory>,
        post: impl FnOnce(&mut Connection, Instant, Span) -> Result<TransferId, PostError>,
    ) -> Result<TransferId, PostError> {
        match post(&mut self.core, self.clock.now(), span) {
            Ok(id) => {
                self.posted.insert(
                    id,
                    Posted {
                        region: span.region,
                        len: span.len,
                        memory,
                        is_send,
                        faulted: false,
                    },
                );
                Ok(id)
            }
            Err(error) => {
                self.memory.close(span.region);
                Err(error)
            }
        }
    }

    /// Sends `data` as one Transfer and waits until the peer has all of it.
    ///
    /// # Errors
    /// The Transfer's failure inside, the connection's outside.
    pub fn send(&mut self, data: &[u8]) -> Result<Result<u64, TransferError>, DriverError> {
        // SAFETY: the borrow of `data` lasts until this function returns, and `finish` closes the
        // entry before that, whatever happens.
        let span = unsafe {
            let start = data.as_ptr().cast_mut();
            self.memory.open(start, data.len(), BORROWED_TO_SEND)
        };
        self.finish(span, true, |core, now, span| {
            core.post_send(now, span, Delivery::Interrupt)
        })
    }

    /// Receives the next Transfer into `buffer` and waits for all of it.
    ///
    /// # Errors
    /// The Transfer's failure inside, the connection's outside.
    pub fn receive_into(
        &mut self,
        buffer: &mut [u8],
    ) -> Result<Result<u64, TransferError>, DriverError> {
        // SAFETY: as in `send`, and `buffer` is borrowed exclusively.
        let span = unsafe {
            let start = buffer.as_mut_ptr();
            self.memory.open(start, buffer.len(), BORROWED_TO_RECEIVE)
        };
        self.finish(span, false, |core, now, span| core.post_receive(now, span))
    }

    /// Posts borrowed memory, waits for the end, and closes the memory's entry in every case.
    fn finish(
        &mut self,
        span: Span,
        is_send: bool,
        post: impl FnOnce(&mut Connection, Instant, Span) -> Result<TransferId, PostError>,
    ) -> Result<Result<u64, TransferError>, DriverError> {
        let id = self.begin(span, is_send, None, post)?;
        let mut guard = Borrowed {
            driver: self,
            id,
            region: span.region,
        };
        guard.wait()
    }

    /// A handle with which another thread ends a [`Driver::wait`] early.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Cancels a Transfer: its completion follows at once. False if it is over already.
    pub fn cancel(&mut self, id: TransferId) -> bool {
        let cancelled = self.core.cancel(self.clock.now(), id);
        self.collect();
        cancelled
    }

    /// Begins to disconnect.
    pub fn close(&mut self) {
        self.core.close(self.clock.now());
        self.collect();
    }

    /// Whether the handshake is done.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Why the connection ended, if it did.
    pub fn closed(&self) -> Option<CloseReason> {
        self.closed
    }

    /// Where the connection stands.
    pub fn life(&self) -> Life {
        self.core.life()
    }

    /// Length of the announced Transfer that waits for a receive, if one does.
    pub fn announced(&self) -> Option<u64> {
        self.core.announced()
    }

    /// Transfers posted and not over.
    pub fn in_flight(&self) -> usize {
        self.posted.len()
    }

    /// Whether a completion is there.
    pub fn has_completion(&self) -> bool {
        !self.completions.is_empty()
    }

    /// Whether a send is under way.
    pub fn is_sending(&self) -> bool {
        self.core.is_sending()
    }

    /// The next completion that is there already.
    pub fn next_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// What was counted so far.
    pub fn account(&self) -> Account {
        let mut account = self.account;
        account.protocol = *self.core.counters();
        account.stu = self.core.stu();
        self.lane.describe(&mut account);
        account
    }

    /// One turn: what has arrived, what is due, what is owed. Never sleeps.
    ///
    /// # Errors
    /// The kernel refused, or strict mode would have had to copy.
    pub fn turn(&mut self) -> Result<Progress, DriverError> {
        let now = self.clock.now();
        let received = self
            .lane
            .receive(now, &mut self.core, &self.memory, &mut self.account);
        let received = self.survive(received)?;
        if self.core.next_timeout().is_some_and(|at| at <= now) {
            self.core.on_timeout(now);
        }
        let sent = self.transmit(now)?;
        self.collect();
        Ok(if received || sent {
            Progress::Moved
        } else {
            Progress::Idle
        })
    }

    /// A fault of one Transfer's memory ends that Transfer, not the connection.
    fn survive(&mut self, outcome: Result<bool, LaneError>) -> Result<bool, DriverError> {
        match outcome {
            Ok(moved) => Ok(moved),
            Err(LaneError::Io(error)) => Err(DriverError::Io(error)),
            Err(LaneError::Strict { bytes }) => {
                self.core.close(self.clock.now());
                Err(DriverError::Strict { bytes })
            }
            Err(LaneError::Fault(region)) => {
                let named = self.posted.iter_mut().find(|(_, it)| it.region == region);
                if let Some((&id, posted)) = named {
                    posted.faulted = !self.core.fault(self.clock.now(), id);
                }
                Ok(true)
            }
        }
    }

    /// Turns until `done`, the connection's end, a [`Waker`], or `timeout`; sleeps when there is
    /// nothing to do, after spinning for a while that adapts to what spinning brings.
    ///
    /// # Errors
    /// As [`Driver::turn`].
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
        mut done: impl FnMut(&Driver<L>) -> bool,
    ) -> Result<(), DriverError> {
        let deadline = timeout.map(|timeout| self.clock.now() + timeout);
        let mut idle_since = None;
        loop {
            if done(self) || self.closed.is_some() && self.core.life() == Life::Closed {
                return self.flush();
            }
            if self.turn()? == Progress::Moved {
                if idle_since.take().is_some() {
                    self.spin = (self.spin * 2).min(self.max_spin);
                }
                continue;
            }
            let now = self.clock.now();
            if deadline.is_some_and(|at| at <= now) || self.waker.take() {
                return Ok(());
            }
            if now - *idle_since.get_or_insert(now) < self.spin {
                self.pause();
                continue;
            }
            self.spin = (self.spin / 2).max(self.max_spin / MIN_SPIN_PART);
            self.sleep(now, deadline)?;
            idle_since = None;
        }
    }

    /// A pause between two looks at an empty socket: every look takes the socket's cache lines from
    /// the core that is about to fill it. While much is under way, a nap costs no latency that
    /// matters and leaves the core to others; the window covers it many times (P0.4).
    fn pause(&mut self) {
        if self.core.expected_payload() >= NAP_BYTES {
            self.account.naps += 1;
            std::thread::sleep(NAP);
        } else {
            for _ in 0..PAUSE_LOOPS {
                std::hint::spin_loop();
            }
        }
    }

    /// Sends what the last turn left owed, so that nothing waits for the next call.
    fn flush(&mut self) -> Result<(), DriverError> {
        self.transmit(self.clock.now())?;
        self.collect();
        Ok(())
    }

    fn transmit(&mut self, now: Instant) -> Result<bool, DriverError> {
        let sent = self
            .lane
            .transmit(now, &mut self.core, &self.memory, &mut self.account);
        self.survive(sent)
    }

    fn sleep(&mut self, now: Instant, deadline: Option<Instant>) -> Result<(), DriverError> {
        let until = [self.core.next_timeout(), deadline]
            .into_iter()
            .flatten()
            .min();
        let woken = self.lane.wait(&self.waker, until.map(|at| at - now))?;
        if woken {
            self.account.wakeups += 1;
        } else {
            self.account.sleeps += 1;
        }
        Ok(())
    }

    fn collect(&mut self) {
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::Connected(_) => self.connected = true,
                Event::Closed(reason) => self.closed = Some(reason),
                Event::Announced { .. } => {}
                Event::Sent { id } => self.complete(id, None, Delivery::Interrupt),
                Event::Received {
                    id,
                    length,
                    delivery,
                } => self.complete(id, Some(Ok(length)), delivery),
                Event::Failed { id, error } => {
                    self.complete(id, Some(Err(error)), Delivery::Interrupt)
                }
            }
        }
    }

    fn complete(
        &mut self,
        id: TransferId,
        result: Option<Result<u64, TransferError>>,
        delivery: Delivery,
    ) {
        let Some(posted) = self.posted.remove(&id) else {
            return;
        };
        self.memory.close(posted.region);
        let result = match result {
            Some(Ok(_)) if posted.faulted => Err(TransferError::Refused(Reason::MemoryFault)),
            result => result.unwrap_or(Ok(posted.len)),
        };
        self.completions.push_back(Completion {
            id,
            result,
            memory: posted.memory,
            delivery,
            is_send: posted.is_send,
        });
    }
}

/// A Transfer of borrowed memory: over, and its name closed, when this goes.
struct Borrowed<'a, L: Lane> {
    driver: &'a mut Driver<L>,
    id: TransferId,
    region: RegionId,
}

impl<L: Lane> Borrowed<'_, L> {
    fn wait(&mut self) -> Result<Result<u64, TransferError>, DriverError> {
        let id = self.id;
        self.driver
            .wait(None, |driver| !driver.posted.contains_key(&id))?;
        let place = self.driver.completions.iter().position(|it| it.id == id);
        match place.and_then(|place| self.driver.completions.remove(place)) {
            Some(completion) => Ok(completion.result),
            None => Err(DriverError::Closed(
                self.driver.closed.unwrap_or(CloseReason::Local),
            )),
        }
    }
}

impl<L: Lane> Drop for Borrowed<'_, L> {
    fn drop(&mut self) {
        if self.driver.posted.remove(&self.id).is_some() {
            self.driver.core.cancel(self.driver.clock.now(), self.id);
        }
        self.driver.memory.close(self.region);
    }
}
