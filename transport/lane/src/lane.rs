//! Defines the interface between a datapath and the loop that drives it.

use crate::account::Account;
use crate::error::LaneError;
use crate::memory::{Datagrams, Exporting, Holds, Registry};
use crate::wait::{Clock, Waker};
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;
use zerolane_core::{Atomic, Connection, Instant, Placement, RegionId, RemotePlace, Span};
use zerolane_wire::{Header, Reason, Rights};

/// What the loop lends a lane for one turn.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The time, see [`Turn::refresh`].
    pub now: Instant,
    /// Decides what to send, and where payload belongs.
    pub core: &'a mut Connection,
    /// The posted memory.
    pub memory: &'a mut Registry,
    /// Posts receives for messages that need one, if the connection shares a pool of memory.
    pub(crate) receives: Option<&'a mut dyn Supply>,
    pub(crate) holds: &'a mut Holds,
    pub(crate) datagrams: &'a mut Datagrams,
    /// The connection's counters.
    pub account: &'a mut Account,
    /// Set by the lane if it stopped at the limit of a turn: there may be more to receive or to send, and no event will
    /// announce it.
    pub more: bool,
    pub(crate) clock: Clock,
}

/// Memory for messages that nothing was posted for.
pub(crate) trait Supply: std::fmt::Debug {
    /// Posts a receive of a message, if there is memory.
    fn supply(&mut self, now: Instant, core: &mut Connection, memory: &mut Registry);
}

impl Turn<'_> {
    /// Shows the core the header of payload, which names the payload's place: see [`Connection::on_data`].
    pub(crate) fn on_data(
        &mut self,
        header: &Header,
        len: u32,
        stu: u32,
        landed: Option<Span>,
    ) -> Placement {
        if let Some(receives) = &mut self.receives
            && self.core.lacks_receive(header, len)
        {
            receives.supply(self.now, self.core, self.memory);
        }
        self.core.on_data(self.now, header, len, stu, landed)
    }

    /// Reads the clock again after a receive and before a send. The thread may be preempted in the middle of a turn.
    /// With the time of the turn's start, a round trip could seem shorter than any real one, and the pace rests on the
    /// shortest. Or a burst could seem older than it is, and be declared lost.
    pub fn refresh(&mut self) {
        self.now = self.clock.now();
    }
}

/// An access to the peer's memory, by a lane that has mapped it.
#[derive(Debug)]
pub enum RemoteAccess<'a> {
    /// Writes these pieces, one after the other.
    Put(&'a [&'a [u8]]),
    /// Reads as many bytes, which are initialised on success.
    Get(&'a mut [MaybeUninit<u8>]),
    /// Performs this operation on an aligned word, which is or lies in 8 aligned bytes.
    FetchOp(Atomic),
}

impl RemoteAccess<'_> {
    /// Length of the peer's memory that is accessed, in bytes.
    #[allow(clippy::len_without_is_empty, reason = "an access is no collection")]
    pub fn len(&self) -> u64 {
        match self {
            RemoteAccess::Put(parts) => parts.iter().map(|it| it.len() as u64).sum(),
            RemoteAccess::Get(into) => into.len() as u64,
            RemoteAccess::FetchOp(_) => 8,
        }
    }

    /// Whether the access changes the peer's memory.
    pub fn writes(&self) -> bool {
        !matches!(self, RemoteAccess::Get(_))
    }
}

/// A datapath: three verbs, calls about memory, and questions about its state. The control plane stays out of it: the core
/// decides what to send and where payload belongs.
pub trait Lane {
    /// Takes one batch of arrivals. True if there were any.
    ///
    /// # Errors
    /// See [`LaneError`].
    fn receive(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError>;

    /// Sends what the core owes, for one turn. True if it sent anything.
    ///
    /// # Errors
    /// See [`LaneError`].
    fn transmit(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError>;

    /// Sleeps until a datagram arrives, the socket has room if the lane waits for it, `waker` is used, or `timeout`
    /// passes. True if the network woke it.
    ///
    /// # Errors
    /// The datapath is broken.
    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<bool>;

    /// Whether it waits for room to send, besides arrivals.
    fn wants_write(&self) -> bool;

    /// Longest sleep without a turn if nothing arrives; `None`: no limit.
    fn longest_sleep(&self) -> Option<Duration>;

    /// Whether the lane or the kernel still uses memory of `region`, even if its Transfer is over.
    fn holds(&self, region: RegionId) -> bool;

    /// Stops using memory of `region`, whose request is over: bytes that were sent and have not arrived must not be read
    /// again. What the kernel still reads stays held. A lane whose datagrams are copies does nothing.
    fn recall(&mut self, _region: RegionId) {}

    /// Lets the peer use `memory`, exported at `place`, with `rights`. A lane whose peer can map the memory passes it
    /// on.
    fn lend(&mut self, _memory: &Exporting, _place: RemotePlace, _rights: Rights) {}

    /// Ends the export `handle`. On return the peer is in no access to the memory, or that access has no effect.
    fn take_back(&mut self, _handle: u32) {}

    /// Whether this end has mapped some of the peer's memory.
    fn reaches_memory(&self) -> bool {
        false
    }

    /// Performs `access` at once, without the peer. Returns the old word of an atomic operation, else 0; or that the
    /// memory was revoked meanwhile. `None` if nothing was done: the place is not mapped, or not with these rights.
    fn access(
        &mut self,
        _at: RemotePlace,
        _access: &mut RemoteAccess<'_>,
    ) -> Option<Result<u64, Reason>> {
        None
    }

    /// Records the lane's present state in `account`.
    fn describe(&self, account: &mut Account);
}
