//! Holds a worker's state of one connection.

use super::claims::Claims;
use super::others::Others;
use super::{ConnectionId, Event};
use crate::connection::Connection;
use crate::error::Error;
use std::time::{Duration, Instant};
use zerolane_lane::{CloseReason, SendingMark};

/// The life of a connection, as its worker sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// [`Event::Connected`](super::Event::Connected) has not been reported. The value is the connect timeout, for the
    /// error message.
    Connecting(Duration),
    Open,
    /// Posted sends are being completed; then it disconnects.
    Flushing {
        /// When to disconnect if there is no progress since `mark`; `None`: never.
        until: Option<Instant>,
        mark: SendingMark,
    },
    /// It is disconnecting, or repeats its last packet.
    Ending,
    /// Its last event was reported.
    Told,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) connection: Connection,
    pub(super) stage: Stage,
    /// Whether its socket is watched for room to send.
    pub(super) writable: bool,
    /// The addresses to try if this one does not answer.
    pub(super) others: Option<Box<Others>>,
    /// The user was told of a Transfer without a receive.
    pub(super) announced: bool,
    /// The user was told that datagrams wait.
    pub(super) datagrams_told: bool,
    /// The requests and waits of its handles.
    pub(super) claims: Claims,
}

impl Link {
    /// A connection that is being made with `others.options`.
    pub(super) fn connecting(connection: Connection, others: Others) -> Link {
        Link {
            stage: Stage::Connecting(others.options.times.connect),
            others: Some(Box::new(others)),
            ..Link::open(connection)
        }
    }

    pub(super) fn open(connection: Connection) -> Link {
        Link {
            connection,
            stage: Stage::Open,
            writable: false,
            others: None,
            announced: false,
            datagrams_told: false,
            claims: Claims::default(),
        }
    }

    /// Makes the peer wait while much received data is kept for handles.
    pub(super) fn report_unread(&mut self) {
        self.connection.set_unread_of_handles(self.claims.unread());
    }

    /// Gives an event of this connection, `id`, to its handle. Returns the event of another, and the last of this one.
    pub(super) fn take_event(&mut self, id: ConnectionId, event: Event) -> Option<Event> {
        match event {
            Event::Completed {
                connection,
                completion,
            } if connection == id => {
                let none = self.claims.deliver(completion);
                debug_assert!(none.is_none(), "it has a handle");
                None
            }
            Event::Accepted { connection, .. }
            | Event::Requested { connection, .. }
            | Event::Connected { connection }
            | Event::Announced { connection, .. }
            | Event::Datagrams { connection }
                if connection == id =>
            {
                None
            }
            event => Some(event),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    pub(super) fn begin_to_close(&mut self) {
        if matches!(self.stage, Stage::Connecting(_) | Stage::Open) {
            self.flush_from_here();
        }
    }

    fn flush_from_here(&mut self) {
        self.stage = Stage::Flushing {
            until: Instant::now().checked_add(self.connection.linger()),
            mark: self.connection.driver.sending_mark(),
        };
    }

    /// Whether posted sends are done or make no progress, so that it is time to disconnect.
    pub(super) fn is_flushed(&mut self) -> bool {
        let Stage::Flushing { until, mark } = self.stage else {
            return false;
        };
        if self.connection.is_sending() {
            if until.is_none_or(|until| Instant::now() < until) {
                return false;
            }
            if self.connection.driver.sending_mark() != mark {
                self.flush_from_here();
                return false;
            }
        }
        true
    }

    /// When the connection must be advanced although nothing arrives.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let timer = self.connection.driver.next_timer();
        let timer = timer.and_then(|left| now.checked_add(left));
        let flushed = match self.stage {
            Stage::Flushing { until, .. } => until,
            _ => None,
        };
        timer.into_iter().chain(flushed).min()
    }

    /// The error for the end of the connection.
    pub(super) fn reason(&self, reason: CloseReason) -> Error {
        match (reason, self.stage) {
            (CloseReason::ConnectTimeout, Stage::Connecting(timeout)) => {
                Error::ConnectTimeout(timeout)
            }
            (reason, _) => Error::Closed(reason),
        }
    }
}
