//! Copies over several connections at once: each has a share of the files, one more the directories.

use super::end::Done;
use super::repeated::Repeated;
use super::{Accepted, Client};
use crate::error::{Cause, Error, Failure};
use crate::limits::{LEAST_RATE, MAX_CONNECTIONS};
use crate::message::{CopyOptions, Landing, Totals};
use crate::observe::Observer;
use crate::persist::Copying;
use crate::share::Share;
use std::mem::{Discriminant, discriminant};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

/// The part of a copy that one connection, and its successors after a break, carry out.
pub(super) struct Assigned<'a> {
    pub(super) share: Share,
    pub(super) observer: &'a dyn Observer,
    /// The server's reply to the first connection of the copy; `None`: this is the first.
    accepted: Option<Started>,
    /// Where the first connection reports that reply.
    tell: Option<Sender<Started>>,
}

/// The start of a copy that the server accepted.
#[derive(Clone, Copy)]
struct Started {
    landing: Landing,
    boot: [u8; 16],
}

impl Assigned<'_> {
    /// The meaning of the destination: files made by the copy must not change it.
    pub(super) fn landing(&self) -> Landing {
        self.accepted
            .map_or(Landing::AsCp, |started| started.landing)
    }

    /// Records that the server accepted this connection.
    pub(super) fn accept(&mut self, accepted: &Accepted) {
        let started = Started {
            landing: accepted.landing,
            boot: accepted.boot,
        };
        self.accepted = Some(started);
        if let Some(tell) = self.tell.take() {
            // The copy may have ended meanwhile.
            let _ = tell.send(started);
        }
    }
}

impl Client {
    /// Copies over that many connections at once, from 1 to [`MAX_CONNECTIONS`] (larger numbers count as the maximum):
    /// for hosts and links that are faster than one core of either end can encrypt or decrypt. Each connection has two
    /// threads and its own buffers at either end. Files are assigned by their paths; one file uses one connection. A
    /// rate limit applies to all of them together: there are only as many connections as can have [`LEAST_RATE`] each.
    ///
    /// Only [`Client::put`] and [`Client::get`] use several, and not when they keep hard links, because all names of a
    /// file must use one connection. A one-time code admits a single connection.
    pub fn with_connections(mut self, connections: u16) -> Client {
        self.connections = connections.clamp(1, MAX_CONNECTIONS);
        self
    }

    /// The copy of one share, over all of its connections.
    pub(super) fn copying_share<'a>(&'a self, assigned: &Assigned<'a>) -> Copying<'a> {
        let mut copying = self.copying(assigned.observer);
        // The copy as a whole was accepted: a server that is full for now is not a refusal.
        copying.boot = assigned.accepted.map(|started| started.boot);
        copying
    }

    /// Calls `copy` for each share, on threads of their own if there are several. `files`: the most files that a copy
    /// without directories can have.
    pub(super) fn in_shares(
        &self,
        options: &CopyOptions,
        files: usize,
        observer: &dyn Observer,
        copy: impl Fn(&Client, Assigned<'_>) -> Result<Totals, Error> + Sync,
    ) -> Result<Totals, Error> {
        let most = match (options.recursive, options.attributes.hard_links) {
            // A file's other names must be linked by the connection that wrote the file.
            (_, true) => 1,
            (true, false) => u16::MAX,
            (false, false) => u16::try_from(files).unwrap_or(u16::MAX),
        };
        // No connection is limited to less than `LEAST_RATE`.
        let rate = self.transport.rate.max.unwrap_or(u64::MAX);
        let of_rate = u16::try_from(rate / LEAST_RATE).unwrap_or(u16::MAX);
        let of = self.connections.min(most).min(of_rate);
        if of <= 1 {
            let whole = Assigned {
                share: Share::Whole,
                observer,
                accepted: None,
                tell: None,
            };
            return copy(self, whole);
        }
        let together = Together::new(observer, of);
        let (started, totals) = self.files_in_shares(&together, of, &copy)?;
        if !options.recursive {
            return Ok(together.counted_once(totals));
        }
        let directories = Assigned {
            share: Share::Directories,
            observer: &together.share(of),
            accepted: Some(started),
            tell: None,
        };
        let settled = copy(self, directories)?;
        together.ended(&settled);
        Ok(together.counted_once(totals.plus(settled)))
    }

    /// Copies the files and links. When a share ends with an error, the others end, too.
    fn files_in_shares(
        &self,
        together: &Together<'_>,
        of: u16,
        copy: &(impl Fn(&Client, Assigned<'_>) -> Result<Totals, Error> + Sync),
    ) -> Result<(Started, Totals), Error> {
        let client = self.for_shares(of);
        let run = |index, accepted, tell| {
            let observer = together.share(index);
            let share = Share::Files { index, of };
            let copied = copy(
                &client,
                Assigned {
                    share,
                    observer: &observer,
                    accepted,
                    tell,
                },
            );
            copied
                .inspect(|totals| together.ended(totals))
                .inspect_err(|_| client.stop.request())
        };
        thread::scope(|scope| {
            let start = |index, accepted, tell| {
                thread::Builder::new()
                    .name("copy".into())
                    .spawn_scoped(scope, move || run(index, accepted, tell))
                    .map_err(|_| {
                        client.stop.request();
                        Error::NoThread
                    })
            };
            let (tell, told) = channel();
            let first = start(0, None, Some(tell))?;
            // The others start after the server has accepted the first connection, which alone decides the meaning of
            // the destination.
            let Ok(started) = told.recv() else {
                return Err(join(first).err().unwrap_or(Error::Internal));
            };
            let others = (1..of).map(|index| start(index, Some(started), None));
            let mut shares = vec![Ok(first)];
            shares.extend(others);
            let ended = shares.into_iter().map(|share| share.and_then(join));
            Ok((started, sum(ended)?))
        })
    }

    /// A client for the shares: they stop together and divide the rate, and none of them reports the end of the copy.
    fn for_shares(&self, of: u16) -> Client {
        let mut client = self.clone().with_stop(self.stop.of_part());
        let max_rate = client.transport.rate.max;
        client.transport.rate.max = max_rate.map(|it| it / u64::from(of));
        // The end of one share is not the end of the copy.
        client.done = Done::default();
        client
    }
}

fn join(share: ScopedJoinHandle<'_, Result<Totals, Error>>) -> Result<Totals, Error> {
    share.join().unwrap_or(Err(Error::Internal))
}

/// The sum of the totals, or the error that stopped the other shares.
fn sum(ended: impl Iterator<Item = Result<Totals, Error>>) -> Result<Totals, Error> {
    ended
        .reduce(|so_far, this| match (so_far, this) {
            (Ok(so_far), Ok(this)) => Ok(so_far.plus(this)),
            (Err(Error::Stopped), Err(why)) | (Err(why), _) | (_, Err(why)) => Err(why),
        })
        .unwrap_or(Err(Error::Internal))
}

/// Merges the reports of all shares into those of one copy.
struct Together<'a> {
    observer: &'a dyn Observer,
    state: Mutex<State>,
}

struct State {
    /// Bytes that each share read or wrote.
    done: Vec<u64>,
    not_kept: Vec<(Discriminant<Cause>, bool)>,
    repeated: Repeated,
    /// Most failures of one share.
    most_failed: u64,
}

impl<'a> Together<'a> {
    fn new(observer: &'a dyn Observer, of: u16) -> Together<'a> {
        let state = State {
            done: vec![0; usize::from(of) + 1],
            not_kept: Vec::new(),
            repeated: Repeated::default(),
            most_failed: 0,
        };
        Together {
            observer,
            state: Mutex::new(state),
        }
    }

    fn share(&self, index: u16) -> OfShare<'_> {
        OfShare {
            together: self,
            index: usize::from(index),
        }
    }

    /// Records that a share is done.
    fn ended(&self, totals: &Totals) {
        let mut state = self.state();
        state.most_failed = state.most_failed.max(totals.failed);
    }

    /// The totals of all shares, without failures that several shares met. Failures are never fewer than one share had:
    /// after an outage a file that it reported may have been copied after all.
    fn counted_once(&self, all: Totals) -> Totals {
        let state = self.state();
        let (again, gone_again) = state.repeated.count();
        let failed = all.failed.saturating_sub(again);
        Totals {
            failed: failed.max(state.most_failed),
            vanished: all.vanished.saturating_sub(gone_again),
            ..all
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports of one share.
struct OfShare<'a> {
    together: &'a Together<'a>,
    index: usize,
}

impl OfShare<'_> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.together.state()
    }
}

impl Observer for OfShare<'_> {
    fn counted(&self, files: u64, bytes: u64) {
        self.together.observer.counted(files, bytes);
    }

    fn file_started(&self, path: &[u8], size: u64) {
        self.together.observer.file_started(path, size);
    }

    fn advanced(&self, bytes: u64) {
        let mut state = self.state();
        state.done[self.index] += bytes;
        self.together.observer.advanced(bytes);
    }

    fn skipped(&self, path: &[u8]) {
        self.together.observer.skipped(path);
    }

    fn failed(&self, failure: &Failure) {
        if self.state().repeated.is_news(self.index, failure, false) {
            self.together.observer.failed(failure);
        }
    }

    fn failed_remotely(&self, failure: &Failure) {
        if self.state().repeated.is_news(self.index, failure, true) {
            self.together.observer.failed_remotely(failure);
        }
    }

    fn not_kept(&self, failure: &Failure, there: bool) {
        let kind = (discriminant(&failure.cause), there);
        let mut state = self.state();
        if !state.not_kept.contains(&kind) {
            state.not_kept.push(kind);
            self.together.observer.not_kept(failure, there);
        }
    }

    fn interrupted(&self, why: &Error, left: Duration) {
        self.together.observer.interrupted(why, left);
    }

    fn waiting(&self, left: Duration) {
        self.together.observer.waiting(left);
    }

    fn reconnected(&self, outage: Duration, bytes: u64) {
        let mut state = self.state();
        state.done[self.index] = bytes;
        let all = state.done.iter().sum();
        self.together.observer.reconnected(outage, all);
    }
}

#[cfg(test)]
#[path = "shares_tests.rs"]
mod tests;
