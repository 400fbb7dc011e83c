//! Maps the peer's exported memory and accesses it without the target's CPU.

use super::ShmLane;
use super::lease::{Accessor, LEASES};
use super::lend::Lent;
use super::link::Link;
use crate::error::LaneError;
use crate::lane::{RemoteAccess, Turn};
use crate::memory::shared::Bounds;
use crate::memory::{Mapping, memfd, shared};
use crate::unavailable::RingFault;
use nix::fcntl::SealFlag;
use std::os::fd::{AsFd, OwnedFd};
use zerolane_core::RemotePlace;
use zerolane_wire::Reason;

/// Bytes copied between two checks of the lease. A revocation waits no longer than such a copy takes.
const PIECE: usize = 1 << 20;
/// Most bytes mapped of one peer at a time. The limit is for addresses, of which a process has 128 TiB. The memory is
/// the peer's.
const MAX_MAPPED: u64 = 1 << 40;

/// A mapping of the peer's memory.
#[derive(Debug)]
struct Mapped {
    lent: Lent,
    memory: Mapping,
}

impl Mapped {
    fn bounds(&self) -> Bounds {
        Bounds {
            start: self.memory.start().as_ptr(),
            len: self.memory.len(),
        }
    }
}

/// The mappings of one connection.
#[derive(Debug, Default)]
pub(super) struct Reached {
    mapped: Vec<Mapped>,
    accessor: Accessor,
}

/// Maps memory that the peer passed, if it is as announced and can be mapped safely. `None`: requests go by the ring.
fn map(lent: &Lent, memory: &OwnedFd, others: u64) -> Option<Mapping> {
    let len = usize::try_from(lent.len).ok().filter(|it| *it > 0)?;
    // Longer memory could not be indexed either.
    isize::try_from(len).ok()?;
    others
        .checked_add(lent.len)
        .filter(|it| *it <= MAX_MAPPED)?;
    // An access to memory that shrank would end this process by a signal.
    memfd::check(memory.as_fd(), whole_pages(len)?, SealFlag::F_SEAL_SHRINK).ok()?;
    let of = (memory.as_fd(), 0);
    let mapped = match lent.writable {
        true => Mapping::new(len, libc::MAP_SHARED, Some(of)),
        false => Mapping::to_read(len, of),
    };
    mapped.ok()
}

/// The length of memory in whole pages.
fn whole_pages(len: usize) -> Option<usize> {
    len.checked_next_multiple_of(crate::memory::mapping::page())
}

impl Reached {
    /// Maps the memory that a record of the peer names. False if it cannot be mapped.
    ///
    /// # Errors
    /// The record is invalid.
    pub(super) fn map(&mut self, record: &[u8], link: &mut Link) -> Result<bool, RingFault> {
        let lent = Lent::parse(record).ok_or(RingFault::Record)?;
        self.forget_ended(link);
        // Each place has one lease at a time.
        self.mapped.retain(|it| it.lent.place != lent.place);
        let Some(memory) = link.take_passed(|it| memfd::inode(it).ok() == Some(lent.inode)) else {
            return Ok(false);
        };
        let others = self.mapped.iter().map(|it| it.lent.len).sum();
        let Some(memory) = map(&lent, &memory, others) else {
            return Ok(false);
        };
        self.mapped.push(Mapped { lent, memory });
        debug_assert!(self.mapped.len() <= LEASES);
        Ok(true)
    }

    /// Unmaps memory that the peer revoked.
    pub(super) fn forget_ended(&mut self, link: &Link) {
        let shared = link.shared();
        self.mapped
            .retain(|it| shared.peers_lease(it.lent.place).stands(it.lent.number));
    }

    /// Performs `access` at once. `None` if nothing was done, and the request must go by the ring. The stores are
    /// relaxed: a record that is published later orders them ([`super::ring::Producer::publish`]).
    fn access(
        &mut self,
        at: RemotePlace,
        access: &mut RemoteAccess<'_>,
        link: &Link,
    ) -> Option<Result<u64, Reason>> {
        let Reached { mapped, accessor } = self;
        let mapped = mapped
            .iter()
            .find(|it| it.lent.handle == at.handle && it.lent.mx == at.mx)?;
        let start = match access {
            // The 8 bytes that are or hold the word.
            RemoteAccess::FetchOp(_) => at.address - at.address % 8,
            _ => at.address,
        };
        let end = start.checked_add(access.len())?;
        let denied = access.writes() && !mapped.lent.writable
            || matches!(access, RemoteAccess::FetchOp(_)) && !mapped.lent.atomic;
        if end > mapped.lent.len || denied {
            return None;
        }
        let lease = link.shared().peers_lease(mapped.lent.place);
        let number = mapped.lent.number;
        let (bounds, start) = (mapped.bounds(), at.address as usize);
        let stands = || lease.stands(number);
        let done = accessor.access(link.shared().own_accesses(), (lease, number), || {
            // SAFETY: in bounds, as checked, of memory that is mapped as long as `mapped`, is sealed against shrinking,
            // and is writable if the access writes; it is only accessed atomically.
            unsafe { perform(bounds, start, access, stands) }
        });
        Some(done?.flatten().ok_or(Reason::Revoked))
    }
}

/// Performs `access` at `start` of the peer's memory, in pieces, and stops once `stands` is false. Returns the old
/// word, or 0.
///
/// # Safety
/// As [`shared::store`] if it writes, else as [`shared::load`]; a word is aligned, and the 8 aligned bytes that hold it
/// lie in the memory.
unsafe fn perform(
    bounds: Bounds,
    start: usize,
    access: &mut RemoteAccess<'_>,
    stands: impl Fn() -> bool,
) -> Option<u64> {
    let mut at = start;
    match access {
        RemoteAccess::Put(parts) => {
            for piece in parts.iter().flat_map(|it| it.chunks(PIECE)) {
                if at > start && !stands() {
                    return None;
                }
                // SAFETY: as promised.
                unsafe { shared::store(bounds, at, piece) };
                at += piece.len();
            }
            Some(0)
        }
        RemoteAccess::Get(into) => {
            for piece in into.chunks_mut(PIECE) {
                if at > start && !stands() {
                    return None;
                }
                // SAFETY: as promised.
                unsafe { shared::load_uninit(bounds, at, piece) };
                at += piece.len();
            }
            Some(0)
        }
        RemoteAccess::FetchOp(atomic) => {
            let skip = at % 8;
            // SAFETY: as promised.
            let word = unsafe { shared::word(bounds, at - skip) };
            Some(shared::fetch_op(word, skip, *atomic))
        }
    }
}

impl ShmLane {
    /// Takes a record that names memory which the peer lends.
    pub(super) fn region(&mut self, record: &[u8], turn: &mut Turn<'_>) -> Result<(), LaneError> {
        match self.reached.map(record, &mut self.link) {
            Ok(true) => {}
            Ok(false) => turn.account.regions_not_mapped += 1,
            Err(fault) => return Err(self.broken(fault)),
        }
        Ok(())
    }

    /// Whether some of the peer's memory is mapped.
    pub(super) fn reaches(&self) -> bool {
        !self.reached.mapped.is_empty()
    }

    pub(super) fn access_at_once(
        &mut self,
        at: RemotePlace,
        access: &mut RemoteAccess<'_>,
    ) -> Option<Result<u64, Reason>> {
        // A child of fork shares the memory, and must not access it.
        if self.fault.is_some() || self.link.is_closed() || !self.process.is_current() {
            return None;
        }
        self.reached.access(at, access, &self.link)
    }
}
