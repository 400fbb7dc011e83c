//! What shared memory with a listener would be like, found out without a connection.

use super::rendezvous::NoSharedMemory;
use crate::Options;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a listener that is there may take to say what it may read.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);

/// Whose memory the kernel lets whom read. Where it does not, payload comes through the ring, with two copies more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Whether this process may read the listener's memory, from which it receives. `None`: the listener was silent for 1 s,
    /// as one that is stopped is, or busy.
    pub reads: Option<bool>,
    /// Whether the listener may read this process's memory, from which this one sends. `None`: as above.
    pub is_read: Option<bool>,
}

/// Meets what listens at `peer`, as an Initiator with these `options` would (whatever lane they choose), and goes away
/// again. The listener counts one more that was turned away.
///
/// # Errors
/// Why there is no shared memory.
pub fn look(peer: SocketAddr, options: &Options) -> Result<Reach, NoSharedMemory> {
    let mut link = super::meet(peer, options)?.link;
    let end = Instant::now() + PATIENCE;
    loop {
        link.try_reading();
        link.disarm(true);
        let [reads, is_read] = link.readable();
        let said = reads.is_some() && is_read.is_some();
        if said || Instant::now() >= end {
            return Ok(Reach { reads, is_read });
        }
        if link.is_closed() {
            // It is of this user's directory, so it was this user's.
            return Err(NoSharedMemory::OtherUser);
        }
        sleep(PAUSE);
    }
}
