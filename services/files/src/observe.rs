//! How a copy reports its progress, and a server its work.

use crate::error::{Error, Failure, Refusal};
use crate::message::Totals;
use std::net::SocketAddr;
use std::time::Duration;
use zerolane::counters::{Account, GateCounters, ListenerCounters};
use zerolane::security::PublicKey;

/// Gets the events of a copy, from the threads that do it. Every method may be left out.
pub trait Observer: Send + Sync {
    /// There are `files` files with `bytes` bytes to copy. Only if asked to count first.
    fn counted(&self, files: u64, bytes: u64) {
        let _ = (files, bytes);
    }

    /// A file of `size` bytes begins; `path` is below the source, as bytes.
    fn file_started(&self, path: &[u8], size: u64) {
        let _ = (path, size);
    }

    /// `bytes` more bytes were read (at a sender) or written (at a receiver), or need not be.
    fn advanced(&self, bytes: u64) {
        let _ = bytes;
    }

    /// There is a device, socket or FIFO at `path`, below the source: it is not copied, which is no failure.
    fn skipped(&self, path: &[u8]) {
        let _ = path;
    }

    /// A file was not copied because of this end; the others go on.
    fn failed(&self, failure: &Failure) {
        let _ = failure;
    }

    /// A file was not copied because of the other end.
    fn failed_there(&self, failure: &Failure) {
        self.failed(failure);
    }

    /// A file was copied, and this could not be kept of it, at this end or (`there`) at the other. Each kind is told once
    /// over each connection.
    fn not_kept(&self, failure: &Failure, there: bool) {
        let _ = (failure, there);
    }

    /// The connection broke because of `why`; another one is tried, for `left` at most.
    fn interrupted(&self, why: &Error, left: Duration) {
        let _ = (why, left);
    }

    /// The next try comes soon; `left` of the time for it.
    fn waiting(&self, left: Duration) {
        let _ = left;
    }

    /// Connected again, `outage` after the connection broke. Files with `bytes` bytes are done; those that
    /// follow are told anew.
    fn taken_up(&self, outage: Duration, bytes: u64) {
        let _ = (outage, bytes);
    }
}

/// Ignores all events.
impl Observer for () {}

/// The client of one connection of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Which connection of this process, from 1: in shared memory all have one address. 0 for one that was not let in.
    pub connection: u64,
    /// Where it was when it connected.
    pub address: SocketAddr,
    /// The key that it proved; `None` with plain connections.
    pub key: Option<PublicKey>,
    /// What the list of keys calls it.
    pub name: Option<String>,
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verb {
    /// Files, to be sent to it.
    Read,
    /// To take files from it.
    Write,
    /// The entries of a directory.
    List,
    /// The listing of a whole tree, for a sync.
    Compare,
    /// To remove files.
    Remove,
    /// To make directories.
    Make,
    /// To give something another name: the old one, then the new one.
    Rename,
}

impl Verb {
    /// The verb in one word, such as `read`.
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

/// Where the time of a connection of a server went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Until its request was heard.
    pub request: Duration,
    /// Until the connection before it, of the same copy, had ended.
    pub turn: Duration,
    /// The thread of the files waited for the network, or for the client.
    pub network: Duration,
    /// All else: files were read, compared and written.
    pub files: Duration,
}

/// Bytes that one side of a server's connections has handed on, and the other has not done with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queued {
    /// Read from files, and not yet confirmed by the clients: the network or a client is what is waited for.
    pub network: u64,
    /// Arrived, and not yet taken by the threads that write files: the disk is what is waited for.
    pub files: u64,
}

/// Gets the events of a server, from the threads of its connections. Every method may be left out.
pub trait ServerObserver: Sync {
    /// A client asks for something at `paths`, which are as the client sent them, as bytes.
    fn asked(&self, peer: &Peer, verb: Verb, paths: &[Vec<u8>]) {
        let _ = (peer, verb, paths);
    }

    /// What strangers caused so far, by the counters of the endpoint: told several times a second. `gate` is `None` with
    /// plain connections.
    fn strangers(&self, gate: Option<&GateCounters>, listener: &ListenerCounters) {
        let _ = (gate, listener);
    }

    /// What is queued now in all connections: told several times a second.
    fn queued(&self, queued: Queued) {
        let _ = queued;
    }

    /// `bytes` more bytes of the files that a client asked for were read or written, or need not be.
    fn advanced(&self, peer: &Peer, bytes: u64) {
        let _ = (peer, bytes);
    }

    /// The list of keys changed, or was read again: how many it has now, or why the file cannot be used and the list
    /// before it stays in force.
    fn list_changed(&self, news: Result<usize, String>) {
        let _ = news;
    }

    /// These clients proved their keys and got no connection, for those are not on the list; and so did `more`, which
    /// were not kept.
    fn not_let_in(&self, clients: &[Peer], more: u64) {
        let _ = (clients, more);
    }

    /// A client was connected, and is turned away because of `why`.
    fn turned_away(&self, peer: &Peer, why: &Refusal) {
        let _ = (peer, why);
    }

    /// A client tried a wrong one-time code; after `left` more the code is void.
    fn wrong_code(&self, left: u32) {
        let _ = left;
    }

    /// There is a device, socket or FIFO at `path`, below what a client asked for or sends: it is not copied.
    fn skipped(&self, peer: &Peer, path: &[u8]) {
        let _ = (peer, path);
    }

    /// A file was not written or read; the others go on.
    fn failed(&self, peer: &Peer, failure: &Failure) {
        let _ = (peer, failure);
    }

    /// Where the time of a connection went, which [ends](Self::ended) now.
    fn spent(&self, peer: &Peer, spent: &Spent) {
        let _ = (peer, spent);
    }

    /// The outcome, and what the transport counted. `None`: there is nothing to count (a listing).
    fn ended(&self, peer: &Peer, outcome: &Result<Option<Totals>, Error>, account: &Account) {
        let _ = (peer, outcome, account);
    }
}

/// Ignores all events.
impl ServerObserver for () {}

/// Tells both, the first one first.
impl<A: ServerObserver, B: ServerObserver> ServerObserver for (A, B) {
    fn asked(&self, peer: &Peer, verb: Verb, paths: &[Vec<u8>]) {
        self.0.asked(peer, verb, paths);
        self.1.asked(peer, verb, paths);
    }

    fn strangers(&self, gate: Option<&GateCounters>, listener: &ListenerCounters) {
        self.0.strangers(gate, listener);
        self.1.strangers(gate, listener);
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

    fn not_let_in(&self, clients: &[Peer], more: u64) {
        self.0.not_let_in(clients, more);
        self.1.not_let_in(clients, more);
    }

    fn turned_away(&self, peer: &Peer, why: &Refusal) {
        self.0.turned_away(peer, why);
        self.1.turned_away(peer, why);
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
