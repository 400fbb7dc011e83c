//! An outgoing Transfer and the Blocks of it that are granted.

use super::OutboundState;
use crate::{Delivery, Instant, Span};
use alloc::collections::BTreeMap;
use zerolane_wire::Target;

/// A Block that the peer granted and has not confirmed.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) mx: u16,
    pub(super) address: u64,
    pub(super) transfer_offset: u64,
    pub(super) len: u32,
    pub(super) sent: u32,
    pub(super) sequence: u32,
    /// It may leave as trains.
    pub(super) trains: bool,
    /// Payload of the longest train of it that left, bytes.
    pub(super) longest_train: u32,
    /// Times it was granted anew in a row (classic profile).
    pub(super) regrants: u32,
}

/// What tells the peer of a Transfer that was numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announcement {
    /// An operation, which was sent; or eager payload.
    Sent,
    /// None yet: a grant in advance is expected, which makes one needless.
    Deferred,
    /// Its first train: the Block that it was granted in advance is as long as it is.
    ByTrain,
}

/// An outgoing Transfer.
#[derive(Clone, Debug)]
pub(crate) struct Outbound {
    pub(crate) span: Span,
    pub(crate) delivery: Delivery,
    pub(crate) state: OutboundState,
    /// What it is to meet at the peer.
    pub(crate) target: Target,
    /// Number of the announcement, once announced.
    pub(crate) sequence: u32,
    /// The peer's identifier, 0 until it granted.
    pub(crate) peer: u32,
    pub(crate) tries: u32,
    pub(crate) resend_at: Instant,
    /// All of it as one Block that the peer did not grant: it leaves with its announcement. None once the
    /// peer granted after all.
    pub(super) eager: Option<Held>,
    /// What is held was granted before the announcement, of which the peer may not have heard.
    pub(crate) in_advance: bool,
    /// A grant in advance is void of which something below this number was not heard.
    pub(super) since: Option<u32>,
    pub(crate) announcement: Announcement,
    /// When it was numbered.
    pub(super) numbered: Instant,
    /// By Block number.
    pub(super) held: BTreeMap<u32, Held>,
    /// Blocks below this number are complete.
    pub(super) first_open: u32,
    /// Where Block 0 starts at the receiver (classic profile).
    pub(super) classic_start: Option<u64>,
    /// Bytes of it sent at least once.
    pub(super) sent: u64,
}

impl Held {
    /// A Transfer of `len` bytes as one Block, in bytes of its own.
    pub(super) fn eager(len: u32) -> Held {
        Held {
            mx: 0,
            address: 0,
            transfer_offset: 0,
            len,
            sent: 0,
            sequence: 0,
            trains: false,
            longest_train: 0,
            regrants: 0,
        }
    }
}

impl Outbound {
    /// Whether its payload leaves with its announcement.
    pub(crate) fn is_eager(&self) -> bool {
        self.eager.is_some()
    }

    /// A Block that may be sent: granted, or the eager one.
    pub(super) fn block(&self, b_num: u32) -> Option<&Held> {
        match &self.eager {
            Some(eager) if b_num == 0 => Some(eager),
            _ => self.held.get(&b_num),
        }
    }

    pub(super) fn block_mut(&mut self, b_num: u32) -> Option<&mut Held> {
        match &mut self.eager {
            Some(eager) if b_num == 0 => Some(eager),
            _ => self.held.get_mut(&b_num),
        }
    }

    /// Whether the peer is expected to grant more of it.
    pub(crate) fn waits_for_grants(&self) -> bool {
        match self.state {
            OutboundState::Announced => self.sent < self.span.len,
            OutboundState::Sending => !self.all_sent(),
            _ => false,
        }
    }

    /// Whether every byte went out at least once, so that only the confirmation is missing.
    pub(crate) fn all_sent(&self) -> bool {
        self.state == OutboundState::Sending && self.sent >= self.span.len
    }

    /// The lowest Block that is not known to be complete.
    pub(crate) fn first_open(&self) -> u32 {
        self.first_open
    }

    /// Forgets the Blocks below `b_num`; returns how many were held.
    /// A number beyond what was granted says no more than that all of it is complete.
    pub(super) fn forget_below(&mut self, b_num: u32) -> usize {
        let before = self.held.len();
        if let Some((&last, _)) = self.held.last_key_value() {
            while let Some(block) = self.held.first_entry()
                && *block.key() < b_num
            {
                block.remove();
            }
            self.first_open = self.first_open.max(b_num.min(last.saturating_add(1)));
        }
        before - self.held.len()
    }
}
