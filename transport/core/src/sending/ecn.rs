//! Whether the path carries the marks of its queues: datagrams leave ECN-capable (ECT(0)), a queue that
//! grows marks them "congestion experienced" instead of dropping them (RFC 3168), and the receiver counts
//! both. A path that clears the field says nothing, and is found out by its receiver counting none
//! (RFC 9000, 13.4.2, has the idea).

use crate::Instant;
use crate::limits::MARKS_TRIAL_STUS;
use zerolane_wire::Progress;

/// What was found out, as a sender.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EcnValidation {
    /// The path clears them.
    cleared: bool,
    /// Since when the controller wants them, at the latest.
    since: Option<Instant>,
    /// What the receiver had told when the present trial began.
    before: Option<Progress>,
}

impl EcnValidation {
    /// Whether they may be of use.
    pub(crate) fn may_work(&self) -> bool {
        !self.cleared
    }

    /// The receiver told `progress` of a burst that left at `sent`, in STUs of `stu` bytes. `wanted`: the
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
        // What left before the lane had heard that they are wanted tells nothing.
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

    /// The path is another.
    pub(crate) fn forget(&mut self) {
        *self = EcnValidation::default();
    }
}

#[cfg(test)]
#[path = "ecn_tests.rs"]
mod tests;
