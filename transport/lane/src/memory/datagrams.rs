//! Holds datagrams of the peer: those being assembled, and those that the program has not taken. Bounded in both.

use crate::account::Account;
use std::collections::VecDeque;
use zerolane_core::DatagramSlot;
use zerolane_core::limits::MAX_DATAGRAMS_ASSEMBLED;

/// Datagrams, and bytes of them, that the program has not taken. Further ones are dropped and counted. Several trains
/// of a fast path: a program that is slower than that for long loses datagrams anyway.
const MAX_DATAGRAMS_UNREAD: usize = 4096;
const MAX_DATAGRAM_BYTES_UNREAD: usize = 8 << 20;

/// A connection's datagrams. An idle connection holds none.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    slots: [Vec<u8>; MAX_DATAGRAMS_ASSEMBLED],
    arrived: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Datagrams {
    /// Stores `payload` where the core says, and keeps the datagram for the program if it is whole.
    pub(crate) fn store(&mut self, to: DatagramSlot, payload: &[u8], account: &mut Account) {
        if to.begins && to.ends {
            return self.keep(payload.to_vec(), account);
        }
        let slot = &mut self.slots[to.slot];
        if to.begins {
            slot.clear();
            slot.resize(to.length as usize, 0);
        }
        let place = slot.get_mut(to.start as usize..);
        if let Some(place) = place.and_then(|it| it.get_mut(..payload.len())) {
            place.copy_from_slice(payload);
        }
        if to.ends {
            let whole = std::mem::take(slot);
            self.keep(whole, account);
        }
    }

    /// Keeps a whole datagram for the program, unless too many wait.
    pub(crate) fn keep(&mut self, datagram: Vec<u8>, account: &mut Account) {
        let bytes = self.bytes + datagram.len();
        if self.arrived.len() >= MAX_DATAGRAMS_UNREAD || bytes > MAX_DATAGRAM_BYTES_UNREAD {
            account.unreliable_unread += 1;
            return;
        }
        self.bytes = bytes;
        self.arrived.push_back(datagram);
    }

    /// Whether the program has one to take.
    pub(crate) fn is_empty(&self) -> bool {
        self.arrived.is_empty()
    }

    /// The first that the program has not taken.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        let taken = self.arrived.pop_front()?;
        self.bytes -= taken.len();
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    const WHOLE: DatagramSlot = DatagramSlot {
        slot: 0,
        begins: true,
        length: 4,
        start: 0,
        ends: true,
    };

    #[test]
    fn store__puts_parts_together() {
        let (mut it, mut account) = (Datagrams::default(), Account::default());
        let part = |begins, start, ends| DatagramSlot {
            slot: 3,
            begins,
            length: 4,
            start,
            ends,
        };
        it.store(part(true, 2, false), &[3, 4], &mut account);
        it.store(WHOLE, &[9; 4], &mut account);
        it.store(part(false, 0, true), &[1, 2], &mut account);
        assert_eq!(it.take(), Some(vec![9; 4]));
        assert_eq!(it.take(), Some(vec![1, 2, 3, 4]));
        assert_eq!((it.take(), it.bytes), (None, 0));
        // What a datagram left in its slot is not in the next.
        it.store(part(true, 3, false), &[7], &mut account);
        it.store(part(true, 0, false), &[1], &mut account);
        assert_eq!(it.slots[3], [1, 0, 0, 0]);
    }

    #[test]
    fn keep__no_more_than_the_limits() {
        let (mut it, mut account) = (Datagrams::default(), Account::default());
        for _ in 0..MAX_DATAGRAMS_UNREAD + 3 {
            it.store(WHOLE, &[1; 4], &mut account);
        }
        assert_eq!(
            (it.arrived.len(), account.unreliable_unread),
            (MAX_DATAGRAMS_UNREAD, 3)
        );
        let mut it = Datagrams::default();
        for _ in 0..1000 {
            it.keep(vec![0; 60 << 10], &mut account);
        }
        assert!(it.bytes <= MAX_DATAGRAM_BYTES_UNREAD && !it.is_empty());
    }
}
