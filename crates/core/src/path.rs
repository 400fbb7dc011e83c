//! What the path carries: the datagram size in use, probes for a larger one, and the retreat when
//! large datagrams vanish.

use crate::limits::{MIN_MTU, PROBE_TRIES};
use alloc::vec;
use alloc::vec::Vec;
use zerolane_wire::encapsulation::Encapsulation;

/// MTUs worth a try below the one the interface has: jumbo, Ethernet, PPPoE, tunnels.
const PLATEAUS: [usize; 6] = [9000, 4352, 1500, 1492, 1420, MIN_MTU];

/// Datagram sizes count the Scheduled Transfer header and what follows it, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    encapsulation: Encapsulation,
    /// Known to pass.
    confirmed: usize,
    /// What the interface would carry.
    limit: usize,
    /// Size being probed, and how often.
    probing: Option<(usize, u32)>,
    /// Sizes probed since the limit changed: the answer to an earlier one may be late.
    probed: Vec<usize>,
}

impl Path {
    pub(crate) fn new(encapsulation: Encapsulation, limit: usize) -> Path {
        Path {
            encapsulation,
            confirmed: floor(encapsulation).min(limit),
            limit,
            probing: None,
            probed: vec![],
        }
    }

    /// Largest datagram known to pass.
    pub(crate) fn confirmed(&self) -> usize {
        self.confirmed
    }

    /// The interface's limit changed. True if datagrams in use are too large now.
    pub(crate) fn set_limit(&mut self, limit: usize) -> bool {
        self.limit = limit;
        let shrank = self.confirmed > limit;
        if shrank {
            self.confirmed = limit.min(floor(self.encapsulation));
        }
        self.probing = None;
        self.probed.clear();
        shrank
    }

    /// Large datagrams vanish: back to what every path carries. True if that is smaller. All sizes are
    /// to be probed anew: perhaps nothing at all came through for a while.
    pub(crate) fn black_hole(&mut self) -> bool {
        let floor = floor(self.encapsulation).min(self.limit);
        let shrank = self.confirmed > floor;
        if shrank {
            self.confirmed = floor;
            self.probing = None;
            self.probed.clear();
        }
        shrank
    }

    /// The size to probe now, if any is left above the confirmed one.
    pub(crate) fn next_probe(&mut self) -> Option<usize> {
        let (size, tries) = match self.probing {
            Some((size, tries)) if tries < PROBE_TRIES => (size, tries),
            Some((size, _)) => (self.below(size)?, 0),
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
    pub(crate) fn probe_passed(&mut self, size: usize) -> bool {
        if size <= self.confirmed || !self.probed.contains(&size) {
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
        self.probing.is_none()
    }
}

/// What every path carries: in memory that is shared, all there is.
fn floor(encapsulation: Encapsulation) -> usize {
    match encapsulation {
        Encapsulation::Memory => datagram(encapsulation, usize::MAX),
        _ => datagram(encapsulation, MIN_MTU),
    }
}

fn datagram(encapsulation: Encapsulation, mtu: usize) -> usize {
    encapsulation.max_stu(mtu) + zerolane_wire::HEADER_LEN
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
