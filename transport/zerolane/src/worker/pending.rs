//! Returns a worker's answer to a handle, as a future or by blocking.

use super::reply::{Receiver, Sender, channel};
use crate::completion::Completion;
use crate::error::{Error, Refused, Result};
use crate::id::RequestId;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use zerolane_lane::{CloseReason, Memory, Process};

/// The refusal of a handle's request.
pub(super) type Unposted = Refused<Option<Memory>>;

impl Unposted {
    pub(super) fn because(error: Error) -> Unposted {
        Refused {
            error,
            memory: None,
        }
    }

    /// The refusal of a worker or connection that has ended.
    pub(super) fn gone() -> Unposted {
        Unposted::because(gone())
    }
}

/// The error of a worker or connection that has ended.
pub(super) fn gone() -> Error {
    Error::Closed(CloseReason::Local)
}

/// The answer to a handle's request, or its refusal and the memory; pieces come back as [`Memory::Gathered`].
pub type Outcome<T> = std::result::Result<T, Refused<Option<Memory>>>;

/// Called with the answer that came and was not taken, or with `None` if none came.
type Abandoned<T> = Box<dyn FnOnce(Option<T>) + Send>;

/// The outcome of a handle's request: await it in any runtime, or block a thread on it.
///
/// It is cancel-safe. Dropping it before the request is over cancels the request and frees its memory. A Transfer,
/// message or connection that has come by then is not lost: the next such request gets it. [`Pending::detach`] lets the
/// request continue.
///
/// The [`Waker`](std::task::Waker) of the awaiting task is called in the worker's thread, and so are the owners of
/// memory released there ([`Region::foreign`](crate::Region::foreign)). None of them may block, because all connections
/// of the worker would wait.
#[must_use = "a request dropped before its end is cancelled: wait for it, await it, or detach it"]
pub struct Pending<T> {
    receiver: Receiver<Outcome<T>>,
    abandoned: Option<Abandoned<T>>,
    id: RequestId,
    /// The process of the worker: in a child of fork no answer comes.
    process: Process,
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

impl<T> Pending<T> {
    /// Makes a claim and the [`Pending`] that gets its answer in `process`.
    pub(super) fn new(process: Process, abandoned: Option<Abandoned<T>>) -> (Claim<T>, Pending<T>) {
        let (sender, receiver) = channel();
        let claim = Claim {
            sender: Some(sender),
        };
        (
            claim,
            Pending {
                receiver,
                abandoned,
                id: RequestId::NONE,
                process,
            },
        )
    }

    /// Sets the request's identifier.
    pub(super) fn of_request(mut self, id: RequestId) -> Pending<T> {
        self.id = id;
        self
    }

    /// Blocks until the answer comes.
    ///
    /// # Errors
    /// The worker or the connection refused, or has ended. A request that fails later reports that in its completion.
    pub fn wait(self) -> Outcome<T> {
        if !self.process.is_current() {
            return self.of_parent();
        }
        let waited = self.receiver.wait(None);
        // There is always an answer, because dropping a claim answers it.
        waited.unwrap_or_else(|| Err(Unposted::gone()))
    }

    /// Like [`Pending::wait`], for at most `timeout`. `None`: there is no answer yet, and the request continues.
    pub fn wait_for(&mut self, timeout: Duration) -> Option<Outcome<T>> {
        if !self.process.is_current() {
            return Some(self.of_parent());
        }
        self.receiver.wait(Some(timeout))
    }

    /// The answer that came before the fork, if any. In the child no other can come.
    fn of_parent(&self) -> Outcome<T> {
        match self.receiver.try_take() {
            Some(Err(refused)) => Err(Refused {
                error: Error::Forked,
                ..refused
            }),
            Some(Ok(value)) => Ok(value),
            None => Err(Unposted::because(Error::Forked)),
        }
    }

    /// Calls `waker` once the answer is there; now if it is, or was taken. In a child of fork no other comes.
    pub(super) fn watch(&mut self, waker: std::task::Waker) {
        match self.process.is_current() {
            true => self.receiver.watch(waker),
            false => waker.wake(),
        }
    }

    /// Lets the request continue without anyone waiting for its answer.
    pub fn detach(mut self) {
        self.abandoned = None;
    }
}

impl Pending<Completion> {
    /// Identifies the request, to follow its arrival:
    /// [`ConnectionHandle::wait_arrived`](super::ConnectionHandle::wait_arrived).
    pub fn id(&self) -> RequestId {
        self.id
    }
}

impl<T> Future for Pending<T> {
    type Output = Outcome<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.process.is_current() {
            return Poll::Ready(self.of_parent());
        }
        self.receiver.poll(cx.waker())
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        match self.abandoned.take() {
            Some(abandoned) if !self.receiver.is_taken() => {
                abandoned(self.receiver.abandon().and_then(Outcome::ok));
            }
            // It continues, and tells no task or set.
            _ => self.receiver.unwatch(),
        }
    }
}

/// The obligation to answer a [`Pending`]. Dropping it answers that the worker or connection has ended.
#[derive(Debug)]
pub(super) struct Claim<T> {
    sender: Option<Sender<Outcome<T>>>,
}

impl<T> Claim<T> {
    /// # Errors
    /// Returns `outcome` if the `Pending` is gone.
    pub(super) fn answer(mut self, outcome: Outcome<T>) -> std::result::Result<(), Outcome<T>> {
        match self.sender.take() {
            Some(sender) => sender.send(outcome),
            None => Err(outcome),
        }
    }

    /// Whether the `Pending` still exists.
    pub(super) fn is_awaited(&self) -> bool {
        self.sender.as_ref().is_some_and(Sender::is_awaited)
    }

    /// Answers; drops `outcome` if the `Pending` is gone.
    pub(super) fn answer_or_drop(self, outcome: Result<T>) {
        let _ = self.answer(outcome.map_err(Unposted::because));
    }
}

/// Counts the waits that were given up. They are removed when they may be half of all, so that giving up n of them costs
/// no more than a look at 2n.
#[derive(Debug, Default)]
pub(super) struct GivenUp {
    count: usize,
}

impl GivenUp {
    /// Counts one more of `waits`. True: the caller removes them now.
    pub(super) fn add(&mut self, waits: usize) -> bool {
        self.count += 1;
        let removes = 2 * self.count > waits;
        if removes {
            self.count = 0;
        }
        removes
    }
}

impl<T> Drop for Claim<T> {
    fn drop(&mut self) {
        if let Some(sender) = self.sender.take() {
            let _ = sender.send(Err(Unposted::gone()));
        }
    }
}
