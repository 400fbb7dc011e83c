//! How a copy reports its progress, and a server its work.

use crate::error::{Error, Failure, Refusal};
use crate::message::Totals;
use std::net::SocketAddr;

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

    /// A file was not copied; the others go on.
    fn failed(&self, failure: &Failure) {
        let _ = failure;
    }
}

/// Ignores all events.
impl Observer for () {}

/// Gets the events of a server, from the threads of its connections. Every method may be left out.
pub trait ServerObserver: Sync {
    /// A client asks for something; `what` is a text for users.
    fn asked(&self, peer: SocketAddr, what: &str) {
        let _ = (peer, what);
    }

    /// The list of keys changed: how many it has now, or why the file cannot be used and the list
    /// before it stays in force.
    fn list_changed(&self, news: Result<usize, String>) {
        let _ = news;
    }

    /// A client was connected, and is turned away because of `why`.
    fn turned_away(&self, peer: SocketAddr, why: &Refusal) {
        let _ = (peer, why);
    }

    /// A client tried a wrong one-time code; after `left` more the code is void.
    fn wrong_code(&self, left: u32) {
        let _ = left;
    }

    /// The outcome. `None`: there is nothing to count (a listing).
    fn ended(&self, peer: SocketAddr, outcome: &Result<Option<Totals>, Error>) {
        let _ = (peer, outcome);
    }
}

/// Ignores all events.
impl ServerObserver for () {}
