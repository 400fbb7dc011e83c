//! Immediates of the peer's puts that are not shown yet: each is shown once, when its put and everything
//! that the peer asked for before are placed.

use crate::InboundState;
use crate::receiving::Receiving;
use alloc::collections::VecDeque;
use zerolane_wire::Immediate;

/// The immediate of a put that is announced and not over, or follows something that is not.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    /// Number of its announcement; of a numbered one, of the first announcement behind it.
    sequence: u32,
    immediate: Immediate,
    /// It is announced, and not numbered.
    announced: bool,
    /// All of the put arrived.
    placed: bool,
}

/// All of them, in the order of their announcements.
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

    /// The put of announcement `sequence` is received, and brings `immediate`.
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

    /// Whether numbered operation `number`, which brings an immediate, was asked for behind one of these.
    pub(super) fn precede(&self, number: u32) -> bool {
        self.behind(number) > 0
    }

    /// Numbered operation `number` is executed, and brings `value`: shown behind those that precede it, and
    /// when all puts announced before `announced` are over, if it says so.
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

    /// How many were asked for before numbered operation `number`.
    fn behind(&self, number: u32) -> usize {
        let before = |it: &&Awaited| number.wrapping_sub(it.immediate.after) <= u32::MAX / 2;
        self.list.iter().take_while(before).count()
    }

    /// Learns which puts are over. To be called before the slots of any that are over are used again.
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

    /// Takes out the next one that may be shown: the peer's operations below `executed` were executed.
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
