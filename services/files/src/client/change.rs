//! Removes, renames and makes directories on the server (`rm`, `mv`, `mkdir`).

use super::{Client, PATIENCE, close};
use crate::error::{Error, Failure};
use crate::limits::STALL_SECONDS;
use crate::message::{RemoveOptions, Replace, Reply, Request};
use crate::observe::Observer;
use crate::opening::{hear, send};
use std::time::Duration;

/// Longest silence of a server at work, which reports every few seconds.
const AT_WORK: Duration = Duration::from_secs(STALL_SECONDS);

/// The results of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Files, links and directories removed; directories made; entries renamed.
    pub done: u64,
    /// Failures, each reported to the observer.
    pub failed: u64,
}

/// The part of a request that a server did since its last report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carried {
    pub(super) done: u64,
    /// How many of these files and links were moved to backups.
    pub(super) backed_up: u64,
}

impl Client {
    /// Removes what the paths match, which are patterns as in [`Client::get`]. Links are removed, not followed.
    ///
    /// # Errors
    /// Any error that ends the whole request: [`Error::Unanswered`] if the connection ended when part of it may have
    /// been done, other errors if nothing was. Single failures are reported to `observer`.
    pub fn remove(
        &self,
        paths: &[Vec<u8>],
        options: RemoveOptions,
        observer: &dyn Observer,
    ) -> Result<Changes, Error> {
        let paths = paths.to_vec();
        self.change(&Request::Delete { paths, options }, observer)
    }

    /// Makes directories. `parents` also makes missing parents, and accepts a directory that exists.
    ///
    /// # Errors
    /// As for [`Client::remove`].
    pub fn make_directories(
        &self,
        paths: &[Vec<u8>],
        parents: bool,
        observer: &dyn Observer,
    ) -> Result<Changes, Error> {
        let paths = paths.to_vec();
        self.change(&Request::MakeDirectories { paths, parents }, observer)
    }

    /// Renames `from` to `to`, or moves it into `to` if that is a directory. A directory is never replaced.
    ///
    /// # Errors
    /// As for [`Client::remove`].
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
        let timeout = self.transport.times.connect;
        self.carry_out(request, timeout, None, &mut |carried, failures| {
            changes.done += carried.done;
            changes.failed += failures.len() as u64;
            failures.iter().for_each(|it| observer.failed_remotely(it));
        })?;
        Ok(changes)
    }

    /// Connects within `timeout`, has the server carry out a request with its steps, and passes the results to `note`
    /// as they come.
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

/// Without the answer the result is unknown.
fn unanswered(source: Error) -> Error {
    match source {
        Error::Transport(_) | Error::Stalled => Error::Unanswered {
            source: Box::new(source),
        },
        broken => broken,
    }
}
