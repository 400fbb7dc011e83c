//! Says why there is no shared memory with a peer, or no longer.

use std::{fmt, io};

/// Why there is no shared memory with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoSharedMemory {
    /// The options name a cipher, and shared memory is not encrypted.
    Cipher,
    /// The address does not belong to this network namespace.
    NotLocal,
    /// There is no listener in shared memory for it: the program belongs to another user, was told not to use shared
    /// memory, or does not exist.
    NoListener,
    /// The options ask for several paths, and shared memory has only one.
    Paths,
    /// The rendezvous directory does not exist, or does not belong to this user alone.
    Directory,
    /// The listener belongs to another user.
    OtherUser,
    /// As many processes wait at the listener as may.
    QueueFull,
    /// The listener did not admit this process within 1 s, or half of
    /// [`TimeOptions::connect`](crate::options::TimeOptions::connect) if that is less: other processes have its places,
    /// or it does not poll its rendezvous.
    NotAdmitted,
    /// The listener turned this process away.
    Rejected,
    /// The system has no memory or descriptor left, or lacks a feature.
    System,
}

impl fmt::Display for NoSharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoSharedMemory::Cipher => "the options name a cipher, but shared memory is not encrypted",
            NoSharedMemory::NotLocal => "the address does not belong to this network namespace",
            NoSharedMemory::NoListener => "no listener of this user accepts it at the address",
            NoSharedMemory::Directory => {
                "the directory by which processes meet (zerolane in XDG_RUNTIME_DIR or /run/user/UID, else \
                 /tmp/zerolane-UID) is not there, or not this user's alone"
            }
            NoSharedMemory::Paths => "the options ask for several paths, but shared memory has one",
            NoSharedMemory::QueueFull => "too many processes wait at the listener",
            NoSharedMemory::NotAdmitted => "the listener did not admit this process in time",
            NoSharedMemory::Rejected => "the listener turned this process away",
            NoSharedMemory::OtherUser => "the listener at the address belongs to another user",
            NoSharedMemory::System => "the system has no memory or descriptor left for it",
        })
    }
}

impl From<NoSharedMemory> for io::Error {
    fn from(why: NoSharedMemory) -> io::Error {
        let why = format!("no shared memory with the peer: {why}");
        io::Error::new(io::ErrorKind::Unsupported, why)
    }
}

/// How a peer violated the protocol of the shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RingFault {
    /// An index exceeds the bytes in the ring, or is not at a record.
    Index,
    /// A record is longer than the maximum or than the bytes written, or of an unknown kind.
    Record,
    /// A record names memory that the peer does not have.
    Address,
}

impl fmt::Display for RingFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RingFault::Index => "an index exceeds what the ring holds",
            RingFault::Record => "a record of the ring is malformed",
            RingFault::Address => "a record of the ring names memory that the peer does not have",
        })
    }
}
