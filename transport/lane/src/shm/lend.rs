//! Lends this end's exported memory to the peer: passes its descriptor once, with a lease that a revocation ends.

use super::lease::LEASES;
use super::link::{Kind, Link};
use super::mapping::Shared;
use crate::memory::exported::Loan;
use crate::memory::{Exporting, memfd};
use crate::threads::Process;
use crate::unavailable::RingFault;
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use zerolane_core::RemotePlace;
use zerolane_wire::Rights;

/// How long a revocation waits for an access of the peer in progress. An access takes less than a millisecond, unless
/// the peer's thread was preempted, or its process is stopped or malicious.
const PATIENCE: Duration = Duration::from_millis(20);

/// The record that goes with a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lent {
    pub(super) handle: u32,
    pub(super) mx: u16,
    /// The lease: its place and its number.
    pub(super) place: usize,
    pub(super) number: u64,
    /// Length in bytes, from the start of the memory.
    pub(super) len: u64,
    /// The inode that identifies the descriptor.
    pub(super) inode: u64,
    pub(super) writable: bool,
    /// The peer may execute atomic operations, if the memory is writable.
    pub(super) atomic: bool,
}

/// Bytes of the record.
const RECORD: usize = 40;

impl Lent {
    pub(super) fn emit(&self) -> [u8; RECORD] {
        let mut record = [0; RECORD];
        record[..4].copy_from_slice(&self.handle.to_ne_bytes());
        record[4..6].copy_from_slice(&self.mx.to_ne_bytes());
        record[6] = u8::from(self.writable) | u8::from(self.atomic) << 1;
        record[8..16].copy_from_slice(&(self.place as u64).to_ne_bytes());
        record[16..24].copy_from_slice(&self.number.to_ne_bytes());
        record[24..32].copy_from_slice(&self.len.to_ne_bytes());
        record[32..].copy_from_slice(&self.inode.to_ne_bytes());
        record
    }

    /// `None` if the record is invalid.
    pub(super) fn parse(record: &[u8]) -> Option<Lent> {
        let record: &[u8; RECORD] = record.try_into().ok()?;
        let word = |at: usize| {
            let bytes = record.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_ne_bytes(bytes))
        };
        let [a, b, c, d, e, f, rights, zero, ..] = *record;
        let place = usize::try_from(word(8)?).ok()?;
        (place < LEASES && rights <= 3 && zero == 0).then_some(())?;
        Some(Lent {
            handle: u32::from_ne_bytes([a, b, c, d]),
            mx: u16::from_ne_bytes([e, f]),
            place,
            number: word(16)?,
            len: word(24)?,
            inode: word(32)?,
            writable: rights & 1 != 0,
            atomic: rights & 2 != 0,
        })
    }
}

/// A lease that this end granted, for the threads that may end it.
#[derive(Debug)]
struct Granted {
    shared: Arc<Shared>,
    place: usize,
    number: u64,
    ended: Mutex<bool>,
    stuck: Arc<AtomicU64>,
    process: Process,
}

impl Loan for Granted {
    fn end(&self) {
        // A child of fork shares the lease, which belongs to its parent.
        if !self.process.is_current() {
            return;
        }
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *ended, true) {
            return;
        }
        self.shared.own_lease(self.place).end(self.number);
        if !self.is_quiet() {
            self.shared.own_lease(self.place).abandon(self.number);
        }
    }
}

impl Granted {
    /// Waits until the access in progress is over. False if it does not end in time.
    fn is_quiet(&self) -> bool {
        let accesses = self.shared.peers_accesses();
        let Some(current) = accesses.current() else {
            return true;
        };
        let until = Instant::now() + PATIENCE;
        while accesses.current() == Some(current) {
            // An earlier revocation has waited for it already.
            if self.stuck.load(Ordering::Relaxed) == current || Instant::now() >= until {
                self.stuck.store(current, Ordering::Relaxed);
                return false;
            }
            thread::yield_now();
        }
        true
    }
}

/// Memory to lend once the peer is known.
#[derive(Debug)]
struct Offer {
    place: RemotePlace,
    memory: Exporting,
    rights: Rights,
}

/// Memory that is lent.
#[derive(Debug)]
struct OnLoan {
    handle: u32,
    memory: Exporting,
    loan: Arc<dyn Loan>,
}

/// The memory that one connection lends.
#[derive(Debug)]
pub(super) struct Lending {
    offers: VecDeque<Offer>,
    /// Loans by the place of their leases.
    granted: [Option<OnLoan>; LEASES],
    /// Number of the last lease of each place.
    numbers: [u64; LEASES],
    /// The access for which a revocation waited in vain.
    stuck: Arc<AtomicU64>,
    process: Process,
}

impl Default for Lending {
    fn default() -> Lending {
        Lending {
            offers: VecDeque::new(),
            granted: [const { None }; LEASES],
            numbers: [0; LEASES],
            stuck: Arc::default(),
            process: Process::current(),
        }
    }
}

impl Lending {
    /// Lends `memory`, exported at `place`, once there is room and a peer, if the memory can be mapped.
    pub(super) fn offer(&mut self, memory: &Exporting, place: RemotePlace, rights: Rights) {
        // A writable mapping is readable as well, so READ is required.
        if memory.0.memfd().is_some() && rights.contains(Rights::READ) {
            self.offers.push_back(Offer {
                place,
                memory: memory.clone(),
                rights,
            });
        }
    }

    /// Ends the loans of an export.
    pub(super) fn take_back(&mut self, handle: u32) {
        self.offers.retain(|it| it.place.handle != handle);
        let of_it = self
            .granted
            .iter_mut()
            .filter(|it| it.as_ref().is_some_and(|it| it.handle == handle));
        of_it.for_each(end);
    }

    pub(super) fn has_offers(&self) -> bool {
        !self.offers.is_empty()
    }

    /// Lends offered memory, as far as there is room. True if any was lent.
    ///
    /// # Errors
    /// As [`Link::push`].
    pub(super) fn lend_offered(&mut self, link: &mut Link) -> Result<bool, RingFault> {
        let mut lent = false;
        while let Some(offer) = self.offers.front() {
            let place = self.granted.iter().position(Option::is_none);
            // Without a free lease, requests on the memory go by the ring.
            if let (Some(place), Some(passed)) = (place, to_pass(offer)) {
                if !link.has_room(super::link::record_len(RECORD))? {
                    return Ok(lent);
                }
                lent |= self.lend(place, &passed, link)?;
            }
            self.offers.pop_front();
        }
        Ok(lent)
    }

    fn lend(&mut self, place: usize, passed: &Passed, link: &mut Link) -> Result<bool, RingFault> {
        let Some(offer) = self.offers.front() else {
            return Ok(false);
        };
        let lease = link.shared().own_lease(place);
        let number = lease.grant(self.numbers[place]);
        self.numbers[place] = number;
        let loan: Arc<dyn Loan> = Arc::new(Granted {
            shared: Arc::clone(link.shared()),
            place,
            number,
            ended: Mutex::new(false),
            stuck: Arc::clone(&self.stuck),
            process: self.process,
        });
        let window = &offer.memory.0;
        // In this order, so that a revocation knows of the loan before the peer may have it.
        if !window.lend(&loan) || link.pass(passed.memory.as_fd()).is_err() {
            window.return_loan(&loan);
            loan.end();
            return Ok(false);
        }
        let RemotePlace { handle, mx, .. } = offer.place;
        let lent = Lent {
            handle,
            mx,
            place,
            number,
            len: window.bounds().len as u64,
            inode: passed.inode,
            writable: passed.writable,
            atomic: offer.rights.contains(Rights::ATOMIC),
        };
        self.granted[place] = Some(OnLoan {
            handle,
            memory: offer.memory.clone(),
            loan,
        });
        link.push(Kind::Region, &[&lent.emit()])
    }
}

/// Ends the lease of a place, so that another can be granted there.
fn end(place: &mut Option<OnLoan>) {
    if let Some(OnLoan { memory, loan, .. }) = place.take() {
        memory.0.return_loan(&loan);
        loan.end();
    }
}

/// Ends all loans with the connection.
impl Drop for Lending {
    fn drop(&mut self) {
        // A child of fork has copies, and its parent continues to use the loans.
        if self.process.is_current() {
            self.granted.iter_mut().for_each(end);
        }
    }
}

/// A descriptor for the peer.
struct Passed {
    memory: Arc<OwnedFd>,
    inode: u64,
    writable: bool,
}

/// `None`: the system has no descriptor left, or cannot keep the peer from writing.
fn to_pass(offer: &Offer) -> Option<Passed> {
    let memory = offer.memory.0.memfd()?;
    let inode = memfd::inode(memory.as_fd()).ok()?;
    let writable = offer.rights.contains(Rights::WRITE) && memfd::is_writable(memory).ok()?;
    let memory = match writable {
        true => Arc::clone(memory),
        false => Arc::new(memfd::reader(memory).ok()?),
    };
    Some(Passed {
        memory,
        inode,
        writable,
    })
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn record__comes_back_as_it_was_and_nothing_else_does() {
        let lent = Lent {
            handle: 0x8000_0007,
            mx: 7,
            place: LEASES - 1,
            number: 12,
            len: 4096,
            inode: 99,
            writable: true,
            atomic: false,
        };
        let record = lent.emit();
        assert_eq!(Lent::parse(&record), Some(lent));
        assert_eq!(Lent::parse(&record[1..]), None);
        for (at, byte) in [(6, 4), (7, 1), (8, LEASES as u8), (15, 1)] {
            let mut other = record;
            other[at] = byte;
            assert_eq!(Lent::parse(&other), None, "{at}");
        }
    }
}
