//! Counts the results of a request's parts and reports them to the client.

use super::session::Session;
use crate::error::{Error, Failure};
use crate::limits::{CONTROL_BYTES, FEEDBACK_FAILURES, REMOVING_SECONDS, REPORT_PATH_BYTES};
use crate::message::Reply;
use crate::sync::remove::Removed;
use std::time::{Duration, Instant};
use zerolane::Connection;

// A reply with failures must fit its message.
const _: () = assert!(FEEDBACK_FAILURES * (REPORT_PATH_BYTES + 64) < CONTROL_BYTES);

/// Reports successes and failures to the client every few seconds.
pub(super) struct Tally<'s, 'o> {
    session: &'s Session<'o>,
    connection: &'s mut Connection,
    done: u64,
    backed_up: u64,
    failures: Vec<Failure>,
    said: Instant,
}

impl<'s, 'o> Tally<'s, 'o> {
    pub(super) fn new(session: &'s Session<'o>, connection: &'s mut Connection) -> Tally<'s, 'o> {
        Tally {
            session,
            connection,
            done: 0,
            backed_up: 0,
            failures: Vec::new(),
            said: Instant::now(),
        }
    }

    /// Records the result of one part.
    pub(super) fn tell(&mut self, outcome: Result<(), Failure>) -> Result<(), Error> {
        match outcome {
            Ok(()) => self.done += 1,
            Err(failure) => {
                let session = self.session;
                session.observer.failed(&session.peer, &failure);
                self.failures.push(failure);
            }
        }
        let quiet = self.said.elapsed() < Duration::from_secs(REMOVING_SECONDS);
        match quiet && self.failures.len() < FEEDBACK_FAILURES {
            true => Ok(()),
            false => self.say(false),
        }
    }

    /// Records the result of one removal of a sync.
    pub(super) fn tell_removed(&mut self, outcome: Result<Removed, Failure>) -> Result<(), Error> {
        self.backed_up += u64::from(outcome == Ok(Removed::BackedUp));
        self.tell(outcome.map(drop))
    }

    /// Sends the final report.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        self.say(true)
    }

    fn say(&mut self, last: bool) -> Result<(), Error> {
        self.said = Instant::now();
        let reply = Reply::Done {
            done: std::mem::take(&mut self.done),
            backed_up: std::mem::take(&mut self.backed_up),
            failures: std::mem::take(&mut self.failures),
            last,
        };
        self.session.say(self.connection, &reply)
    }
}
