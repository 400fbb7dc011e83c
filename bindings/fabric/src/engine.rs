//! Holds the worker of a fabric behind a lock, and turns its events into completions and events of libfabric.
//!
//! A fabric has one worker, not each domain, because a passive endpoint belongs to the fabric and the connection that it
//! accepts to a domain that may be opened later. Locks are taken in this order: engine, endpoint, queue.

use crate::errno::{self, Errno, Outcome};
use crate::libfabric::*;
use crate::log::{self, Level};
use crate::numbers::Numbers;
use crate::object::Object;
use crate::operations::{self, Kind, Number, Operation, Operations, Owner, Place, SILENT};
use crate::request::Request;
use crate::settings::Settings;
use rustix::event::epoll;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use zerolane::request::Output;
use zerolane::worker::{ConnectionId, EndpointId, Event, Worker};
use zerolane::{Completion, Error, Process};

/// How long closing a fabric waits for what was sent before: messages that were injected have no other owner.
const LINGER: Duration = Duration::from_secs(5);
/// Passes of the worker before a program may sleep: its events follow from one another.
const PASSES: usize = 64;

/// A passive endpoint, as the engine tells it what happened.
pub(crate) trait Listening: Send + Sync {
    /// Passes a request to the program. False: it must be refused.
    fn on_requested(&self, state: &mut State, connection: ConnectionId) -> bool;

    /// It listens no more.
    fn on_failed(&self, error: &Error);
}

/// The worker of a fabric, and what belongs to it.
pub(crate) struct Engine {
    state: Mutex<State>,
    /// Calls of the program. The thread stands back while it changes.
    calls: AtomicU64,
    /// The program sleeps on a descriptor, and drives the worker when it wakes.
    sleeps: AtomicBool,
    /// Readable when the worker has something to do.
    pub(crate) input: OwnedFd,
    pub(crate) settings: Settings,
    process: Process,
}

pub(crate) struct State {
    pub(crate) worker: Worker,
    pub(crate) endpoints: HashMap<ConnectionId, Arc<dyn Owner>>,
    pub(crate) listeners: HashMap<EndpointId, Arc<dyn Listening>>,
    /// Requests for connections that the program has not decided.
    pub(crate) requests: HashMap<ConnectionId, Arc<Request>>,
    pub(crate) operations: Operations,
    pub(crate) numbers: Numbers,
    /// An event whose queue is full. Later events wait behind it, and peers behind them.
    stalled: Option<Event>,
}

impl Engine {
    /// # Errors
    /// The system has no descriptor left.
    pub(crate) fn new(settings: Settings) -> Outcome<Engine> {
        let worker = Worker::new()?;
        let input = worker.as_fd().try_clone_to_owned()?;
        Ok(Engine {
            state: Mutex::new(State {
                worker,
                endpoints: HashMap::new(),
                listeners: HashMap::new(),
                requests: HashMap::new(),
                operations: Operations::default(),
                numbers: Numbers::default(),
                stalled: None,
            }),
            calls: AtomicU64::new(0),
            sleeps: AtomicBool::new(false),
            input,
            settings,
            process: Process::current(),
        })
    }

    /// Locks the worker for a call of the program.
    ///
    /// # Errors
    /// FI_EPERM: this process is a child of fork. A thread that it does not have may hold its copy of the lock.
    pub(crate) fn enter(&self) -> Outcome<MutexGuard<'_, State>> {
        if !self.process.is_current() {
            return Err(Errno(FI_EPERM));
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.sleeps.store(false, Ordering::Relaxed);
        Ok(self.lock())
    }

    /// Locks the worker.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Whether the program said that it sleeps on a descriptor.
    pub(crate) fn sleeps(&self) -> bool {
        self.sleeps.load(Ordering::Relaxed)
    }

    /// Adds the worker's descriptor to a set.
    ///
    /// # Errors
    /// The system refused.
    pub(crate) fn watch(&self, set: &OwnedFd) -> Outcome {
        let input = epoll::EventFlags::IN;
        epoll::add(set, &self.input, epoll::EventData::new_u64(1), input)?;
        Ok(())
    }

    /// Prepares for the program's sleep on a descriptor. False if there is something to do already.
    ///
    /// # Errors
    /// The worker failed.
    pub(crate) fn arm(&self) -> Outcome<bool> {
        let armed = self.enter()?.settle()?;
        self.sleeps.store(armed, Ordering::Relaxed);
        Ok(armed)
    }

    /// Refuses undecided requests, and drives the worker until its connections are closed, for a bounded time.
    ///
    /// # Errors
    /// The worker failed, or belongs to the parent process.
    pub(crate) fn linger(&self) -> Outcome {
        {
            let mut state = self.enter()?;
            let undecided: Vec<_> = state.requests.drain().map(|it| it.0).collect();
            for connection in undecided {
                state.worker.refuse_request(connection);
            }
        }
        let deadline = Instant::now() + LINGER;
        while Instant::now() < deadline {
            let mut state = self.enter()?;
            if state.worker.connections() == 0 {
                break;
            }
            state.advance()?;
            // Nothing else uses the worker now.
            let _ = state.worker.wait(Some(Duration::from_millis(50)));
        }
        Ok(())
    }
}

impl State {
    /// Makes progress once, and delivers what came of it.
    ///
    /// # Errors
    /// The worker failed, or belongs to the parent process.
    pub(crate) fn advance(&mut self) -> Outcome<bool> {
        let more = self.worker.progress()?;
        self.deliver();
        Ok(more)
    }

    /// Makes progress until there is nothing to do, and sets the worker's timers. False if there is still something.
    ///
    /// # Errors
    /// As for [`State::advance`].
    pub(crate) fn settle(&mut self) -> Outcome<bool> {
        for _ in 0..PASSES {
            if self.advance()? {
                continue;
            }
            if self.stalled.is_some() {
                return Ok(true);
            }
            return Ok(self.worker.arm()?);
        }
        Ok(false)
    }

    /// The request that a handle names, if it is not decided yet. Takes it from those that are not.
    ///
    /// # Errors
    /// There is no such request, or its client gave up.
    pub(crate) fn decide(&mut self, handle: fid_t) -> Outcome<Arc<Request>> {
        let found = self.requests.values().find(|it| it.as_fid() == handle);
        let connection = found.map(|it| it.connection).ok_or(Errno::INVALID)?;
        let request = self.requests.remove(&connection).ok_or(Errno::INVALID)?;
        match request.is_over() {
            true => Err(Errno(FI_ECONNABORTED)),
            false => Ok(request),
        }
    }

    /// Delivers the events of the worker.
    fn deliver(&mut self) {
        while let Some(event) = self.stalled.take().or_else(|| self.worker.next_event()) {
            if let Some(stalled) = self.on_event(event) {
                self.stalled = Some(stalled);
                return;
            }
        }
    }

    /// Handles an event, or returns it because its queue is full.
    fn on_event(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::Completed {
                connection,
                completion,
            } => return self.on_completion(connection, completion),
            Event::Requested {
                endpoint,
                connection,
            } => self.on_requested(endpoint, connection),
            Event::Connected { connection } => self.on_connected(connection),
            Event::Closed { connection, reason } => {
                if let Some(request) = self.requests.get(&connection) {
                    request.give_up();
                }
                if let Some(endpoint) = self.endpoints.remove(&connection) {
                    endpoint.on_closed(&reason);
                }
            }
            Event::EndpointFailed { endpoint, error } => {
                log::say(
                    Level::Warn,
                    format_args!("a listening endpoint failed: {error}"),
                );
                if let Some(passive) = self.listeners.remove(&endpoint) {
                    passive.on_failed(&error);
                }
            }
            _ => {}
        }
        None
    }

    fn on_completion(&mut self, connection: ConnectionId, it: Completion) -> Option<Event> {
        if let Some(immediate) = it.immediate() {
            let endpoint = self.endpoints.get(&connection)?;
            if !endpoint.on_immediate(immediate.number, immediate.length) {
                return Some(Event::Completed {
                    connection,
                    completion: it,
                });
            }
            return None;
        }
        if it.context == SILENT {
            if let Err(reason) = it.result {
                log::say(
                    Level::Info,
                    format_args!("an injected operation failed: {reason}"),
                );
            }
            return None;
        }
        let is_shared = |it: &Operation| it.owner.is_none();
        let (number, index) = Number::of_context(it.context);
        let operation = self.operations.get(number)?;
        if is_shared(operation) && !self.endpoints.contains_key(&connection) {
            // The endpoint is closed: its message is dropped, and the memory serves another.
            it.recycle();
            return None;
        }
        if let Err(reason) = it.result {
            let cause = match operation.kind {
                Kind::Receive => errno::not_received(reason),
                Kind::Send | Kind::Read | Kind::Write => errno::failed(reason),
            };
            operation.failure.get_or_insert(cause);
        }
        if let (Place::Words { at, bytes }, Some(before)) = (&operation.place, it.before()) {
            let bytes = *bytes;
            if let Some(&at) = at.get(index) {
                operations::store(at, bytes, before);
            }
        }
        operation.left -= 1;
        if operation.left > 0 {
            return None;
        }
        let operation = self.operations.remove(number)?;
        let endpoint = operation.owner.clone();
        let endpoint = endpoint.or_else(|| self.endpoints.get(&connection).map(Arc::clone));
        if let Some(endpoint) = endpoint {
            finish(&*endpoint, operation, it);
        }
        None
    }

    fn on_connected(&mut self, connection: ConnectionId) {
        let Some(connected) = self.worker.connection(connection) else {
            return;
        };
        let data = connected.peer_data().to_vec();
        let account = connected.account();
        let why = account.no_shared_memory.map(|it| it.to_string());
        log::say(
            Level::Info,
            format_args!(
                "connected to {} over {:?}{}{}",
                connected.peer_addr(),
                account.lane,
                why.as_ref().map_or("", |_| ", not shared memory: "),
                why.as_deref().unwrap_or_default()
            ),
        );
        let Some(endpoint) = self.endpoints.get(&connection).map(Arc::clone) else {
            return;
        };
        if !endpoint.on_connected(&data) {
            self.endpoints.remove(&connection);
            self.worker.close(connection);
        }
    }

    fn on_requested(&mut self, endpoint: EndpointId, connection: ConnectionId) {
        let passive = self.listeners.get(&endpoint).map(Arc::clone);
        let taken = passive.is_some_and(|it| it.on_requested(self, connection));
        if !taken {
            self.worker.refuse_request(connection);
        }
    }
}

/// Reports the end of an operation.
fn finish(endpoint: &dyn Owner, operation: Operation, completion: Completion) {
    let data = match completion.output {
        Output::MessageReceived { ref control, .. } => {
            let bytes: Option<[u8; 4]> = control.get(..4).and_then(|it| it.try_into().ok());
            bytes.map(u32::from_le_bytes)
        }
        _ => None,
    };
    let arrived = completion.result.unwrap_or(0);
    if let Place::Pieces(pieces) = &operation.place
        && let Ok(region) = completion.into_region()
    {
        operations::scatter(&region[..arrived.min(region.len())], pieces);
    }
    endpoint.on_finished(operation, arrived, data);
}
