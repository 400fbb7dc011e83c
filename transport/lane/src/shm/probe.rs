//! Finds out, without a connection, what shared memory with a listener would permit.

use crate::options::Options;
use crate::unavailable::NoSharedMemory;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a listener may take to publish whether it can read this process's memory.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);

/// Which process the kernel lets read the other's memory. Without that right, payload comes through the ring, with two
/// more copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Whether this process may read the listener's memory, which receives need. `None`: the listener was silent for 1
    /// s, because it is stopped or busy.
    pub reads: Option<bool>,
    /// Whether the listener may read this process's memory, which sends need. `None`: as above.
    pub is_read: Option<bool>,
}

/// Meets the listener at `peer`, as an Initiator with these `options` would (whatever their lane), and leaves again.
/// The listener counts one more refusal.
///
/// # Errors
/// Why there is no shared memory.
pub fn probe_shared_memory(peer: SocketAddr, options: &Options) -> Result<Reach, NoSharedMemory> {
    let mut link = super::link_to(peer, options)?;
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
            // The socket is in this user's directory, so it was this user's.
            return Err(NoSharedMemory::OtherUser);
        }
        sleep(PAUSE);
    }
}
