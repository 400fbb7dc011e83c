//! The initiator: one unit of a target, with many requests outstanding.
//!
//! What waits for a request drives the connection meanwhile, for all; when nothing waits, a thread of the queue's own
//! does. What is read lands in the caller's memory, and what is written is fetched from there. When the connection
//! breaks, the queue connects again, and repeats in their order the commands whose status had not come: which of them
//! were done is not known, but each of them does the same when it is done twice. The target sees to it that nothing of
//! the older connection is done after the newer one began.
//!
//! | a request that | is |
//! |---|---|
//! | is in progress when the connection breaks | repeated, at most 64 times, while there is [`Options::patience`] |
//! | was done, and what it wrote was flushed | safe |
//! | was done and not flushed, the target was started anew, and its machine was not | safe: the kernel has it |
//! | was done and not flushed, and its machine, or the process with a disk in memory, was started anew | maybe lost: each flush fails ([`Error::Lost`]) |
//!
//! A flush that succeeds says that all requests that were over before it was asked for are on the medium.
//!
//! | module | what it does |
//! |---|---|
//! | `link` | one connection: login, slots, single commands |
//! | `unit` | what a unit is |
//! | `request` | requests, and the commands they are made of |
//! | `drive` | what is known of requests, and one turn of the connection |
//! | `seat` | which thread drives |
//! | `pilot` | a seat for a thread that watches descriptors of its own, too |

mod drive;
mod error;
mod extents;
mod link;
mod pilot;
mod request;
mod seat;
mod unit;

pub use error::{Error, Wrong};
pub use extents::Extent;
pub use link::Dial;
pub use pilot::Seat;
pub use request::{Done, Request};
pub use unit::Unit;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use zerolane::security::random;
use zerolane_block::Lun;

use drive::Driver;
use link::Link;
use seat::{Call, Over, Shared};

/// How a queue is.
#[derive(Clone, Debug)]
pub struct Options {
    /// Commands at a time, 1 to 256. More requests wait.
    pub depth: u16,
    /// Payload of a command, bytes: longer requests are several commands. The target may allow less.
    pub transfer_bytes: u32,
    /// How long it tries to connect again, while there are requests, before all of them fail, and the queue with them. Without
    /// requests it tries for as long as it takes.
    pub patience: Duration,
    /// A command without a status for so long means that the connection is broken, though the target answers. One that
    /// does not is missed after the connection's `idle_timeout`.
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

/// What a queue had to repair so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Connections made after the first.
    pub reconnects: u64,
    /// Commands sent again.
    pub repeats: u64,
}

/// One unit of a target, to be used by any number of threads.
pub struct Queue {
    shared: Arc<Shared<Driver>>,
    unit: Unit,
    thread: Option<JoinHandle<()>>,
}

/// A request that was asked for.
pub struct Pending {
    call: Arc<Call>,
    shared: Arc<Shared<Driver>>,
}

impl Pending {
    /// Waits until it is over.
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
    /// There is no connection, no target, or no such unit for this initiator.
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
    /// There is no connection, or no target.
    pub fn units(mut dial: Dial, patience: Duration) -> Result<Vec<Unit>, Error> {
        let mut link = Link::open(dial()?, session()?, 1, patience)?;
        let luns = Unit::list(&mut link, patience)?;
        luns.into_iter()
            .map(|lun| Unit::ask(&mut link, lun, patience))
            .collect()
    }

    /// The unit, as it was when it was opened.
    pub fn unit(&self) -> &Unit {
        &self.unit
    }

    /// Asks for `request`; `over` is called when it is over, by the thread that drives the connection, which does
    /// nothing else meanwhile: the queue's own, or one that waits for a request. It must not wait for another.
    pub fn submit(&self, request: Request, over: impl FnOnce(Done) + Send + 'static) {
        self.shared.submit(request, Over::new(over));
    }

    /// Asks for `request`, to be waited for.
    pub fn start(&self, request: Request) -> Pending {
        let (call, over) = Call::new();
        self.shared.submit(request, over);
        let shared = Arc::clone(&self.shared);
        Pending { call, shared }
    }

    /// Asks for `request`, and waits until it is over.
    pub fn call(&self, request: Request) -> Done {
        self.shared.call(request)
    }

    /// Why all requests fail from now on, if they do.
    pub fn failure(&self) -> Option<Error> {
        self.shared.failure()
    }

    /// Has `call` be called once all requests fail, by whichever thread finds that; at once if they do. A queue that is dropped
    /// calls nothing.
    pub fn when_failed(&self, call: impl FnOnce() + Send + 'static) {
        self.shared.when_failed(Box::new(call));
    }

    /// What had to be repaired so far.
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
