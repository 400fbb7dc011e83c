//! Reads received content in order while it arrives, for a consumer of a stream: standard output, a command, or unpacking.
//!
//! Chunks arrive in any order and are written to a file. The feed reads the file up to the first missing chunk, so a slow
//! consumer does not delay any peer.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::limits::FEED_BYTES;

/// How far the file is complete, from its start on.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ready: u64,
    /// There is no more to come: all is there, or never will be.
    end: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Complete,
    GivenUp,
}

impl Feed {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many bytes from the start on are there.
    pub(crate) fn advance(&self, ready: u64) {
        let mut state = self.state();
        if ready > state.ready {
            state.ready = ready;
            self.changed.notify_all();
        }
    }

    /// All is there.
    pub(crate) fn complete(&self, bytes: u64) {
        self.advance(bytes);
        self.state().end.get_or_insert(End::Complete);
        self.changed.notify_all();
    }

    /// The rest will not come, or shall not be read, though it be there.
    pub(crate) fn give_up(&self) {
        self.state().end = Some(End::GivenUp);
        self.changed.notify_all();
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.state().end == Some(End::GivenUp)
    }

    /// Waits until there is more behind `from`; how far it goes, or `None` at the end.
    fn beyond(&self, from: u64) -> io::Result<Option<u64>> {
        let mut state = self.state();
        loop {
            if state.end == Some(End::GivenUp) {
                return Err(io::Error::other("the rest of the content did not arrive"));
            }
            if state.ready > from {
                return Ok(Some(state.ready));
            }
            if state.end == Some(End::Complete) {
                return Ok(None);
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Reads the content in order.
#[derive(Debug)]
pub(crate) struct FeedReader {
    pub(crate) feed: Arc<Feed>,
    pub(crate) file: Arc<File>,
    pub(crate) at: u64,
}

impl Read for FeedReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(FEED_BYTES);
        if most == 0 {
            return Ok(0);
        }
        let Some(ready) = self.feed.beyond(self.at)? else {
            return Ok(0);
        };
        let most = most.min(usize::try_from(ready - self.at).unwrap_or(most));
        let read = self.file.read_at(&mut into[..most], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn read__waits_for_what_is_lacking_and_ends_with_the_content() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.write_all_at(b"abcdef", 0).unwrap();
        let feed = Arc::new(Feed::default());
        feed.advance(2);
        let mut reader = FeedReader {
            feed: Arc::clone(&feed),
            file: Arc::clone(&file),
            at: 0,
        };
        let mut two = [0; 2];
        reader.read_exact(&mut two).unwrap();
        assert_eq!(&two, b"ab");
        let rest = std::thread::spawn(move || {
            let mut rest = String::new();
            reader.read_to_string(&mut rest).map(|_| rest)
        });
        feed.advance(4);
        feed.complete(6);
        assert_eq!(rest.join().unwrap().unwrap(), "cdef");
        let feed = Arc::new(Feed::default());
        let mut reader = FeedReader {
            feed: Arc::clone(&feed),
            file,
            at: 0,
        };
        feed.give_up();
        assert!(
            reader.read(&mut two).is_err(),
            "a part is not taken for the whole"
        );
    }
}
