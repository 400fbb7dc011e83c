//! Collects the completions of many connections in one queue.

use crate::bell::Bell;
use crate::completion::Completion;
use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use zerolane_lane::{Process, Waker};

/// Collects the completions of many connections. A program can poll it, wait for it, or watch it with epoll: the
/// descriptor is readable while the queue has completions that wake (see [`Delivery`](crate::Delivery)).
///
/// A queue only collects; it drives no connection. Connections make progress in their own calls, typically
/// [`Connection::wait`](crate::Connection::wait) in a thread of each, and their completions go to the queue (see
/// [`Connection::set_completion_queue`](crate::Connection::set_completion_queue)). While the queue is full, connections
/// keep their completions and make peers that send messages wait. Nothing is lost. After `fork` the queue belongs to
/// the parent; it is empty in the child.
///
/// A [`Worker`](crate::worker::Worker) also drives its connections: [`Worker::wait`](crate::worker::Worker::wait) or
/// [`Worker::progress`](crate::worker::Worker::progress) advances all of them, and
/// [`Worker::take_events`](crate::worker::Worker::take_events) returns their completions. Which to use:
///
/// | the program | takes |
/// |---|---|
/// | serves many connections in one thread | a `Worker`'s events |
/// | computes, and its peers must be served meanwhile | [`Worker::spawn`](crate::worker::Worker::spawn), whose handles have a `Pending` for each request |
/// | has a thread for each connection, and one more that handles completions | a `CompletionQueue` |
///
/// ```
/// use zerolane::request::ReceiveMessage;
/// use zerolane::{CompletionQueue, Connection, Endpoint, Options};
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
/// connection.post(ReceiveMessage::new())?;
/// let (tag, completion) = loop {
///     if let Some(completed) = queue.poll() {
///         break completed;
///     }
///     connection.wait(None)?;
/// };
/// assert_eq!((tag, completion.control()), (7, Some(&b"hello"[..])));
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
    /// Rings while there are completions that wake.
    bell: Bell,
    process: Process,
}

#[derive(Debug)]
struct List {
    completions: VecDeque<(u64, Completion)>,
    /// How many completions at the front keep the descriptor readable.
    notified: usize,
    /// Places reserved for completions that are being moved here.
    held: usize,
    /// Connections that wait for room.
    waiting_for_room: Vec<Waker>,
}

impl CompletionQueue {
    /// Makes a queue of at most `capacity` completions, at least 1. It allocates memory for all of them now, about 250
    /// bytes each.
    ///
    /// # Errors
    /// The system has no descriptor left, or not enough memory.
    pub fn new(capacity: usize) -> Result<CompletionQueue> {
        let bell = Bell::new()?;
        let capacity = capacity.max(1);
        let mut completions = VecDeque::new();
        completions.try_reserve_exact(capacity).map_err(|_| {
            let why = format!("no memory for a queue of {capacity} completions");
            io::Error::new(io::ErrorKind::OutOfMemory, why)
        })?;
        let list = List {
            completions,
            notified: 0,
            held: 0,
            waiting_for_room: vec![],
        };
        Ok(CompletionQueue {
            shared: Arc::new(Shared {
                list: Mutex::new(list),
                capacity,
                bell,
                process: Process::current(),
            }),
        })
    }

    fn list(&self) -> MutexGuard<'_, List> {
        // No code under the lock leaves the list inconsistent.
        let list = self.shared.list.lock();
        list.unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves completions from `next`, each with whether it wakes, into the queue while there is room. Returns how many,
    /// and whether one of them wakes. A full queue counts as a wake-up, because a later completion that wakes would
    /// find no room.
    ///
    /// Calls `next` without the lock: `next` may free memory, and the memory's owner may wait for a lock of the program
    /// whose holder uses this queue.
    pub(crate) fn fill(
        &self,
        tag: u64,
        mut next: impl FnMut() -> Option<(Completion, bool)>,
    ) -> (usize, bool) {
        let (mut count, mut notified) = (0, false);
        let mut place = Place::hold(self);
        while place.held
            && let Some((completion, wakes)) = next()
        {
            notified |= place.put(tag, completion, wakes);
            count += 1;
        }
        (count, notified)
    }

    fn has_room(&self, list: &List) -> bool {
        list.completions.len() + list.held < self.shared.capacity
    }

    /// Whether there is room; if not, uses `waker` when there is.
    pub(crate) fn has_room_or_wakes(&self, waker: &Waker) -> bool {
        let mut list = self.list();
        let room = self.has_room(&list);
        if !room && !list.waiting_for_room.contains(waker) {
            list.waiting_for_room.push(waker.clone());
        }
        room
    }

    /// Fails in a child of fork, where the queue is always empty: another thread's lock is never released there, and
    /// the descriptor is shared with the parent.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn check_process(&self) -> Result<()> {
        match self.is_of_this_process() {
            true => Ok(()),
            false => Err(Error::Forked),
        }
    }

    fn is_of_this_process(&self) -> bool {
        self.shared.process.is_current()
    }

    /// The next completion and the tag of its connection, whether it wakes or not.
    pub fn poll(&self) -> Option<(u64, Completion)> {
        match self.is_of_this_process() {
            true => self.take(self.list()),
            false => None,
        }
    }

    /// Like [`CompletionQueue::poll`], for up to `max` completions, which are appended to `into`. Takes the lock once,
    /// and wakes each connection that waits for room at most once. Returns how many.
    ///
    /// ```
    /// use zerolane::request::ReceiveMessage;
    /// use zerolane::{CompletionQueue, Connection, Endpoint, Options};
    /// let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
    /// let address = endpoint.local_addr();
    /// let peer = std::thread::spawn(move || endpoint.accept(None));
    /// let queue = CompletionQueue::new(64)?;
    /// let mut connection = Connection::connect(address, &Options::default())?;
    /// connection.set_completion_queue(&queue, 7);
    /// let posted: Vec<_> = (0..3).map(|_| connection.post(ReceiveMessage::new())).collect::<Result<_, _>>()?;
    /// posted.iter().for_each(|&id| assert!(connection.cancel(id)));
    /// connection.poll()?;
    /// let mut batch = vec![];
    /// assert_eq!(queue.poll_batch(&mut batch, 64), 3);
    /// assert!(batch.iter().all(|(tag, completion)| *tag == 7 && completion.result.is_err()));
    /// # peer.join().unwrap()?;
    /// # Ok::<(), zerolane::Error>(())
    /// ```
    pub fn poll_batch(&self, into: &mut Vec<(u64, Completion)>, max: usize) -> usize {
        if !self.is_of_this_process() {
            return 0;
        }
        let mut list = self.list();
        let count = max.min(list.completions.len());
        into.extend(list.completions.drain(..count));
        self.taken(list, count);
        count
    }

    fn take(&self, mut list: MutexGuard<'_, List>) -> Option<(u64, Completion)> {
        let next = list.completions.pop_front();
        self.taken(list, usize::from(next.is_some()));
        next
    }

    /// Updates the counts after the first `count` were removed.
    fn taken(&self, mut list: MutexGuard<'_, List>, count: usize) {
        if list.notified > 0 && list.notified <= count {
            self.shared.bell.silence();
        }
        list.notified = list.notified.saturating_sub(count);
        if count > 0 {
            list.waiting_for_room
                .drain(..)
                .for_each(|waker| waker.wake());
        }
    }

    /// Waits for the next completion that wakes; connections in other threads must deliver it. Earlier completions are
    /// returned first. `None` on timeout. A timeout of zero polls.
    ///
    /// # Errors
    /// The system refused to wait; or [`Error::Forked`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<(u64, Completion)>> {
        self.check_process()?;
        if timeout == Some(Duration::ZERO) {
            return Ok(self.poll());
        }
        self.shared.bell.wait_for(timeout, || {
            let list = self.list();
            match list.notified {
                0 => Ok(None),
                _ => Ok(self.take(list)),
            }
        })
    }

    /// Completions in the queue.
    pub fn len(&self) -> usize {
        match self.is_of_this_process() {
            true => self.list().completions.len(),
            false => 0,
        }
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A reserved place for one completion.
struct Place<'a> {
    queue: &'a CompletionQueue,
    /// The place is reserved.
    held: bool,
}

impl<'a> Place<'a> {
    fn hold(queue: &'a CompletionQueue) -> Place<'a> {
        let mut list = queue.list();
        let held = queue.has_room(&list);
        list.held += usize::from(held);
        Place { queue, held }
    }

    /// Stores a completion and reserves the next place. Returns whether the descriptor is readable for it.
    fn put(&mut self, tag: u64, completion: Completion, wakes: bool) -> bool {
        let shared = &self.queue.shared;
        let list = &mut *self.queue.list();
        list.completions.push_back((tag, completion));
        list.held -= 1;
        self.held = self.queue.has_room(list);
        list.held += usize::from(self.held);
        let len = list.completions.len();
        let notified = wakes || len == shared.capacity;
        if notified && list.notified == 0 {
            shared.bell.ring();
        }
        if notified {
            list.notified = len;
        }
        notified
    }
}

/// No completion came: another connection may use the place.
impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.held {
            let mut list = self.queue.list();
            list.held -= 1;
            list.waiting_for_room
                .drain(..)
                .for_each(|waker| waker.wake());
        }
    }
}

/// The eventfd: readable while the queue has completions that wake. Only poll it; do not read it.
impl AsFd for CompletionQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use crate::completion::Output;
    use crate::id::RequestId;
    use std::sync::mpsc;

    fn completion() -> Completion {
        Completion {
            id: RequestId::from_u64(1),
            context: 0,
            result: Ok(0),
            output: Output::Put { memory: None },
            pool: None,
        }
    }

    /// The owner of a completion's memory may use the queue.
    #[test]
    fn fill__takes_completions_without_the_lock() {
        let queue = CompletionQueue::new(4).expect("a queue");
        let (notify, notified) = mpsc::channel();
        // The test does not join this thread, which would hang if the lock were held.
        std::thread::spawn(move || {
            let mut next = [completion()].into_iter();
            let filled = queue.fill(7, || {
                let _ = notify.send(queue.len());
                Some((next.next()?, true))
            });
            assert_eq!(filled, (1, true));
        });
        let wait = || notified.recv_timeout(Duration::from_secs(20));
        assert_eq!((wait(), wait()), (Ok(0), Ok(1)));
    }

    #[test]
    fn new__of_more_than_memory_is_an_error() {
        for capacity in [1 << 40, usize::MAX / 2, usize::MAX] {
            let error = CompletionQueue::new(capacity).expect_err("no memory");
            let words = format!("no memory for a queue of {capacity} completions");
            assert_eq!(error.to_string(), words);
            let error = io::Error::from(error);
            assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        }
        let queue = CompletionQueue::new(0).expect("room for one");
        assert_eq!(queue.fill(7, || Some((completion(), true))), (1, true));
    }

    #[test]
    fn wait__as_long_as_no_clock_counts() {
        let queue = CompletionQueue::new(1).expect("a queue");
        assert_eq!(queue.fill(7, || Some((completion(), true))), (1, true));
        let taken = queue.wait(Some(Duration::MAX)).expect("no error");
        assert_eq!(taken.map(|it| it.0), Some(7));
        // Puts a completion while a thread sleeps in `wait`.
        let other = queue.clone();
        let sleeping = std::thread::spawn(move || other.wait(Some(Duration::MAX)));
        assert_eq!(queue.fill(8, || Some((completion(), true))).0, 1);
        let taken = sleeping.join().expect("no panic").expect("no error");
        assert_eq!(taken.map(|it| it.0), Some(8));
    }

    #[test]
    fn fill__of_two_at_once_is_no_more_than_fits() {
        let queue = CompletionQueue::new(2).expect("a queue");
        let filled = queue.fill(7, || {
            // The last free place is filled.
            let other = queue.fill(8, || Some((completion(), false)));
            assert_eq!(other, (1, false));
            Some((completion(), false))
        });
        assert_eq!((filled, queue.len()), ((1, true), 2));
        assert_eq!(queue.poll().map(|it| it.0), Some(8));
        assert_eq!(queue.poll().map(|it| it.0), Some(7));
    }

    #[test]
    fn fill__without_a_completion_leaves_room_for_others() {
        let queue = CompletionQueue::new(1).expect("a queue");
        let waker = Waker::default();
        let filled = queue.fill(7, || {
            assert!(!queue.has_room_or_wakes(&waker));
            None
        });
        assert_eq!(filled, (0, false));
        assert!(waker.take(), "it waited for the room");
        assert!(queue.has_room_or_wakes(&waker));
        assert_eq!(queue.fill(8, || Some((completion(), false))), (1, true));
    }
}
