//! Holds what a worker shares with the handles of its endpoints and connections.

use crate::owned::Owned;
use crate::requests::ByThread;
use crate::status::{Failure, zl_status};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use zerolane::worker::{ConnectionId, EndpointHandle, EndpointId, Event, Worker};
use zerolane::{Connection, Waker};

pub(crate) struct Shared {
    /// `None`: its thread has it, or it was freed.
    worker: Owned<Option<Worker>>,
    /// Taken after the worker's lock, and for a moment.
    lent: Mutex<Lent>,
    /// Outside the lock, which a waiting thread holds.
    waker: Waker,
}

/// Whose handles the program has, of a worker that it calls.
#[derive(Default)]
struct Lent {
    connections: HashMap<ConnectionId, Arc<PlacedConnection>>,
    endpoints: HashMap<EndpointId, Arc<PlacedEndpoint>>,
    /// Those whose handles were freed: they close with the next call.
    freed_connections: Vec<ConnectionId>,
    freed_endpoints: Vec<EndpointId>,
    /// An event that the program takes next.
    next: Option<Event>,
}

/// An endpoint or a connection of a worker, of which the program has a handle.
pub(crate) struct Placed<Id, Thread> {
    shared: Arc<Shared>,
    id: Id,
    /// The program's, a zl_connection or zl_endpoint.
    handle: AtomicPtr<c_void>,
    /// Reported to be connected or accepted.
    is_established: AtomicBool,
    /// Its handle of the worker's thread, once there is one.
    pub(crate) thread: OnceLock<Thread>,
}

/// A connection that a worker drives.
pub(crate) type PlacedConnection = Placed<ConnectionId, ByThread>;
/// An endpoint of a worker.
pub(crate) type PlacedEndpoint = Placed<EndpointId, EndpointHandle>;

fn ended() -> Failure {
    Failure::new(zl_status::ZL_ERROR_CLOSED, "the worker has ended")
}

pub(crate) fn over() -> Failure {
    Failure::new(
        zl_status::ZL_ERROR_CLOSED,
        "the worker does not have it (any longer)",
    )
}

impl<Id: Copy, Thread> Placed<Id, Thread> {
    fn new(shared: &Arc<Shared>, id: Id, is_established: bool) -> Arc<Placed<Id, Thread>> {
        Arc::new(Placed {
            shared: Arc::clone(shared),
            id,
            handle: AtomicPtr::new(ptr::null_mut()),
            is_established: AtomicBool::new(is_established),
            thread: OnceLock::new(),
        })
    }

    pub(crate) fn handle<Handle>(&self) -> *mut Handle {
        self.handle.load(Ordering::Acquire).cast()
    }

    pub(crate) fn set_handle(&self, handle: *mut c_void) {
        self.handle.store(handle, Ordering::Release);
    }

    pub(crate) fn set_established(&self) {
        self.is_established.store(true, Ordering::Relaxed);
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn id(&self) -> Id {
        self.id
    }
}

impl PlacedConnection {
    /// Runs `body` on the connection.
    ///
    /// # Errors
    /// It is over; or as for [`Shared::enter`].
    pub(crate) fn enter<R>(
        &self,
        body: impl FnOnce(&mut Connection) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.shared
            .enter(|worker| body(worker.connection(self.id).ok_or_else(over)?))
    }

    /// Takes it out of the worker. Its handle remains.
    pub(crate) fn release(&self) -> Result<Connection, Failure> {
        self.shared
            .enter(|worker| worker.release(self.id).ok_or_else(over))
    }

    /// Whether its requests are over, so that nothing of them reaches the next owner.
    fn is_idle(&self, worker: &mut Worker) -> bool {
        let idle = worker.connection(self.id).is_none_or(|it| it.is_idle());
        self.is_established.load(Ordering::Relaxed) && idle
    }
}

/// The program's claim on a connection of a worker. The connection closes after it.
pub(crate) struct LentConnection(pub(crate) Arc<PlacedConnection>);

impl Drop for LentConnection {
    fn drop(&mut self) {
        self.0.shared.change(|lent| {
            if lent.connections.remove(&self.0.id).is_some() {
                lent.freed_connections.push(self.0.id);
            }
        });
    }
}

/// The program's claim on an endpoint of a worker. The endpoint closes after it.
pub(crate) struct LentEndpoint(pub(crate) Arc<PlacedEndpoint>);

impl Drop for LentEndpoint {
    fn drop(&mut self) {
        let shared = &self.0.shared;
        shared.change(|lent| {
            if lent.endpoints.remove(&self.0.id).is_some() {
                lent.freed_endpoints.push(self.0.id);
            }
        });
        // Now, if no other thread is in a call, or with the next call.
        let _ = shared.enter(|_| Ok(()));
    }
}

impl Shared {
    pub(crate) fn new(worker: Option<Worker>, waker: Waker) -> Arc<Shared> {
        Arc::new(Shared {
            worker: Owned::new(worker),
            lent: Mutex::default(),
            waker,
        })
    }

    fn check_process(&self) -> Result<(), Failure> {
        self.worker.check_process()
    }

    /// Ends a wait of the worker.
    ///
    /// # Errors
    /// As for [`Owned::check_process`].
    pub(crate) fn wake(&self) -> Result<(), Failure> {
        self.check_process()?;
        self.waker.wake();
        Ok(())
    }

    fn lent(&self) -> MutexGuard<'_, Lent> {
        // No code under the lock leaves it inconsistent.
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what the program has; not in a child of fork, where another thread's lock is never released.
    fn change(&self, change: impl FnOnce(&mut Lent)) {
        if self.check_process().is_ok() {
            change(&mut self.lent());
        }
    }

    /// Runs `body` on the worker.
    ///
    /// # Errors
    /// Another thread is in a call, the worker has ended, or this is a child of fork.
    pub(crate) fn enter<R>(
        &self,
        body: impl FnOnce(&mut Worker) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let mut worker = self.worker.enter()?;
        let worker = worker.as_mut().ok_or_else(ended)?;
        self.close_freed(worker);
        body(worker)
    }

    /// Closes that whose handles were freed.
    fn close_freed(&self, worker: &mut Worker) {
        let mut lent = self.lent();
        let connections = std::mem::take(&mut lent.freed_connections);
        let endpoints = std::mem::take(&mut lent.freed_endpoints);
        drop(lent);
        for connection in connections {
            worker.close(connection);
        }
        for endpoint in endpoints {
            worker.close_endpoint(endpoint);
        }
    }

    /// Notes that the program gets a handle of a connection.
    pub(crate) fn place(
        self: &Arc<Self>,
        id: ConnectionId,
        is_established: bool,
    ) -> Arc<PlacedConnection> {
        let placed = Placed::new(self, id, is_established);
        self.lent().connections.insert(id, Arc::clone(&placed));
        placed
    }

    /// Notes that the program gets a handle of an endpoint.
    pub(crate) fn place_endpoint(self: &Arc<Self>, id: EndpointId) -> Arc<PlacedEndpoint> {
        let placed = Placed::new(self, id, true);
        self.lent().endpoints.insert(id, Arc::clone(&placed));
        placed
    }

    /// A connection of which the program has a handle.
    pub(crate) fn connection(&self, id: ConnectionId) -> Option<Arc<PlacedConnection>> {
        self.lent().connections.get(&id).cloned()
    }

    /// An endpoint of which the program has a handle.
    pub(crate) fn endpoint(&self, id: EndpointId) -> Option<Arc<PlacedEndpoint>> {
        self.lent().endpoints.get(&id).cloned()
    }

    /// Forgets a connection that is over.
    pub(crate) fn end_connection(&self, id: ConnectionId) -> Option<Arc<PlacedConnection>> {
        self.lent().connections.remove(&id)
    }

    /// Forgets an endpoint that is closed.
    pub(crate) fn end_endpoint(&self, id: EndpointId) -> Option<Arc<PlacedEndpoint>> {
        self.lent().endpoints.remove(&id)
    }

    /// The worker's next event.
    pub(crate) fn next_event(&self, worker: &mut Worker) -> Option<Event> {
        let untaken = self.lent().next.take();
        untaken.or_else(|| worker.next_event())
    }

    /// Takes the worker for a thread of its own, and makes the program's handles those of the thread.
    ///
    /// # Errors
    /// Events were not taken, a connection is not made yet, or a request is not over.
    pub(crate) fn take_for_thread(&self) -> Result<Worker, Failure> {
        let mut place = self.worker.enter()?;
        let worker = place.as_mut().ok_or_else(ended)?;
        self.close_freed(worker);
        let mut lent = self.lent();
        lent.next = lent.next.take().or_else(|| worker.next_event());
        let busy = |why| Err(Failure::new(zl_status::ZL_ERROR_BUSY, why));
        if lent.next.is_some() {
            return busy("the worker has events: take them first");
        }
        if !lent.connections.values().all(|it| it.is_idle(worker)) {
            return busy("a connection is not made yet, or its requests are not over");
        }
        let Lent {
            connections,
            endpoints,
            ..
        } = std::mem::take(&mut *lent);
        drop(lent);
        for (id, endpoint) in endpoints {
            if let Some(handle) = worker.endpoint_handle(id) {
                let _ = endpoint.thread.set(handle);
            }
        }
        for (id, connection) in connections {
            // One that closes has no handle, and ends so.
            if let Some(handle) = worker.connection_handle(id) {
                let _ = connection.thread.set(ByThread::new(handle));
            }
        }
        place.take().ok_or_else(ended)
    }

    /// Ends the worker. Handles remain, and refuse all calls.
    pub(crate) fn end(&self) {
        if let Ok(mut worker) = self.worker.enter() {
            let lent = std::mem::take(&mut *self.lent());
            drop(worker.take());
            drop(lent);
        }
    }
}
