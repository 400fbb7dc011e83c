//! Closes a copy's connection according to its result.

use super::Client;
use crate::error::Error;
use std::fmt;
use std::sync::Arc;
use zerolane::Connection;

/// Called once a copy is done.
#[derive(Clone, Default)]
pub(super) struct Done(Option<Arc<dyn Fn() + Send + Sync>>);

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Done")
    }
}

impl Client {
    /// Calls `done` when a copy has everything, before its last connection is closed: a caller that waits for the end
    /// of the server can tell it meanwhile.
    pub fn with_done(mut self, done: impl Fn() + Send + Sync + 'static) -> Client {
        self.done = Done(Some(Arc::new(done)));
        self
    }

    /// Ends one connection of a copy.
    pub(super) fn end<T>(&self, connection: Connection, copied: &Result<T, Error>) {
        match copied {
            // The server is not listening on this connection any more.
            Err(Error::Forgotten) => return drop(connection),
            Err(_) => {}
            Ok(_) => {
                let Done(done) = &self.done;
                done.iter().for_each(|done| done());
            }
        }
        close(connection);
    }
}

/// Tells the server that the copy is over. Its result is known and does not depend on how the connection ends.
pub(super) fn close(connection: Connection) {
    let _ = connection.close();
}

#[cfg(test)]
#[path = "end_tests.rs"]
mod tests;
