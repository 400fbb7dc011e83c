//! What a datapath is to the loop that drives it.

use crate::clock::Clock;
use crate::holds::Holds;
use crate::{Account, Exporting, LaneError, Registry, Waker};
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;
use zerolane_core::{Atomic, Connection, Instant, RegionId, RemotePlace};
use zerolane_wire::{Reason, Rights};

/// What a lane is lent for one turn of the loop.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The time, see [`Turn::refresh`].
    pub now: Instant,
    /// Says what to send, and where payload belongs.
    pub core: &'a mut Connection,
    /// The memory that is posted.
    pub memory: &'a Registry,
    pub(crate) holds: &'a mut Holds,
    /// What is counted.
    pub account: &'a mut Account,
    /// Set by the lane if it stopped at the bound of a turn: there may be more to receive, or to send, that nothing
    /// else tells of.
    pub more: bool,
    pub(crate) clock: Clock,
}

impl Turn<'_> {
    /// Reads the clock again: after something was received, and before something is sent. A thread may
    /// be off its core in the middle of a turn. With the turn's first time, a round trip could seem
    /// shorter than any is, and the shortest one is what the pace rests on; or a burst older than it
    /// is, and lost.
    pub fn refresh(&mut self) {
        self.now = self.clock.now();
    }
}

/// An access to the peer's memory, by a lane that has it mapped.
#[derive(Debug)]
pub enum RemoteAccess<'a> {
    /// Writes these bytes there, one piece behind the other.
    Put(&'a [&'a [u8]]),
    /// Reads as many, which are initialised if it succeeds.
    Get(&'a mut [MaybeUninit<u8>]),
    /// Does this to an aligned word.
    FetchOp(Atomic),
}

impl RemoteAccess<'_> {
    /// Bytes of the peer's memory.
    #[allow(clippy::len_without_is_empty, reason = "an access is no collection")]
    pub fn len(&self) -> u64 {
        match self {
            RemoteAccess::Put(parts) => parts.iter().map(|it| it.len() as u64).sum(),
            RemoteAccess::Get(into) => into.len() as u64,
            RemoteAccess::FetchOp(_) => 8,
        }
    }

    /// Whether the peer's memory is changed.
    pub fn writes(&self) -> bool {
        !matches!(self, RemoteAccess::Get(_))
    }
}

/// A datapath: three verbs, and questions about its state. The control plane stays out of it: what to send and where payload
/// belongs is the core's to say.
pub trait Lane {
    /// Takes what has arrived, one batch. True if there was anything.
    ///
    /// # Errors
    /// See [`LaneError`].
    fn receive(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError>;

    /// Sends what the core owes, for one turn. True if anything was sent.
    ///
    /// # Errors
    /// See [`LaneError`].
    fn transmit(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError>;

    /// Sleeps until something arrives, or room to send if it waits for that, or `waker` is used, or
    /// `timeout`. True if woken by the network.
    ///
    /// # Errors
    /// The datapath is broken.
    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<bool>;

    /// Whether it waits for room to send, beside what may arrive.
    fn wants_write(&self) -> bool;

    /// The longest that it may go without a turn, if nothing arrives; `None`: without end.
    fn longest_sleep(&self) -> Option<Duration>;

    /// Whether memory of `region` is in use below, although its Transfer may be over.
    fn holds(&self, region: RegionId) -> bool;

    /// Memory of `region`, which is not held, goes back to its owner now: what was sent of it and did not arrive is not
    /// to be used any more. Nothing follows for a lane whose datagrams have copies.
    fn recall(&mut self, _region: RegionId) {}

    /// The peer may use `memory`, exported at `place`, with `rights` from here on: a lane whose peer can map it passes
    /// it on.
    fn lend(&mut self, _memory: &Exporting, _place: RemotePlace, _rights: Rights) {}

    /// The export `handle` is over. When this returns, the peer is in no access to it any more; one that does not end
    /// counts for nothing.
    fn take_back(&mut self, _handle: u32) {}

    /// Whether some of the peer's memory is mapped here.
    fn reaches_memory(&self) -> bool {
        false
    }

    /// Does `access` at once, without the peer: the word before an atomic operation, else 0; or that the memory was
    /// revoked meanwhile. `None`: nothing was done, for the place is not mapped, or not so.
    fn access(
        &mut self,
        _at: RemotePlace,
        _access: &mut RemoteAccess<'_>,
    ) -> Option<Result<u64, Reason>> {
        None
    }

    /// Writes down what it is using at present.
    fn describe(&self, account: &mut Account);
}
