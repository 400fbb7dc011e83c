//! Admits processes of this host, which meet the listener in shared memory.

use crate::options::Options;
use crate::shm::{Arrived, Visitor, Visitors};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The rendezvous for processes of this host, and one descriptor to watch for it and for its visitors.
#[derive(Debug)]
pub(super) struct Host {
    visitors: Visitors,
    watched: Epoll,
    /// Makes the listener check again after [`PAUSE`].
    timer: TimerFd,
    timed: bool,
    /// There were no descriptors left.
    paused: bool,
    /// Whether the rendezvous is watched.
    watches: bool,
}

/// How long a listener without descriptors, or with as many visitors as it may have, lets processes of this host wait
/// before it checks again. If a visitor becomes a connection or leaves, the wait for a place ends at once.
const PAUSE: Duration = Duration::from_millis(50);

/// The event to watch for; none to watch nothing at present.
fn event(watch: bool) -> EpollEvent {
    let flags = match watch {
        true => EpollFlags::EPOLLIN,
        false => EpollFlags::empty(),
    };
    EpollEvent::new(flags, 0)
}

impl Host {
    pub(super) fn listen(local: SocketAddr, options: &Options) -> io::Result<Host> {
        let visitors = Visitors::listen(local, options.lane.rendezvous.as_ref())?;
        let watched = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        watched.add(visitors.rendezvous(), event(true))?;
        watched.add(&timer, event(true))?;
        Ok(Host {
            visitors,
            watched,
            timer,
            timed: false,
            paused: false,
            watches: true,
        })
    }

    /// The next event of these processes.
    ///
    /// # Errors
    /// The system's: there may be no descriptor left.
    pub(super) fn next(&mut self) -> io::Result<Arrived> {
        if self.timed && self.timer.wait().is_ok() {
            (self.timed, self.paused) = (false, false);
        }
        let has_place = self.visitors.has_place();
        if !has_place {
            // No other event ends the wait for a silent visitor.
            self.look_again()?;
        }
        let accepts = has_place && !self.paused;
        self.watch_rendezvous(accepts)?;
        let watched = &self.watched;
        let watch = |socket: BorrowedFd<'_>| Ok(watched.add(socket, event(true))?);
        self.visitors.next(accepts, watch)
    }

    /// Watches the rendezvous only while visitors are accepted, because processes that wait there keep it readable.
    fn watch_rendezvous(&mut self, watch: bool) -> io::Result<()> {
        if watch != self.watches {
            let rendezvous = self.visitors.rendezvous();
            self.watched.modify(rendezvous, &mut event(watch))?;
            self.watches = watch;
        }
        Ok(())
    }

    fn look_again(&mut self) -> io::Result<()> {
        if !self.timed {
            let after = Expiration::OneShot(PAUSE.into());
            self.timer.set(after, TimerSetTimeFlags::empty())?;
            self.timed = true;
        }
        Ok(())
    }

    /// Accepts no visitor for now.
    pub(super) fn pause(&mut self) -> io::Result<()> {
        self.paused = true;
        self.look_again()?;
        self.watch_rendezvous(false)
    }

    /// Keeps `visitor`, which waits for more.
    pub(super) fn keep(&mut self, visitor: Visitor) {
        self.visitors.keep(visitor);
    }

    /// Stops watching `visitor`, which belongs to a connection from now on.
    pub(super) fn leave(&self, visitor: &Visitor) {
        let _ = self.watched.delete(visitor.socket());
    }

    /// Number of visitors that became no connection.
    pub(super) fn refused(&self) -> u64 {
        self.visitors.refused
    }
}

/// Readable when there is an event.
impl AsFd for Host {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watched.0.as_fd()
    }
}
