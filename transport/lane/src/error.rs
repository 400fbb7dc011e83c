//! Defines the errors that end a lane.

use std::io;
use zerolane_core::RegionId;

/// Why a lane cannot continue.
#[derive(Debug)]
pub enum LaneError {
    /// A system call failed for a reason other than the network.
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
    /// The peer violated the protocol of shared memory: the account says how.
    Broken,
}
