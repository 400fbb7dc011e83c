//! Between the thread that reads or writes files and the thread that drives the connection.
//!
//! Buffers circulate: the file side fills a free one and submits it, the connection side sends it
//! and gives it back; the connection side receives into one, the file side reads it and releases
//! it. Their number never changes, so the queues are bounded by it, and a slow side slows the
//! other.
//!
//! The connection side sleeps in the connection; a call given to [`port`] wakes it.
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

/// A buffer and how many of its bytes are filled.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) buffer: Buffer,
    pub(crate) len: usize,
}

impl Filled {
    /// The bytes that are filled.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

/// What the connection side tells the file side.
#[derive(Debug)]
enum Event {
    /// A submitted buffer was sent, or there is one more.
    Sent(Buffer),
    /// A Transfer arrived.
    Arrived(Filled),
}

/// The file side.
pub(crate) struct Port {
    events: Receiver<Event>,
    /// `None` only while the port is dropped.
    submit: Option<Sender<Filled>>,
    release: Sender<Buffer>,
    wake: Box<dyn Fn() + Send>,
    /// The last one freed is used first: it is the one still in the cache.
    free: Vec<Buffer>,
    arrived: VecDeque<Filled>,
    counters: Arc<PortCounters>,
    stop: Option<Stop>,
}

/// Whether to go on.
pub(crate) type Check = Box<dyn Fn() -> Result<(), Error> + Send>;

/// The connection side.
#[derive(Debug)]
pub(crate) struct PumpEnd {
    pub(crate) events: Events,
    pub(crate) outgoing: Receiver<Filled>,
    pub(crate) released: Receiver<Buffer>,
}

/// What one side of a port waits for of the other.
#[derive(Debug, Default)]
pub(crate) struct PortCounters {
    /// How long the file side has blocked, nanoseconds.
    blocked: AtomicU64,
    /// Bytes submitted, and not yet confirmed by the peer.
    to_network: AtomicU64,
    /// Bytes that arrived, and the file side has not yet taken.
    to_files: AtomicU64,
    /// Whether the connection side has ended.
    ended: AtomicBool,
}

impl PortCounters {
    /// How long the file side has blocked.
    pub(crate) fn blocked(&self) -> Duration {
        Duration::from_nanos(self.blocked.load(Ordering::Relaxed))
    }

    /// The connection side has ended.
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

/// What the connection side tells.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    events: Sender<Event>,
    counters: Arc<PortCounters>,
}

impl Events {
    /// Gives `buffer` back, of which `len` bytes were sent.
    pub(crate) fn sent(&self, buffer: Buffer, len: usize) {
        let queued = &self.counters.to_network;
        queued.fetch_sub(len as u64, Ordering::Relaxed);
        self.tell(Event::Sent(buffer));
    }

    /// One more buffer to fill.
    pub(crate) fn add(&self, buffer: Buffer) {
        self.tell(Event::Sent(buffer));
    }

    /// Hands on what was received.
    pub(crate) fn arrived(&self, filled: Filled) {
        let queued = &self.counters.to_files;
        queued.fetch_add(filled.len as u64, Ordering::Relaxed);
        self.tell(Event::Arrived(filled));
    }

    fn tell(&self, event: Event) {
        // The file side may have gone with buffers still out: they are not needed.
        let _ = self.events.send(event);
    }
}

/// Both sides, with `outgoing` buffers to fill and `incoming` ones to receive into. `wake` is called
/// when there is something for the connection side.
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
    /// Heeds `stop`, too: what arrived before the connection ended would keep the file side at work.
    pub(crate) fn heeding(mut self, stop: &Stop) -> Port {
        self.stop = Some(stop.clone());
        self
    }

    /// A buffer to fill, if one is free.
    pub(crate) fn take_free(&mut self) -> Option<Buffer> {
        self.free.pop()
    }

    /// Gives back a buffer that was taken and is not needed.
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
        // Before the connection side can see it, and count it as sent.
        let queued = &self.counters.to_network;
        queued.fetch_add(len as u64, Ordering::Relaxed);
        let sent = submit.send(Filled { buffer, len });
        (self.wake)();
        sent.map_err(|_| Error::PeerGone)
    }

    /// Lets a buffer that arrived be received into again. This has no effect, and is no error, if the
    /// connection side has ended.
    pub(crate) fn release(&mut self, buffer: Buffer) {
        let _ = self.release.send(buffer);
        (self.wake)();
    }

    /// Blocks until something was sent or has arrived.
    pub(crate) fn wait(&mut self) -> Result<(), Error> {
        let since = Instant::now();
        let event = self.events.recv();
        let blocked = since.elapsed().as_nanos() as u64;
        self.counters.blocked.fetch_add(blocked, Ordering::Relaxed);
        self.note(event.map_err(|_| Error::PeerGone)?);
        self.poll()
    }

    /// Notes what was sent and has arrived, without blocking.
    ///
    /// # Errors
    /// [`Error::PeerGone`] when the connection side has ended and nothing is left to take. [`Error::Stopped`].
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

    /// Tells in the middle of long work, whose outcome can be told to no peer then: fails as [`Port::poll`] does, but does
    /// not mind what is left to take.
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
    /// The connection side learns that nothing more will be submitted.
    fn drop(&mut self) {
        self.submit = None;
        (self.wake)();
    }
}
