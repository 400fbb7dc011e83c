//! Changes to the served tree that need no files from here: `rm`, `mkdir` and `mv` as functions.

use super::{Client, PATIENCE, close};
use crate::error::{Error, Failure};
use crate::limits::STALL_SECONDS;
use crate::message::{RemoveOptions, Replace, Reply, Request};
use crate::observe::Observer;
use crate::opening::{hear, send};
use std::time::Duration;

/// A server that is at work says so every few seconds.
const AT_WORK: Duration = Duration::from_secs(STALL_SECONDS);

/// How much was changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// What was done: files, links and directories removed; directories made; what was renamed.
    pub done: u64,
    /// What was not, each told to the observer.
    pub failed: u64,
}

/// What a server has done of a request since it said so last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carried {
    pub(super) done: u64,
    /// Of these, files and links that were moved to backups.
    pub(super) backed_up: u64,
}

impl Client {
    /// Removes what the paths name, which are patterns as in [`Client::get`]. Links are removed, not followed.
    ///
    /// # Errors
    /// Whatever ends all of it: [`Error::Unanswered`] if the connection ends when part of it may be done, another one if
    /// nothing is. What fails alone is told to `observer`.
    pub fn remove(
        &self,
        paths: &[Vec<u8>],
        options: RemoveOptions,
        observer: &dyn Observer,
    ) -> Result<Changes, Error> {
        let paths = paths.to_vec();
        self.change(&Request::Delete { paths, options }, observer)
    }

    /// Makes directories. With `parents` also those above that are not there, and one that is there is no failure.
    ///
    /// # Errors
    /// As [`Client::remove`].
    pub fn make_directories(
        &self,
        paths: &[Vec<u8>],
        parents: bool,
        observer: &dyn Observer,
    ) -> Result<Changes, Error> {
        let paths = paths.to_vec();
        self.change(&Request::MakeDirectories { paths, parents }, observer)
    }

    /// Gives what is at `from` the name `to`, or moves it into `to` if that is a directory. A directory is never
    /// replaced.
    ///
    /// # Errors
    /// As [`Client::remove`].
    pub fn rename(
        &self,
        from: &[u8],
        to: &[u8],
        replace: Replace,
        observer: &dyn Observer,
    ) -> Result<Changes, Error> {
        let (from, to) = (from.to_vec(), to.to_vec());
        self.change(&Request::Rename { from, to, replace }, observer)
    }

    fn change(&self, request: &Request, observer: &dyn Observer) -> Result<Changes, Error> {
        let mut changes = Changes::default();
        let timeout = self.transport.connect_timeout;
        self.carry_out(request, timeout, None, &mut |carried, failures| {
            changes.done += carried.done;
            changes.failed += failures.len() as u64;
            failures.iter().for_each(|it| observer.failed_there(it));
        })?;
        Ok(changes)
    }

    /// Connects within `timeout`, has the server carry out a request, with the steps that it needs, and tells `note` what came of it as that comes:
    /// what was done, and what was not.
    pub(super) fn carry_out(
        &self,
        request: &Request,
        timeout: Duration,
        steps: Option<Vec<u8>>,
        note: &mut dyn FnMut(Carried, &[Failure]),
    ) -> Result<(), Error> {
        let mut connection = self.begin(request, timeout)?;
        if let Some(steps) = steps {
            send(&mut connection, steps, &self.stop, PATIENCE)?;
        }
        loop {
            match hear(&mut connection, &self.stop, AT_WORK).map_err(unanswered)? {
                Reply::Done {
                    done,
                    backed_up,
                    failures,
                    last,
                } => {
                    note(Carried { done, backed_up }, &failures);
                    if last {
                        close(connection);
                        return Ok(());
                    }
                }
                Reply::Refused(refusal) => return Err(refusal.into()),
                Reply::Accepted { .. } | Reply::Limit { .. } | Reply::Offer { .. } => {
                    return Err(Error::Protocol("accepts what it is doing already"));
                }
            }
        }
    }
}

/// Without the answer it is not known what was done.
fn unanswered(source: Error) -> Error {
    match source {
        Error::Transport(_) | Error::Stalled => Error::Unanswered {
            source: Box::new(source),
        },
        broken => broken,
    }
}
