//! Watches sockets, a timer and a waker by one epoll descriptor.

use crate::connection::Connection;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use slotmap::{Key as _, KeyData};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use zerolane_lane::Waker;

/// Most descriptors reported by one system call.
const BATCH: usize = 64;
/// The timer and the waker, which belong to no slot. No key has this value.
const OWN: u64 = 0;

slotmap::new_key_type! {
    /// A slot of the worker.
    pub(super) struct Key;
}

#[derive(Debug)]
pub(super) struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// The timer is set, or has expired.
    timed: bool,
}

impl Poller {
    /// # Errors
    /// The system has no descriptor left.
    pub(super) fn new(waker: &Waker) -> io::Result<Poller> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let own = epoll::EventData::new_u64(OWN);
        epoll::add(&epoll, &timer, own, epoll::EventFlags::IN)?;
        let event = waker.descriptor().ok_or(Errno::MFILE)?;
        epoll::add(&epoll, event, own, epoll::EventFlags::IN)?;
        Ok(Poller {
            epoll,
            timer,
            timed: false,
        })
    }

    /// Watches `socket` for `key`: for input, and for room to send if `writable`.
    pub(super) fn add(&self, socket: BorrowedFd<'_>, key: Key) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, data(key), flags(false))?)
    }

    /// Watches the descriptors of `connection`'s lane, and the peer's process where a pidfd exists.
    pub(super) fn add_lane(&self, connection: &Connection, key: Key) -> io::Result<()> {
        self.add(connection.as_fd(), key)?;
        let process = connection.driver.lane().peer_process();
        process.map_or(Ok(()), |it| self.add(it, key))
    }

    /// Stops watching them.
    pub(super) fn remove_lane(&self, connection: &Connection) {
        self.remove(connection.as_fd());
        if let Some(process) = connection.driver.lane().peer_process() {
            self.remove(process);
        }
    }

    /// Starts or stops watching for room to send.
    pub(super) fn watch_room(
        &self,
        socket: BorrowedFd<'_>,
        key: Key,
        writable: bool,
    ) -> io::Result<()> {
        Ok(epoll::modify(
            &self.epoll,
            socket,
            data(key),
            flags(writable),
        )?)
    }

    /// Stops watching `socket`.
    pub(super) fn remove(&self, socket: BorrowedFd<'_>) {
        // Fails harmlessly if it was never watched, or is closed already.
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// Calls `found` for each slot that has something to do, without waiting; at most `BATCH` of them.
    pub(super) fn look(&self, mut found: impl FnMut(Key)) -> io::Result<()> {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut room = [MaybeUninit::uninit(); BATCH];
        let events = match epoll::wait(&self.epoll, &mut room[..], Some(&now)) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for event in events {
            let data = { event.data }.u64();
            if data != OWN {
                found(Key::from(KeyData::from_ffi(data)));
            }
        }
        Ok(())
    }

    /// Makes the descriptor readable after `timeout`, too; `None`: stops the timer.
    pub(super) fn set_timer(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if timeout.is_none() && !self.timed {
            return Ok(());
        }
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let value = match timeout {
            // Zero would stop it.
            Some(timeout) => Timespec::try_from(timeout.max(Duration::from_nanos(1)))
                .map_err(|_| io::ErrorKind::InvalidInput)?,
            None => zero,
        };
        let setting = Itimerspec {
            it_interval: zero,
            it_value: value,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &setting)?;
        self.timed = timeout.is_some();
        Ok(())
    }

    /// Sleeps until there is something to do. Returns whether something came before the timer expired.
    pub(super) fn sleep(&self) -> io::Result<bool> {
        use rustix::event::{PollFd, PollFlags};
        let [epoll, timer] = [&self.epoll, &self.timer];
        let mut fds = [epoll, timer].map(|it| PollFd::new(it, PollFlags::IN));
        match rustix::event::poll(&mut fds, None) {
            Ok(_) => Ok(fds[1].revents().is_empty()),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn data(key: Key) -> epoll::EventData {
    epoll::EventData::new_u64(key.data().as_ffi())
}

fn flags(writable: bool) -> epoll::EventFlags {
    match writable {
        true => epoll::EventFlags::IN | epoll::EventFlags::OUT,
        false => epoll::EventFlags::IN,
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
