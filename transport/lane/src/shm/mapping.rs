//! Maps the memory that two processes share: the Initiator makes and seals it, and the Responder checks it before it
//! maps it.

use super::entry::Entry;
use super::lease::{Accesses, LEASES, Lease};
use super::ring::{End, Way};
use crate::memory::shared::Bounds;
use crate::memory::{Mapping, memfd};
use nix::fcntl::SealFlag;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Bytes of a ring, a power of two: three of the longest records, and small enough for the second-level cache.
pub(super) const RING: usize = 256 << 10;
/// Bytes before the rings.
const WORDS: usize = 4096;
/// Bytes of the whole memory.
pub(super) const SHARED: usize = WORDS + 2 * RING;

/// The words before the rings.
#[derive(Debug)]
#[repr(C)]
struct Words {
    /// The Initiator's direction, then the Responder's.
    ways: [Way; 2],
    ends: [End; 2],
    /// Accesses of each end to the other's memory.
    accesses: [Accesses; 2],
    /// The leases that each end grants.
    leases: [[Lease; LEASES]; 2],
    entry: Entry,
}

const _: () = assert!(size_of::<Words>() <= WORDS);

/// Seals against changes of length, which would fault the other end.
fn seals() -> SealFlag {
    SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL
}

/// The memory, as one end sees it. Initially zero.
#[derive(Debug)]
pub(super) struct Shared {
    memory: Mapping,
    /// 0 for the Initiator, 1 for the Responder.
    own: usize,
}

impl Shared {
    /// The Initiator's, with the descriptor to pass on.
    ///
    /// # Errors
    /// The system has no memory, or no descriptor.
    pub(super) fn create() -> io::Result<(Shared, OwnedFd)> {
        let memory = memfd::create(SHARED, seals())?;
        Ok((Shared::map(&memory, 0)?, memory))
    }

    /// The Responder's, from a descriptor that was passed.
    ///
    /// # Errors
    /// It is not memory of this length with the seals, or cannot be mapped.
    pub(super) fn open(memory: &OwnedFd) -> io::Result<Shared> {
        memfd::check(memory.as_fd(), SHARED, seals())?;
        Shared::map(memory, 1)
    }

    fn map(memory: &OwnedFd, own: usize) -> io::Result<Shared> {
        let memory = Mapping::new(SHARED, libc::MAP_SHARED, Some((memory.as_fd(), 0)))?;
        Ok(Shared { memory, own })
    }

    /// Whether this is the Responder's end.
    pub(super) fn is_passed(&self) -> bool {
        self.own == 1
    }

    fn words(&self) -> &Words {
        // SAFETY: mapped as long as self, aligned to a page, and longer; all fields are atomics, which allow any bytes
        // and concurrent changes.
        unsafe { self.memory.start().cast::<Words>().as_ref() }
    }

    /// The direction that this end writes.
    pub(super) fn way_out(&self) -> &Way {
        &self.words().ways[self.own]
    }

    /// The direction that this end reads.
    pub(super) fn way_in(&self) -> &Way {
        &self.words().ways[1 - self.own]
    }

    pub(super) fn own_end(&self) -> &End {
        &self.words().ends[self.own]
    }

    pub(super) fn peers_end(&self) -> &End {
        &self.words().ends[1 - self.own]
    }

    /// Whether the Initiator is admitted.
    pub(super) fn entry(&self) -> &Entry {
        &self.words().entry
    }

    /// This end's count of its accesses.
    pub(super) fn own_accesses(&self) -> &Accesses {
        &self.words().accesses[self.own]
    }

    pub(super) fn peers_accesses(&self) -> &Accesses {
        &self.words().accesses[1 - self.own]
    }

    /// Lease `place` of those that this end grants.
    pub(super) fn own_lease(&self, place: usize) -> &Lease {
        &self.words().leases[self.own][place]
    }

    pub(super) fn peers_lease(&self, place: usize) -> &Lease {
        &self.words().leases[1 - self.own][place]
    }

    /// The ring that this end writes.
    pub(super) fn ring_out(&self) -> Bounds {
        self.ring(self.own)
    }

    /// The ring that this end reads.
    pub(super) fn ring_in(&self) -> Bounds {
        self.ring(1 - self.own)
    }

    fn ring(&self, which: usize) -> Bounds {
        Bounds {
            start: self.memory.at(WORDS + which * RING),
            len: RING,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn memory(len: usize, sealed: SealFlag) -> OwnedFd {
        memfd::create(len, sealed).expect("memory")
    }

    #[test]
    fn open__only_memory_of_the_length_that_stays_so() {
        assert!(Shared::open(&memory(SHARED, seals())).is_ok());
        let shrinks = SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        let refused = [
            memory(SHARED, shrinks),
            memory(SHARED, SealFlag::empty()),
            memory(SHARED - 1, seals()),
            memory(0, seals()),
            memory(2 * SHARED, seals()),
            std::fs::File::open("/dev/zero").expect("there").into(),
        ];
        for (n, memory) in refused.iter().enumerate() {
            assert!(Shared::open(memory).is_err(), "{n}");
        }
    }

    #[test]
    fn create__both_ends_see_the_same_from_their_sides() {
        let (a, memory) = Shared::create().expect("memory");
        let b = Shared::open(&memory).expect("sealed");
        a.own_end()
            .mark
            .store(7, std::sync::atomic::Ordering::SeqCst);
        let seen = b.peers_end().mark.load(std::sync::atomic::Ordering::SeqCst);
        assert_eq!(seen, 7);
        // SAFETY: both are mapped and in bounds.
        unsafe {
            crate::memory::shared::store(a.ring_out(), 8, b"right");
            let mut bytes = [0; 5];
            crate::memory::shared::load(b.ring_in(), 8, &mut bytes);
            assert_eq!(&bytes, b"right");
            crate::memory::shared::load(b.ring_out(), 8, &mut bytes);
            assert_eq!(bytes, [0; 5], "the other direction");
        }
    }
}
