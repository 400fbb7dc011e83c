//! Accepts an endpoint's connections in a thread, until the program takes them.

use crate::bell::Bell;
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::listener::Listener;
use crate::worker::{EndpointId, Event, Worker};
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use zerolane_lane::{Process, Waker, spawn_thread};

/// A thread that accepts connections, and answers their peers until the program takes them.
#[derive(Debug)]
pub(crate) struct Backlog {
    shared: Arc<Shared>,
    endpoint: EndpointId,
    /// Rings while a connection waits, and after a failure.
    bell: Arc<Bell>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    process: Process,
}

#[derive(Debug)]
struct Shared {
    /// Held while waiting for `state`, so that a thread with much to do does not take that again and again.
    turnstile: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    worker: Worker,
    stopping: bool,
    /// Why the thread has ended.
    failed: Option<Error>,
}

impl Shared {
    /// Ignores poison: after a panic, `failed` keeps everyone from the worker.
    fn enter(&self) -> MutexGuard<'_, State> {
        let _turn = self
            .turnstile
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Does a bounded amount of work. True if the thread may sleep.
    fn turn(&mut self) -> Result<bool> {
        let more = self.worker.progress()?;
        while let Some(event) = self.worker.next_event() {
            if let Event::EndpointFailed { error, .. } = event {
                return Err(error);
            }
        }
        Ok(!more && self.worker.arm()?)
    }
}

impl Backlog {
    /// Starts a thread that accepts up to `most` connections of `listener` ahead.
    ///
    /// # Errors
    /// The system has no descriptor left, or cannot start a thread.
    pub(crate) fn start(listener: Listener, most: u16) -> Result<Backlog> {
        let mut worker = Worker::new()?;
        let bell = Arc::new(Bell::new()?);
        let descriptor = worker.as_fd().try_clone_to_owned()?;
        let waker = worker.waker();
        let endpoint = worker.attend_with_backlog(listener, most, Arc::clone(&bell))?;
        let shared = Arc::new(Shared {
            turnstile: Mutex::default(),
            state: Mutex::new(State {
                worker,
                stopping: false,
                failed: None,
            }),
        });
        let ending = Ending {
            shared: Arc::clone(&shared),
            bell: Arc::clone(&bell),
            why: None,
        };
        let name = "zerolane-accept".to_owned();
        let thread = spawn_thread(name, move || serve(ending, &descriptor))?;
        Ok(Backlog {
            shared,
            endpoint,
            bell,
            waker,
            thread: Some(thread),
            process: Process::current(),
        })
    }

    /// Waits for the next connection; `None` on timeout.
    ///
    /// # Errors
    /// The listener failed. Not called in a child of fork.
    pub(crate) fn accept(&self, timeout: Option<Duration>) -> Result<Option<Connection>> {
        self.bell
            .wait_for(timeout, || self.with(|worker, it| worker.take(it))?)
    }

    pub(crate) fn refuser(&self) -> Refuser {
        Refuser {
            shared: Arc::downgrade(&self.shared),
            waker: self.waker.clone(),
        }
    }

    /// Calls `change` with the listener, and accepts no connection after that before the next [`Backlog::accept`].
    ///
    /// # Errors
    /// The listener failed. Not called in a child of fork.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Listener) -> T) -> Result<T> {
        self.with(|worker, it| {
            worker.hold_back(it);
            worker.listener_mut(it).map(change)
        })?
        .ok_or_else(ended)
    }

    fn with<T>(&self, call: impl FnOnce(&mut Worker, EndpointId) -> T) -> Result<T> {
        let mut state = self.shared.enter();
        match &state.failed {
            Some(error) => Err(error.again()),
            None => Ok(call(&mut state.worker, self.endpoint)),
        }
    }

    /// Calls `look` with the listener. `None` if it failed; in a child of fork, also if the thread was busy during the
    /// fork.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut Listener) -> T) -> Option<T> {
        let mut state = match self.process.is_current() {
            true => self.shared.enter(),
            // Another thread's lock is never released there.
            false => self.shared.state.try_lock().ok()?,
        };
        state.worker.listener_mut(self.endpoint).map(look)
    }

    /// Ends the thread. Returns the listener, and the connections that waited.
    ///
    /// # Errors
    /// The listener failed.
    pub(crate) fn dismiss(mut self) -> Result<(Listener, Vec<Connection>)> {
        if let Some(error) = &self.shared.enter().failed {
            return Err(error.again());
        }
        self.stop();
        let dismissed = self.shared.enter().worker.dismiss(self.endpoint);
        dismissed.ok_or_else(ended)
    }

    fn stop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        if !self.process.is_current() {
            // A child of fork must not join the thread, which belongs to the parent and continues there.
            return std::mem::forget(thread);
        }
        self.shared.enter().stopping = true;
        self.waker.wake();
        // A panic of the thread was already printed; this thread may be panicking itself.
        let _ = thread.join();
    }
}

/// Refuses requests that a backlog's program took.
#[derive(Debug)]
pub(crate) struct Refuser {
    shared: Weak<Shared>,
    waker: Waker,
}

impl Refuser {
    /// Refuses the request of `connection`, and leaves it to the thread, which answers a client that asks again. If the
    /// thread has ended, the client is told once.
    pub(crate) fn refuse(&self, mut connection: Connection) {
        connection.driver.refuse();
        // In a child of fork the lock may be held for ever.
        let shared = self.shared.upgrade();
        let shared = shared.filter(|_| connection.driver.check_process().is_ok());
        if let Some(shared) = shared {
            // If the worker refuses it, it is dropped, which tells the client.
            let _ = shared.enter().worker.adopt(connection);
            self.waker.wake();
        }
    }
}

/// Readable while a connection waits.
impl AsFd for Backlog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// Tells the peers of waiting connections that they end.
impl Drop for Backlog {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve(mut ending: Ending, descriptor: &OwnedFd) {
    ending.why = run(&ending.shared, descriptor).err();
}

fn run(shared: &Shared, descriptor: &OwnedFd) -> Result<()> {
    loop {
        let mut state = shared.enter();
        if state.stopping {
            return Ok(());
        }
        let sleeps = state.turn()?;
        drop(state);
        if sleeps {
            match poll(&mut [PollFd::new(descriptor, PollFlags::IN)], None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
    }
}

fn ended() -> Error {
    io::Error::other("the thread that accepts connections has ended").into()
}

/// Tells the program that the thread has ended, also by a panic.
struct Ending {
    shared: Arc<Shared>,
    bell: Arc<Bell>,
    why: Option<Error>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let why = self.why.take().unwrap_or_else(ended);
        self.shared.enter().failed = Some(why);
        self.bell.ring();
    }
}
