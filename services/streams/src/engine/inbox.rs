//! Holds what arrived of one stream until it is read, and decides the peer's credit.

use super::Violation;
use crate::limits::{
    EARLY_PART, EARLY_WINDOW, EXTRA_WINDOW, INITIAL_WINDOW, KEEP_BYTES, MAX_AHEAD, MAX_WINDOW,
    SMALL_BYTES, WINDOW_GROWTH,
};
use std::collections::{BTreeMap, VecDeque};
use zerolane::Region;

/// Received payload.
#[derive(Debug)]
pub(super) enum Held {
    /// Copied out of its message.
    Bytes { bytes: Vec<u8>, start: usize },
    /// In the memory of its message.
    Kept {
        region: Region,
        start: usize,
        end: usize,
    },
}

impl Held {
    fn copied(bytes: &[u8]) -> Held {
        let bytes = bytes.to_vec();
        Held::Bytes { bytes, start: 0 }
    }

    /// The payload `[start, end)` of a message, and the message's memory if it is free again.
    pub(super) fn of_message(region: Region, start: usize, end: usize) -> (Held, Option<Region>) {
        match end - start >= KEEP_BYTES {
            true => (Held::Kept { region, start, end }, None),
            false => (Held::copied(&region[start..end]), Some(region)),
        }
    }

    pub(super) fn of_bytes(bytes: &[u8]) -> Held {
        Held::copied(bytes)
    }

    fn rest(&self) -> &[u8] {
        match self {
            Held::Bytes { bytes, start } => &bytes[*start..],
            Held::Kept { region, start, end } => &region[*start..*end],
        }
    }

    fn len(&self) -> u64 {
        self.rest().len() as u64
    }

    fn skip(&mut self, len: usize) {
        match self {
            Held::Bytes { start, .. } | Held::Kept { start, .. } => *start += len,
        }
    }

    /// Appends short payload to short payload, so that single bytes do not cost an allocation each. Gives `next` back
    /// otherwise.
    fn join(&mut self, next: Held) -> Option<Held> {
        match (self, next) {
            (Held::Bytes { bytes, .. }, Held::Bytes { bytes: more, start })
                if bytes.len() + more.len() <= SMALL_BYTES =>
            {
                bytes.extend(&more[start..]);
                None
            }
            (_, next) => Some(next),
        }
    }
}

/// The receiving direction of a stream.
#[derive(Debug)]
pub(super) struct Inbox {
    held: VecDeque<Held>,
    /// Arrived before what precedes it, by offset.
    early: BTreeMap<u64, Held>,
    /// Bytes arrived without a gap, and bytes read.
    received: u64,
    consumed: u64,
    /// The peer may send up to here.
    pub(super) limit: u64,
    window: u64,
    /// The length of the direction, once it is known.
    end: Option<u64>,
    /// The peer has more to send than its credit.
    blocked: bool,
    /// Nothing is read any more.
    discards: bool,
}

impl Inbox {
    pub(super) fn new() -> Inbox {
        Inbox {
            held: VecDeque::new(),
            early: BTreeMap::new(),
            received: 0,
            consumed: 0,
            limit: INITIAL_WINDOW,
            window: INITIAL_WINDOW,
            end: None,
            blocked: false,
            discards: false,
        }
    }

    /// Takes payload. True if more can be read than before.
    ///
    /// # Errors
    /// The peer broke the rules.
    pub(super) fn insert(&mut self, offset: u64, payload: Held) -> Result<bool, Violation> {
        let end = offset.checked_add(payload.len()).ok_or(Violation::Credit)?;
        if end > self.limit {
            return Err(Violation::Credit);
        }
        if self.end.is_some_and(|it| end > it) {
            return Err(Violation::Length);
        }
        if offset < self.received {
            return Err(Violation::Twice);
        }
        if payload.len() == 0 {
            return Ok(false);
        }
        if offset > self.received {
            // Only messages overtake, and of these at most so many.
            if self.early.len() as u64 >= MAX_AHEAD {
                return Err(Violation::Ahead);
            }
            return match self.early.insert(offset, payload) {
                None => Ok(false),
                Some(_) => Err(Violation::Twice),
            };
        }
        self.append(payload);
        while let Some(next) = self.early.first_entry() {
            if *next.key() > self.received {
                break;
            }
            if *next.key() < self.received {
                return Err(Violation::Twice);
            }
            let payload = next.remove();
            self.append(payload);
        }
        Ok(true)
    }

    fn append(&mut self, payload: Held) {
        self.received += payload.len();
        let payload = match self.held.back_mut() {
            Some(last) => last.join(payload),
            None => Some(payload),
        };
        self.held.extend(payload);
    }

    /// Learns the length of the direction.
    pub(super) fn finish(&mut self, length: u64) -> Result<(), Violation> {
        let early = self.early.last_key_value();
        let seen = early.map_or(self.received, |(offset, held)| offset + held.len());
        if self.end.is_some() || length < seen || length > self.limit {
            return Err(Violation::Length);
        }
        self.end = Some(length);
        Ok(())
    }

    /// The next bytes to read; empty if none are there.
    pub(super) fn front(&self) -> &[u8] {
        self.held.front().map_or(&[], Held::rest)
    }

    /// All bytes to read, in at most `most` pieces.
    pub(super) fn fronts(&self, most: usize) -> impl Iterator<Item = &[u8]> {
        self.held.iter().take(most).map(Held::rest)
    }

    /// Whether everything was read, and no more comes.
    pub(super) fn is_over(&self) -> bool {
        self.end == Some(self.consumed)
    }

    /// Whether the peer can send no more.
    pub(super) fn is_complete(&self) -> bool {
        self.end == Some(self.received)
    }

    /// Forgets `len` bytes at the front, at most those that are there; memory of messages goes to `spare`.
    pub(super) fn consume(&mut self, mut len: usize, spare: &mut Vec<Region>) {
        while let Some(first) = self.held.front_mut() {
            let here = first.rest().len();
            let taken = here.min(len);
            first.skip(taken);
            self.consumed += taken as u64;
            len -= taken;
            if taken < here {
                return;
            }
            if let Some(Held::Kept { region, .. }) = self.held.pop_front() {
                spare.push(region);
            }
            if len == 0 {
                return;
            }
        }
    }

    /// Drops what arrived, and what will.
    pub(super) fn discard(&mut self, spare: &mut Vec<Region>) {
        self.discards = true;
        self.consume(usize::MAX, spare);
        self.early.clear();
    }

    pub(super) fn discards(&self) -> bool {
        self.discards
    }

    /// The peer had more to send than `limit`.
    pub(super) fn on_blocked(&mut self, limit: u64) {
        self.blocked |= limit == self.limit;
    }

    /// Raises the peer's credit if enough was read; `extra` is what the windows of other streams leave. Returns whether
    /// the credit changed, and takes from `extra`.
    ///
    /// A window grows if it, and not the reader, held the peer up: the peer reports that its credit is used, and
    /// everything that came is read.
    pub(super) fn raise_credit(&mut self, extra: &mut u64) -> bool {
        if self.discards || self.end.is_some() {
            return false;
        }
        let mut grown = false;
        if self.blocked && self.held.is_empty() {
            grown = self.widen((WINDOW_GROWTH - 1) * self.window, extra);
            self.blocked = false;
        }
        let limit = self.consumed + self.window;
        let due = grown || limit - self.limit >= self.window / 2;
        if due {
            self.limit = limit;
        }
        due
    }

    /// Grants early what a new stream may have, if little of `extra` is in use. True if the credit changed.
    pub(super) fn begin(&mut self, extra: &mut u64) -> bool {
        let more = EARLY_WINDOW.min(*extra / EARLY_PART);
        let widened = *extra > EXTRA_WINDOW / 2 && self.widen(more, extra);
        self.limit = self.consumed + self.window;
        widened
    }

    /// Widens the window by up to `more`, out of `extra`.
    fn widen(&mut self, more: u64, extra: &mut u64) -> bool {
        let more = more.min(MAX_WINDOW - self.window).min(*extra);
        self.window += more;
        *extra -= more;
        more > 0
    }

    /// What its window has beyond the first.
    pub(super) fn extra(&self) -> u64 {
        self.window - INITIAL_WINDOW
    }
}
