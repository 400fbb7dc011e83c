//! Discovers the datagram size of a path by probing (RFC 8899), and retreats when datagrams of that size vanish.
//!
//! A path is assumed to carry [`BASE_MTU`] until a probe verifies it. From the second round of probes on, a probe of
//! the size in use accompanies each larger one. If it is lost repeatedly while shorter datagrams arrive, the size in
//! use is too large. The path then falls back to the minimum MTU, from which larger sizes are probed again. If that
//! size is lost too, the path is too narrow.

use crate::limits::{
    BASE_MTU, MIN_IPV4_MTU, NARROW_TRIES, PROBE_TRIES, SUSPICION, SUSPICION_MEMORY,
    VERIFY_INTERVAL, VERIFY_TRIES,
};
use crate::time::Instant;
use alloc::vec;
use alloc::vec::Vec;
use zerolane_wire::encapsulation::Encapsulation;

/// MTUs to probe below the interface's: jumbo, Ethernet, PPPoE, tunnels, nested tunnels.
const PLATEAUS: [usize; 9] = [9000, 4352, 1500, 1492, 1420, BASE_MTU, 1200, 1100, 1006];

/// Rounds without any word of the peer after which the size in use is no longer verified: silence tells nothing about
/// sizes.
const SILENT_ROUNDS: u32 = 3 * VERIFY_TRIES;

/// Path MTU state. Sizes include the Scheduled Transfer header and everything behind it, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    encapsulation: Encapsulation,
    /// The size in use.
    confirmed: usize,
    /// The interface's limit.
    limit: usize,
    /// The size being probed, and the tries so far.
    probing: Option<(usize, u32)>,
    /// Sizes probed since the limit changed. A late answer to an earlier one still counts.
    probed: Vec<usize>,
    /// Set while the size in use is being verified.
    verifying: Option<Verification>,
    /// Time of the first loss since a datagram of the size in use was last seen to arrive.
    suspected: Option<Instant>,
    /// Time of the last answer that verified the size in use.
    verified: Option<Instant>,
    /// Whether the search has probes left.
    probes: bool,
    /// The least size was probed, and does not pass.
    too_narrow: bool,
}

/// Probes that verify the size in use.
#[derive(Clone, Copy, Debug, Default)]
struct Verification {
    /// Lost probes, while other datagrams arrived.
    lost: u32,
    /// Rounds in which nothing arrived.
    silent: u32,
    /// Whether a probe is in flight.
    asked: bool,
}

impl Path {
    pub(crate) fn new(encapsulation: Encapsulation, limit: usize) -> Path {
        let mut path = Path {
            encapsulation,
            confirmed: base(encapsulation).min(limit),
            limit,
            probing: None,
            probed: vec![],
            verifying: None,
            suspected: None,
            verified: None,
            probes: false,
            too_narrow: false,
        };
        path.begin();
        path
    }

    /// Restarts the search, and the verification of the size in use.
    pub(crate) fn begin(&mut self) {
        (self.probing, self.probes, self.suspected) = (None, false, None);
        self.too_narrow = false;
        self.probed.clear();
        let known = self.encapsulation == Encapsulation::Memory;
        self.verifying = (!known).then(Verification::default);
    }

    /// Whether no smaller size may be used.
    fn is_least(&self) -> bool {
        self.confirmed <= floor(self.encapsulation)
    }

    /// Size of the datagrams in use.
    pub(crate) fn confirmed(&self) -> usize {
        self.confirmed
    }

    /// Whether this path carries less than assumed.
    pub(crate) fn is_narrow(&self) -> bool {
        self.confirmed < base(self.encapsulation).min(self.limit)
    }

    /// Whether not even the least size passes.
    pub(crate) fn is_too_narrow(&self) -> bool {
        self.too_narrow
    }

    /// The MTU that every path must carry, bytes. An interface may have less.
    pub(crate) fn least_mtu(&self) -> u32 {
        (floor(self.encapsulation) + self.encapsulation.overhead()) as u32
    }

    /// MTU of the size in use, bytes; memory has none.
    pub(crate) fn mtu(&self) -> Option<u32> {
        let mtu = self.confirmed + self.encapsulation.overhead();
        let has_one = self.encapsulation != Encapsulation::Memory;
        u32::try_from(mtu).ok().filter(|_| has_one)
    }

    /// Sets the interface's limit. Returns true if it changed: then the search restarts. Routers report each datagram
    /// that is too long, and reports of a known limit must not delay the result.
    pub(crate) fn set_limit(&mut self, limit: usize) -> bool {
        if limit == self.limit {
            return false;
        }
        self.limit = limit;
        if self.confirmed > limit {
            self.confirmed = limit.min(base(self.encapsulation));
        }
        self.begin();
        true
    }

    /// Datagrams of the size in use vanish: retreats to [`BASE_MTU`], or from there to the size that every path
    /// carries. Returns true if that is smaller. Restarts the search: perhaps nothing at all came through for a while.
    pub(crate) fn black_hole(&mut self) -> bool {
        let [base, floor] = [base, floor].map(|it| it(self.encapsulation).min(self.limit));
        let next = if self.confirmed > base { base } else { floor };
        let shrank = self.confirmed > next;
        if shrank {
            self.confirmed = next;
            self.begin();
        }
        shrank
    }

    /// A lost datagram may have been too long. Returns true if the size in use must now be verified: losses go on, and
    /// no datagram of that size arrives.
    pub(crate) fn doubt(&mut self, now: Instant) -> bool {
        let lately = self.verified.is_some_and(|it| now - it < VERIFY_INTERVAL);
        if lately || self.is_least() || self.verifying.is_some() {
            return false;
        }
        let since = self.suspected.filter(|it| now - *it <= SUSPICION_MEMORY);
        let since = *self.suspected.insert(since.unwrap_or(now));
        let doubts = now - since >= SUSPICION;
        if doubts {
            (self.verifying, self.probes) = (Some(Verification::default()), true);
        }
        doubts
    }

    /// Datagrams are repeated in vain. Returns true if their size, which is the least, must now be verified.
    pub(crate) fn verify_least(&mut self) -> bool {
        let is_sized = self.encapsulation != Encapsulation::Memory;
        let verifies = self.is_least() && is_sized && self.verifying.is_none();
        if verifies {
            (self.verifying, self.probes) = (Some(Verification::default()), true);
        }
        verifies
    }

    /// A datagram of the size in use arrived.
    pub(crate) fn proven(&mut self) {
        self.suspected = None;
        if self.is_least() {
            (self.verifying, self.too_narrow) = (None, false);
        }
    }

    /// The probes of this round had no answer in time. `heard`: other datagrams arrived. Returns true if not even
    /// the least size passes.
    pub(crate) fn unanswered(&mut self, heard: bool) -> bool {
        let Some(it) = self.verifying.as_mut().filter(|it| it.asked) else {
            return false;
        };
        match heard {
            true => (it.lost, it.silent) = (it.lost + 1, 0),
            false => it.silent += 1,
        }
        if it.silent >= SILENT_ROUNDS {
            self.verifying = None;
            return false;
        }
        let lost = it.lost;
        if self.is_least() && lost >= NARROW_TRIES {
            (self.verifying, self.too_narrow) = (None, true);
            return true;
        }
        if lost >= VERIFY_TRIES {
            self.black_hole();
        }
        false
    }

    /// The sizes to probe now: one above the size in use, if any is left, and the size in use, if it must be verified.
    pub(crate) fn next_probes(&mut self) -> [Option<usize>; 2] {
        let larger = self.next_larger();
        let first = !core::mem::replace(&mut self.probes, true);
        let size = self.confirmed;
        let verifies = self.verifying.as_mut();
        // The first probe of a larger size verifies this one as well if it passes, as most do.
        let own = verifies.filter(|_| !(first && larger.is_some()));
        let own = own.map(|it| {
            it.asked = true;
            size
        });
        [larger, own]
    }

    /// The size to probe now where one probe leaves at a time: the size in use before larger ones, which are probed if
    /// `larger`. The least size is not verified: other paths carry what this one does not.
    pub(crate) fn next_probe(&mut self, larger: bool) -> Option<usize> {
        let is_least = self.is_least();
        self.verifying.take_if(|_| is_least);
        if let Some(it) = &mut self.verifying {
            it.asked = true;
            return Some(self.confirmed);
        }
        larger.then(|| self.next_larger()).flatten()
    }

    fn next_larger(&mut self) -> Option<usize> {
        let (size, tries) = match self.probing {
            Some((size, tries)) if tries < PROBE_TRIES => (size, tries),
            Some((size, _)) => (self.below(size)?, 0),
            // A finished search has no size left.
            None if self.probed.contains(&self.limit) => return None,
            None => (self.limit, 0),
        };
        if size <= self.confirmed {
            self.probing = None;
            return None;
        }
        self.probing = Some((size, tries + 1));
        if !self.probed.contains(&size) {
            self.probed.push(size);
        }
        Some(size)
    }

    fn below(&mut self, size: usize) -> Option<usize> {
        let next = PLATEAUS
            .into_iter()
            .map(|mtu| datagram(self.encapsulation, mtu))
            .find(|&plateau| plateau < size && plateau > self.confirmed);
        if next.is_none() {
            self.probing = None;
        }
        next
    }

    /// A probe of `size` bytes was answered. Returns true if larger datagrams may be used now.
    pub(crate) fn probe_passed(&mut self, now: Instant, size: usize) -> bool {
        let asked = self.probed.contains(&size);
        let own = size == self.confirmed && self.verifying.is_some_and(|it| it.asked);
        if own || asked && size >= self.confirmed {
            (self.verifying, self.suspected, self.verified) = (None, None, Some(now));
            self.too_narrow = false;
        }
        if size <= self.confirmed || !asked {
            return false;
        }
        if self.probing.is_some_and(|(probing, _)| probing <= size) {
            self.probing = None;
        }
        self.confirmed = size;
        true
    }

    /// Whether every candidate size was answered or given up.
    pub(crate) fn is_settled(&self) -> bool {
        self.probing.is_none() && self.verifying.is_none()
    }

    /// Probes failed sizes again: the path may have changed.
    pub(crate) fn search_again(&mut self) {
        (self.probing, self.probes) = (None, false);
        self.probed.clear();
    }
}

/// The size assumed before probing; in shared memory, the largest.
fn base(encapsulation: Encapsulation) -> usize {
    match encapsulation {
        Encapsulation::Memory => datagram(encapsulation, usize::MAX),
        _ => datagram(encapsulation, BASE_MTU),
    }
}

/// The size that every path carries.
fn floor(encapsulation: Encapsulation) -> usize {
    match encapsulation {
        Encapsulation::UdpV4 | Encapsulation::IpV4 => datagram(encapsulation, MIN_IPV4_MTU),
        _ => base(encapsulation),
    }
}

fn datagram(encapsulation: Encapsulation, mtu: usize) -> usize {
    encapsulation.max_stu(mtu) + zerolane_wire::HEADER_LEN
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
