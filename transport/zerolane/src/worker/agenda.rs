//! Knows what each connection and endpoint of a worker is due for.

use super::poller::Key;
use slotmap::SecondaryMap;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Instant;

/// What a connection or endpoint is due for: any of these, each once. All but `Flush` lead to a turn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    /// To be advanced, in the order in which they became due.
    Turn,
    /// To have its timer set: it was advanced. This happens late, because a program that answers at once has its
    /// connections advanced again, which makes most of their earlier timers obsolete.
    Timer,
    /// To send, before this end sleeps, the packets that it holds back to combine them with later ones.
    Flush,
    /// To be asked for input in each pass: it is in shared memory, and told its peer not to wake this end.
    Poll,
    /// To deliver completions for which the event queue had no room, once there is room.
    Delivery,
}

const KINDS: usize = Due::Delivery as usize + 1;

#[derive(Debug, Default)]
struct Entry {
    due: [bool; KINDS],
    /// Whether something may have arrived. If not, it was posted to, or a timer expired.
    input: bool,
    /// Its earliest timer in the heap.
    timer: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct Agenda {
    entries: SecondaryMap<Key, Entry>,
    queues: [VecDeque<Key>; KINDS],
    /// Those that are no entry's earliest are outdated.
    timers: BinaryHeap<Reverse<(Instant, Key)>>,
}

impl Agenda {
    /// Takes in a slot. It is due for a turn, because something may have arrived before.
    pub(super) fn enter(&mut self, key: Key) {
        self.entries.insert(key, Entry::default());
        self.add_input(key);
    }

    /// The slot of `key` is empty: it is due for nothing.
    pub(super) fn leave(&mut self, key: Key) {
        self.entries.remove(key);
    }

    /// Makes `key` due, unless it is already, or has left.
    pub(super) fn add(&mut self, key: Key, due: Due) {
        if let Some(entry) = self.entries.get_mut(key)
            && !std::mem::replace(&mut entry.due[due as usize], true)
        {
            self.queues[due as usize].push_back(key);
        }
    }

    /// Makes `key` due for a turn that looks for input.
    pub(super) fn add_input(&mut self, key: Key) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.input = true;
            self.add(key, Due::Turn);
        }
    }

    /// Whether the turn of `key` that begins now looks for input.
    pub(super) fn take_input(&mut self, key: Key) -> bool {
        let entry = self.entries.get_mut(key);
        entry.is_some_and(|it| std::mem::take(&mut it.input))
    }

    /// Removes and returns the key that is due for longest.
    pub(super) fn next(&mut self, due: Due) -> Option<Key> {
        loop {
            let key = self.queues[due as usize].pop_front()?;
            if let Some(entry) = self.entries.get_mut(key) {
                entry.due[due as usize] = false;
                return Some(key);
            }
        }
    }

    pub(super) fn has(&self, key: Key, due: Due) -> bool {
        self.entries.get(key).is_some_and(|it| it.due[due as usize])
    }

    /// Those that are due, and some that have left.
    pub(super) fn all(&self, due: Due) -> impl Iterator<Item = Key> + '_ {
        self.queues[due as usize].iter().copied()
    }

    /// How many are due. May count some that have left.
    pub(super) fn len(&self, due: Due) -> usize {
        self.queues[due as usize].len()
    }

    /// Sets the timer of `key`. Postponing it costs nothing: the earlier one stays.
    pub(super) fn set_timer(&mut self, key: Key, at: Instant) {
        if let Some(entry) = self.entries.get_mut(key)
            && entry.timer.is_none_or(|earlier| at < earlier)
        {
            entry.timer = Some(at);
            self.timers.push(Reverse((at, key)));
        }
    }

    /// Removes the next timer that is not after `now`. It may have been postponed since.
    pub(super) fn expired(&mut self, now: Instant) -> Option<Key> {
        while let Some(&Reverse((at, key))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            if let Some(entry) = self.entries.get_mut(key)
                && entry.timer == Some(at)
            {
                entry.timer = None;
                return Some(key);
            }
        }
        None
    }

    /// When the next timer expires.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.peek().map(|it| it.0.0)
    }
}

#[cfg(test)]
#[path = "agenda_tests.rs"]
mod tests;
