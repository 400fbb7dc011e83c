//! Calls each host: offers the content, sends the group's secret, and receives the host's result.
//!
//! A host that does not answer, or whose connection breaks, is called again until the cast ends: it may start late, or
//! restart.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zerolane::failure::{CloseReason, Reason};
use zerolane::request::WorkKind;
use zerolane::security::PublicKey;
use zerolane::worker::{ConnectionId, Event, Worker};
use zerolane::{Error, Options};
use zerolane_cast::NodeId;

use super::{Host, HostOutcome, Invited};
use crate::content::Content;
use crate::invitation::{Call, Word, listen, parse, say, shown};
use crate::limits::{CALL_AGAIN, CALL_TIMEOUT, CALLS, FINISHING, LEAST_RATE};

/// The information for a host that takes part.
pub(super) struct Group {
    pub(super) secret: [u8; 32],
    pub(super) key: PublicKey,
    pub(super) port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is called at this time.
    Due(Instant),
    /// The host was called, and has not answered whether it takes part.
    Called(ConnectionId),
    /// The host received the group's data.
    Told,
    Over,
}

struct Called {
    host: Host,
    /// Which of its addresses is called.
    at: usize,
    rack: u32,
    stage: Stage,
    /// The connection on which its result arrives. It stays open while the host is called again, because the host may
    /// still be alive.
    heard: Option<ConnectionId>,
    /// Its node at present.
    node: Option<NodeId>,
    /// Its node takes part.
    joined: bool,
    /// Its node has all.
    done: bool,
    /// The hosts that it received from then, by stripe.
    from: Vec<Option<String>>,
    /// How it ended for good, and when.
    result: Option<(Result<(), String>, Instant)>,
    /// The last problem.
    trouble: Option<String>,
    /// Chunks of an earlier try that it has looked at, and when it had looked at more than before.
    looked: Option<(u64, Instant)>,
    /// When it said first and last that it puts all in its place.
    finishing: Option<(Instant, Instant)>,
    /// It was said to lie.
    accused: Option<String>,
}

impl Called {
    /// Where it is called.
    fn address(&self) -> Option<SocketAddr> {
        self.host.addresses.as_ref().ok()?.get(self.at).copied()
    }

    /// Handles a host that does not answer at this address. After all addresses were tried, the problem is recorded,
    /// and they are tried again.
    fn try_next(&mut self, why: String) {
        self.at += 1;
        let now = Instant::now();
        let due = match self.address() {
            Some(_) => now,
            None => {
                self.at = 0;
                self.trouble = Some(why);
                now + CALL_AGAIN
            }
        };
        self.stage = Stage::Due(due);
    }
}

pub(super) struct Calls {
    hosts: Vec<Called>,
    offer: Call,
    /// Bytes of the content.
    bytes: u64,
    chunk_bytes: u64,
    group: Group,
    invited: Arc<Invited>,
    /// How many are expected has changed.
    changed: bool,
}

impl Calls {
    pub(super) fn new(
        hosts: impl Iterator<Item = (Host, u32)>,
        content: &Content,
        invited: Arc<Invited>,
        group: Group,
    ) -> Calls {
        let now = Instant::now();
        let hosts = hosts.map(|(host, rack)| {
            let result = match &host.addresses {
                Ok(some) if some.is_empty() => Some((Err("it has no address".into()), now)),
                Ok(_) => None,
                Err(why) => Some((Err(why.clone()), now)),
            };
            let stage = if result.is_some() {
                Stage::Over
            } else {
                Stage::Due(now)
            };
            Called {
                host,
                at: 0,
                rack,
                stage,
                heard: None,
                node: None,
                joined: false,
                done: false,
                from: Vec::new(),
                result,
                trouble: None,
                looked: None,
                finishing: None,
                accused: None,
            }
        });
        Calls {
            hosts: hosts.collect(),
            offer: Call::Offer(content.offer()),
            bytes: content.bytes(),
            chunk_bytes: u64::from(content.chunk_bytes()),
            group,
            invited,
            changed: true,
        }
    }

    /// Calls the hosts that are due.
    pub(super) fn begin(&mut self, worker: &mut Worker) {
        let now = Instant::now();
        let talking = self
            .hosts
            .iter()
            .filter(|it| matches!(it.stage, Stage::Called(_)))
            .count();
        let due = self
            .hosts
            .iter_mut()
            .filter(|it| matches!(it.stage, Stage::Due(at) if at <= now));
        for called in due.take(CALLS.saturating_sub(talking)) {
            let Some(address) = called.address() else {
                continue;
            };
            let options = Options::default().with(|it| {
                it.security = called.host.security.clone();
                it.times.connect = CALL_TIMEOUT;
            });
            match worker.connect(address, &options) {
                Ok(connection) => called.stage = Stage::Called(connection),
                Err(error) => called.try_next(error.to_string()),
            }
        }
    }

    fn of(&self, connection: ConnectionId) -> Option<usize> {
        let on =
            |it: &Called| it.stage == Stage::Called(connection) || it.heard == Some(connection);
        self.hosts.iter().position(on)
    }

    /// Handles an event of one of its connections. Ignores other connections.
    pub(super) fn take(&mut self, worker: &mut Worker, event: Event) {
        match event {
            Event::Connected { connection } if self.of(connection).is_some() => {
                say(worker, connection, &self.offer);
                // A connection that is over tells so by itself.
                let _ = listen(worker, connection);
            }
            Event::Completed {
                connection,
                completion,
            } if completion.kind() == WorkKind::Receive => {
                if let (Some(index), Ok(len)) = (self.of(connection), completion.result)
                    && let Ok(region) = completion.into_region()
                {
                    let word = parse::<Word>(&region[..len]);
                    self.hear(worker, index, connection, word);
                }
            }
            Event::Closed { connection, reason } => {
                if let Some(index) = self.of(connection) {
                    self.lose(index, connection, &reason);
                }
            }
            _ => {}
        }
    }

    fn hear(
        &mut self,
        worker: &mut Worker,
        index: usize,
        connection: ConnectionId,
        word: Option<Word>,
    ) {
        match word {
            Some(Word::Joins(key)) if self.hosts[index].stage == Stage::Called(connection) => {
                let node = NodeId::of_key(&key);
                if self
                    .hosts
                    .iter()
                    .enumerate()
                    .any(|(at, it)| at != index && it.node == Some(node))
                {
                    self.end(worker, index, Err("it uses another host's key".into()));
                    return;
                }
                self.invited.add(PublicKey(key));
                let called = &mut self.hosts[index];
                if called.node != Some(node) {
                    (called.node, called.joined) = (Some(node), false);
                    // It begins anew, and looks at what there is from the start on.
                    (called.looked, called.finishing) = (None, None);
                }
                called.stage = Stage::Told;
                let rack = called.rack;
                if let Some(before) = called.heard.replace(connection) {
                    worker.close(before);
                }
                let Group { secret, key, port } = self.group;
                say(
                    worker,
                    connection,
                    &Call::Group {
                        secret,
                        key: key.0,
                        port,
                        rack,
                    },
                );
                let _ = listen(worker, connection);
            }
            Some(Word::Looks(bytes)) if self.hosts[index].heard == Some(connection) => {
                // Of less than a chunk at a time it could tell without end.
                let called = &mut self.hosts[index];
                let chunks = bytes.min(self.bytes) / self.chunk_bytes;
                if called.looked.is_none_or(|it| it.0 < chunks) {
                    called.looked = Some((chunks, Instant::now()));
                }
                // A connection that is over tells so by itself.
                let _ = listen(worker, connection);
            }
            Some(Word::Finishes) if self.hosts[index].heard == Some(connection) => {
                let now = Instant::now();
                let most = FINISHING + Duration::from_secs(self.bytes / LEAST_RATE);
                let (since, said) = self.hosts[index].finishing.get_or_insert((now, now));
                if now.saturating_duration_since(*since) < most {
                    *said = now;
                }
                let _ = listen(worker, connection);
            }
            Some(Word::Refuses(why)) => self.end(worker, index, Err(shown(&why))),
            Some(Word::Ended(result)) => self.end(worker, index, result.map_err(|it| shown(&it))),
            _ => self.end(worker, index, Err("it sent an invalid answer".into())),
        }
    }

    /// The result that a host sent as a node, because it lost the connection of its invitation.
    pub(super) fn hear_node(&mut self, worker: &mut Worker, node: NodeId, word: Option<Word>) {
        let found = self.hosts.iter().position(|it| it.node == Some(node));
        if let (Some(index), Some(Word::Ended(result))) = (found, word) {
            self.end(worker, index, result.map_err(|it| shown(&it)));
        }
    }

    fn end(&mut self, worker: &mut Worker, index: usize, result: Result<(), String>) {
        let called = &mut self.hosts[index];
        if let Stage::Called(connection) = called.stage {
            worker.close(connection);
        }
        if let Some(connection) = called.heard {
            worker.close(connection);
        }
        self.settle(index, result);
    }

    fn settle(&mut self, index: usize, result: Result<(), String>) {
        let called = &mut self.hosts[index];
        called.stage = Stage::Over;
        called.result.get_or_insert((result, Instant::now()));
        self.changed = true;
    }

    fn lose(&mut self, index: usize, connection: ConnectionId, reason: &Error) {
        let called = &mut self.hosts[index];
        if called.stage == Stage::Over {
            return;
        }
        let again = Stage::Due(Instant::now() + CALL_AGAIN);
        if called.heard == Some(connection) {
            called.heard = None;
            called.trouble = Some("the connection to it was lost".into());
            if called.stage == Stage::Told {
                called.stage = again;
            }
            return;
        }
        let refused = match reason {
            Error::Closed(
                CloseReason::Rejected { reason, .. } | CloseReason::ExchangeRefused(reason),
            ) => *reason == Reason::Denied,
            Error::Closed(CloseReason::Untrusted(_)) => true,
            _ => false,
        };
        // A host that took part may have used up its code.
        if refused && called.node.is_none() {
            let words = match reason {
                Error::Closed(CloseReason::Untrusted(_)) => reason.to_string(),
                _ => "it does not admit this key, or does not know this code".into(),
            };
            self.settle(index, Err(words));
            return;
        }
        match called.node {
            None => called.try_next(reason.to_string()),
            Some(_) => called.stage = again,
        }
    }

    fn with_node(&mut self, id: NodeId) -> Option<&mut Called> {
        self.hosts.iter_mut().find(|it| it.node == Some(id))
    }

    pub(super) fn joined(&mut self, id: NodeId) {
        if let Some(called) = self.with_node(id) {
            called.joined = true;
            if called.heard.is_some() && matches!(called.stage, Stage::Due(_)) {
                // It was there all the time.
                called.stage = Stage::Told;
            }
        }
    }

    pub(super) fn done(&mut self, id: NodeId, from: Vec<Option<String>>) {
        if let Some(called) = self.with_node(id) {
            (called.done, called.from) = (true, from);
        }
    }

    pub(super) fn lost(&mut self, id: NodeId) {
        if let Some(called) = self.with_node(id) {
            called.joined = false;
            called.trouble = Some("silent, or gone".into());
            if called.stage == Stage::Told {
                called.stage = Stage::Due(Instant::now());
            }
        }
    }

    pub(super) fn failed(&mut self, id: NodeId, why: String) {
        if let Some(index) = self.hosts.iter().position(|it| it.node == Some(id)) {
            self.settle(index, Err(why));
        }
    }

    pub(super) fn accused(&mut self, name: &str, why: &str) {
        if let Some(called) = self.hosts.iter_mut().find(|it| it.host.name == name) {
            called.accused.get_or_insert(why.to_owned());
        }
    }

    pub(super) fn name(&self, id: NodeId) -> Option<&str> {
        let called = self.hosts.iter().find(|it| it.node == Some(id));
        called.map(|it| &*it.host.name)
    }

    /// The number of hosts that may take part, do so, or did.
    pub(super) fn expected(&self) -> u32 {
        self.hosts
            .iter()
            .filter(|it| it.result.is_none() || it.joined)
            .count() as u32
    }

    pub(super) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Hosts that have taken part.
    pub(super) fn joins(&self) -> u32 {
        self.hosts.iter().filter(|it| it.joined || it.done).count() as u32
    }

    /// Hosts that have all in its place, and that have failed for good.
    pub(super) fn count(&self) -> (usize, usize) {
        let ended = self.hosts.iter().filter_map(|it| it.result.as_ref());
        let done = ended.clone().filter(|it| it.0.is_ok()).count();
        (done, ended.count() - done)
    }

    pub(super) fn all_settled(&self) -> bool {
        self.hosts.iter().all(|it| it.result.is_some())
    }

    /// Whether a host has all, and has not said that it is in its place.
    pub(super) fn has_unfinished(&self) -> bool {
        self.hosts.iter().any(|it| it.done && it.result.is_none())
    }

    /// Whether a host was told how to take part and does not yet.
    pub(super) fn is_talking(&self) -> bool {
        self.hosts
            .iter()
            .any(|it| it.stage == Stage::Told && !it.joined)
    }

    /// When a host was last heard to be at work: one that was told how to take part, and does not yet, had looked at more of what
    /// an earlier try left it, or one that has all was putting it in its place.
    pub(super) fn last_work(&self) -> Option<Instant> {
        let work = |it: &Called| {
            let looks = it.looked.filter(|_| it.stage == Stage::Told && !it.joined);
            let finishes = it.finishing.filter(|_| it.done && it.result.is_none());
            looks
                .map(|it| it.1)
                .into_iter()
                .chain(finishes.map(|it| it.1))
                .max()
        };
        self.hosts.iter().filter_map(work).max()
    }

    /// Whether a host may still answer its first call.
    pub(super) fn is_first_call(&self) -> bool {
        let calling = |it: &Called| matches!(it.stage, Stage::Due(_) | Stage::Called(_));
        self.hosts
            .iter()
            .any(|it| it.trouble.is_none() && calling(it))
    }

    /// Tells all that the source gives up.
    pub(super) fn abort(&self, worker: &mut Worker, why: &str) {
        for called in &self.hosts {
            let connection = match (called.heard, called.stage) {
                (Some(connection), _) | (None, Stage::Called(connection)) => connection,
                _ => continue,
            };
            say(worker, connection, &Call::Aborted(why.to_owned()));
        }
    }

    /// Ends all calls that are still open, for this reason.
    pub(super) fn end_all(&mut self, why: &str) {
        for index in 0..self.hosts.len() {
            self.settle(index, Err(why.to_owned()));
        }
    }

    /// The outcome of each host.
    pub(super) fn outcomes(self, started: Instant) -> Vec<HostOutcome> {
        let outcome = |it: Called| {
            let (result, at) = it.result.unwrap_or_else(|| {
                let why = it
                    .trouble
                    .unwrap_or_else(|| "it did not join the cast".into());
                (Err(why), Instant::now())
            });
            // What it was caught at says more than that it is gone.
            let result = result.map_err(|why| match &it.accused {
                Some(accused) if !why.contains(accused) => format!("{why} ({accused})"),
                _ => why,
            });
            HostOutcome {
                name: it.host.name,
                from: it.from,
                result,
                accused: it.accused,
                after: at.saturating_duration_since(started),
            }
        };
        self.hosts.into_iter().map(outcome).collect()
    }
}
