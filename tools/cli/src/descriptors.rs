//! Raises the limit of open files, for commands that carry many connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of this process to the most that it may have. Children that run already keep theirs.
pub(crate) fn allow_all() {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // The limit that there is stays.
    let _ = setrlimit(Resource::Nofile, most);
}
