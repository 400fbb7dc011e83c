//! Connects the thread that reads or writes files with the thread that drives the connection.
//!
//! Buffers circulate: the file side fills a free one and submits it, the connection side sends it and returns it; the
//! connection side receives into one, the file side reads it and releases it. Their number is limited, which bounds the
//! queues, and a slow side slows the other.
//!
//! The connection side sleeps in the connection; the call given to [`port`] wakes it.
//!
//! ```text
//!   file side (Port)                      connection side (PumpEnd)
//!      submit  ---- filled, to be sent ---->  outgoing
//!        free  <--- sent -------------------  events
//!     arrived  <--- received ---------------  events
//!     release  ---- to receive into again ->  released
//! ```

use crate::error::Error;
use crate::observe::Queued;
use crate::stop::Stop;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Memory that is sent from and received into.
pub(crate) type Buffer = zerolane::Region;

/// A buffer and the number of its bytes that are filled.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) buffer: Buffer,
    pub(crate) len: usize,
}

impl Filled {
    /// The filled bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

/// A message of the connection side to the file side.
#[derive(Debug)]
enum Event {
    /// A submitted buffer was sent, or an additional one is free.
    Sent(Buffer),
    /// A Transfer arrived.
    Arrived(Filled),
}

/// The file side.
pub(crate) struct Port {
    events: Receiver<Event>,
    /// `None` only while the port is being dropped.
    submit: Option<Sender<Filled>>,
    release: Sender<Buffer>,
    wake: Box<dyn Fn() + Send>,
    /// Used last in, first out: the last one freed is still in the cache.
    free: Vec<Buffer>,
    arrived: VecDeque<Filled>,
    counters: Arc<PortCounters>,
    stop: Option<Stop>,
}

/// Checks whether to continue.
pub(crate) type Check = Box<dyn Fn() -> Result<(), Error> + Send>;

/// The connection side.
#[derive(Debug)]
pub(crate) struct PumpEnd {
    pub(crate) events: Events,
    pub(crate) outgoing: Receiver<Filled>,
    pub(crate) released: Receiver<Buffer>,
}

/// Counts what one side of a port waits for.
#[derive(Debug, Default)]
pub(crate) struct PortCounters {
    /// How long the file side was blocked, nanoseconds.
    blocked: AtomicU64,
    /// Bytes submitted and not yet confirmed by the peer.
    to_network: AtomicU64,
    /// Bytes received and not yet taken by the file side.
    to_files: AtomicU64,
    /// Whether the connection side has ended.
    ended: AtomicBool,
}

impl PortCounters {
    /// How long the file side was blocked.
    pub(crate) fn blocked(&self) -> Duration {
        Duration::from_nanos(self.blocked.load(Ordering::Relaxed))
    }

    /// Records that the connection side has ended.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// What is queued now.
    pub(crate) fn queued(&self) -> Queued {
        Queued {
            network: self.to_network.load(Ordering::Relaxed),
            files: self.to_files.load(Ordering::Relaxed),
        }
    }
}

/// Sends messages to the file side.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    events: Sender<Event>,
    counters: Arc<PortCounters>,
}

impl Events {
    /// Returns `buffer`, of which `len` bytes were sent.
    pub(crate) fn sent(&self, buffer: Buffer, len: usize) {
        let queued = &self.counters.to_network;
        queued.fetch_sub(len as u64, Ordering::Relaxed);
        self.tell(Event::Sent(buffer));
    }

    /// Adds a buffer to fill.
    pub(crate) fn add(&self, buffer: Buffer) {
        self.tell(Event::Sent(buffer));
    }

    /// Passes on a received Transfer.
    pub(crate) fn arrived(&self, filled: Filled) {
        let queued = &self.counters.to_files;
        queued.fetch_add(filled.len as u64, Ordering::Relaxed);
        self.tell(Event::Arrived(filled));
    }

    fn tell(&self, event: Event) {
        // The file side may have ended with buffers still in use: they are not needed.
        let _ = self.events.send(event);
    }
}

/// Makes both sides, with `outgoing` buffers to fill and `incoming` ones to receive into. `wake` is called when the
/// connection side has something to do.
pub(crate) fn port(
    outgoing: Vec<Buffer>,
    incoming: Vec<Buffer>,
    counters: Arc<PortCounters>,
    wake: impl Fn() + Send + 'static,
) -> (Port, PumpEnd) {
    let (event_sender, events) = channel();
    let (submit, submitted) = channel();
    let (release, released) = channel();
    for buffer in incoming {
        // Cannot fail: the receiver is right here.
        let _ = release.send(buffer);
    }
    let port = Port {
        events,
        submit: Some(submit),
        release,
        wake: Box::new(wake),
        free: outgoing,
        arrived: VecDeque::new(),
        counters: Arc::clone(&counters),
        stop: None,
    };
    (
        port,
        PumpEnd {
            outgoing: submitted,
            released,
            events: Events {
                events: event_sender,
                counters,
            },
        },
    )
}

impl Port {
    /// Also ends the file side when `stop` is requested: otherwise Transfers received before the connection ended would
    /// keep it at work.
    pub(crate) fn heeding(mut self, stop: &Stop) -> Port {
        self.stop = Some(stop.clone());
        self
    }

    /// A buffer to fill, if one is free.
    pub(crate) fn take_free(&mut self) -> Option<Buffer> {
        self.free.pop()
    }

    /// Returns a buffer that was taken and is not needed.
    pub(crate) fn put_back(&mut self, buffer: Buffer) {
        self.free.push(buffer);
    }

    /// The next Transfer, if one has arrived.
    pub(crate) fn take_arrived(&mut self) -> Option<Filled> {
        let filled = self.arrived.pop_front()?;
        let len = filled.len as u64;
        self.counters.to_files.fetch_sub(len, Ordering::Relaxed);
        Some(filled)
    }

    /// Sends the first `len` bytes of `buffer`.
    pub(crate) fn submit(&mut self, buffer: Buffer, len: usize) -> Result<(), Error> {
        let submit = self.submit.as_ref().ok_or(Error::PeerGone)?;
        // Counted before the connection side can see the buffer and count it as sent.
        let queued = &self.counters.to_network;
        queued.fetch_add(len as u64, Ordering::Relaxed);
        let sent = submit.send(Filled { buffer, len });
        (self.wake)();
        sent.map_err(|_| Error::PeerGone)
    }

    /// Returns a buffer for another receive. Does nothing if the connection side has ended.
    pub(crate) fn release(&mut self, buffer: Buffer) {
        let _ = self.release.send(buffer);
        (self.wake)();
    }

    /// Blocks until a buffer was sent or a Transfer has arrived.
    pub(crate) fn wait(&mut self) -> Result<(), Error> {
        let since = Instant::now();
        let event = self.events.recv();
        let blocked = since.elapsed().as_nanos() as u64;
        self.counters.blocked.fetch_add(blocked, Ordering::Relaxed);
        self.note(event.map_err(|_| Error::PeerGone)?);
        self.poll()
    }

    /// Takes in all messages of the connection side, without blocking.
    ///
    /// # Errors
    /// [`Error::PeerGone`] when the connection side has ended and no Transfer is left to take. [`Error::Stopped`].
    pub(crate) fn poll(&mut self) -> Result<(), Error> {
        self.check_stop()?;
        loop {
            match self.events.try_recv() {
                Ok(event) => self.note(event),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) if !self.arrived.is_empty() => return Ok(()),
                Err(TryRecvError::Disconnected) => return Err(Error::PeerGone),
            }
        }
    }

    /// # Errors
    /// [`Error::Stopped`].
    pub(crate) fn check_stop(&self) -> Result<(), Error> {
        self.stop.as_ref().map_or(Ok(()), Stop::check)
    }

    /// A check for use during long work, whose result would be lost if the connection ended. Fails as [`Port::poll`]
    /// does, whether or not Transfers are left to take.
    pub(crate) fn check(&self) -> Check {
        let (stop, counters) = (self.stop.clone(), Arc::clone(&self.counters));
        Box::new(move || {
            stop.as_ref().map_or(Ok(()), Stop::check)?;
            match counters.ended.load(Ordering::Acquire) {
                true => Err(Error::PeerGone),
                false => Ok(()),
            }
        })
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Sent(buffer) => self.free.push(buffer),
            Event::Arrived(filled) => self.arrived.push_back(filled),
        }
    }
}

impl Drop for Port {
    /// Tells the connection side that nothing more will be submitted.
    fn drop(&mut self) {
        self.submit = None;
        (self.wake)();
    }
}
