//! Accepts connections on a worker's endpoints, and finds connections whose peers moved.

use super::accepting::Accepting;
use super::agenda::Due;
use super::claims::Peer;
use super::handle::ConnectionHandle;
use super::link::Link;
use super::untaken::Untaken;
use super::{EndpointId, Event, Key, Slot, Worker};
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::listener::Listener;
use std::io;
use std::os::fd::AsFd;
use zerolane_lane::Accept;

/// Datagrams of unauthenticated peers processed at a time.
const MAX_UNAUTHENTICATED: usize = 32;

#[derive(Debug)]
pub(super) struct Listening {
    pub(super) listener: Listener,
    /// The requests of its handles.
    pub(super) accepting: Accepting,
    /// The connections that its program takes by itself: neither events nor handles.
    pub(super) untaken: Option<Untaken>,
}

impl Listening {
    fn new(listener: Listener) -> Listening {
        Listening {
            listener,
            accepting: Accepting::default(),
            untaken: None,
        }
    }
}

impl Worker {
    /// Accepts the connections of `listener`, and takes over those that it accepted before.
    ///
    /// # Errors
    /// The system refused to watch it; or [`Error::Forked`].
    pub(crate) fn attend(
        &mut self,
        listener: Listener,
        accepted: Vec<Connection>,
    ) -> Result<EndpointId> {
        let listening = Box::new(Listening::new(listener));
        let key = self.insert(Slot::Endpoint(listening))?;
        self.endpoints.push(key);
        for connection in accepted {
            self.take_in(key, connection);
        }
        Ok(EndpointId(key))
    }

    pub(super) fn remove_endpoint(&mut self, key: Key) -> Option<Box<Listening>> {
        self.listening(key)?;
        self.endpoints.retain(|&it| it != key);
        match self.remove(key)? {
            Slot::Endpoint(listening) => Some(listening),
            Slot::Connection(_) => None,
        }
    }

    /// Processes datagrams of unauthenticated peers, and of peers whose address changed.
    pub(super) fn accept(&mut self, key: Key) {
        let Some(Slot::Endpoint(listening)) = self.slots.get_mut(key) else {
            return;
        };
        let mut accepted = Vec::new();
        let mut failed = None;
        let mut more = true;
        let untaken = listening.untaken.as_ref();
        let room = untaken.map_or(MAX_UNAUTHENTICATED, Untaken::room);
        for _ in 0..MAX_UNAUTHENTICATED {
            if accepted.len() >= room {
                break;
            }
            match listening.listener.try_accept() {
                Ok(Accept::Connection(mut driver)) => {
                    if listening.untaken.is_some() {
                        driver.defer_operations();
                    }
                    accepted.push(listening.listener.connection(*driver));
                }
                Ok(Accept::Unauthenticated) => {}
                Ok(Accept::Nothing) => {
                    more = false;
                    break;
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let moved = listening.listener.keys_at_new_addresses();
        for connection in accepted {
            self.take_in(key, connection);
        }
        let reads = self.stop_if_full(key);
        if failed.is_none() && more && reads {
            self.agenda.add(key, Due::Turn);
        }
        if let Some(error) = failed {
            self.fail_endpoint(key, error.into());
        }
        if !moved.is_empty() {
            self.look_for_peers(&moved);
        }
    }

    fn take_in(&mut self, key: Key, connection: Connection) {
        let Some(Slot::Endpoint(listening)) = self.slots.get_mut(key) else {
            return;
        };
        let handled = listening.accepting.is_handled();
        let mut link = Link::open(connection);
        let exported = listening.accepting.export_to(&mut link.connection);
        match (handled, exported.is_ok()) {
            (true, true) => link.claims.hold(),
            (true, false) => link.claims.expect_handle(),
            (false, _) if listening.untaken.is_some() => link.claims.await_program(),
            (false, _) => {}
        }
        let peer = Peer::of(&link.connection);
        let asked = link.connection.driver.is_asked();
        // Dropping the connection tells its peer.
        let Ok(id) = self.own(link) else { return };
        let Some(Slot::Endpoint(listening)) = self.slots.get_mut(key) else {
            return;
        };
        if exported.is_err() {
            self.close(id);
        } else if handled {
            let handle = ConnectionHandle::new(&self.inbox, id, peer);
            listening.accepting.accepted(handle);
            if listening.accepting.wants_purge() {
                self.purge(key);
            }
        } else if let Some(untaken) = &mut listening.untaken {
            untaken.push(id.0);
        } else {
            let endpoint = EndpointId(key);
            self.events.push_back(match asked {
                true => Event::Requested {
                    endpoint,
                    connection: id,
                },
                false => Event::Accepted {
                    endpoint,
                    connection: id,
                },
            });
        }
    }

    /// Removes an endpoint's connections that have closed.
    fn purge(&mut self, key: Key) {
        let Some(Slot::Endpoint(listening)) = self.slots.get_mut(key) else {
            return;
        };
        let mut accepting = std::mem::take(&mut listening.accepting);
        accepting.purge(|it| self.slots.contains_key(it.id().0));
        if let Some(Slot::Endpoint(listening)) = self.slots.get_mut(key) {
            listening.accepting = accepting;
        }
    }

    fn fail_endpoint(&mut self, key: Key, error: Error) {
        let Some(mut listening) = self.remove_endpoint(key) else {
            return;
        };
        if listening.accepting.is_handled() {
            listening.accepting.fail(&error);
        } else {
            self.events.push_back(Event::EndpointFailed {
                endpoint: EndpointId(key),
                error,
            });
        }
    }

    /// Makes the connections with these keys look for their peers, which may have moved.
    fn look_for_peers(&mut self, keys: &[u32]) {
        for (key, slot) in &mut self.slots {
            let Slot::Connection(link) = slot else {
                continue;
            };
            let lane = link.connection.driver.lane_mut();
            if keys.contains(&lane.key()) {
                lane.look_for_peer();
                self.agenda.add_input(key);
            }
        }
    }

    /// Stops reading the listener if its backlog is full. False if it is not read.
    pub(super) fn stop_if_full(&mut self, endpoint: Key) -> bool {
        self.stop_reading(endpoint, Untaken::is_full);
        let untaken = self.listening(endpoint).and_then(|it| it.untaken.as_ref());
        untaken.is_none_or(|it| !it.paused)
    }

    pub(super) fn stop_reading(&mut self, endpoint: Key, stops: impl FnOnce(&Untaken) -> bool) {
        let Some(Slot::Endpoint(listening)) = self.slots.get_mut(endpoint) else {
            return;
        };
        if let Some(untaken) = &mut listening.untaken
            && !untaken.paused
            && stops(untaken)
        {
            untaken.paused = true;
            self.poller.remove(listening.listener.as_fd());
        }
    }

    /// Reads the listener again if there is room for a connection.
    pub(super) fn read_again(&mut self, endpoint: Key) -> io::Result<()> {
        let Some(Slot::Endpoint(listening)) = self.slots.get_mut(endpoint) else {
            return Ok(());
        };
        if let Some(untaken) = &mut listening.untaken
            && untaken.paused
            && !untaken.is_full()
        {
            self.poller.add(listening.listener.as_fd(), endpoint)?;
            untaken.paused = false;
        }
        Ok(())
    }

    pub(super) fn listening(&mut self, endpoint: Key) -> Option<&mut Listening> {
        match self.slots.get_mut(endpoint)? {
            Slot::Endpoint(listening) => Some(listening),
            Slot::Connection(_) => None,
        }
    }
}
