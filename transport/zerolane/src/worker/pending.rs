//! What a handle asked for and has not got yet.

use super::reply::{Receiver, Sender, channel};
use super::{ConnectionId, Key};
use crate::failure::CloseReason;
use crate::memory::Memory;
use crate::{Completion, Error, Result};
use slotmap::Key as _;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use zerolane_lane::Process;

/// Names a request of a [`ConnectionHandle`](super::ConnectionHandle): [`Pending::id`]. Not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    connection: ConnectionId,
    number: u64,
}

impl RequestId {
    /// Its number among those of `connection`. Another connection's is none of this one's.
    pub(super) fn number_of(self, connection: ConnectionId) -> u64 {
        match self.connection == connection {
            true => self.number,
            false => RequestId::none().number,
        }
    }

    pub(super) fn new(connection: ConnectionId, number: u64) -> RequestId {
        RequestId { connection, number }
    }

    /// No request.
    pub(super) fn none() -> RequestId {
        RequestId::new(ConnectionId(Key::null()), u64::MAX)
    }
}

/// Why a worker did not do what a handle asked for, and the memory that was meant for it, which is the
/// caller's again as it was.
pub struct Refused {
    /// Why.
    pub error: Error,
    /// What the call was given, if it was given memory.
    pub memory: Option<Memory>,
    /// The pieces that a request of several was given, in their order.
    pub pieces: Vec<Memory>,
}

impl Refused {
    pub(super) fn because(error: Error) -> Refused {
        Refused {
            error,
            memory: None,
            pieces: Vec::new(),
        }
    }

    /// The worker, or the connection, is no more.
    pub(super) fn gone() -> Refused {
        Refused::because(gone())
    }
}

/// The worker, or the connection, is no more.
pub(super) fn gone() -> Error {
    Error::Closed(CloseReason::Local)
}

/// The same error, for one more that waits.
pub(super) fn again(error: &Error) -> Error {
    match error {
        Error::Closed(reason) => Error::Closed(*reason),
        Error::ConnectTimeout(timeout) => Error::ConnectTimeout(*timeout),
        Error::Strict { bytes } => Error::Strict { bytes: *bytes },
        Error::Io(error) => Error::Io(std::io::Error::new(error.kind(), error.to_string())),
        other => Error::Io(std::io::Error::other(other.to_string())),
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("error", &self.error)
            .field("bytes", &self.memory.as_ref().map(|it| it.len()))
            .field("pieces", &self.pieces.len())
            .finish()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Without the memory, which is dropped.
impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        refused.error
    }
}

pub(super) type Outcome<T> = std::result::Result<T, Refused>;

/// What is done with what came and was not taken, or if nothing came.
type Abandoned<T> = Box<dyn FnOnce(Option<T>) + Send>;

/// The end of what a handle asked for: a future of any runtime, or to be waited for by a thread.
///
/// It is cancel-safe. Dropped before its end, a request is cancelled, and its memory freed; a Transfer, message or
/// connection that came by then is not lost, but the next one that is asked for. [`Pending::detach`] lets it go on.
///
/// The [`Waker`](std::task::Waker) of who awaits it is called in the worker's thread, as are the owners of memory that is
/// let go there ([`Region::foreign`](crate::Region::foreign)). None of them may block: all connections of the worker would wait.
#[must_use = "dropped before its end, a request is cancelled: wait for it, await it, or detach it"]
pub struct Pending<T> {
    receiver: Receiver<Outcome<T>>,
    abandoned: Option<Abandoned<T>>,
    id: RequestId,
    /// Whose worker it is asked of: in a child of fork nothing comes any more.
    process: Process,
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

impl<T> Pending<T> {
    /// A claim, and what gets its answer, which comes in `process`.
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
                id: RequestId::none(),
                process,
            },
        )
    }

    /// The same, of request `id`.
    pub(super) fn of_request(mut self, id: RequestId) -> Pending<T> {
        self.id = id;
        self
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// The worker or the connection refused, or is no more. What failed later is in what comes.
    pub fn wait(self) -> std::result::Result<T, Refused> {
        if !self.process.is_current() {
            return self.of_parent();
        }
        let waited = self.receiver.wait(None);
        // It is always answered: a claim that is dropped answers.
        waited.unwrap_or_else(|| Err(Refused::gone()))
    }

    /// The same for a time. `None`: it is not over, and goes on.
    pub fn wait_for(&mut self, timeout: Duration) -> Option<std::result::Result<T, Refused>> {
        if !self.process.is_current() {
            return Some(self.of_parent());
        }
        self.receiver.wait(Some(timeout))
    }

    /// What there is of it in a child of fork, where nothing more comes.
    fn of_parent(&self) -> Outcome<T> {
        match self.receiver.try_take() {
            Some(Err(refused)) => Err(Refused {
                error: Error::Forked,
                ..refused
            }),
            Some(Ok(value)) => Ok(value),
            None => Err(Refused::because(Error::Forked)),
        }
    }

    /// Lets it go on; what comes of it is not asked for.
    pub fn detach(mut self) {
        self.abandoned = None;
    }
}

impl Pending<Completion> {
    /// Names the request, to ask what of it has arrived:
    /// [`ConnectionHandle::wait_arrived`](super::ConnectionHandle::wait_arrived).
    pub fn id(&self) -> RequestId {
        self.id
    }
}

impl<T> Future for Pending<T> {
    type Output = std::result::Result<T, Refused>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.process.is_current() {
            return Poll::Ready(self.of_parent());
        }
        self.receiver.poll(cx.waker())
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        let Some(abandoned) = self.abandoned.take() else {
            return;
        };
        if self.process.is_current() && !self.receiver.is_taken() {
            abandoned(self.receiver.abandon().and_then(Outcome::ok));
        }
    }
}

/// What is to be answered. Dropped, it answers that its worker or connection is no more.
#[derive(Debug)]
pub(super) struct Claim<T> {
    sender: Option<Sender<Outcome<T>>>,
}

impl<T> Claim<T> {
    /// # Errors
    /// Gives `outcome` back if it is not waited for any more.
    pub(super) fn answer(mut self, outcome: Outcome<T>) -> std::result::Result<(), Outcome<T>> {
        match self.sender.take() {
            Some(sender) => sender.send(outcome),
            None => Err(outcome),
        }
    }

    /// Whether it is waited for.
    pub(super) fn is_awaited(&self) -> bool {
        self.sender.as_ref().is_some_and(Sender::is_awaited)
    }

    /// Answers; what is not waited for is dropped.
    pub(super) fn answer_or_drop(self, outcome: Result<T>) {
        let _ = self.answer(outcome.map_err(Refused::because));
    }
}

impl<T> Drop for Claim<T> {
    fn drop(&mut self) {
        if let Some(sender) = self.sender.take() {
            let _ = sender.send(Err(Refused::gone()));
        }
    }
}
