//! Defines the observers to which copies and servers report their progress.

use crate::error::{Error, Failure, Refusal};
use crate::message::Totals;
use std::net::SocketAddr;
use std::time::Duration;
use zerolane::counters::{Account, GateCounters, ListenerCounters};
use zerolane::security::PublicKey;

/// Receives the events of a copy, from its threads. Every method is optional.
pub trait Observer: Send + Sync {
    /// There are `files` files with `bytes` bytes to copy. Only with the option to count first.
    fn counted(&self, files: u64, bytes: u64) {
        let _ = (files, bytes);
    }

    /// A file of `size` bytes begins; `path` is below the source, as bytes.
    fn file_started(&self, path: &[u8], size: u64) {
        let _ = (path, size);
    }

    /// `bytes` more bytes were read (by a sender) or written (by a receiver), or need not be.
    fn advanced(&self, bytes: u64) {
        let _ = bytes;
    }

    /// There is a device, socket or FIFO at `path`, below the source: it is not copied, which is not a failure.
    fn skipped(&self, path: &[u8]) {
        let _ = path;
    }

    /// A file was not copied because of this end; the others continue.
    fn failed(&self, failure: &Failure) {
        let _ = failure;
    }

    /// A file was not copied because of the other end.
    fn failed_remotely(&self, failure: &Failure) {
        self.failed(failure);
    }

    /// A file was copied without this attribute, at this end or (`there`) at the other. Each kind is reported once for
    /// each connection.
    fn not_kept(&self, failure: &Failure, there: bool) {
        let _ = (failure, there);
    }

    /// The connection broke because of `why`; reconnecting is tried for `left` at most.
    fn interrupted(&self, why: &Error, left: Duration) {
        let _ = (why, left);
    }

    /// The next attempt follows soon; `left` remains for reconnecting.
    fn waiting(&self, left: Duration) {
        let _ = left;
    }

    /// Reconnected, `outage` after the connection broke. Files with `bytes` bytes are done; the following files are
    /// reported again.
    fn reconnected(&self, outage: Duration, bytes: u64) {
        let _ = (outage, bytes);
    }
}

/// Ignores all events.
impl Observer for () {}

/// The client of one connection of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The number of the connection in this process, from 1: in shared memory all have one address. 0 for a client that
    /// was not admitted.
    pub connection: u64,
    /// Its address when it connected.
    pub address: SocketAddr,
    /// The key that it proved it owns; `None` with plain connections.
    pub key: Option<PublicKey>,
    /// Its name in the list of keys.
    pub name: Option<String>,
}

/// The operation that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verb {
    /// Reads files.
    Read,
    /// Writes files.
    Write,
    /// Lists the entries of a directory.
    List,
    /// Lists a whole tree, for a sync.
    Compare,
    /// Removes files.
    Remove,
    /// Makes directories.
    Make,
    /// Renames: the old name, then the new one.
    Rename,
}

impl Verb {
    /// The verb as one word, such as `read`.
    pub fn word(self) -> &'static str {
        match self {
            Verb::Read => "read",
            Verb::Write => "write",
            Verb::List => "list",
            Verb::Compare => "compare",
            Verb::Remove => "remove",
            Verb::Make => "make",
            Verb::Rename => "rename",
        }
    }
}

/// Where the time of a server's connection went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Waiting for its request.
    pub request: Duration,
    /// Waiting for the end of the same copy's previous connection.
    pub turn: Duration,
    /// The file thread waited for the network, or for the client.
    pub network: Duration,
    /// Everything else: reading, comparing and writing files.
    pub files: Duration,
}

/// Bytes queued between the two threads of a server's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queued {
    /// Read from files and not yet confirmed by the clients: waiting for the network or a client.
    pub network: u64,
    /// Received and not yet taken by the threads that write files: waiting for the disk.
    pub files: u64,
}

/// Receives the events of a server, from the threads of its connections. Every method is optional.
pub trait ServerObserver: Sync {
    /// A client requests an operation on `paths`, which are bytes as the client sent them.
    fn requested(&self, peer: &Peer, verb: Verb, paths: &[Vec<u8>]) {
        let _ = (peer, verb, paths);
    }

    /// What unauthenticated peers have caused so far, by the counters of the endpoint: reported several times a second.
    /// `gate` is `None` with plain connections.
    fn unauthenticated(&self, gate: Option<&GateCounters>, listener: &ListenerCounters) {
        let _ = (gate, listener);
    }

    /// What is queued now in all connections: reported several times a second.
    fn queued(&self, queued: Queued) {
        let _ = queued;
    }

    /// `bytes` more bytes of the files that a client requested were read or written, or need not be.
    fn advanced(&self, peer: &Peer, bytes: u64) {
        let _ = (peer, bytes);
    }

    /// The list of keys changed, or was read again: how many it has now, or why the file cannot be used so that the
    /// previous list stays in force.
    fn list_changed(&self, news: Result<usize, String>) {
        let _ = news;
    }

    /// These clients proved keys that are not on the list, and were refused; `more` others are not listed here.
    fn untrusted(&self, clients: &[Peer], more: u64) {
        let _ = (clients, more);
    }

    /// A connected client was refused because of `why`.
    fn refused(&self, peer: &Peer, why: &Refusal) {
        let _ = (peer, why);
    }

    /// A client tried a wrong one-time code; after `left` more wrong ones the code is invalid.
    fn wrong_code(&self, left: u32) {
        let _ = left;
    }

    /// There is a device, socket or FIFO at `path`, below a path that a client reads or writes: it is not copied.
    fn skipped(&self, peer: &Peer, path: &[u8]) {
        let _ = (peer, path);
    }

    /// A file was not written or read; the others continue.
    fn failed(&self, peer: &Peer, failure: &Failure) {
        let _ = (peer, failure);
    }

    /// Where the time of a connection went, just before it [ends](Self::ended).
    fn spent(&self, peer: &Peer, spent: &Spent) {
        let _ = (peer, spent);
    }

    /// The outcome, and the counters of the transport. `None`: there is nothing to count (a listing).
    fn ended(&self, peer: &Peer, outcome: &Result<Option<Totals>, Error>, account: &Account) {
        let _ = (peer, outcome, account);
    }
}

/// Ignores all events.
impl ServerObserver for () {}

/// Reports to both, in order.
impl<A: ServerObserver, B: ServerObserver> ServerObserver for (A, B) {
    fn requested(&self, peer: &Peer, verb: Verb, paths: &[Vec<u8>]) {
        self.0.requested(peer, verb, paths);
        self.1.requested(peer, verb, paths);
    }

    fn unauthenticated(&self, gate: Option<&GateCounters>, listener: &ListenerCounters) {
        self.0.unauthenticated(gate, listener);
        self.1.unauthenticated(gate, listener);
    }

    fn advanced(&self, peer: &Peer, bytes: u64) {
        self.0.advanced(peer, bytes);
        self.1.advanced(peer, bytes);
    }

    fn queued(&self, queued: Queued) {
        self.0.queued(queued);
        self.1.queued(queued);
    }

    fn list_changed(&self, news: Result<usize, String>) {
        self.0.list_changed(news.clone());
        self.1.list_changed(news);
    }

    fn untrusted(&self, clients: &[Peer], more: u64) {
        self.0.untrusted(clients, more);
        self.1.untrusted(clients, more);
    }

    fn refused(&self, peer: &Peer, why: &Refusal) {
        self.0.refused(peer, why);
        self.1.refused(peer, why);
    }

    fn wrong_code(&self, left: u32) {
        self.0.wrong_code(left);
        self.1.wrong_code(left);
    }

    fn skipped(&self, peer: &Peer, path: &[u8]) {
        self.0.skipped(peer, path);
        self.1.skipped(peer, path);
    }

    fn failed(&self, peer: &Peer, failure: &Failure) {
        self.0.failed(peer, failure);
        self.1.failed(peer, failure);
    }

    fn spent(&self, peer: &Peer, spent: &Spent) {
        self.0.spent(peer, spent);
        self.1.spent(peer, spent);
    }

    fn ended(&self, peer: &Peer, outcome: &Result<Option<Totals>, Error>, account: &Account) {
        self.0.ended(peer, outcome, account);
        self.1.ended(peer, outcome, account);
    }
}
