//! Repeats the End of each aborted Transfer until the peer confirms it.
//!
//! A cancelled announcement or Read keeps its number, and so its slot, until the peer confirms the End. A peer that
//! never heard of it would wait for it, and match nothing that comes after.
//!
//! The peer waits for the payload of a message as soon as it has the message. So the End of an ungranted payload
//! follows its message, and takes an announcement's number if it has none: an End that came first would be forgotten
//! when the wait begins.

use crate::limits;
use crate::time::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use zerolane_wire::End;

/// An unconfirmed End.
#[derive(Clone, Copy, Debug)]
struct Ending {
    end: End,
    resend_at: Instant,
    tries: u32,
    /// Number of the message that it must not overtake.
    follows: Option<u32>,
}

impl Ending {
    /// Whether the message that it follows was executed.
    fn may_leave(&self, has_executed: &impl Fn(u32) -> bool) -> bool {
        self.follows.is_none_or(has_executed)
    }

    /// Whether a number stays unresolved until the peer confirms.
    fn holds_slot(&self) -> bool {
        self.end.from_source || self.end.d_id == 0
    }
}

/// All unconfirmed Ends of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Endings {
    list: VecDeque<Ending>,
}

impl Endings {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Adds an End that is due now, behind the message of number `follows`. Returns the number of Ends dropped for lack
    /// of room: 0 or 1.
    pub(crate) fn push(&mut self, now: Instant, end: End, follows: Option<u32>) -> u64 {
        let full = self.list.len() >= limits::MAX_ENDINGS;
        if full {
            let expendable = self.list.iter().position(|it| !it.holds_slot());
            self.list.remove(expendable.unwrap_or(0));
        }
        self.list.push_back(Ending {
            end,
            resend_at: now,
            tries: 0,
            follows,
        });
        full.into()
    }

    /// Takes the Ends that are due, and schedules their repetition at `resend_at`. Also returns whether any of them was
    /// sent before.
    pub(crate) fn take_due(
        &mut self,
        now: Instant,
        resend_at: Instant,
        has_executed: impl Fn(u32) -> bool,
    ) -> (Vec<End>, bool) {
        let mut repeated = false;
        let mut due = Vec::new();
        for ending in &mut self.list {
            if ending.resend_at > now || !ending.may_leave(&has_executed) {
                continue;
            }
            repeated |= ending.tries > 0;
            ending.tries = ending.tries.saturating_add(1);
            ending.resend_at = resend_at;
            due.push(ending.end);
        }
        (due, repeated)
    }

    /// When the next End is due.
    pub(crate) fn next_due(&self, has_executed: impl Fn(u32) -> bool) -> Option<Instant> {
        let ready = self.list.iter().filter(|it| it.may_leave(&has_executed));
        ready.map(|it| it.resend_at).min()
    }

    /// Removes and returns the End that `ack` confirms.
    pub(crate) fn confirm(&mut self, ack: &End) -> Option<End> {
        let confirmed = |it: &Ending| {
            it.end.from_source == ack.from_source
                && it.end.sequence == ack.sequence
                && it.end.s_id == ack.d_id
        };
        let index = self.list.iter().position(confirmed)?;
        self.list.remove(index).map(|it| it.end)
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    pub(crate) fn assert_bounded(&self) {
        assert!(self.list.len() <= limits::MAX_ENDINGS);
    }
}
