//! Shows each immediate of the peer's puts once, when its put and all earlier operations are placed.

use crate::receiving::{InboundState, Receiving};
use alloc::collections::VecDeque;
use zerolane_wire::Immediate;

/// The immediate of a put that is announced and pending, or that follows a pending operation.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    /// Number of its announcement; for a numbered operation, of the first announcement behind it.
    sequence: u32,
    immediate: Immediate,
    /// It is announced, not numbered.
    announced: bool,
    /// All of the put arrived.
    placed: bool,
}

/// All immediates not yet shown, in the order of their announcements.
#[derive(Clone, Debug, Default)]
pub(super) struct Immediates {
    list: VecDeque<Awaited>,
}

impl Immediates {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The put of announcement `sequence`, which carries `immediate`, is being received.
    pub(super) fn push(&mut self, sequence: u32, immediate: Immediate) {
        let follows =
            |it: &Awaited| (1..=u32::MAX / 2).contains(&it.sequence.wrapping_sub(sequence));
        let index = self.list.iter().position(follows);
        let awaited = Awaited {
            sequence,
            immediate,
            announced: true,
            placed: false,
        };
        self.list.insert(index.unwrap_or(self.list.len()), awaited);
    }

    /// Whether any of these was posted before numbered operation `number`, which carries an immediate.
    pub(super) fn precede(&self, number: u32) -> bool {
        self.behind(number) > 0
    }

    /// Numbered operation `number`, which carries `value`, was executed. The immediate is shown behind those that
    /// precede it, and if `announced` is set, after all puts announced before that number.
    pub(super) fn push_numbered(&mut self, number: u32, value: u32, announced: Option<u32>) {
        let index = self.behind(number);
        let before = index.checked_sub(1).and_then(|it| self.list.get(it));
        let behind = before.map(|it| it.sequence.wrapping_add(it.announced.into()));
        let awaited = Awaited {
            sequence: announced.or(behind).unwrap_or_default(),
            immediate: Immediate {
                value,
                after: number,
            },
            announced: false,
            placed: true,
        };
        self.list.insert(index, awaited);
    }

    /// How many precede numbered operation `number`.
    fn behind(&self, number: u32) -> usize {
        let before = |it: &&Awaited| number.wrapping_sub(it.immediate.after) <= u32::MAX / 2;
        self.list.iter().take_while(before).count()
    }

    /// Updates which puts are over. Must be called before the slots of finished puts are reused.
    pub(super) fn update(&mut self, receiving: &Receiving) {
        self.list.retain_mut(|it| {
            let state = match it.placed {
                true => return true,
                false => receiving.state_of_announcement(it.sequence),
            };
            it.placed = state == Some(InboundState::Complete);
            it.placed || state == Some(InboundState::Receiving)
        });
    }

    /// Removes and returns the next immediate that may be shown. The peer's operations below `executed` were executed.
    pub(super) fn take(&mut self, receiving: &Receiving, executed: u32) -> Option<u32> {
        let it = self.list.front().filter(|it| it.placed)?;
        let follows = it.immediate.after.wrapping_sub(executed).wrapping_sub(1) <= u32::MAX / 2;
        if follows || !receiving.are_puts_over_before(it.sequence) {
            return None;
        }
        Some(self.list.pop_front()?.immediate.value)
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
    }
}

#[cfg(test)]
#[path = "immediates_tests.rs"]
mod tests;
