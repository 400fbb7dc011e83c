//! Keeps the requests of a connection of a worker's thread until the program takes their completions.

use crate::completion::{zl_completion, zl_kind};
use crate::status::{Failure, of_error, zl_status};
use crate::work::How;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use zerolane::request::{self, Immediate};
use zerolane::worker::{ConnectionHandle, Outcome, Pending, PendingSet};
use zerolane::{Completion, Connection, Error, Process, RequestId, Waited};

/// The places of the next immediate and of the next message of a pool among the requests: no request has these
/// identifiers.
const IMMEDIATE: u64 = 0;
const MESSAGE: u64 = u64::MAX;

/// The requests of one connection. No function holds the lock while it drops memory or calls the program.
pub(crate) struct Requests {
    list: Mutex<List>,
    /// A request that no thread waits for in particular is over, or a wake-up came.
    changed: Condvar,
    /// The process of the worker. In a child of fork the lock may never be released.
    process: Process,
}

#[derive(Default)]
struct List {
    all: HashMap<u64, Request>,
    /// Those that are over, in order, for a wait that takes any.
    over: VecDeque<u64>,
    /// What comes without a request.
    immediates: Next<Immediate>,
    messages: Next<Completion>,
    woken: bool,
    /// Why the connection ended, once a wait was told.
    end: Option<Failure>,
}

struct Request {
    stage: Stage<Completion>,
    kind: zl_kind,
    context: u64,
    /// Whether success is reported.
    signalled: bool,
    /// Whether it is in a zl_set, which tells of its end.
    in_set: bool,
}

enum Stage<T> {
    Posted(Pending<T>),
    /// A thread waits for this one.
    Awaited,
    Over(Outcome<T>),
}

impl<T> Stage<T> {
    /// Calls `waker` at the end, unless it is over.
    fn watched(mut pending: Pending<T>, waker: &Waker) -> Stage<T> {
        match Pin::new(&mut pending).poll(&mut Context::from_waker(waker)) {
            Poll::Ready(outcome) => Stage::Over(outcome),
            Poll::Pending => Stage::Posted(pending),
        }
    }

    fn is_over(&self) -> bool {
        matches!(self, Stage::Over(_))
    }
}

/// What comes one by one without a request, asked for from the program's first wait on.
#[derive(Default)]
enum Next<T> {
    #[default]
    Unasked,
    Asked(Stage<T>),
    /// With the connection. What had come was taken.
    Ended,
}

impl<T> Next<T> {
    /// Asks for the next unless that is done; `bell` tells that it came. True if it was there already.
    fn ask(&mut self, ask: impl FnOnce() -> Pending<T>, bell: &Waker) -> bool {
        if !matches!(self, Next::Unasked) {
            return false;
        }
        let stage = Stage::watched(ask(), bell);
        let is_there = stage.is_over();
        *self = Next::Asked(stage);
        is_there
    }

    /// What came, or why no more will.
    fn take(&mut self, bell: &Waker) -> Option<Outcome<T>> {
        let Next::Asked(stage) = self else {
            return None;
        };
        let stage = match std::mem::replace(stage, Stage::Awaited) {
            Stage::Posted(pending) => Stage::watched(pending, bell),
            stage => stage,
        };
        let Stage::Over(outcome) = stage else {
            *self = Next::Asked(stage);
            return None;
        };
        *self = if outcome.is_ok() {
            Next::Unasked
        } else {
            Next::Ended
        };
        Some(outcome)
    }

    fn has_come(&self) -> bool {
        matches!(self, Next::Asked(Stage::Over(Ok(_))))
    }

    /// Stops asking, and returns the question to be dropped.
    fn give_back(&mut self) -> Option<Next<T>> {
        matches!(self, Next::Asked(_)).then(|| std::mem::take(self))
    }
}

/// Tells of the end of a request, in the worker's thread.
struct Bell {
    requests: Weak<Requests>,
    id: u64,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        if let Some(requests) = self.requests.upgrade() {
            requests.end(self.id);
        }
    }
}

/// Waits for a worker's answer, without limit if `timeout` is `None`.
///
/// # Errors
/// There is no answer yet: returns `pending`.
pub(crate) fn waited<T>(
    mut pending: Pending<T>,
    timeout: Option<Duration>,
) -> Result<Outcome<T>, Pending<T>> {
    match timeout {
        None => Ok(pending.wait()),
        Some(timeout) => pending.wait_for(timeout).ok_or(pending),
    }
}

fn is_awaited() -> Failure {
    Failure::new(
        zl_status::ZL_ERROR_BUSY,
        "another thread waits for this request",
    )
}

pub(crate) fn no_request(id: u64) -> Failure {
    Failure::argument(format!(
        "there is no request {id}, or its completion was taken"
    ))
}

impl Request {
    /// Whether it ended so that the program is not told.
    fn is_silent(&self) -> bool {
        let succeeded =
            matches!(&self.stage, Stage::Over(Ok(completion)) if completion.result.is_ok());
        !self.signalled && succeeded
    }

    /// The completion for C. A refusal is one, too.
    fn completion(&self, id: u64, outcome: Outcome<Completion>) -> zl_completion {
        match outcome {
            Ok(completion) => zl_completion::new(0, completion),
            Err(refused) => zl_completion {
                id,
                kind: self.kind as u32,
                status: of_error(&refused.error),
                context: self.context,
                ..zl_completion::NONE
            },
        }
    }
}

impl List {
    /// Removes request `id` if it is over.
    fn take(&mut self, id: u64) -> Option<(Request, Outcome<Completion>)> {
        let request = self.all.get_mut(&id).filter(|it| it.stage.is_over())?;
        let stage = std::mem::replace(&mut request.stage, Stage::Awaited);
        let request = self.all.remove(&id)?;
        match stage {
            Stage::Over(outcome) => Some((request, outcome)),
            Stage::Posted(_) | Stage::Awaited => None,
        }
    }

    /// Whether no wait for any completion gets one.
    fn is_at_end(&self) -> bool {
        let mut all = self.all.values();
        matches!(
            (&self.immediates, &self.messages),
            (Next::Ended, Next::Ended)
        ) && !all.any(|it| matches!(it.stage, Stage::Posted(_)) && !it.in_set)
    }

    /// Leaves request `id` to those who wait for it in particular.
    fn withdraw(&mut self, id: u64) {
        self.over.retain(|it| *it != id);
    }
}

impl Requests {
    pub(crate) fn new() -> Arc<Requests> {
        Arc::new(Requests {
            list: Mutex::default(),
            changed: Condvar::new(),
            process: Process::current(),
        })
    }

    /// # Errors
    /// This process is a child of the worker's.
    pub(crate) fn check_process(&self) -> Result<(), Failure> {
        match self.process.is_current() {
            true => Ok(()),
            false => Err(Error::Forked.into()),
        }
    }

    fn list(&self) -> Result<MutexGuard<'_, List>, Failure> {
        self.check_process()?;
        // No code under the lock leaves the list inconsistent.
        Ok(self.list.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn bell(self: &Arc<Self>, id: u64) -> Waker {
        let requests = Arc::downgrade(self);
        Arc::new(Bell { requests, id }).into()
    }

    /// Keeps a request that was posted.
    pub(crate) fn add(
        self: &Arc<Self>,
        pending: Pending<Completion>,
        how: &How,
        kind: zl_kind,
    ) -> Result<RequestId, Failure> {
        let id = pending.id();
        let request = Request {
            stage: Stage::Awaited,
            kind,
            context: how.context,
            signalled: how.signalled,
            in_set: false,
        };
        let list = self.list()?;
        self.keep(list, id.to_u64(), request, pending);
        Ok(id)
    }

    /// Keeps a request, for which no thread waits in particular now.
    fn keep(
        self: &Arc<Self>,
        mut list: MutexGuard<'_, List>,
        id: u64,
        mut request: Request,
        pending: Pending<Completion>,
    ) {
        request.stage = match request.in_set {
            true => Stage::Posted(pending),
            false => Stage::watched(pending, &self.bell(id)),
        };
        if request.is_silent() {
            drop(list);
            return drop(request);
        }
        if request.stage.is_over() {
            list.over.push_back(id);
            self.changed.notify_one();
        }
        list.all.insert(id, request);
    }

    /// Notes that a request is over.
    fn end(self: &Arc<Self>, id: u64) {
        let Ok(mut list) = self.list() else {
            return;
        };
        if id == IMMEDIATE || id == MESSAGE {
            list.over.push_back(id);
            return self.changed.notify_one();
        }
        let Some(request) = list.all.get_mut(&id).filter(|it| !it.in_set) else {
            return;
        };
        match std::mem::replace(&mut request.stage, Stage::Awaited) {
            Stage::Posted(pending) => {
                if let Some(request) = list.all.remove(&id) {
                    self.keep(list, id, request, pending);
                }
            }
            stage => request.stage = stage,
        }
    }

    /// Waits for any completion, or what comes without a request: an immediate, a message of a pool.
    ///
    /// # Errors
    /// The connection is over, and all completions were taken: the reason.
    pub(crate) fn wait(
        self: &Arc<Self>,
        connection: &ConnectionHandle,
        timeout: Option<Duration>,
    ) -> Result<Waited<zl_completion>, Failure> {
        // A deadline that overflows the clock counts as no limit.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut list = self.list()?;
        loop {
            self.ask(&mut list, connection);
            while let Some(id) = list.over.pop_front() {
                let bell = self.bell(id);
                let come = match id {
                    IMMEDIATE => list
                        .immediates
                        .take(&bell)
                        .map(|it| it.map(|it| zl_completion::immediate(&it))),
                    MESSAGE => list
                        .messages
                        .take(&bell)
                        .map(|it| it.map(|it| zl_completion::new(0, it))),
                    _ => None,
                };
                match come {
                    Some(Ok(completion)) => {
                        // Other threads may wait, too.
                        self.ask(&mut list, connection);
                        return Ok(Waited::Got(completion));
                    }
                    Some(Err(refused)) => {
                        list.end = Some(refused.into());
                        self.changed.notify_all();
                    }
                    None => {}
                }
                if let Some((request, outcome)) = list.take(id) {
                    drop(list);
                    return Ok(Waited::Got(request.completion(id, outcome)));
                }
            }
            // The end comes last.
            if let Some(end) = list.end.as_ref().filter(|_| list.is_at_end()) {
                return Err(end.clone());
            }
            if std::mem::take(&mut list.woken) {
                return Ok(Waited::Woken);
            }
            list = match deadline.map(|at| at.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return Ok(Waited::TimedOut),
                Some(left) => {
                    let waited = self.changed.wait_timeout(list, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.changed.wait(list);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    /// A completion that is there, without taking a wake-up.
    ///
    /// # Errors
    /// As for [`Requests::wait`].
    pub(crate) fn poll(
        self: &Arc<Self>,
        connection: &ConnectionHandle,
    ) -> Result<Waited<zl_completion>, Failure> {
        let polled = self.wait(connection, Some(Duration::ZERO))?;
        Ok(match polled {
            Waited::Woken => {
                self.wake()?;
                Waited::TimedOut
            }
            polled => polled,
        })
    }

    /// Asks for the peer's next immediate and the next message of a pool, unless that is done or they have ended.
    fn ask(self: &Arc<Self>, list: &mut List, connection: &ConnectionHandle) {
        if list
            .immediates
            .ask(|| connection.immediate(), &self.bell(IMMEDIATE))
        {
            list.over.push_back(IMMEDIATE);
        }
        if list
            .messages
            .ask(|| connection.message(), &self.bell(MESSAGE))
        {
            list.over.push_back(MESSAGE);
        }
    }

    /// Gives immediates and messages that came and were not taken back to the worker. The next wait asks for them again.
    ///
    /// # Errors
    /// One was taken from the worker.
    pub(crate) fn give_back(&self) -> Result<(), Failure> {
        let mut list = self.list()?;
        if list.immediates.has_come() || list.messages.has_come() {
            return Err(Error::InUse.into());
        }
        let given = (list.immediates.give_back(), list.messages.give_back());
        drop(list);
        drop(given);
        Ok(())
    }

    /// Makes all waits look again.
    pub(crate) fn look_again(&self) {
        self.changed.notify_all();
    }

    /// Waits for request `id`. `None`: it takes longer.
    ///
    /// # Errors
    /// There is no such request, or another thread waits for it.
    pub(crate) fn wait_for(
        self: &Arc<Self>,
        id: u64,
        timeout: Option<Duration>,
    ) -> Result<Option<zl_completion>, Failure> {
        let mut list = self.list()?;
        if let Some((request, outcome)) = list.take(id) {
            list.withdraw(id);
            drop(list);
            return Ok(Some(request.completion(id, outcome)));
        }
        let request = list.all.get_mut(&id).ok_or_else(|| no_request(id))?;
        let stage = std::mem::replace(&mut request.stage, Stage::Awaited);
        let Stage::Posted(pending) = stage else {
            return Err(is_awaited());
        };
        drop(list);
        let waited = waited(pending, timeout);
        let mut list = self.list()?;
        let request = list.all.remove(&id).ok_or_else(|| no_request(id))?;
        match waited {
            Ok(outcome) => {
                drop(list);
                Ok(Some(request.completion(id, outcome)))
            }
            Err(pending) => {
                self.keep(list, id, request, pending);
                Ok(None)
            }
        }
    }

    /// Makes `set`, and no wait for any completion, tell of the end of request `id`.
    ///
    /// # Errors
    /// There is no such request, its success is not reported, or another thread waits for it.
    pub(crate) fn add_to(&self, set: &PendingSet, id: u64, token: u64) -> Result<(), Failure> {
        let mut list = self.list()?;
        let request = list.all.get_mut(&id).ok_or_else(|| no_request(id))?;
        if !request.signalled {
            return Err(Failure::argument("the success of this request is silent"));
        }
        match &mut request.stage {
            Stage::Posted(pending) => set.add(pending, token)?,
            Stage::Awaited => return Err(is_awaited()),
            Stage::Over(_) => set.signal(token),
        }
        request.in_set = true;
        list.withdraw(id);
        Ok(())
    }

    /// Whether request `id` is there, or its completion.
    pub(crate) fn has(&self, id: u64) -> Result<bool, Failure> {
        Ok(self.list()?.all.contains_key(&id))
    }

    /// Ends a wait for any completion.
    pub(crate) fn wake(&self) -> Result<(), Failure> {
        self.list()?.woken = true;
        self.changed.notify_one();
        Ok(())
    }
}

/// Requests go on without the program: their connection closes when what was posted is sent.
impl Drop for Requests {
    fn drop(&mut self) {
        let list = self.list.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (_, request) in list.all.drain() {
            if let Stage::Posted(pending) = request.stage {
                pending.detach();
            }
        }
    }
}

/// A connection of a worker's thread.
pub(crate) struct ByThread {
    pub(crate) handle: ConnectionHandle,
    pub(crate) requests: Arc<Requests>,
}

impl ByThread {
    pub(crate) fn new(handle: ConnectionHandle) -> ByThread {
        ByThread {
            handle,
            requests: Requests::new(),
        }
    }

    pub(crate) fn post<R: request::Request + Send + 'static>(
        &self,
        request: R,
        how: &How,
        kind: zl_kind,
    ) -> Result<RequestId, Failure> {
        self.requests.check_process()?;
        self.requests.add(self.handle.post(request), how, kind)
    }

    /// Waits for any completion, or what comes without a request.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Result<Waited<zl_completion>, Failure> {
        self.requests.wait(&self.handle, timeout)
    }

    pub(crate) fn poll(&self) -> Result<Waited<zl_completion>, Failure> {
        self.requests.poll(&self.handle)
    }

    /// Takes the connection out of its worker.
    pub(crate) fn release(&self) -> Result<Connection, Failure> {
        self.requests.give_back()?;
        let released = self.handle.release().wait();
        self.requests.look_again();
        Ok(released?)
    }
}
