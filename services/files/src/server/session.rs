//! Serves one connection: reads the client's request, checks its rights, dispatches it.

use super::Served;
use super::queues::Queues;
use super::turns::Turns;
use crate::digest::Digester;
use crate::error::{Cause, Error, Failure, Refusal};
use crate::limits::{LEAST_RATE, REPLY_SECONDS, REQUEST_SECONDS};
use crate::message::{Landing, Reply, Request, Totals};
use crate::observe::{Observer, Peer, ServerObserver, Spent, Verb};
use crate::opening::{hear, post, say, sent};
use crate::reached::Reached;
use crate::root::Root;
use crate::stop::Stop;
use crate::target::Sources;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zerolane::security::PublicKey;
use zerolane::{Connection, RequestId};

/// One connection and its rights.
pub(super) struct Session<'a> {
    pub(super) served: Served,
    /// The server is read-only.
    pub(super) read_only: bool,
    /// The client has the right to write.
    pub(super) may_write: bool,
    pub(super) stop: Stop,
    pub(super) observer: &'a dyn ServerObserver,
    pub(super) peer: Arc<Peer>,
    /// The client's key, if it is the same in every connection.
    pub(super) key: Option<PublicKey>,
    pub(super) turns: &'a Turns,
    /// The boot ID of this system.
    pub(super) boot: [u8; 16],
    /// Most bytes of payload per second, each way.
    pub(super) max_rate: Option<u64>,
    pub(super) spent: Mutex<Spent>,
    pub(super) queues: &'a Queues,
}

impl Session<'_> {
    /// Serves the connection; returns whether everything went as the client asked.
    pub(super) fn serve(&self, mut connection: Connection) -> bool {
        let started = Instant::now();
        let outcome = match self.answer(&mut connection, started) {
            Err(Error::Stopped) if self.stop.requested_here() => Err(Error::Revoked),
            outcome => outcome,
        };
        self.observer.spent(&self.peer, &self.spent(started));
        self.observer
            .ended(&self.peer, &outcome, &connection.account());
        let _ = connection.close();
        outcome.is_ok()
    }

    fn answer(
        &self,
        connection: &mut Connection,
        started: Instant,
    ) -> Result<Option<Totals>, Error> {
        let heard = self.hear_request(connection);
        self.heard(started);
        let request = match heard {
            Ok(request) => request,
            Err(error @ (Error::NotFileService | Error::Version { .. } | Error::Protocol(_))) => {
                // The reply carries our version, so that a client of another version can report it.
                let _ = self.say(connection, &Reply::Refused(Refusal::Malformed));
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        self.tell_asked(&request);
        match request {
            Request::Put {
                destination,
                sources,
                contents,
                landing,
                share,
                options,
                digester,
            } => {
                let sources = Sources {
                    count: sources,
                    contents,
                    device: options.in_place,
                };
                let turn = self.take_turn(&digester)?;
                self.put(
                    connection,
                    (&destination, landing, sources),
                    (share, options),
                    (digester.accept(), &turn),
                )
                .map(Some)
            }
            Request::Get {
                sources,
                share,
                options,
                filter,
                digester,
                from,
                started,
            } => {
                let reached = Reached {
                    position: from,
                    started,
                    ..Reached::default()
                };
                let turn = self.take_turn(&digester)?;
                let digester = (digester.accept(), &turn);
                let what = (&sources[..], &filter[..]);
                self.get(connection, what, (share, options), digester, reached)
                    .map(Some)
            }
            Request::List { paths, options } => {
                self.list(connection, &paths, options).map(|()| None)
            }
            Request::Walk {
                path,
                may_be_missing,
                digests,
                copy_links,
                attributes,
                filter_files,
                digester,
            } => {
                let turn = self.take_turn(&digester)?;
                let digester = (digester.accept(), &turn);
                let what = (may_be_missing, digests, copy_links, attributes);
                self.walk(connection, &path, (what, filter_files), digester)
                    .map(|()| None)
            }
            Request::Update {
                destination,
                options,
                backup,
                link_dest,
                digester,
            } => {
                let turn = self.take_turn(&digester)?;
                let digester = (digester.accept(), &turn);
                let destination = (&destination[..], backup.as_ref(), &link_dest[..]);
                self.update(connection, destination, options, digester)
                    .map(Some)
            }
            Request::Fetch {
                source,
                options,
                digester,
                started,
            } => {
                let turn = self.take_turn(&digester)?;
                let digester = (digester.accept(), &turn);
                self.fetch(connection, &source, options, digester, started)
                    .map(Some)
            }
            Request::Remove {
                path,
                backup,
                digester,
            } => {
                let turn = self.take_turn(&digester)?;
                self.remove(connection, (&path, backup.as_ref()), &turn)
                    .map(|()| None)
            }
            Request::Read {
                source,
                digester,
                from,
                allow_changing,
            } => {
                let turn = self.take_turn(&digester)?;
                let digester = (digester.accept(), &turn);
                self.read(connection, (&source, allow_changing), digester, from)
                    .map(Some)
            }
            Request::Delete { paths, options } => {
                self.delete(connection, &paths, options).map(|()| None)
            }
            Request::MakeDirectories { paths, parents } => self
                .make_directories(connection, &paths, parents)
                .map(|()| None),
            Request::Rename { from, to, replace } => {
                self.rename(connection, &from, &to, replace).map(|()| None)
            }
            Request::Ranges => self.ranges(connection).map(|()| None),
            Request::Decline => Err(Error::Declined),
            Request::AskOffer | Request::Limit { .. } => {
                self.refuse(connection, Refusal::Malformed)
            }
        }
    }

    /// Receives the client's request. A rate limit may come before it.
    fn hear_request(&self, connection: &mut Connection) -> Result<Request, Error> {
        let patience = Duration::from_secs(REQUEST_SECONDS);
        let max_rate = match hear(connection, &self.stop, patience)? {
            Request::Limit { max_rate } => max_rate.max(LEAST_RATE),
            request => return Ok(request),
        };
        let own = self.max_rate.unwrap_or(u64::MAX);
        connection.set_max_rate(Some(own.min(max_rate)));
        hear(connection, &self.stop, patience)
    }

    /// The served directory. An offer has no paths.
    pub(super) fn root(&self) -> Result<&Root, Cause> {
        match &self.served {
            Served::Below(root) => Ok(root),
            Served::Offered(_) => Err(Cause::OutsideRoot),
        }
    }

    /// The served directory for a request of these paths, which is refused if there is none.
    pub(super) fn root_for(
        &self,
        connection: &mut Connection,
        paths: &[Vec<u8>],
    ) -> Result<&Root, Error> {
        let path = paths.first().map_or(&b""[..], Vec::as_slice);
        match self.root() {
            Ok(root) => Ok(root),
            Err(cause) => self.refuse_path(connection, path, cause),
        }
    }

    /// Announces that a request is going to be carried out. Nothing is done before the client has received that.
    pub(super) fn begin(&self, connection: &mut Connection) -> Result<(), Error> {
        let nothing_yet = Reply::Done {
            done: 0,
            backed_up: 0,
            failures: Vec::new(),
            last: false,
        };
        self.say(connection, &nothing_yet)
    }

    /// Refuses a client that may not write here.
    pub(super) fn check_writable(&self, connection: &mut Connection) -> Result<(), Error> {
        if self.read_only {
            return self.refuse(connection, Refusal::ReadOnly);
        }
        match self.may_write {
            true => Ok(()),
            false => self.refuse(connection, Refusal::ReadOnlyKey),
        }
    }

    /// Accepts the request. The replies may still be in flight when this returns, because later messages need not wait
    /// for them.
    pub(super) fn accept(
        &self,
        connection: &mut Connection,
        digester: &Digester,
        landing: Landing,
    ) -> Result<Vec<RequestId>, Error> {
        let mut replies = Vec::new();
        if let Some(max_rate) = self.max_rate {
            replies.push(post(connection, &Reply::Limit { max_rate })?);
        }
        let accepted = Reply::Accepted {
            algorithm: digester.algorithm(),
            landing,
            boot: self.boot,
        };
        replies.push(post(connection, &accepted)?);
        Ok(replies)
    }

    /// Waits until the client has received these.
    pub(super) fn sent(
        &self,
        connection: &mut Connection,
        replies: &[RequestId],
    ) -> Result<(), Error> {
        let patience = Duration::from_secs(REPLY_SECONDS);
        let mut replies = replies.iter();
        replies.try_for_each(|_| sent(connection, &self.stop, patience))
    }

    pub(super) fn say(&self, connection: &mut Connection, reply: &Reply) -> Result<(), Error> {
        let patience = Duration::from_secs(REPLY_SECONDS);
        say(connection, reply, &self.stop, patience)
    }

    pub(super) fn refuse<T>(
        &self,
        connection: &mut Connection,
        refusal: Refusal,
    ) -> Result<T, Error> {
        self.say(connection, &Reply::Refused(refusal.clone()))?;
        Err(refusal.into())
    }

    /// Refuses a path, with the reason.
    pub(super) fn refuse_path<T>(
        &self,
        connection: &mut Connection,
        path: &[u8],
        cause: Cause,
    ) -> Result<T, Error> {
        let path = path.to_vec();
        self.refuse(connection, Refusal::Path { path, cause })
    }

    fn tell_asked(&self, request: &Request) {
        let both: [Vec<u8>; 2];
        let (verb, paths) = match request {
            Request::Put { destination, .. } => (Verb::Write, std::slice::from_ref(destination)),
            Request::Get { sources, .. } => (Verb::Read, &sources[..]),
            Request::List { paths, .. } => (Verb::List, &paths[..]),
            Request::Walk { path, .. } => (Verb::Compare, std::slice::from_ref(path)),
            Request::Update { destination, .. } => (Verb::Write, std::slice::from_ref(destination)),
            Request::Fetch { source, .. } => (Verb::Read, std::slice::from_ref(source)),
            Request::Remove { path, .. } => (Verb::Remove, std::slice::from_ref(path)),
            Request::Read { source, .. } => (Verb::Read, std::slice::from_ref(source)),
            Request::Delete { paths, .. } => (Verb::Remove, &paths[..]),
            Request::MakeDirectories { paths, .. } => (Verb::Make, &paths[..]),
            Request::Rename { from, to, .. } => {
                both = [from.clone(), to.clone()];
                (Verb::Rename, &both[..])
            }
            // Each file that is read is reported.
            Request::AskOffer | Request::Decline | Request::Limit { .. } | Request::Ranges => {
                return;
            }
        };
        self.observer.requested(&self.peer, verb, paths);
    }
}

/// Passes on reports about its files.
impl Observer for Session<'_> {
    fn advanced(&self, bytes: u64) {
        self.observer.advanced(&self.peer, bytes);
    }

    fn skipped(&self, path: &[u8]) {
        self.observer.skipped(&self.peer, path);
    }

    fn failed(&self, failure: &Failure) {
        self.observer.failed(&self.peer, failure);
    }
}
