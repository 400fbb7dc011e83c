//! Holds an endpoint's accepted connections until its program takes them, instead of events or handles.

use super::{ConnectionId, EndpointId, Key, Slot, Worker};
use crate::bell::Bell;
use crate::connection::Connection;
use crate::error::Result;
use crate::listener::Listener;
use std::collections::VecDeque;
use std::sync::Arc;
use zerolane_lane::Life;

/// The backlog of an endpoint.
#[derive(Debug)]
pub(super) struct Untaken {
    /// Most connections in it.
    most: usize,
    keys: VecDeque<Key>,
    /// Rings while there is one.
    bell: Arc<Bell>,
    /// Whether the listener is not read. Clients repeat their requests meanwhile.
    pub(super) paused: bool,
}

impl Untaken {
    pub(super) fn new(most: u16, bell: Arc<Bell>) -> Untaken {
        Untaken {
            most: most.into(),
            keys: VecDeque::new(),
            bell,
            paused: false,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.keys.len() >= self.most
    }

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

    pub(super) fn pop(&mut self) -> Option<Key> {
        let key = self.keys.pop_front()?;
        self.fall_silent();
        Some(key)
    }

    pub(super) fn remove(&mut self, key: Key) {
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
    /// Accepts connections for a program that takes them by [`Worker::take`]. Up to `most` wait for that, and `bell`
    /// rings while one does. There are no events of them.
    ///
    /// # Errors
    /// As for [`Worker::attend`].
    pub(crate) fn attend_with_backlog(
        &mut self,
        listener: Listener,
        most: u16,
        bell: Arc<Bell>,
    ) -> Result<EndpointId> {
        let id = self.attend(listener, Vec::new())?;
        if let Some(listening) = self.listening(id.0) {
            listening.untaken = Some(Untaken::new(most, bell));
        }
        Ok(id)
    }

    pub(crate) fn listener_mut(&mut self, endpoint: EndpointId) -> Option<&mut Listener> {
        Some(&mut self.listening(endpoint.0)?.listener)
    }

    /// The connection that waits longest for the program, if one waits.
    ///
    /// # Errors
    /// The system refused to watch the listener, which was not read while the backlog was full.
    pub(crate) fn take(&mut self, endpoint: EndpointId) -> Result<Option<Connection>> {
        let listening = self.listening(endpoint.0);
        let key = listening.and_then(|it| it.untaken.as_mut()?.pop());
        self.read_again(endpoint.0)?;
        let connection = key.and_then(|key| self.let_go(ConnectionId(key)));
        Ok(connection.map(|mut connection| {
            connection.driver.resume_operations();
            connection
        }))
    }

    /// Accepts no connection before the next [`Worker::take`].
    pub(crate) fn hold_back(&mut self, endpoint: EndpointId) {
        self.stop_reading(endpoint.0, |_| true);
    }

    /// Gives up the listener of an endpoint, and the connections that wait for its program.
    pub(crate) fn dismiss(&mut self, id: EndpointId) -> Option<(Listener, Vec<Connection>)> {
        let mut connections = Vec::new();
        while let Ok(Some(connection)) = self.take(id) {
            connections.push(connection);
        }
        let listening = self.remove_endpoint(id.0)?;
        Some((listening.listener, connections))
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
        self.remove(key);
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
            let was_full = untaken.is_full();
            untaken.remove(key);
            if was_full {
                // If the system refuses, the next `take` reports it.
                let _ = self.read_again(endpoint);
            }
        }
    }
}
