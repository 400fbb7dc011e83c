//! The memory that two processes share: made and sealed by the Initiator, checked by the Responder before it is mapped.

use super::ring::{End, Way};
use crate::mapping::Mapping;
use crate::shared::Bounds;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Bytes of a ring, a power of two: three of the longest records, and what stays in the second cache.
pub(super) const RING: usize = 256 << 10;
/// Bytes in front of the rings.
const WORDS: usize = 4096;
/// Bytes of all of it.
pub(super) const SHARED: usize = WORDS + 2 * RING;

/// What is in front of the rings.
#[derive(Debug)]
#[repr(C)]
struct Words {
    /// The Initiator's, and the Responder's.
    ways: [Way; 2],
    ends: [End; 2],
}

const _: () = assert!(size_of::<Words>() <= WORDS);

/// Nothing that would change its length under the feet of the other one.
fn seals() -> SealFlag {
    SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL
}

/// The memory, as one end sees it. All of it is zero at first.
#[derive(Debug)]
pub(super) struct Shared {
    memory: Mapping,
    /// 0 for the Initiator, 1 for the Responder.
    own: usize,
}

impl Shared {
    /// The Initiator's, and the descriptor to be passed on.
    ///
    /// # Errors
    /// The system has no memory, or no descriptor.
    pub(super) fn create() -> io::Result<(Shared, OwnedFd)> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        // Beyond the limit of files, of which memory is one here, the kernel would end the process (SIGXFSZ).
        if getrlimit(Resource::RLIMIT_FSIZE)?.0 < SHARED as u64 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let memory = memfd_create(c"zerolane", flags)?;
        ftruncate(&memory, SHARED as i64)?;
        fcntl(&memory, FcntlArg::F_ADD_SEALS(seals()))?;
        Ok((Shared::map(&memory, 0)?, memory))
    }

    /// The Responder's, of a descriptor that was passed.
    ///
    /// # Errors
    /// It is no memory of this length that stays so, or cannot be mapped.
    pub(super) fn open(memory: &OwnedFd) -> io::Result<Shared> {
        let refused = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why);
        let sealed = fcntl(memory, FcntlArg::F_GET_SEALS)
            .map_err(|_| refused("what was passed is no memory that can be sealed"))?;
        if !SealFlag::from_bits_retain(sealed).contains(seals()) {
            return Err(refused("the memory that was passed is not sealed"));
        }
        if fstat(memory.as_fd())?.st_size != SHARED as i64 {
            return Err(refused("the memory that was passed is of another length"));
        }
        Shared::map(memory, 1)
    }

    fn map(memory: &OwnedFd, own: usize) -> io::Result<Shared> {
        let memory = Mapping::new(SHARED, libc::MAP_SHARED, Some((memory.as_fd(), 0)))?;
        Ok(Shared { memory, own })
    }

    /// Whether it is the Responder's.
    pub(super) fn is_passed(&self) -> bool {
        self.own == 1
    }

    fn words(&self) -> &Words {
        // SAFETY: mapped as long as self, aligned to a page, and longer; all fields are atomics, for which any bytes are
        // a value and which others may change.
        unsafe { self.memory.start().cast::<Words>().as_ref() }
    }

    /// What this end writes.
    pub(super) fn way_out(&self) -> &Way {
        &self.words().ways[self.own]
    }

    /// What this end reads.
    pub(super) fn way_in(&self) -> &Way {
        &self.words().ways[1 - self.own]
    }

    pub(super) fn own_end(&self) -> &End {
        &self.words().ends[self.own]
    }

    pub(super) fn peers_end(&self) -> &End {
        &self.words().ends[1 - self.own]
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
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let memory = memfd_create(c"test", flags).expect("memory");
        ftruncate(&memory, len as i64).expect("long");
        fcntl(&memory, FcntlArg::F_ADD_SEALS(sealed)).expect("sealed");
        memory
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
            crate::shared::store(a.ring_out(), 8, b"right");
            let mut bytes = [0; 5];
            crate::shared::load(b.ring_in(), 8, &mut bytes);
            assert_eq!(&bytes, b"right");
            crate::shared::load(b.ring_out(), 8, &mut bytes);
            assert_eq!(bytes, [0; 5], "the other direction");
        }
    }
}
