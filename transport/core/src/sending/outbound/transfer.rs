//! Represents an outgoing Transfer and its granted Blocks.

use super::OutboundState;
use crate::span::Span;
use crate::time::Instant;
use crate::transfer::Delivery;
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
    /// Whether it may leave as trains.
    pub(super) trains: bool,
    /// Payload of its longest sent train, bytes.
    pub(super) longest_train: u32,
    /// Consecutive repeated grants (classic profile).
    pub(super) regrants: u32,
}

/// How the peer learns of a numbered Transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announcement {
    /// By an operation that was sent, or by eager payload.
    Sent,
    /// Not yet: an advance grant is expected, which makes an announcement needless.
    Deferred,
    /// By its first train: the Block of its advance grant is as long as the Transfer.
    ByTrain,
}

/// An outgoing Transfer.
#[derive(Clone, Debug)]
pub(crate) struct Outbound {
    pub(crate) span: Span,
    pub(crate) delivery: Delivery,
    pub(crate) state: OutboundState,
    /// Its target at the peer.
    pub(crate) target: Target,
    /// Number of the announcement, once numbered.
    pub(crate) sequence: u32,
    /// The peer's identifier, 0 until it granted.
    pub(crate) peer: u32,
    pub(crate) tries: u32,
    pub(crate) resend_at: Instant,
    /// All of it as one ungranted Block, which leaves with its announcement. `None` once the peer granted after all.
    pub(super) eager: Option<Held>,
    /// The held Blocks were granted in advance, and the peer may not have heard the announcement.
    pub(crate) in_advance: bool,
    /// An advance grant is void if anything below this number was not heard.
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
    /// Bytes sent at least once.
    pub(super) sent: u64,
}

impl Held {
    /// A Transfer of `len` bytes as one Block, with addresses of its own.
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

    /// A Block that may be sent: granted or eager.
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

    /// Whether every byte was sent at least once, so that only the confirmation is missing.
    pub(crate) fn all_sent(&self) -> bool {
        self.state == OutboundState::Sending && self.sent >= self.span.len
    }

    /// The lowest Block that is not known to be complete.
    pub(crate) fn first_open(&self) -> u32 {
        self.first_open
    }

    /// Drops the Blocks below `b_num`; returns how many were held. A number beyond the granted Blocks means no more
    /// than that all of them are complete.
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
