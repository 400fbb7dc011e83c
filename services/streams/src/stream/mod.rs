//! Hands streams to threads and tasks: reading, writing, opening and accepting, blocking or as futures.

mod driver;
mod io;

use crate::engine::{Engine, Event, Fill, OpenError, Role};
use crate::message::{Reset, ResetCode, StreamId};
use crate::session::Session;
use driver::drive;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};
use zerolane::Connection;
use zerolane::worker::Worker;

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
/// Dropping it, once no stream is left, delivers what was written, and disconnects.
#[derive(Debug)]
pub struct Streams {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// One stream: bytes in both directions, each of which ends by itself.
///
/// A write returns when the bytes are queued; the queue has room for 256 KiB, and for as much as the peer's credit.
/// Dropping it delivers what was written, then the end; if the peer writes more, or had written what was not read, the
/// stream is reset.
#[derive(Debug)]
pub struct Stream {
    shared: Arc<Shared>,
    id: StreamId,
    purpose: Vec<u8>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    waker: zerolane::Waker,
}

#[derive(Debug)]
struct State {
    session: Session,
    waiting: HashMap<StreamId, Waiting>,
    /// Streams of the peer that were not accepted, and who waits for one.
    opened: VecDeque<StreamId>,
    acceptors: Vec<Waker>,
    /// The connection is over, and why.
    end: Option<(ErrorKind, String)>,
    /// The program wants no more streams.
    closes: bool,
}

/// Who waits for a stream.
#[derive(Debug, Default)]
struct Waiting {
    reader: Option<Waker>,
    writer: Option<Waker>,
    opener: Option<Waker>,
    accepted: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
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
                    self.acceptors.drain(..).for_each(Waker::wake);
                }
                Event::Accepted(id) => {
                    if let Some(it) = self.waiting.get_mut(&id) {
                        it.accepted = true;
                        wake(&mut it.opener);
                    }
                }
                Event::Readable(id) => {
                    if let Some(it) = self.waiting.get_mut(&id) {
                        wake(&mut it.reader);
                    }
                }
                Event::Writable(id) => {
                    if let Some(it) = self.waiting.get_mut(&id) {
                        wake(&mut it.writer);
                    }
                }
                Event::Reset(id) => {
                    if let Some(it) = self.waiting.get_mut(&id) {
                        it.wake_all();
                    }
                }
            }
        }
        any
    }

    fn end(&mut self, kind: ErrorKind, words: String) {
        self.end.get_or_insert((kind, words));
        self.waiting.values_mut().for_each(Waiting::wake_all);
        self.acceptors.drain(..).for_each(Waker::wake);
    }

    /// The error of a stream that was reset, or whose connection is over.
    fn check(&self, id: StreamId) -> Result<()> {
        if let Some(Reset { code, words }) = self.session.engine.reset_reason(id) {
            let kind = match code {
                ResetCode::Denied => ErrorKind::PermissionDenied,
                ResetCode::Unreachable => ErrorKind::ConnectionRefused,
                _ => ErrorKind::ConnectionReset,
            };
            return Err(Error::new(kind, words.clone()));
        }
        self.check_end()
    }

    fn check_end(&self) -> Result<()> {
        match &self.end {
            Some((kind, words)) => Err(Error::new(*kind, words.clone())),
            None => Ok(()),
        }
    }
}

impl Waiting {
    fn wake_all(&mut self) {
        for waker in [&mut self.reader, &mut self.writer, &mut self.opener] {
            wake(waker);
        }
    }
}

fn wake(waker: &mut Option<Waker>) {
    waker.take().into_iter().for_each(Waker::wake);
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
            waiting: HashMap::new(),
            opened: VecDeque::new(),
            acceptors: Vec::new(),
            end: None,
            closes: false,
        };
        let waker = worker.waker();
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            waker,
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
        let mut state = self.shared.lock();
        state.check_end()?;
        let opened = state.engine().open(purpose, Some(priority));
        let id = opened.map_err(|error| {
            let kind = match error {
                OpenError::TooMany => ErrorKind::QuotaExceeded,
                OpenError::Purpose => ErrorKind::InvalidInput,
            };
            Error::new(kind, error)
        })?;
        Ok(self.stream(&mut state, id))
    }

    fn stream(&self, state: &mut State, id: StreamId) -> Stream {
        state.waiting.insert(id, Waiting::default());
        let purpose = state.session.engine.purpose(id).to_vec();
        let shared = Arc::clone(&self.shared);
        shared.waker.wake();
        Stream {
            shared,
            id,
            purpose,
        }
    }

    /// Waits for a stream that the peer opens, and accepts it. `None`: the peer has disconnected.
    ///
    /// # Errors
    /// The connection failed.
    pub fn accept(&self) -> Result<Option<Stream>> {
        block_on(|cx| self.poll_accept(cx))
    }

    /// Like [`Streams::accept`], for a task.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Stream>>> {
        let mut state = self.shared.lock();
        while let Some(id) = state.opened.pop_front() {
            if state.session.engine.reset_reason(id).is_some() {
                state.engine().release(id);
                continue;
            }
            state.engine().accept(id);
            return Poll::Ready(Ok(Some(self.stream(&mut state, id))));
        }
        match &state.end {
            Some((ErrorKind::NotConnected, _)) => Poll::Ready(Ok(None)),
            Some(_) => Poll::Ready(state.check_end().map(|()| None)),
            None => {
                state.acceptors.push(cx.waker().clone());
                Poll::Pending
            }
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
        self.shared.lock().closes = true;
        self.shared.waker.wake();
        if let Some(thread) = self.thread.take() {
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
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Waits until the peer's program accepts the stream.
    ///
    /// # Errors
    /// The peer refused it, or the connection is over.
    pub fn accepted(&self) -> Result<()> {
        block_on(|cx| self.poll_accepted(cx))
    }

    /// Like [`Stream::accepted`], for a task.
    pub fn poll_accepted(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut state = self.shared.lock();
        let waiting = state.waiting.entry(self.id).or_default();
        if waiting.accepted {
            return Poll::Ready(Ok(()));
        }
        waiting.opener = Some(cx.waker().clone());
        match state.check(self.id) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Ends the direction to the peer, as TCP's half-close does; what was written arrives before.
    ///
    /// # Errors
    /// The stream was reset, or the connection is over.
    pub fn finish(&self) -> Result<()> {
        let mut state = self.shared.lock();
        state.check(self.id)?;
        state.engine().finish(self.id);
        self.shared.waker.wake();
        Ok(())
    }

    /// Ends both directions at once; the peer's program gets `words` with its error.
    pub fn reset(&self, words: &str) {
        self.shared
            .lock()
            .engine()
            .reset(self.id, ResetCode::Aborted, words);
        self.shared.waker.wake();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.waiting.remove(&self.id);
        state.engine().release(self.id);
        self.shared.waker.wake();
    }
}

/// Wakes a thread that blocks.
struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread until `poll` is ready.
fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let waker = Waker::from(Arc::new(Parked(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match poll(&mut context) {
            Poll::Ready(it) => return it,
            Poll::Pending => thread::park(),
        }
    }
}
