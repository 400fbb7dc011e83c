//! One queue for the completions of many connections.

use crate::{Completion, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use zerolane_lane::Waker;

/// Completions of many connections, in one place: to be polled, waited for, or watched by epoll
/// (the descriptor is readable while there are any).
///
/// The connections still make progress in their own calls alone; what completes there goes to the
/// queue (see [`Connection::set_completion_queue`](crate::Connection::set_completion_queue)). While
/// it is full, they keep theirs, and tell peers to wait that send messages: nothing is lost.
///
/// ```
/// use zerolane::{CompletionQueue, Connection, Endpoint, Options, Region, Work};
/// let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
/// let address = endpoint.local_addr();
/// let peer = std::thread::spawn(move || -> zerolane::Result<()> {
///     let mut connection = endpoint.accept(None)?.expect("no timeout");
///     connection.send_message(b"hello", None)?;
///     connection.close()
/// });
/// let queue = CompletionQueue::new(64)?;
/// let mut connection = Connection::connect(address, &Options::default())?;
/// connection.set_completion_queue(&queue, 7);
/// connection.post_message_recv(None)?;
/// let (tag, completion) = loop {
///     if let Some(completed) = queue.poll() {
///         break completed;
///     }
///     connection.wait(None)?;
/// };
/// assert_eq!((tag, &completion.control[..]), (7, &b"hello"[..]));
/// # drop(connection);
/// # peer.join().unwrap().ok();
/// # Ok::<(), zerolane::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    list: Mutex<List>,
    capacity: usize,
    event: OwnedFd,
}

#[derive(Debug)]
struct List {
    completions: VecDeque<(u64, Completion)>,
    /// Connections that wait for room.
    starved: Vec<Waker>,
}

impl CompletionQueue {
    /// A queue of at most `capacity` completions, at least 1.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new(capacity: usize) -> Result<CompletionQueue> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = eventfd(0, flags).map_err(std::io::Error::from)?;
        let capacity = capacity.max(1);
        let list = List {
            completions: VecDeque::with_capacity(capacity),
            starved: vec![],
        };
        Ok(CompletionQueue {
            shared: Arc::new(Shared {
                list: Mutex::new(list),
                capacity,
                event,
            }),
        })
    }

    fn list(&self) -> MutexGuard<'_, List> {
        // Nothing that is done under the lock leaves the list in between.
        let list = self.shared.list.lock();
        list.unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts `next`'s completions in while there is room. Returns how many.
    pub(crate) fn fill(&self, tag: u64, mut next: impl FnMut() -> Option<Completion>) -> usize {
        let completions = &mut self.list().completions;
        let before = completions.len();
        while completions.len() < self.shared.capacity {
            let Some(completion) = next() else { break };
            completions.push_back((tag, completion));
        }
        if before == 0 && !completions.is_empty() {
            // A full counter is readable as well.
            let _ = rustix::io::write(&self.shared.event, &1u64.to_ne_bytes());
        }
        completions.len() - before
    }

    /// Whether there is room; if not, `waker` is used when there is.
    pub(crate) fn has_room_or_wakes(&self, waker: &Waker) -> bool {
        let mut list = self.list();
        let room = list.completions.len() < self.shared.capacity;
        if !room && !list.starved.contains(waker) {
            list.starved.push(waker.clone());
        }
        room
    }

    /// The next completion and the tag of its connection, if there is one.
    pub fn poll(&self) -> Option<(u64, Completion)> {
        let mut list = self.list();
        let next = list.completions.pop_front();
        if next.is_some() && list.completions.is_empty() {
            let _ = rustix::io::read(&self.shared.event, &mut [0; 8]);
        }
        list.starved.drain(..).for_each(|waker| waker.wake());
        next
    }

    /// Waits for the next completion, which another thread's connection has to bring. `None` on
    /// timeout.
    ///
    /// # Errors
    /// The system refused to wait.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<(u64, Completion)>> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            if let Some(completed) = self.poll() {
                return Ok(Some(completed));
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            let mut fds = [PollFd::new(&self.shared.event, PollFlags::IN)];
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(std::io::Error::from(error).into()),
            }
        }
    }

    /// Completions that are there.
    pub fn len(&self) -> usize {
        self.list().completions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list().completions.is_empty()
    }
}

/// The eventfd: readable while there are completions. Only to be polled, not to be read.
impl AsFd for CompletionQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}
