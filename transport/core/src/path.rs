//! What the path carries: the datagram size in use, probes for a larger one, and the retreat when datagrams of that
//! size vanish (RFC 8899).
//!
//! A path is thought to carry [`BASE_MTU`] until it is known. From the second round of probes on, a probe of the size in use goes along
//! with that of a larger one: when it is lost again and again, and something shorter is heard, what is in use does not pass, and is
//! the least that a path may have, from which larger sizes are probed again.

use crate::Instant;
use crate::limits::{
    BASE_MTU, MIN_IPV4_MTU, PROBE_TRIES, SUSPICION, SUSPICION_MEMORY, VERIFY_INTERVAL, VERIFY_TRIES,
};
use alloc::vec;
use alloc::vec::Vec;
use zerolane_wire::encapsulation::Encapsulation;

/// MTUs worth a try below the one the interface has: jumbo, Ethernet, PPPoE, tunnels; and in tunnels of tunnels.
const PLATEAUS: [usize; 9] = [9000, 4352, 1500, 1492, 1420, BASE_MTU, 1200, 1100, 1006];

/// Rounds without any word of the peer after which it is not asked any more whether the size in use passes: that it is silent says
/// nothing of sizes.
const SILENT_ROUNDS: u32 = 3 * VERIFY_TRIES;

/// Datagram sizes count the Scheduled Transfer header and what follows it, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    encapsulation: Encapsulation,
    /// In use.
    confirmed: usize,
    /// What the interface would carry.
    limit: usize,
    /// Size being probed, and how often.
    probing: Option<(usize, u32)>,
    /// Sizes probed since the limit changed: the answer to an earlier one may be late.
    probed: Vec<usize>,
    /// Whether the size in use passes is being asked.
    verifying: Option<Verification>,
    /// When something was lost first, if nothing of the size in use was seen to arrive since.
    suspected: Option<Instant>,
    /// When an answer said last that what is in use passes.
    verified: Option<Instant>,
    /// Probes left since the search began.
    probes: bool,
}

/// Probes of the size in use.
#[derive(Clone, Copy, Debug, Default)]
struct Verification {
    /// Lost, while something else was heard.
    lost: u32,
    /// Rounds in which nothing was.
    silent: u32,
    /// One is under way.
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
        };
        path.begin();
        path
    }

    /// All sizes are to be probed anew, and whether that in use passes.
    fn begin(&mut self) {
        (self.probing, self.probes, self.suspected) = (None, false, None);
        self.probed.clear();
        let known = self.confirmed <= floor(self.encapsulation);
        self.verifying = (!known).then(Verification::default);
    }

    /// Size of the datagrams in use.
    pub(crate) fn confirmed(&self) -> usize {
        self.confirmed
    }

    /// Whether a path is thought to carry more, and this one does not.
    pub(crate) fn is_narrow(&self) -> bool {
        self.confirmed < base(self.encapsulation).min(self.limit)
    }

    /// Bytes of the MTU that the size in use is of; memory has none.
    pub(crate) fn mtu(&self) -> Option<u32> {
        let mtu = self.confirmed + self.encapsulation.overhead();
        let has_one = self.encapsulation != Encapsulation::Memory;
        u32::try_from(mtu).ok().filter(|_| has_one)
    }

    /// The interface's limit changed. True if datagrams in use are too large now.
    pub(crate) fn set_limit(&mut self, limit: usize) -> bool {
        self.limit = limit;
        let shrank = self.confirmed > limit;
        if shrank {
            self.confirmed = limit.min(base(self.encapsulation));
        }
        self.begin();
        shrank
    }

    /// Datagrams of the size in use vanish: back to what paths are thought to carry, or if that is what vanishes, to what every path
    /// does. True if that is smaller. All sizes are to be probed anew: perhaps nothing at all came through for a while.
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

    /// What was lost may have been too long. True if whether the size in use passes is to be asked from here on: losses go on, and
    /// nothing of that size arrives.
    pub(crate) fn doubt(&mut self, now: Instant) -> bool {
        let lately = self.verified.is_some_and(|it| now - it < VERIFY_INTERVAL);
        let known = self.confirmed <= floor(self.encapsulation);
        if lately || known || self.verifying.is_some() {
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

    /// Something of the size in use arrived.
    pub(crate) fn proven(&mut self) {
        self.suspected = None;
    }

    /// The probes that left had no answer in time; `heard`: something else had. True if datagrams in use are too large, as it seems.
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
        it.lost >= VERIFY_TRIES && self.black_hole()
    }

    /// The sizes to probe now: one above that in use, if any is left, and that in use, if it is to be asked.
    pub(crate) fn next_probes(&mut self) -> [Option<usize>; 2] {
        let larger = self.next_larger();
        let first = !core::mem::replace(&mut self.probes, true);
        let size = self.confirmed;
        let verifies = self.verifying.as_mut();
        // The first probe of a larger size tells of this one as well, if it passes, as most do.
        let own = verifies.filter(|_| !(first && larger.is_some()));
        let own = own.map(|it| {
            it.asked = true;
            size
        });
        [larger, own]
    }

    /// The size to probe now where one probe leaves at a time: that in use before larger ones, which are probed if `larger`.
    pub(crate) fn next_probe(&mut self, larger: bool) -> Option<usize> {
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
            // Of a search that is over no size is left.
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

    /// A probe of `size` bytes came back. True if larger datagrams may be used now.
    pub(crate) fn probe_passed(&mut self, now: Instant, size: usize) -> bool {
        let asked = self.probed.contains(&size);
        let own = size == self.confirmed && self.verifying.is_some_and(|it| it.asked);
        if own || asked && size >= self.confirmed {
            (self.verifying, self.suspected, self.verified) = (None, None, Some(now));
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

    /// Whether every size worth a try was answered or given up.
    pub(crate) fn is_settled(&self) -> bool {
        self.probing.is_none() && self.verifying.is_none()
    }

    /// Sizes that did not pass are probed again: the path may have changed.
    pub(crate) fn search_again(&mut self) {
        (self.probing, self.probes) = (None, false);
        self.probed.clear();
    }
}

/// What a path is thought to carry: in memory that is shared, all there is.
fn base(encapsulation: Encapsulation) -> usize {
    match encapsulation {
        Encapsulation::Memory => datagram(encapsulation, usize::MAX),
        _ => datagram(encapsulation, BASE_MTU),
    }
}

/// What every path carries.
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
