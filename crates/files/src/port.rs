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
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Instant;

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
pub(crate) enum Event {
    /// A submitted buffer was sent.
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
    waited: Arc<AtomicU64>,
}

/// The connection side.
#[derive(Debug)]
pub(crate) struct PumpEnd {
    pub(crate) events: Sender<Event>,
    pub(crate) outgoing: Receiver<Filled>,
    pub(crate) released: Receiver<Buffer>,
    /// How long the file side has blocked, nanoseconds.
    pub(crate) waited: Arc<AtomicU64>,
}

/// Both sides, with `outgoing` buffers to fill and `incoming` ones to receive into. `wake` is called
/// when there is something for the connection side.
pub(crate) fn port(
    outgoing: Vec<Buffer>,
    incoming: Vec<Buffer>,
    wake: impl Fn() + Send + 'static,
) -> (Port, PumpEnd) {
    let (event_sender, events) = channel();
    let (submit, submitted) = channel();
    let (release, released) = channel();
    let waited = Arc::new(AtomicU64::new(0));
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
        waited: Arc::clone(&waited),
    };
    (
        port,
        PumpEnd {
            events: event_sender,
            outgoing: submitted,
            released,
            waited,
        },
    )
}

impl Port {
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
        self.arrived.pop_front()
    }

    /// Sends the first `len` bytes of `buffer`.
    pub(crate) fn submit(&mut self, buffer: Buffer, len: usize) -> Result<(), Error> {
        let submit = self.submit.as_ref().ok_or(Error::PeerGone)?;
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
        let waited = since.elapsed().as_nanos() as u64;
        self.waited.fetch_add(waited, Ordering::Relaxed);
        self.note(event.map_err(|_| Error::PeerGone)?);
        self.poll()
    }

    /// Notes what was sent and has arrived, without blocking.
    ///
    /// # Errors
    /// [`Error::PeerGone`] when the connection side has ended and nothing is left to take.
    pub(crate) fn poll(&mut self) -> Result<(), Error> {
        loop {
            match self.events.try_recv() {
                Ok(event) => self.note(event),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) if !self.arrived.is_empty() => return Ok(()),
                Err(TryRecvError::Disconnected) => return Err(Error::PeerGone),
            }
        }
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
