//! Why a lane cannot go on.

use std::io;
use zerolane_core::RegionId;

/// Why a lane gave up.
#[derive(Debug)]
pub enum LaneError {
    /// The kernel refused, for a reason that is not the network's.
    Io(io::Error),
    /// Strict mode: payload had to be copied in user space.
    Strict {
        /// Bytes to be copied.
        bytes: usize,
    },
    /// Memory of this region could not be accessed: a mapped file shrank.
    Fault(RegionId),
    /// The peer's process ended.
    Gone,
    /// The peer broke what it shares with this end: the account says how.
    Broken,
}
