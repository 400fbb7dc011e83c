//! Validates whether the path preserves ECN marks, whenever the receiver reports counts.
//!
//! Datagrams leave ECN-capable (ECT(0)). A growing queue marks them "congestion experienced" instead of dropping them
//! (RFC 3168), and the receiver counts both kinds. If the path clears the field, the receiver counts none (the idea of
//! RFC 9000, 13.4.2).

use crate::limits::MARKS_TRIAL_STUS;
use crate::time::Instant;
use zerolane_wire::Progress;

/// State of ECN validation at the sender.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EcnValidation {
    /// The path clears the marks.
    cleared: bool,
    /// Since when the controller has wanted marks, at the latest.
    since: Option<Instant>,
    /// The receiver's counts at the start of the present trial.
    before: Option<Progress>,
}

impl EcnValidation {
    /// Whether marks may be useful.
    pub(crate) fn may_work(&self) -> bool {
        !self.cleared
    }

    /// The receiver reported `progress` for a burst that left at `sent`, in STUs of `stu` bytes. `wanted`: the
    /// controller wants marks.
    pub(crate) fn note(
        &mut self,
        now: Instant,
        wanted: bool,
        sent: Instant,
        stu: u32,
        progress: &Progress,
    ) {
        if !wanted || self.cleared {
            self.since = None;
            self.before = None;
            return;
        }
        // Bursts that left before the lane knew that marks are wanted tell nothing.
        if sent <= *self.since.get_or_insert(now) {
            return;
        }
        let before = *self.before.get_or_insert(*progress);
        let bytes = progress.received.saturating_sub(before.received);
        let stus = bytes / u64::from(stu.max(1));
        if stus < MARKS_TRIAL_STUS {
            return;
        }
        let capable = progress.capable.wrapping_sub(before.capable);
        self.cleared = u64::from(capable) < stus / 2;
        self.before = Some(*progress);
    }

    /// Forgets the path: it changed.
    pub(crate) fn forget(&mut self) {
        *self = EcnValidation::default();
    }
}

#[cfg(test)]
#[path = "ecn_tests.rs"]
mod tests;
