//! Advances connections and delivers their completions and events.

use super::agenda::{Agenda, Due};
use super::claims::Peer;
use super::link::{Link, Stage};
use super::poller::Poller;
use super::{ConnectionId, Event, Key, MAX_EVENTS, Slot, Worker};
use crate::error::Error;
use std::os::fd::AsFd;
use zerolane_lane::{DriverError, Life, Step, limits};

/// What to do with a connection after advancing it.
enum Next {
    /// Keep it.
    Stays,
    /// Remove it: it is over.
    Ends,
}

impl Worker {
    pub(super) fn turn_connection(&mut self, key: Key) {
        let input = self.agenda.take_input(key);
        let Some(Slot::Connection(link)) = self.slots.get_mut(key) else {
            return;
        };
        let turned = match link.connection.driver.lane().is_undecided() {
            true => turn_undecided(link, key, &self.poller),
            false => {
                let step = match input {
                    true => Step::Whole,
                    false => Step::WithoutInput,
                };
                link.connection.driver.turn(step).map(drop)
            }
        };
        if link.connection.driver.has_moved() {
            self.agenda.add(key, Due::Flush);
        }
        self.settle(key, turned.err());
    }

    /// Reports the results of advancing a connection, and schedules it again.
    pub(super) fn settle(&mut self, key: Key, error: Option<DriverError>) {
        let Some(Slot::Connection(link)) = self.slots.get_mut(key) else {
            return;
        };
        if link.claims.is_untaken() {
            return self.settle_untaken(key, error.is_some());
        }
        let failed = error.is_some() || link.connection.driver.closed().is_some();
        let error = match failed.then(|| self.try_another(key)) {
            Some(Ok(true)) => return,
            Some(Err(error)) => Some(error),
            Some(Ok(false)) | None => error.map(Error::from),
        };
        let Some(Slot::Connection(link)) = self.slots.get_mut(key) else {
            return;
        };
        let id = ConnectionId(key);
        if matches!(link.stage, Stage::Connecting(_)) && link.connection.driver.is_connected() {
            link.stage = Stage::Open;
            link.others = None;
            let Link {
                claims, connection, ..
            } = &mut **link;
            if !claims.on_connected(|| Peer::of(connection)) {
                self.events.push_back(Event::Connected { connection: id });
            }
        }
        let drained = deliver(link, id, &mut self.events);
        if !drained {
            self.agenda.add(key, Due::Delivery);
        }
        report_announced(link, id, &mut self.events);
        report_datagrams(link, id, &mut self.events);
        link.claims.report_arrivals(&link.connection);
        let next = match error {
            // The lane failed.
            Some(reason) => {
                end(link, id, reason, &mut self.events);
                Next::Ends
            }
            None => step(link, id, drained, &mut self.events, &mut self.agenda),
        };
        match next {
            Next::Ends => {
                if let Some(Slot::Connection(link)) = self.remove(key)
                    && link.claims.is_held()
                {
                    self.over.insert(key, link.claims);
                }
            }
            Next::Stays => self.schedule(key),
        }
    }

    /// Queues the connection if it has more to do, and records what must be looked at later.
    pub(super) fn schedule(&mut self, key: Key) {
        let Some(Slot::Connection(link)) = self.slots.get_mut(key) else {
            return;
        };
        match link.connection.driver.has_more() {
            true => self.agenda.add_input(key),
            false => self.agenda.add(key, Due::Timer),
        }
        if link.connection.driver.lane().is_polled() {
            self.agenda.add(key, Due::Poll);
        }
        let writable = link.connection.wants_write();
        if writable != link.writable {
            link.writable = writable;
            // If the system refuses, the timers still advance the connection.
            let socket = link.connection.as_fd();
            let _ = self.poller.watch_room(socket, key, writable);
        }
    }
}

/// Advances a connection whose lane is not chosen yet, and watches the descriptors of the lane it has afterwards.
fn turn_undecided(link: &mut Link, key: Key, poller: &Poller) -> Result<(), DriverError> {
    poller.remove_lane(&link.connection);
    let turned = link.connection.driver.turn(Step::Whole);
    let watched = poller.add_lane(&link.connection, key);
    turned?;
    watched.map_err(DriverError::Io)
}

/// Delivers completions to handles or to the user. False if there was no room for all of them. Data that handles have
/// not asked for counts as unread: a peer that sends more of it waits, and nothing else does.
fn deliver(
    link: &mut Link,
    id: ConnectionId,
    events: &mut std::collections::VecDeque<Event>,
) -> bool {
    // Data on its way from the driver to the handles is counted in neither, so until then the count is the maximum.
    link.connection.set_unread_of_handles(limits::MAX_UNREAD);
    let drained = give_out(link, id, events);
    link.report_unread();
    drained
}

fn give_out(
    link: &mut Link,
    id: ConnectionId,
    events: &mut std::collections::VecDeque<Event>,
) -> bool {
    loop {
        if events.len() >= MAX_EVENTS {
            return !link.connection.driver.has_completion();
        }
        let Some(completion) = link.connection.next_whole() else {
            link.claims.post_waiting(&mut link.connection);
            // A request posted just now may already be complete.
            match link.connection.driver.has_completion() {
                true => continue,
                false => return true,
            }
        };
        if let Some(completion) = link.claims.deliver(completion) {
            events.push_back(Event::Completed {
                connection: id,
                completion,
            });
        }
    }
}

/// Reports once a Transfer that no receive matches.
fn report_announced(
    link: &mut Link,
    id: ConnectionId,
    events: &mut std::collections::VecDeque<Event>,
) {
    match link.connection.driver.announced() {
        Some(length) if !link.announced && !link.claims.is_handled() => {
            link.announced = true;
            events.push_back(Event::Announced {
                connection: id,
                length,
            });
        }
        None => link.announced = false,
        Some(_) => {}
    }
}

/// Reports once that datagrams wait.
fn report_datagrams(
    link: &mut Link,
    id: ConnectionId,
    events: &mut std::collections::VecDeque<Event>,
) {
    let waits = link.connection.driver.has_datagram();
    if waits && !link.datagrams_told && !link.claims.is_handled() {
        events.push_back(Event::Datagrams { connection: id });
    }
    link.datagrams_told |= waits;
}

/// Takes the next step of ending a connection.
fn step(
    link: &mut Link,
    id: ConnectionId,
    drained: bool,
    events: &mut std::collections::VecDeque<Event>,
    agenda: &mut Agenda,
) -> Next {
    if link.is_flushed() {
        link.stage = Stage::Ending;
        link.connection.driver.close();
        agenda.add(id.0, Due::Turn);
    }
    let Some(reason) = link.connection.driver.closed() else {
        return Next::Stays;
    };
    if drained && link.stage != Stage::Told && !link.connection.driver.has_completion() {
        let reason = link.reason(reason);
        end(link, id, reason, events);
    }
    match link.connection.driver.life() {
        Life::Closed if link.stage == Stage::Told => Next::Ends,
        _ => Next::Stays,
    }
}

/// Reports the end, once.
fn end(
    link: &mut Link,
    id: ConnectionId,
    reason: Error,
    events: &mut std::collections::VecDeque<Event>,
) {
    if std::mem::replace(&mut link.stage, Stage::Told) == Stage::Told {
        return;
    }
    if link.claims.on_closed(&reason) {
        return;
    }
    events.push_back(Event::Closed {
        connection: id,
        reason,
    });
}
