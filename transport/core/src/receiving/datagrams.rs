//! Receives datagrams: assembles their parts, and forgets those of which a part is missing.

use super::Receiving;
use super::gaps::{Filled, Gaps};
use crate::context::Context;
use crate::counters::DropReason;
use crate::limits::{DATAGRAM_NUMBERS, MAX_DATAGRAMS_ASSEMBLED};
use crate::time::Instant;
use alloc::boxed::Box;
use zerolane_wire::{DatagramPart, Flags, Header};

/// Where the payload of a datagram goes: into one of a few slots of the lane, each as long as its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramSlot {
    /// Index of the slot, below [`MAX_DATAGRAMS_ASSEMBLED`].
    pub slot: usize,
    /// The slot begins a datagram: what it held before is gone.
    pub begins: bool,
    /// Bytes of the datagram.
    pub length: u32,
    /// Where this payload begins in it.
    pub start: u32,
    /// With this payload, the datagram is whole, and the slot is free.
    pub ends: bool,
}

/// The state of receiving datagrams.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    /// Allocated with the first datagram.
    state: Option<Box<Assembly>>,
    /// The peer was told that trains may come.
    trains: bool,
}

#[derive(Debug)]
struct Assembly {
    parts: [Option<Partial>; MAX_DATAGRAMS_ASSEMBLED],
    /// Newest number that came.
    newest: u32,
    /// A bit for each of the last numbers that are whole, by number modulo their count.
    whole: [u64; DATAGRAM_NUMBERS as usize / 64],
}

#[derive(Debug)]
struct Partial {
    number: u32,
    length: u32,
    gaps: Gaps,
    since: Instant,
}

impl Assembly {
    fn new(newest: u32) -> Assembly {
        Assembly {
            parts: [const { None }; MAX_DATAGRAMS_ASSEMBLED],
            newest,
            whole: [0; DATAGRAM_NUMBERS as usize / 64],
        }
    }

    /// Moves the window of numbers so that it ends with `number`, unless that is older. False if it is too old, or
    /// whole already.
    fn is_new(&mut self, number: u32) -> bool {
        let ahead = DatagramPart::distance(number, self.newest);
        if ahead <= 0 {
            return ahead > -(DATAGRAM_NUMBERS as i32) && !self.is_whole(number);
        }
        if ahead >= DATAGRAM_NUMBERS as i32 {
            self.whole.fill(0);
        } else {
            let mut passed = self.newest;
            for _ in 0..ahead {
                passed = DatagramPart::next(passed);
                let (word, bit) = place(passed);
                self.whole[word] &= !bit;
            }
        }
        self.newest = number;
        true
    }

    fn is_whole(&self, number: u32) -> bool {
        let (word, bit) = place(number);
        self.whole[word] & bit != 0
    }

    fn note_whole(&mut self, number: u32) {
        let (word, bit) = place(number);
        self.whole[word] |= bit;
    }

    /// The slot of a datagram that is being assembled.
    fn find(&self, number: u32) -> Option<usize> {
        let has = |it: &Option<Partial>| it.as_ref().is_some_and(|it| it.number == number);
        self.parts.iter().position(has)
    }

    /// A free slot, or that of the datagram that waits longest.
    fn free(&self) -> usize {
        let since = |&slot: &usize| self.parts[slot].as_ref().map(|it| it.since);
        (0..MAX_DATAGRAMS_ASSEMBLED).min_by_key(since).unwrap_or(0)
    }
}

fn place(number: u32) -> (usize, u64) {
    let at = number % DATAGRAM_NUMBERS;
    (at as usize / 64, 1 << (at % 64))
}

impl Receiving {
    /// Takes the header of a part of a datagram, of several consecutive ones, or of a train: `len` bytes of payload.
    pub(crate) fn on_datagram(
        &mut self,
        cx: &mut Context,
        header: &Header,
        len: u32,
    ) -> Result<DatagramSlot, DropReason> {
        if !cx.takes_datagrams() {
            return Err(DropReason::Unexpected);
        }
        let part = DatagramPart::of(header, len).map_err(|_| DropReason::Malformed)?;
        self.note_burst(cx, header);
        let placed = self.datagrams.take(cx, part, len);
        if placed.is_ok() {
            self.note_received(cx, header, len);
        }
        if header.flags.contains(Flags::SEND_STATE) {
            self.datagrams.trains |= self.trains.are_taken();
            self.report_progress(cx, 0);
        }
        placed
    }

    /// Whether datagrams may come as trains now: the lane takes trains, and the peer sends datagrams.
    pub(super) fn takes_datagram_trains(&self) -> bool {
        self.datagrams.trains && self.trains.are_taken()
    }

    /// Whether datagrams may come as trains, as the peer was told at some time.
    pub(super) fn expects_datagram_trains(&self) -> bool {
        self.datagrams.trains
    }
}

impl Datagrams {
    fn take(
        &mut self,
        cx: &mut Context,
        part: DatagramPart,
        len: u32,
    ) -> Result<DatagramSlot, DropReason> {
        let DatagramPart {
            number,
            length,
            start,
        } = part;
        let state = self
            .state
            .get_or_insert_with(|| Box::new(Assembly::new(number)));
        if !state.is_new(number) {
            return Err(DropReason::Duplicate);
        }
        let found = state.find(number);
        let slot = found.unwrap_or_else(|| state.free());
        if found.is_none()
            && let Some(old) = state.parts[slot].take()
        {
            cx.counters.unreliable_incomplete += 1;
            // Its rest would begin anew, and never be whole.
            state.note_whole(old.number);
        }
        let partial = state.parts[slot].get_or_insert_with(|| Partial {
            number,
            length,
            gaps: Gaps::whole(length),
            since: cx.now,
        });
        if partial.length != length {
            return Err(DropReason::Malformed);
        }
        match partial.gaps.fill(start, start + len) {
            Filled::New(new) if new == len => {}
            Filled::Duplicate => return Err(DropReason::Duplicate),
            Filled::TooFragmented => return Err(DropReason::Limit),
            // No honest peer cuts a datagram twice; some of these bytes would be missing.
            Filled::New(_) => {
                state.parts[slot] = None;
                state.note_whole(number);
                cx.counters.unreliable_incomplete += 1;
                return Err(DropReason::Malformed);
            }
        }
        let ends = partial.gaps.is_empty();
        if ends {
            state.parts[slot] = None;
            state.note_whole(number);
            cx.counters.unreliable_received += 1;
        }
        Ok(DatagramSlot {
            slot,
            begins: found.is_none(),
            length,
            start,
            ends,
        })
    }
}
