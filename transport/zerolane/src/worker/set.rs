//! Tells which of any set of pending requests are over, by one descriptor.

use super::pending::Pending;
use crate::bell::Bell;
use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use std::time::Duration;
use zerolane_lane::Process;

/// Tells which of any number of [`Pending`] requests, of any workers, have their answer. A program can ask it, wait for
/// it, or watch it with epoll: the descriptor is readable while the set has tokens.
///
/// [`PendingSet::add`] gives each request a token, a number of the program's choice. When the answer of the request is
/// there, the set has that token, once. The set does not own the requests: take the answer from the `Pending`
/// ([`Pending::wait`] returns at once), or drop it, which cancels the request as ever.
///
/// Clones are the same set. After `fork` it belongs to the parent; it is empty in the child.
///
/// ```
/// use zerolane::worker::{PendingSet, Worker};
/// use zerolane::{Options, Region};
/// let worker = Worker::new()?.spawn()?;
/// let endpoint = worker.listen("127.0.0.1:0", Options::default()).wait()?;
/// let client = worker.connect(endpoint.local_addr(), &Options::default()).wait()?;
/// let server = endpoint.accept().wait()?;
/// let set = PendingSet::new()?;
/// let mut receives = Vec::new();
/// for token in 0..3 {
///     let mut receive = server.recv(Region::anonymous(64)?);
///     set.add(&mut receive, token)?;
///     receives.push(Some(receive));
/// }
/// for text in ["one", "two", "three"] {
///     client.send(Region::from_vec(text.into())).detach();
/// }
/// for _ in 0..3 {
///     let token = set.wait(None)?.expect("no timeout");
///     let receive = receives[token as usize].take().expect("each token comes once");
///     let received = receive.wait()?;
///     assert!(received.result? <= 5);
/// }
/// # Ok::<(), zerolane::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PendingSet {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    tokens: Mutex<VecDeque<u64>>,
    /// Rings while there are tokens.
    bell: Bell,
    process: Process,
}

impl Shared {
    fn tokens(&self) -> MutexGuard<'_, VecDeque<u64>> {
        // No code under the lock leaves the list inconsistent.
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does nothing in a child of fork: the descriptor is the parent's, too, and would be readable there without a token.
    fn push(&self, token: u64) {
        if !self.process.is_current() {
            return;
        }
        let mut tokens = self.tokens();
        tokens.push_back(token);
        if tokens.len() == 1 {
            self.bell.ring();
        }
    }

    /// Removes up to `max` tokens.
    fn take(&self, into: &mut Vec<u64>, max: usize) -> usize {
        let mut tokens = self.tokens();
        let count = max.min(tokens.len());
        into.extend(tokens.drain(..count));
        if count > 0 && tokens.is_empty() {
            self.bell.silence();
        }
        count
    }
}

/// Adds the token of a request when its answer comes.
struct Token {
    set: Arc<Shared>,
    token: u64,
}

impl Wake for Token {
    fn wake(self: Arc<Self>) {
        self.set.push(self.token);
    }
}

impl PendingSet {
    /// Makes a set without requests.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new() -> Result<PendingSet> {
        Ok(PendingSet {
            shared: Arc::new(Shared {
                tokens: Mutex::default(),
                bell: Bell::new()?,
                process: Process::current(),
            }),
        })
    }

    /// Puts `token` into the set when the answer of `pending` is there; at once if it is there already, or was taken.
    ///
    /// A request is in one set, and is awaited by one task: adding it again, or awaiting it, replaces what was there.
    /// If `pending` is dropped or detached first, the token does not come; a token that has come stays. Tokens need not differ.
    ///
    /// # Errors
    /// [`Error::Forked`]: the set belongs to a parent of this process.
    pub fn add<T>(&self, pending: &mut Pending<T>, token: u64) -> Result<()> {
        self.check_process()?;
        let set = Arc::clone(&self.shared);
        pending.watch(Arc::new(Token { set, token }).into());
        Ok(())
    }

    /// Puts `token` into the set now, without a request: it ends another thread's [`PendingSet::wait`]. Does nothing
    /// in a child of fork.
    pub fn signal(&self, token: u64) {
        self.shared.push(token);
    }

    /// Removes up to `max` tokens, the oldest first, and appends them to `into`. Returns how many; 0 in a child of fork.
    pub fn poll_batch(&self, into: &mut Vec<u64>, max: usize) -> usize {
        match self.check_process() {
            Ok(()) => self.shared.take(into, max),
            Err(_) => 0,
        }
    }

    /// Waits for a token, removes it and returns it, the oldest first. `None` on timeout. A timeout of zero polls, and
    /// one that overflows the clock, such as [`Duration::MAX`], is no limit, as `None`.
    ///
    /// # Errors
    /// The system refused to wait; or [`Error::Forked`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<u64>> {
        self.check_process()?;
        let mut one = Vec::with_capacity(1);
        self.shared.bell.wait_for(timeout, || {
            self.shared.take(&mut one, 1);
            Ok(one.pop())
        })
    }

    /// Fails in a child of fork, where the set is always empty: another thread's lock is never released there, and the
    /// descriptor is shared with the parent.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn check_process(&self) -> Result<()> {
        match self.shared.process.is_current() {
            true => Ok(()),
            false => Err(Error::Forked),
        }
    }
}

/// The eventfd: readable while the set has tokens. Only poll it; do not read it.
impl AsFd for PendingSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }
}
