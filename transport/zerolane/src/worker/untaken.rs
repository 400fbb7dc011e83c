//! Keeps the connections that an endpoint accepted until its program takes them.

use super::endpoints::Listening;
use super::{ConnectionId, EndpointId, Key, Slot, Worker};
use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::error::Result;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use zerolane_lane::Life;

/// A descriptor that is readable while it rings.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    /// # Errors
    /// The system has no descriptor left.
    pub(crate) fn new() -> io::Result<Bell> {
        Ok(Bell(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    pub(crate) fn ring(&self) {
        // A full counter is readable as well.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    /// Sleeps until it rings, or for `timeout`, or until a signal comes.
    ///
    /// # Errors
    /// The system refused to wait.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.and_then(|it| Timespec::try_from(it).ok());
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The backlog of an endpoint.
#[derive(Debug)]
pub(super) struct Untaken {
    /// Most connections in it.
    most: usize,
    keys: VecDeque<Key>,
    /// Rings while there is one.
    bell: Arc<Bell>,
    /// Whether the listener is not read. Clients repeat their requests meanwhile.
    paused: bool,
}

impl Untaken {
    /// How many more connections may be accepted now.
    pub(super) fn room(&self) -> usize {
        match self.paused {
            true => 0,
            false => self.most.saturating_sub(self.keys.len()),
        }
    }

    pub(super) fn push(&mut self, key: Key) {
        self.keys.push_back(key);
        if self.keys.len() == 1 {
            self.bell.ring();
        }
    }

    fn pop(&mut self) -> Option<Key> {
        let key = self.keys.pop_front()?;
        self.fall_silent();
        Some(key)
    }

    fn remove(&mut self, key: Key) {
        if let Some(at) = self.keys.iter().position(|it| *it == key) {
            self.keys.remove(at);
            self.fall_silent();
        }
    }

    /// Stops the bell after the last connection left.
    fn fall_silent(&mut self) {
        if self.keys.is_empty() {
            self.bell.silence();
        }
    }
}

impl Worker {
    /// Takes over an endpoint whose program takes connections by [`Worker::take`]. Up to `most` wait for that, and
    /// `bell` rings while one does. There are no events of them.
    ///
    /// # Errors
    /// As for [`Worker::listen_on`].
    pub(crate) fn attend(
        &mut self,
        endpoint: Endpoint,
        most: u16,
        bell: Arc<Bell>,
    ) -> Result<EndpointId> {
        let id = self.listen_on(endpoint)?;
        if let Some(listening) = self.listening(id.0) {
            listening.untaken = Some(Untaken {
                most: most.into(),
                keys: VecDeque::new(),
                bell,
                paused: false,
            });
        }
        Ok(id)
    }

    /// The connection that waits longest for the program, if one waits.
    ///
    /// # Errors
    /// The system refused to watch the listener, which was not read while the backlog was full.
    pub(crate) fn take(&mut self, endpoint: EndpointId) -> Result<Option<Connection>> {
        let listening = self.listening(endpoint.0);
        let key = listening.and_then(|it| it.untaken.as_mut()?.pop());
        self.read_again(endpoint.0)?;
        let connection = key.and_then(|key| self.release(ConnectionId(key)));
        Ok(connection.map(|mut connection| {
            connection.driver.resume_operations();
            connection
        }))
    }

    /// Accepts no connection before the next [`Worker::take`].
    pub(crate) fn hold_back(&mut self, endpoint: EndpointId) {
        self.stop_reading(endpoint.0, |_| true);
    }

    /// Gives up an endpoint, and the connections that wait for its program.
    pub(crate) fn dismiss(&mut self, id: EndpointId) -> Option<(Endpoint, Vec<Connection>)> {
        let mut connections = Vec::new();
        while let Ok(Some(connection)) = self.take(id) {
            connections.push(connection);
        }
        let listening = self.remove_endpoint(id.0)?;
        Some((listening.endpoint, connections))
    }

    /// Keeps a connection that waits for the program, unless it is over.
    pub(super) fn settle_untaken(&mut self, key: Key, failed: bool) {
        let Some(Slot::Connection(link)) = self.slots.get(key) else {
            return;
        };
        let driver = &link.connection.driver;
        let gone = failed || driver.life() == Life::Closed;
        if gone || driver.closed().is_some() {
            self.forget_untaken(key);
        }
        if !gone {
            return self.schedule(key);
        }
        if let Some(Slot::Connection(link)) = self.slots.remove(key) {
            self.poller.remove_lane(&link.connection);
        }
    }

    /// Takes a connection that is over out of the backlog.
    fn forget_untaken(&mut self, key: Key) {
        for endpoint in self.endpoints.clone() {
            let Some(listening) = self.listening(endpoint) else {
                continue;
            };
            let Some(untaken) = &mut listening.untaken else {
                continue;
            };
            let was_full = untaken.keys.len() >= untaken.most;
            untaken.remove(key);
            if was_full {
                // If the system refuses, the next `take` reports it.
                let _ = self.read_again(endpoint);
            }
        }
    }

    /// Stops reading the listener if its backlog is full. False if it is not read.
    pub(super) fn stop_if_full(&mut self, endpoint: Key) -> bool {
        self.stop_reading(endpoint, |it| it.room() == 0);
        let untaken = self.listening(endpoint).and_then(|it| it.untaken.as_ref());
        untaken.is_none_or(|it| !it.paused)
    }

    fn stop_reading(&mut self, endpoint: Key, stops: impl FnOnce(&Untaken) -> bool) {
        let Some(Slot::Endpoint(listening)) = self.slots.get_mut(endpoint) else {
            return;
        };
        if let Some(untaken) = &mut listening.untaken
            && !untaken.paused
            && stops(untaken)
        {
            untaken.paused = true;
            self.poller.remove(listening.endpoint.as_fd());
        }
    }

    /// Reads the listener again if there is room for a connection.
    fn read_again(&mut self, endpoint: Key) -> io::Result<()> {
        let Some(Slot::Endpoint(listening)) = self.slots.get_mut(endpoint) else {
            return Ok(());
        };
        if let Some(untaken) = &mut listening.untaken
            && untaken.paused
            && untaken.keys.len() < untaken.most
        {
            self.poller.add(listening.endpoint.as_fd(), endpoint)?;
            untaken.paused = false;
        }
        Ok(())
    }

    fn listening(&mut self, endpoint: Key) -> Option<&mut Listening> {
        match self.slots.get_mut(endpoint)? {
            Slot::Endpoint(listening) => Some(listening),
            Slot::Connection(_) => None,
        }
    }
}
