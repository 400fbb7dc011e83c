//! A thread for a path: it receives, seals and sends what the path carries, and opens sealed payload into its place.
//!
//! The connection stays with the thread that drives it, which says what is sent, where payload belongs, and by which numbers
//! and keys. Orders go to the path's thread, reports come back:
//!
//! ```text
//!  driver                                    the path's thread
//!  poll_transmit, numbers   -- Send -->      seal from the user's memory, sendmsg
//!                           <-- Sent --
//!                           <-- Arrived --   recvmsg into a buffer of its own
//!  place_of, key            -- Open -->      open into the place
//!  on_train                 <-- Opened --
//!  control, and all else    -- Free -->
//! ```
//!
//! Whatever it does to posted memory is an [errand](crate::errand), which ends with the order, and which the registry calls off
//! before it gives the memory away otherwise. Both ways are bounded: by the buffers, which are [`BUFFERS`], and by the bursts
//! that the driver has it send at a time.

mod arrived;
mod run;
mod send;

pub(crate) use arrived::Arrived;
pub(crate) use send::SendOrder;

use crate::errand::Errand;
use crate::mailbox::Mailbox;
use crate::seal::Opening;
use crate::{Process, Submissions, Waker, waker};
use run::Run;
use socket2::Socket;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use zerolane_wire::HEADER_LEN;

/// Messages received and not done with, of one path: 1 MiB.
pub(crate) const BUFFERS: usize = 16;

/// What the path's thread is to do.
pub(crate) enum Order {
    Send(SendOrder),
    Open(OpenOrder),
    /// This buffer may be received into again.
    Free(Box<Arrived>),
    #[cfg(test)]
    Panic,
}

/// A train that is to be opened into its place.
pub(crate) struct OpenOrder {
    pub(crate) errand: Errand,
    /// What it lies in, with all that is around it.
    pub(crate) from: Box<Arrived>,
    pub(crate) header: [u8; HEADER_LEN],
    pub(crate) payload: Range<usize>,
    pub(crate) opening: Opening,
    /// As many bytes as its payload has, to be written as long as the errand is under way.
    pub(crate) place: *mut u8,
}

// SAFETY: the place is touched only as the errand permits, whatever thread that is in.
unsafe impl Send for OpenOrder {}

/// What it did.
pub(crate) enum Report {
    /// The first burst of those that were to be sent left, or was called off, or why not.
    Sent(io::Result<()>),
    /// A message.
    Arrived(Box<Arrived>),
    /// The socket gave none.
    Refused(Box<Arrived>, io::Error),
    /// Whether the first train of those that were to be opened was the peer's. `None`: it was called off.
    Opened(Option<bool>),
    /// The thread is over, and nothing that it was ordered to do will be reported.
    Ended,
}

/// What a path's thread and the one that drives the connection share.
pub(crate) struct Channel {
    orders: Submissions<Order>,
    waker: Waker,
    stop: AtomicBool,
    reports: Mailbox<Report>,
    /// Readable when there is a report that the driver was to be told of.
    event: std::fs::File,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").finish_non_exhaustive()
    }
}

impl Channel {
    pub(crate) fn order(&self, order: Order) {
        // Closed only when the thread ended, which gives up what it was to do.
        let _ = self.orders.push(order);
        self.waker.wake();
    }

    fn report(&self, report: Report) {
        if self.reports.push(report) {
            // A full counter tells as well.
            let _ = (&self.event).write(&1u64.to_ne_bytes());
        }
    }

    /// What was reported since this was asked last.
    pub(crate) fn reports(&self) -> VecDeque<Report> {
        self.reports.take(VecDeque::new(), || {
            let mut told = [0; 8];
            match (&self.event).read_exact(&mut told) {
                Ok(()) => u64::from_ne_bytes(told),
                Err(_) => 0,
            }
        })
    }

    /// What is readable when there are reports.
    pub(crate) fn watched(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Tells the driver when the thread ends, a panic included.
struct Ended<'a>(&'a Channel);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        // What was ordered and not done is over, and what will be ordered, too.
        self.0.orders.close();
        self.0.report(Report::Ended);
    }
}

/// The thread of one path, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct PathThread {
    channel: Arc<Channel>,
    thread: Option<JoinHandle<()>>,
    process: Process,
}

impl PathThread {
    /// For path `path`, whose `socket` it has together with the driver. It spins for as long as `spin` before it sleeps.
    ///
    /// # Errors
    /// There are no more threads, or descriptors.
    pub(crate) fn spawn(
        path: usize,
        socket: Arc<Socket>,
        spin: Duration,
    ) -> io::Result<PathThread> {
        let no_descriptor = || io::Error::from_raw_os_error(libc::EMFILE);
        let channel = Arc::new(Channel {
            orders: Submissions::default(),
            waker: Waker::default(),
            stop: AtomicBool::new(false),
            reports: Mailbox::default(),
            event: waker::event().ok_or_else(no_descriptor)?,
        });
        let theirs = Arc::clone(&channel);
        let run = move || {
            let _ended = Ended(&theirs);
            Run::new(&theirs, &socket, spin).until_stopped();
        };
        let builder = std::thread::Builder::new().name(format!("zerolane path {path}"));
        Ok(PathThread {
            channel,
            thread: Some(builder.spawn(run)?),
            process: Process::current(),
        })
    }

    pub(crate) fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }
}

impl Drop for PathThread {
    fn drop(&mut self) {
        // A child of fork has none to wait for.
        let ours = self.thread.take().filter(|_| self.process.is_current());
        if let Some(thread) = ours {
            self.channel.stop.store(true, Ordering::Release);
            self.channel.waker.wake();
            // One that panicked has ended, and its errands with it.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
