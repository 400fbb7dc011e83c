//! Finds the target of a copy within this machine, when the server is this process's own.

use super::Client;
use crate::links::{Identity, identity};
use crate::message::Landing;
use crate::send::Target;
use rustix::fs::stat;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl Client {
    /// Says that the server belongs to this process: a [login's](crate::Server::bind_login) with the same working directory. This
    /// client then sees both sides of [`Client::put`] and of a sync from here, and refuses to copy a file to itself and a
    /// directory into itself.
    pub fn within_this_process(mut self) -> Client {
        self.within = true;
        self
    }

    /// Where a copy goes that the server has accepted.
    pub(super) fn target_within(&self, destination: &[u8], landing: Landing) -> Option<Target> {
        let destination = Path::new(OsStr::from_bytes(destination));
        self.within
            .then(|| Target::find(destination, landing))
            .flatten()
    }

    /// Which directory a sync goes to, if it is there.
    pub(super) fn directory_within(&self, destination: &[u8]) -> Option<Identity> {
        let found = self.within.then(|| stat(destination).ok()).flatten();
        found.as_ref().map(identity)
    }
}
