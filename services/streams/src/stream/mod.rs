//! Hands streams to threads and tasks: reading, writing, opening and accepting, blocking or as futures.

mod driver;
mod error;
mod io;
mod waiting;

pub use error::StreamError;
pub use waiting::wait;

use crate::engine::{Engine, Event, Fill, Role};
use crate::message::{ResetCode, StreamId};
use crate::session::Session;
use driver::drive;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io::Result;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use waiting::{Waiters, block_on};
use zerolane::worker::{PendingSet, Worker};
use zerolane::{Connection, Process};

/// The streams of one connection, in a thread of their own.
///
/// ```
/// use std::io::{Read, Write};
/// use zerolane::{Connection, Endpoint, Options};
/// use zerolane_streams::{Role, Streams};
/// let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
/// let address = endpoint.local_addr();
/// let server = std::thread::spawn(move || -> std::io::Result<()> {
///     let connection = endpoint.accept(None)?.expect("no timeout");
///     let streams = Streams::new(connection, Role::Acceptor)?;
///     while let Some(mut stream) = streams.accept()? {
///         let mut question = String::new();
///         stream.read_to_string(&mut question)?;
///         let purpose = String::from_utf8_lossy(stream.purpose()).into_owned();
///         write!(stream, "{purpose}: {}", question.to_uppercase())?;
///     }
///     Ok(())
/// });
/// let streams = Streams::new(Connection::connect(address, &Options::default())?, Role::Connector)?;
/// let mut one = streams.open(b"one")?;
/// let mut other = streams.open(b"other")?;
/// other.write_all(b"second")?;
/// one.write_all(b"first")?;
/// one.finish()?;
/// let mut answer = String::new();
/// one.read_to_string(&mut answer)?;
/// assert_eq!(answer, "one: FIRST");
/// # drop((one, other, streams));
/// # let _ = server;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropping it delivers what was written, as [`Streams::close`] does, and disconnects. After a fork streams belong to
/// the parent: in the child, calls fail, and dropping does nothing.
#[derive(Debug)]
pub struct Streams {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// One stream: bytes in both directions, each of which ends by itself.
///
/// A write returns when the bytes are queued; the queue has room for 256 KiB, and for as much as the peer's credit.
/// Dropping it closes it. Threads may share it: each byte goes to one reader, and the bytes of one write may follow
/// those of another.
#[derive(Debug)]
pub struct Stream {
    shared: Arc<Shared>,
    id: StreamId,
    purpose: Vec<u8>,
}

/// What a stream may be ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// A read returns at once.
    Read,
    /// A write returns at once.
    Write,
    /// The peer's program accepted the stream, or it ended.
    Accepted,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    waker: zerolane::Waker,
    process: Process,
}

#[derive(Debug)]
struct State {
    session: Session,
    /// The streams that the program holds, and has not closed.
    held: HashMap<StreamId, Held>,
    /// Streams of the peer that were not accepted, and who waits for one, or for the end.
    opened: VecDeque<StreamId>,
    acceptors: Waiters,
    closers: Waiters,
    /// The connection is over, and why.
    end: Option<StreamError>,
    /// The program wants no more streams.
    closes: bool,
    /// At once.
    aborts: bool,
}

/// Who waits for a stream.
#[derive(Debug, Default)]
struct Held {
    readers: Waiters,
    writers: Waiters,
    openers: Waiters,
    accepted: bool,
}

impl Shared {
    /// # Errors
    /// This is a child of fork, where the lock of another thread is never released.
    fn lock(&self) -> std::result::Result<MutexGuard<'_, State>, StreamError> {
        match self.process.is_current() {
            true => Ok(self.lock_here()),
            false => Err(StreamError::Forked),
        }
    }

    /// For the thread that drives, which no child of fork has.
    fn lock_here(&self) -> MutexGuard<'_, State> {
        // No code under the lock leaves the state inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn engine(&mut self) -> &mut Engine {
        &mut self.session.engine
    }

    /// Wakes those that the engine's events concern. False if there were none.
    fn deliver(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.session.engine.next_event() {
            any = true;
            match event {
                Event::Opened(id) => {
                    self.opened.push_back(id);
                    self.acceptors.wake();
                }
                Event::Accepted(id) => {
                    if let Some(it) = self.held.get_mut(&id) {
                        it.accepted = true;
                        it.openers.wake();
                    }
                }
                Event::Readable(id) => {
                    if let Some(it) = self.held.get_mut(&id) {
                        it.readers.wake();
                    }
                }
                Event::Writable(id) => {
                    if let Some(it) = self.held.get_mut(&id) {
                        it.writers.wake();
                    }
                }
                Event::Reset(id) => self.wake_all_of(id),
            }
        }
        any
    }

    fn wake_all_of(&mut self, id: StreamId) {
        if let Some(it) = self.held.get_mut(&id) {
            it.wake_all();
        }
    }

    fn end(&mut self, why: StreamError) {
        self.end.get_or_insert(why);
        self.held.values_mut().for_each(Held::wake_all);
        self.acceptors.wake();
        self.closers.wake();
    }

    /// Who waits for a stream that this end has not closed.
    fn held(&mut self, id: StreamId) -> std::result::Result<&mut Held, StreamError> {
        self.held.get_mut(&id).ok_or(StreamError::Closed)
    }

    /// The error of a stream that was closed or reset, or whose connection is over.
    fn check(&mut self, id: StreamId) -> std::result::Result<(), StreamError> {
        self.held(id)?;
        if let Some(reset) = self.session.engine.reset_reason(id) {
            return Err(StreamError::Reset(reset.clone()));
        }
        self.check_end()
    }

    fn check_end(&self) -> std::result::Result<(), StreamError> {
        self.end.clone().map_or(Ok(()), Err)
    }

    /// A stream to accept. Releases those that the peer has reset.
    fn next_opened(&mut self) -> Option<StreamId> {
        while let Some(id) = self.opened.front().copied() {
            if self.session.engine.reset_reason(id).is_none() {
                return Some(id);
            }
            self.opened.pop_front();
            self.engine().release(id);
        }
        None
    }

    /// Whether a call would return at once.
    fn is_ready(&mut self, id: StreamId, what: Ready) -> bool {
        if self.check(id).is_err() {
            return true;
        }
        match what {
            Ready::Read => !self.engine().readable(id).is_empty() || self.engine().is_over(id),
            // A source without bytes changes nothing.
            Ready::Write => !matches!(self.engine().fill(id, |_| Ok(0)), Fill::Full),
            Ready::Accepted => self.held.get(&id).is_none_or(|it| it.accepted),
        }
    }
}

impl Held {
    fn wake_all(&mut self) {
        for waiters in [&mut self.readers, &mut self.writers, &mut self.openers] {
            waiters.wake();
        }
    }
}

impl Streams {
    /// Streams over `connection`; one end is the connector, the other the acceptor.
    ///
    /// # Errors
    /// The system cannot start a thread, or has no descriptor left.
    pub fn new(connection: Connection, role: Role) -> Result<Streams> {
        let mut worker = Worker::new()?;
        let id = worker.adopt(connection)?;
        let state = State {
            session: Session::new(id, role),
            held: HashMap::new(),
            opened: VecDeque::new(),
            acceptors: Waiters::default(),
            closers: Waiters::default(),
            end: None,
            closes: false,
            aborts: false,
        };
        let waker = worker.waker();
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            waker,
            process: Process::current(),
        });
        let driven = Arc::clone(&shared);
        let thread = thread::Builder::new().name("zerolane-streams".into());
        let thread = thread.spawn(move || drive(worker, &driven))?;
        Ok(Streams {
            shared,
            thread: Some(thread),
        })
    }

    /// Opens a stream, which can be written at once. `purpose` tells the peer what it is for.
    ///
    /// # Errors
    /// Too many are open, the purpose is too long, or the connection is over.
    pub fn open(&self, purpose: &[u8]) -> Result<Stream> {
        self.open_with_priority(purpose, crate::limits::DEFAULT_PRIORITY)
    }

    /// Opens a stream of a priority from 0, whose bytes go first, to 7. Streams have 3 unless they choose.
    ///
    /// # Errors
    /// As for [`Streams::open`].
    pub fn open_with_priority(&self, purpose: &[u8], priority: u8) -> Result<Stream> {
        let mut state = self.shared.lock()?;
        state.check_end()?;
        if state.closes {
            return Err(StreamError::Closed.into());
        }
        let opened = state.engine().open(purpose, Some(priority));
        let id = opened.map_err(StreamError::Open)?;
        Ok(self.stream(&mut state, id))
    }

    fn stream(&self, state: &mut State, id: StreamId) -> Stream {
        state.held.insert(id, Held::default());
        let purpose = state.session.engine.purpose(id).to_vec();
        let shared = Arc::clone(&self.shared);
        shared.waker.wake();
        Stream {
            shared,
            id,
            purpose,
        }
    }

    /// Waits for a stream that the peer opens, and accepts it. `None`: the peer has disconnected, or this end.
    ///
    /// # Errors
    /// The connection failed.
    pub fn accept(&self) -> Result<Option<Stream>> {
        block_on(|cx| self.poll_accept(cx))
    }

    /// Polls for what [`Streams::accept`] waits for.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Stream>>> {
        let mut state = self.shared.lock()?;
        if let Some(id) = state.next_opened() {
            state.opened.pop_front();
            state.engine().accept(id);
            return Poll::Ready(Ok(Some(self.stream(&mut state, id))));
        }
        match &state.end {
            Some(StreamError::Disconnected | StreamError::Closed) => Poll::Ready(Ok(None)),
            Some(why) => Poll::Ready(Err(why.clone().into())),
            None => {
                state.acceptors.add(cx.waker());
                Poll::Pending
            }
        }
    }

    /// Puts `token` into `set`, once, when [`Streams::accept`] returns at once; now if it does. Replaces the token given
    /// before.
    ///
    /// # Errors
    /// This is a child of fork.
    pub fn watch(&self, set: &PendingSet, token: u64) -> Result<()> {
        let mut state = self.shared.lock()?;
        match state.next_opened().is_some() || state.end.is_some() {
            true => set.signal(token),
            false => state.acceptors.watch(set, token),
        }
        Ok(())
    }

    /// Delivers what was written to the peer's library, and disconnects; opens and accepts no more streams. [`wait`] with
    /// [`Streams::poll_close`] has a limit. If the peer disconnects first, what it did not take is lost.
    ///
    /// # Errors
    /// The connection failed, and something may not have been delivered.
    pub fn close(&self) -> Result<()> {
        block_on(|cx| self.poll_close(cx))
    }

    /// Polls for what [`Streams::close`] waits for.
    pub fn poll_close(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut state = self.shared.lock()?;
        match &state.end {
            Some(StreamError::Disconnected | StreamError::Closed) => return Poll::Ready(Ok(())),
            Some(why) => return Poll::Ready(Err(why.clone().into())),
            None => state.closers.add(cx.waker()),
        }
        state.closes = true;
        self.shared.waker.wake();
        Poll::Pending
    }

    /// Disconnects at once; what was not delivered is lost.
    pub fn abort(&self) {
        if let Ok(mut state) = self.shared.lock() {
            state.aborts = true;
            self.shared.waker.wake();
        }
    }

    /// Like [`Streams::accept`], as a future.
    ///
    /// # Errors
    /// The connection failed.
    pub async fn next(&self) -> Result<Option<Stream>> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        let thread = self.thread.take();
        let Ok(mut state) = self.shared.lock() else {
            // The parent's: this process has no such thread.
            std::mem::forget(thread);
            return;
        };
        state.closes = true;
        drop(state);
        self.shared.waker.wake();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Stream {
    /// What the opener wrote.
    pub fn purpose(&self) -> &[u8] {
        &self.purpose
    }

    /// Its number, unique in its connection.
    pub fn id(&self) -> u64 {
        self.id.0
    }

    /// Waits until the peer's program accepts the stream.
    ///
    /// # Errors
    /// The peer refused it, or the connection is over.
    pub fn accepted(&self) -> Result<()> {
        block_on(|cx| self.poll_accepted(cx))
    }

    /// Polls for what [`Stream::accepted`] waits for.
    pub fn poll_accepted(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut state = self.shared.lock()?;
        if state.held(self.id)?.accepted {
            return Poll::Ready(Ok(()));
        }
        state.check(self.id)?;
        state.held(self.id)?.openers.add(cx.waker());
        Poll::Pending
    }

    /// Puts `token` into `set`, once, when the stream is ready; now if it is. One set so tells of any number of
    /// streams, by one descriptor. Replaces the token that was given for the same before. Another reader or writer may be
    /// faster: the call may still find nothing.
    ///
    /// # Errors
    /// This is a child of fork, or this end has closed the stream.
    pub fn watch(&self, what: Ready, set: &PendingSet, token: u64) -> Result<()> {
        let mut state = self.shared.lock()?;
        let is_ready = state.is_ready(self.id, what);
        let held = state.held(self.id)?;
        let waiters = match what {
            Ready::Read => &mut held.readers,
            Ready::Write => &mut held.writers,
            Ready::Accepted => &mut held.openers,
        };
        match is_ready {
            true => set.signal(token),
            false => waiters.watch(set, token),
        }
        if what == Ready::Write {
            // The peer may have to be told that its credit is used.
            self.shared.waker.wake();
        }
        Ok(())
    }

    /// Ends the direction to the peer, as TCP's half-close does; what was written arrives before.
    ///
    /// # Errors
    /// The stream was closed or reset, or the connection is over.
    pub fn finish(&self) -> Result<()> {
        let mut state = self.shared.lock()?;
        state.check(self.id)?;
        state.engine().finish(self.id);
        state.held(self.id)?.writers.wake();
        self.shared.waker.wake();
        Ok(())
    }

    /// Ends both directions at once; the peer's program gets `words`, up to 512 bytes, with its error. Does nothing if
    /// this end has closed the stream.
    ///
    /// # Errors
    /// This is a child of fork.
    pub fn reset(&self, words: &str) -> Result<()> {
        let mut state = self.shared.lock()?;
        if state.held(self.id).is_ok() {
            state.engine().reset(self.id, ResetCode::Aborted, words);
            state.wake_all_of(self.id);
            self.shared.waker.wake();
        }
        Ok(())
    }

    /// Ends the use of the stream, also for other threads, whose calls fail. What was written is delivered, then the end;
    /// if the peer writes more, or had written what was not read, the stream is reset. Does nothing the second time.
    ///
    /// # Errors
    /// This is a child of fork.
    pub fn close(&self) -> Result<()> {
        let mut state = self.shared.lock()?;
        if let Some(mut held) = state.held.remove(&self.id) {
            state.engine().release(self.id);
            held.wake_all();
            self.shared.waker.wake();
        }
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Not in a child of fork.
        let _ = self.close();
    }
}
