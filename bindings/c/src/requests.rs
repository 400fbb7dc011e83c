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

/// The place of the next immediate among the requests: no request has this identifier.
const IMMEDIATE: u64 = 0;

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
    /// The wait for the peer's next immediate, from the program's first wait on.
    immediate: Option<Stage<Immediate>>,
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

    /// Whether a wait for any completion may still get one.
    fn is_in_progress(&self) -> bool {
        let mut all = self.all.values();
        all.any(|it| matches!(it.stage, Stage::Posted(_)) && !it.in_set)
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
        if id == IMMEDIATE {
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

    /// Waits for any completion, or the peer's next immediate.
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
            self.expect_immediate(&mut list, connection);
            while let Some(id) = list.over.pop_front() {
                if id == IMMEDIATE {
                    match self.take_immediate(&mut list, connection) {
                        None => continue,
                        Some(Ok(immediate)) => {
                            return Ok(Waited::Got(zl_completion::immediate(&immediate)));
                        }
                        Some(Err(refused)) => {
                            list.end = Some(refused.into());
                            self.changed.notify_all();
                            continue;
                        }
                    }
                }
                if let Some((request, outcome)) = list.take(id) {
                    drop(list);
                    return Ok(Waited::Got(request.completion(id, outcome)));
                }
            }
            // The end comes last.
            if let Some(end) = list.end.as_ref().filter(|_| !list.is_in_progress()) {
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

    /// Waits for the peer's next immediate, unless a wait is there.
    fn expect_immediate(self: &Arc<Self>, list: &mut List, connection: &ConnectionHandle) {
        if list.immediate.is_none() && list.end.is_none() {
            let next = Stage::watched(connection.immediate(), &self.bell(IMMEDIATE));
            if next.is_over() {
                list.over.push_back(IMMEDIATE);
            }
            list.immediate = Some(next);
        }
    }

    /// The immediate that came, or the end of the connection.
    fn take_immediate(
        self: &Arc<Self>,
        list: &mut List,
        connection: &ConnectionHandle,
    ) -> Option<Outcome<Immediate>> {
        let stage = match list.immediate.take()? {
            Stage::Posted(pending) => Stage::watched(pending, &self.bell(IMMEDIATE)),
            stage => stage,
        };
        let Stage::Over(outcome) = stage else {
            list.immediate = Some(stage);
            return None;
        };
        if outcome.is_ok() {
            // Other threads may wait, too.
            self.expect_immediate(list, connection);
        }
        Some(outcome)
    }

    /// Gives an immediate that came and was not taken back to the worker. The next wait asks for it again.
    ///
    /// # Errors
    /// It was taken from the worker.
    pub(crate) fn expect_no_immediate(&self) -> Result<(), Failure> {
        let mut list = self.list()?;
        if let Some(Stage::Over(Ok(_))) = list.immediate {
            return Err(Error::InUse.into());
        }
        let immediate = list.immediate.take();
        drop(list);
        drop(immediate);
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

    /// Waits for any completion, or the peer's next immediate.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Result<Waited<zl_completion>, Failure> {
        self.requests.wait(&self.handle, timeout)
    }

    pub(crate) fn poll(&self) -> Result<Waited<zl_completion>, Failure> {
        self.requests.poll(&self.handle)
    }

    /// Takes the connection out of its worker.
    pub(crate) fn release(&self) -> Result<Connection, Failure> {
        self.requests.expect_no_immediate()?;
        let released = self.handle.release().wait();
        self.requests.look_again();
        Ok(released?)
    }
}
