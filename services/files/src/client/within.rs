//! Finds the target of a copy when the server belongs to this process.

use super::Client;
use crate::links::{Identity, identity};
use crate::message::Landing;
use crate::send::Target;
use rustix::fs::stat;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl Client {
    /// Declares that the server belongs to this process: a [login's](crate::Server::bind_login) with the same working
    /// directory. The client then sees both sides of [`Client::put`] and of a sync from here, and refuses to copy a
    /// file to itself or a directory into itself.
    pub fn within_this_process(mut self) -> Client {
        self.within = true;
        self
    }

    /// The target of a copy that the server has accepted.
    pub(super) fn target_within(&self, destination: &[u8], landing: Landing) -> Option<Target> {
        let destination = Path::new(OsStr::from_bytes(destination));
        self.within
            .then(|| Target::find(destination, landing))
            .flatten()
    }

    /// The directory that a sync writes to, if it exists.
    pub(super) fn directory_within(&self, destination: &[u8]) -> Option<Identity> {
        let found = self.within.then(|| stat(destination).ok()).flatten();
        found.as_ref().map(identity)
    }
}
