//! Runs a thread for a path, which receives, seals and sends the path's datagrams, and opens sealed payload in place.
//!
//! The connection stays with the thread that drives it. That thread decides what to send, where payload belongs, and
//! which numbers and keys to use. It sends orders to the path's thread, which returns reports:
//!
//! ```text
//!  driver                                    the path's thread
//!  poll_transmit, numbers   -- Send -->      seal from the user's memory, sendmsg
//!                           <-- Sent --
//!                           <-- Arrived --   recvmsg into a buffer of its own
//!  claim, key               -- Open -->      open into the place
//!  on_train                 <-- Opened --
//!  control, and all else    -- Free -->
//! ```
//!
//! Each access to posted memory is a [delegated access](crate::memory::delegated), which ends with the order. The registry ends
//! it before it lets the memory be used in any other way. Both directions are bounded: by the number of buffers,
//! [`BUFFERS`], and by the number of bursts that the driver hands over at a time.

mod arrived;
mod run;
mod send;

pub(crate) use arrived::Arrived;
pub(crate) use send::SendOrder;

use crate::memory::delegated::DelegatedAccess;
use crate::seal::Opening;
use crate::threads::{Mailbox, Process, Submissions, spawn_thread};
use crate::wait::{Waker, waker};
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

/// Messages of one path that were received and not yet released: 1 MiB.
pub(crate) const BUFFERS: usize = 16;

/// An order to the path's thread.
pub(crate) enum Order {
    Send(SendOrder),
    Open(OpenOrder),
    /// A buffer to receive into again.
    Free(Box<Arrived>),
    #[cfg(test)]
    Panic,
}

/// An order to open a train into its place.
pub(crate) struct OpenOrder {
    pub(crate) access: DelegatedAccess,
    /// The message that holds the train, with all that surrounds it.
    pub(crate) from: Box<Arrived>,
    pub(crate) header: [u8; HEADER_LEN],
    pub(crate) payload: Range<usize>,
    pub(crate) opening: Opening,
    /// Start of as many bytes as the payload has, which may be written while the access is in progress.
    pub(crate) place: *mut u8,
}

// SAFETY: the place is accessed only as the access permits, in any thread.
unsafe impl Send for OpenOrder {}

/// A report of the path's thread.
pub(crate) enum Report {
    /// The result of the first burst in progress: it left or was called off, or why it did not leave.
    Sent(io::Result<()>),
    /// A received message.
    Arrived(Box<Arrived>),
    /// An error of the socket, with the unused buffer.
    Refused(Box<Arrived>, io::Error),
    /// The result of the first train in progress: whether it is the peer's. `None`: it was called off.
    Opened(Option<bool>),
    /// The thread has ended, and no order will be reported any more.
    Ended,
}

/// State shared by a path's thread and the thread that drives the connection.
pub(crate) struct Channel {
    orders: Submissions<Order>,
    waker: Waker,
    stop: AtomicBool,
    reports: Mailbox<Report>,
    /// Readable if there is a report that the driver must be notified of.
    event: std::fs::File,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").finish_non_exhaustive()
    }
}

impl Channel {
    pub(crate) fn order(&self, order: Order) {
        // It is closed only after the thread has ended, which abandons its orders.
        let _ = self.orders.push(order);
        self.waker.wake();
    }

    fn report(&self, report: Report) {
        if self.reports.push(report) {
            // A full counter notifies as well.
            let _ = (&self.event).write(&1u64.to_ne_bytes());
        }
    }

    /// Takes the reports since the last call.
    pub(crate) fn reports(&self) -> VecDeque<Report> {
        self.reports.take(VecDeque::new(), || {
            let mut told = [0; 8];
            match (&self.event).read_exact(&mut told) {
                Ok(()) => u64::from_ne_bytes(told),
                Err(_) => 0,
            }
        })
    }

    /// The descriptor that is readable when there are reports.
    pub(crate) fn watched(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Notifies the driver when the thread ends, even by a panic.
struct Ended<'a>(&'a Channel);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        // All orders, present and later, are over.
        self.0.orders.close();
        self.0.report(Report::Ended);
    }
}

/// The thread of one path. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct PathThread {
    channel: Arc<Channel>,
    thread: Option<JoinHandle<()>>,
    process: Process,
}

impl PathThread {
    /// Starts the thread of path `path`, which shares `socket` with the driver. It spins for `spin` before it sleeps.
    ///
    /// # Errors
    /// The system has no thread or no descriptor left.
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
        let thread = spawn_thread(format!("zerolane path {path}"), run)?;
        Ok(PathThread {
            channel,
            thread: Some(thread),
            process: Process::current(),
        })
    }

    pub(crate) fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }
}

impl Drop for PathThread {
    fn drop(&mut self) {
        // A child of fork has no such thread to wait for.
        let ours = self.thread.take().filter(|_| self.process.is_current());
        if let Some(thread) = ours {
            self.channel.stop.store(true, Ordering::Release);
            self.channel.waker.wake();
            // A thread that panicked has ended, and its accesses with it.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
