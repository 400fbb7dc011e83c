//! Opens one unit of a target, with many requests outstanding.
//!
//! A thread that waits for a request drives the connection for all; while no thread waits, the queue's own thread drives it.
//! Reads land in the caller's memory, and the target fetches writes from there. When the connection breaks, the queue
//! reconnects and repeats, in order, all commands without a status. Some of them may have been executed already; each has
//! the same effect when it is executed twice. The target executes nothing of the old connection after the new one has begun.
//!
//! | a request | outcome |
//! |---|---|
//! | in progress when the connection breaks | repeated, at most 64 times, within [`Options::patience`] |
//! | completed, and its writes flushed | safe |
//! | completed and not flushed; the target restarted, its machine did not | safe: the kernel has the data |
//! | completed and not flushed; the machine, or the process with a disk in memory, restarted | maybe lost: each flush fails ([`Error::Lost`]) |
//!
//! A successful flush means that all requests completed before the flush began are on the medium.
//!
//! | module | what it does |
//! |---|---|
//! | `link` | one connection: login, slots, single commands |
//! | `unit` | describes a unit |
//! | `request` | requests, and the commands that they consist of |
//! | `drive` | tracks requests, and polls the connection once |
//! | `driver_slot` | decides which thread drives |
//! | `pilot` | a driver slot for a thread that also watches its own descriptors |

mod drive;
mod driver_slot;
mod error;
mod extents;
mod link;
mod pilot;
mod request;
mod unit;

pub use error::{DisplaySense, Error};
pub use extents::Extent;
pub use link::Dial;
pub use pilot::DriverSlot;
pub use request::{Done, Request};
pub use unit::Unit;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use zerolane::security::random;
use zerolane_block::Lun;

use drive::Driver;
use driver_slot::{Call, Over, Shared};
use link::Link;

/// Options of a queue.
#[derive(Clone, Debug)]
pub struct Options {
    /// Most simultaneous commands, 1 to 256. Further requests wait.
    pub depth: u16,
    /// Most payload of a command, bytes. A longer request becomes several commands. The target may allow less.
    pub transfer_bytes: u32,
    /// How long the queue tries to reconnect while there are requests, before it fails them all and itself. Without
    /// requests it tries without limit.
    pub patience: Duration,
    /// How long a command may take before the connection counts as broken, even if the target responds. A silent target
    /// is detected after the connection's `idle_timeout`.
    pub command_patience: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            depth: 64,
            transfer_bytes: 1 << 20,
            patience: Duration::from_secs(60),
            command_patience: Duration::from_secs(60),
        }
    }
}

/// The repairs of a queue so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Connections made after the first.
    pub reconnects: u64,
    /// Commands sent again.
    pub repeats: u64,
}

/// One unit of a target, for use by any number of threads.
pub struct Queue {
    shared: Arc<Shared<Driver>>,
    unit: Unit,
    thread: Option<JoinHandle<()>>,
}

/// A submitted request.
pub struct Pending {
    call: Arc<Call>,
    shared: Arc<Shared<Driver>>,
}

impl Pending {
    /// Waits until the request completes.
    pub fn wait(self) -> Done {
        self.shared.wait(&self.call)
    }
}

/// A name that no other queue has.
fn session() -> Result<u64, Error> {
    let random = random().map_err(|error| Error::System(error.to_string()))?;
    Ok(random.first_chunk().map_or(0, |&it| u64::from_le_bytes(it)))
}

impl Queue {
    /// Opens unit `lun` of the target that `dial` connects to, now and whenever the connection breaks.
    ///
    /// # Errors
    /// The connection failed, its peer is not a target, or this initiator may not use such a unit.
    pub fn open(mut dial: Dial, lun: Lun, options: Options) -> Result<Queue, Error> {
        let (session, depth) = (session()?, options.depth.clamp(1, 256));
        let mut link = Link::open(dial()?, session, depth, options.patience)?;
        let unit = Unit::ask(&mut link, lun, options.patience)?;
        let shared = Arc::new(Shared::new(link.connection.waker()));
        let named = (dial, session);
        let driver = Driver::new(Arc::clone(&shared), named, options, unit.clone(), link);
        let driver = Box::new(driver);
        let attended = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name(format!("disk {lun}"))
            .spawn(move || attended.attend(driver))
            .map_err(|error| Error::System(error.to_string()))?;
        Ok(Queue {
            shared,
            unit,
            thread: Some(thread),
        })
    }

    /// The units of the target that `dial` connects to, as far as there are any for this initiator.
    ///
    /// # Errors
    /// The connection failed, or its peer is not a target.
    pub fn units(mut dial: Dial, patience: Duration) -> Result<Vec<Unit>, Error> {
        let mut link = Link::open(dial()?, session()?, 1, patience)?;
        let luns = Unit::list(&mut link, patience)?;
        luns.into_iter()
            .map(|lun| Unit::ask(&mut link, lun, patience))
            .collect()
    }

    /// The description of the unit when it was opened.
    pub fn unit(&self) -> &Unit {
        &self.unit
    }

    /// Submits `request`. On completion, the thread that drives the connection calls `over`: the queue's own thread, or
    /// one that waits for a request. `over` blocks the connection, and must not wait for another request.
    pub fn submit(&self, request: Request, over: impl FnOnce(Done) + Send + 'static) {
        self.shared.submit(request, Over::new(over));
    }

    /// Submits `request`, to wait for later.
    pub fn start(&self, request: Request) -> Pending {
        let (call, over) = Call::new();
        self.shared.submit(request, over);
        let shared = Arc::clone(&self.shared);
        Pending { call, shared }
    }

    /// Submits `request`, and waits for its completion.
    pub fn call(&self, request: Request) -> Done {
        self.shared.call(request)
    }

    /// Why all requests fail from now on, if the queue has failed.
    pub fn failure(&self) -> Option<Error> {
        self.shared.failure()
    }

    /// Has `call` be called once all requests fail, by whichever thread finds that; at once if they do. A queue that is dropped
    /// calls nothing.
    pub fn when_failed(&self, call: impl FnOnce() + Send + 'static) {
        self.shared.when_failed(Box::new(call));
    }

    /// The repairs so far.
    pub fn repairs(&self) -> Repairs {
        Repairs {
            reconnects: self.shared.reconnects.load(Ordering::Relaxed),
            repeats: self.shared.repeats.load(Ordering::Relaxed),
        }
    }
}

/// Requests that are not over fail.
impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.close();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}
