//! A connection as its worker keeps it.

use super::claims::Claims;
use crate::{Connection, Error};
use std::time::{Duration, Instant};
use zerolane_lane::{CloseReason, SendingMark};

/// Where a connection stands for its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// [`Event::Connected`](super::Event::Connected) is to come. How long that may take, for the message.
    Connecting(Duration),
    Open,
    /// What was posted is being sent; then it disconnects.
    Flushing {
        /// When it does so in any case if it stands still at `mark`; `None`: never.
        until: Option<Instant>,
        mark: SendingMark,
    },
    /// It disconnects, or repeats its last word.
    Ending,
    /// Its last event was told.
    Told,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) connection: Connection,
    pub(super) stage: Stage,
    /// It is among those that are ready.
    pub(super) queued: bool,
    /// Something may have arrived; else it was posted to, or a timer is due.
    pub(super) readable: bool,
    /// It is among those that may owe something.
    pub(super) restless: bool,
    /// It is among those whose descriptor says nothing of what arrives.
    pub(super) awake: bool,
    /// It is among those whose completions found no room.
    pub(super) starved: bool,
    /// Its socket is watched for room to send.
    pub(super) writable: bool,
    /// It is among those whose next timer is not in the heap yet.
    pub(super) untimed: bool,
    /// Its earliest timer in the heap.
    pub(super) armed: Option<Instant>,
    /// The user was told of a Transfer without a receive.
    pub(super) announced: bool,
    /// What handles wait for.
    pub(super) claims: Claims,
}

impl Link {
    pub(super) fn connecting(connection: Connection, timeout: Duration) -> Link {
        Link {
            stage: Stage::Connecting(timeout),
            ..Link::open(connection)
        }
    }

    pub(super) fn open(connection: Connection) -> Link {
        Link {
            connection,
            stage: Stage::Open,
            queued: false,
            readable: true,
            restless: false,
            awake: false,
            starved: false,
            writable: false,
            untimed: false,
            armed: None,
            announced: false,
            claims: Claims::default(),
        }
    }

    /// Has the peer wait while handles have much to ask for.
    pub(super) fn tell_unasked(&mut self) {
        self.connection.set_unasked(self.claims.unasked());
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

    /// Whether what was posted is sent, or comes no further: it is time to disconnect.
    pub(super) fn is_flushed(&mut self) -> bool {
        let Stage::Flushing { until, mark } = self.stage else {
            return false;
        };
        if self.connection.driver.is_sending() {
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

    /// When it is due although nothing arrives.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let timer = self.connection.driver.next_timer();
        let timer = timer.and_then(|left| now.checked_add(left));
        let flushed = match self.stage {
            Stage::Flushing { until, .. } => until,
            _ => None,
        };
        timer.into_iter().chain(flushed).min()
    }

    /// Why it ended.
    pub(super) fn reason(&self, reason: CloseReason) -> Error {
        match (reason, self.stage) {
            (CloseReason::ConnectTimeout, Stage::Connecting(timeout)) => {
                Error::ConnectTimeout(timeout)
            }
            (reason, _) => Error::Closed(reason),
        }
    }
}
