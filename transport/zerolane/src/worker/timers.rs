//! Finds the connections whose timers expire, with a heap that tolerates outdated entries.

use super::poller::Key;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, Key)>>,
}

impl Timers {
    /// Makes `key` due at `at`. `armed` is the slot's earliest entry. Postponing a timer costs nothing: its old entry
    /// stays.
    pub(super) fn set(&mut self, key: Key, at: Instant, armed: &mut Option<Instant>) {
        if armed.is_none_or(|earlier| at < earlier) {
            self.heap.push(Reverse((at, key)));
            *armed = Some(at);
        }
    }

    /// Removes the next entry that is not after `now`. It counts only if its slot's `armed` matches.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(Instant, Key)> {
        let &Reverse((at, _)) = self.heap.peek()?;
        (at <= now)
            .then(|| self.heap.pop().map(|it| it.0))
            .flatten()
    }

    /// The earliest entry.
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|it| it.0.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use slotmap::SlotMap;
    use std::time::Duration;

    #[test]
    fn set__later_than_before_adds_nothing() {
        let mut slots: SlotMap<Key, ()> = SlotMap::with_key();
        let key = slots.insert(());
        let (mut timers, mut armed, start) = (Timers::default(), None, Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        timers.set(key, at(20), &mut armed);
        for later in 21..1000 {
            timers.set(key, at(later), &mut armed);
        }
        assert_eq!(timers.heap.len(), 1);
        timers.set(key, at(5), &mut armed);
        assert_eq!((armed, timers.next()), (Some(at(5)), Some(at(5))));
        assert_eq!(timers.pop(at(4)), None);
        assert_eq!(timers.pop(at(30)), Some((at(5), key)));
        assert_eq!(timers.pop(at(30)), Some((at(20), key)));
        assert_eq!(timers.pop(at(30)), None);
    }
}
