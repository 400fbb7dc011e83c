//! Limits the memory that all connections of one initiator share, and queues work until memory is free.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use zerolane::worker::ConnectionId;
use zerolane_block::{TaskId, Work};

/// A share of an initiator's memory, released when dropped. It lives as long as the memory is in use, even after the
/// initiator has left.
#[derive(Debug)]
pub(super) struct Loan {
    lent: Arc<AtomicUsize>,
    bytes: usize,
}

impl Loan {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // A count and no more: nothing else is published by it.
        self.lent.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Work that waits for memory.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) owner: ConnectionId,
    pub(super) task: TaskId,
    pub(super) tag: u64,
    pub(super) work: Work,
    /// Memory that it needs, bytes.
    pub(super) bytes: usize,
}

/// The state that all connections of one initiator share.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// How many there are.
    pub(super) connections: usize,
    lent: Arc<AtomicUsize>,
    /// In order of arrival, so that large requests get their turn.
    pub(super) waiting: VecDeque<Waiting>,
}

impl Share {
    pub(super) fn lend(&self, bytes: usize) -> Loan {
        self.lent.fetch_add(bytes, Ordering::Relaxed);
        Loan {
            lent: Arc::clone(&self.lent),
            bytes,
        }
    }

    /// There may be so many bytes more, of `most`. Where there are none, any command may begin, or it never could.
    pub(super) fn has_room(&self, bytes: usize, most: usize) -> bool {
        let lent = self.lent.load(Ordering::Relaxed);
        lent == 0 || lent + bytes <= most
    }

    /// An initiator is connected, or work of a former one remains.
    pub(super) fn is_used(&self) -> bool {
        self.connections > 0 || Arc::strong_count(&self.lent) > 1
    }
}
