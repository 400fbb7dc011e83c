//! Runs a worker in a thread of its own.

use super::{Slot, Worker, WorkerHandle};
use crate::error::{Error, Result};
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use zerolane_lane::{Process, spawn_thread};

/// A worker that runs in a thread of its own; dereferences to its [`WorkerHandle`].
///
/// Dropping it ends the worker at once: peers are told, and requests of handles are refused. [`WorkerThread::stop`]
/// completes posted sends first.
///
/// A child of fork has no such thread: dropping the copy there ends nothing, and all other calls are refused with
/// [`Error::Forked`].
#[derive(Debug)]
pub struct WorkerThread {
    handle: WorkerHandle,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Worker {
    /// Runs in a thread of its own until it is stopped. Peers are served whatever the program does: keep-alives are
    /// answered, and exported memory is read and written.
    ///
    /// Make handles of the connections and endpoints made before ([`Worker::connection_handle`],
    /// [`Worker::endpoint_handle`]): events of those without one are dropped.
    ///
    /// The thread takes no signals: a program's handlers run on its own threads.
    ///
    /// `fork` copies no thread: the thread stays with the process that called this, and serves its peers as before. See
    /// [`WorkerThread`] for what a child may do.
    ///
    /// A passive target, as in RDMA, whose memory peers use without a call of its program:
    ///
    /// ```
    /// use zerolane::worker::Worker;
    /// use zerolane::{Connection, ExportedRegion, Options, Region, Rights};
    /// let worker = Worker::new()?.spawn()?;
    /// let endpoint = worker.listen("127.0.0.1:0", Options::default()).wait()?;
    /// let table = ExportedRegion::new(Region::anonymous(4096)?).expect("page-aligned");
    /// endpoint.export("table", &table, Rights::ALL).wait()?;
    /// // From here on this thread makes no call for its peers.
    /// let mut peer = Connection::connect(endpoint.local_addr(), &Options::default())?;
    /// let key = peer.open_region("table", Rights::ALL)?;
    /// peer.put(&key, 64, b"served in the background")?;
    /// let mut bytes = [0; 6];
    /// table.read(64, &mut bytes);
    /// assert_eq!(&bytes, b"served");
    /// # peer.close()?;
    /// # Ok::<(), zerolane::Error>(())
    /// ```
    ///
    /// # Errors
    /// The system cannot start a thread; or [`Error::Forked`].
    pub fn spawn(self) -> Result<WorkerThread> {
        self.check_process()?;
        let handle = self.handle();
        let name = "zerolane-worker".to_owned();
        let thread = spawn_thread(name, move || self.run_in_thread())?;
        Ok(WorkerThread {
            handle,
            thread: Some(thread),
        })
    }

    fn run_in_thread(mut self) -> Result<()> {
        while !self.is_over() {
            self.wait(None)?;
            while self.next_event().is_some() {}
        }
        Ok(())
    }

    /// Whether it was stopped, and all its connections and endpoints are closed.
    pub(super) fn is_over(&self) -> bool {
        self.stopping && self.slots.is_empty()
    }

    /// Closes everything; the worker is over when that is done.
    fn stop(&mut self) {
        self.stopping = true;
        let keys: Vec<_> = self.slots.keys().collect();
        for key in keys {
            match self.slots.get(key) {
                Some(Slot::Connection(_)) => {
                    let _ = self.close(super::ConnectionId(key));
                }
                Some(Slot::Endpoint(_)) => {
                    let _ = self.close_endpoint(super::EndpointId(key));
                }
                None => {}
            }
        }
    }

    /// Ends at once.
    fn abort(&mut self) {
        self.stopping = true;
        self.slots.clear();
    }
}

impl WorkerHandle {
    /// Makes a worker that runs by itself close everything, and end when posted sends are completed, as by
    /// [`Connection::close`](crate::Connection::close).
    pub fn stop(&self) {
        self.submit(Worker::stop);
    }
}

/// Places for the workers of [`background`]: a process uses that of its number of forks, because a lock that a thread of
/// the parent held during the fork is never released in the child. Only a 64th descendant uses a place again.
static BACKGROUND: [Mutex<Option<WorkerThread>>; 64] = [const { Mutex::new(None) }; 64];

/// The worker of this process for all its libraries, in a thread of its own that starts with the first call. A child of
/// fork gets another with its own first call, so a library may call this whenever it needs it: before or after its
/// program forks, or becomes a daemon.
///
/// The thread is in the network namespace of the thread that first called this, and takes no signals. It lives until the
/// process ends, which tells no peer: close connections first. A worker that was stopped all the same
/// ([`WorkerHandle::stop`]) refuses requests until it has ended; the next call then starts another.
///
/// ```
/// use zerolane::{Options, worker};
/// let endpoint = worker::background()?.listen("127.0.0.1:0", Options::default()).wait()?;
/// // Elsewhere in the program.
/// let client = worker::background()?.connect(endpoint.local_addr(), &Options::default()).wait()?;
/// # client.close().wait()?;
/// # Ok::<(), zerolane::Error>(())
/// ```
///
/// # Errors
/// The system has no descriptor left, or cannot start a thread.
pub fn background() -> Result<WorkerHandle> {
    let place = Process::current().forks() as usize % BACKGROUND.len();
    // No code under the lock leaves the place inconsistent.
    let mut place = BACKGROUND[place]
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(thread) = place.as_ref().filter(|it| it.runs()) {
        return Ok(thread.handle.clone());
    }
    let thread = Worker::new()?.spawn()?;
    let handle = thread.handle.clone();
    *place = Some(thread);
    Ok(handle)
}

impl WorkerThread {
    fn runs(&self) -> bool {
        let runs = self.thread.as_ref().is_some_and(|it| !it.is_finished());
        runs && self.handle.process().is_current()
    }

    /// Like [`WorkerHandle::stop`], and waits until the worker has ended.
    ///
    /// # Errors
    /// The worker ended earlier, because of a system error; or [`Error::Forked`].
    pub fn stop(mut self) -> Result<()> {
        if !self.handle.process().is_current() {
            return Err(Error::Forked);
        }
        self.handle.stop();
        self.join()
    }

    fn join(&mut self) -> Result<()> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }
}

impl Deref for WorkerThread {
    type Target = WorkerHandle;
    fn deref(&self) -> &WorkerHandle {
        &self.handle
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        if !self.handle.process().is_current() {
            // A child of fork must not join the thread, which belongs to the parent and continues there.
            return std::mem::forget(thread);
        }
        self.handle.submit(Worker::abort);
        // A panic of the thread was already printed; this thread may be panicking itself.
        let _ = thread.join();
    }
}
