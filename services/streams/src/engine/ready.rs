//! Orders the streams of a connection: those that have something to send, and those that wait for room to queue it.

use crate::limits::{PRIORITIES, QUEUED_BYTES};
use crate::message::StreamId;
use std::collections::VecDeque;

/// One queue for each priority; the streams of one priority take turns.
#[derive(Debug, Default)]
pub(super) struct Turns {
    queues: [VecDeque<StreamId>; PRIORITIES],
}

impl Turns {
    pub(super) fn push(&mut self, priority: u8, stream: StreamId) {
        self.queues[usize::from(priority)].push_back(stream);
    }

    /// Puts a stream back whose turn is not over.
    pub(super) fn push_front(&mut self, priority: u8, stream: StreamId) {
        self.queues[usize::from(priority)].push_front(stream);
    }

    /// The next stream of the lowest priority number.
    pub(super) fn pop(&mut self) -> Option<StreamId> {
        self.queues.iter_mut().find_map(VecDeque::pop_front)
    }

    fn pop_of(&mut self, priority: u8) -> Option<StreamId> {
        self.queues[usize::from(priority)].pop_front()
    }
}

/// Bytes queued for each priority, and the streams that wait until there are fewer.
#[derive(Debug, Default)]
pub(super) struct Queued {
    bytes: [usize; PRIORITIES],
    waiting: Turns,
}

impl Queued {
    pub(super) fn has_room(&self, priority: u8) -> bool {
        self.bytes[usize::from(priority)] < QUEUED_BYTES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == [0; PRIORITIES]
    }

    pub(super) fn add(&mut self, priority: u8, bytes: usize) {
        self.bytes[usize::from(priority)] += bytes;
    }

    pub(super) fn remove(&mut self, priority: u8, bytes: usize) {
        self.bytes[usize::from(priority)] -= bytes;
    }

    pub(super) fn wait(&mut self, priority: u8, stream: StreamId) {
        self.waiting.push(priority, stream);
    }

    /// A stream that waits although there is room.
    pub(super) fn next(&mut self, priority: u8) -> Option<StreamId> {
        match self.has_room(priority) {
            true => self.waiting.pop_of(priority),
            false => None,
        }
    }
}
