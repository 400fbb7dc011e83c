//! Accepts connections on a worker's endpoints, and finds connections whose peers moved.

use super::accepting::Accepting;
use super::claims::Peer;
use super::handle::ConnectionHandle;
use super::link::Link;
use super::{EndpointId, Event, Key, Slot, Worker};
use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::error::Error;
use std::os::fd::AsFd;
use zerolane_lane::Accept;

/// Datagrams of unauthenticated peers processed at a time.
const MAX_UNAUTHENTICATED: usize = 32;

#[derive(Debug)]
pub(super) struct Listening {
    pub(super) endpoint: Endpoint,
    /// Whether it is in the ready queue.
    pub(super) queued: bool,
    /// The requests of its handles.
    pub(super) accepting: Accepting,
}

impl Listening {
    pub(super) fn new(endpoint: Endpoint) -> Listening {
        Listening {
            endpoint,
            queued: false,
            accepting: Accepting::default(),
        }
    }
}

impl Worker {
    /// Processes datagrams of unauthenticated peers, and of peers whose address changed.
    pub(super) fn accept(&mut self, key: Key) {
        let Some(Slot::Endpoint(listening)) = self.slots.get_mut(key) else {
            return;
        };
        listening.queued = false;
        let mut accepted = Vec::new();
        let mut failed = None;
        let mut more = true;
        for _ in 0..MAX_UNAUTHENTICATED {
            match listening.endpoint.listener_mut().try_accept() {
                Ok(Accept::Connection(driver)) => {
                    accepted.push(listening.endpoint.accepted(*driver));
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
        let moved = listening.endpoint.listener_mut().keys_at_new_addresses();
        if failed.is_none() && more {
            self.ready.push(key, &mut listening.queued);
        }
        for connection in accepted {
            self.take_in(key, connection);
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
            (false, _) => {}
        }
        let peer = Peer::of(&link.connection);
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
        } else {
            self.events.push_back(Event::Accepted {
                endpoint: EndpointId(key),
                connection: id,
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
        let Some(Slot::Endpoint(listening)) = self.slots.get(key) else {
            return;
        };
        self.poller.remove(listening.endpoint.as_fd());
        self.endpoints.retain(|&it| it != key);
        let Some(Slot::Endpoint(mut listening)) = self.slots.remove(key) else {
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
                link.readable = true;
                self.ready.push(key, &mut link.queued);
            }
        }
    }
}
