//! Queues what one stream sends, within its peer's credit.

use crate::limits::{INITIAL_WINDOW, MESSAGE_BYTES, SMALL_BYTES};
use crate::message::{CHUNK_HEADER, StreamId, write_chunk_header};
use zerolane::Region;

/// The sending direction of a stream.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Queued first: short, and sent together with that of other streams.
    small: Vec<u8>,
    /// Queued behind it, in memory that is sent as it is; its first bytes are for the header.
    long: Option<(Region, usize)>,
    /// Bytes handed to the transport.
    sent: u64,
    /// The peer accepts up to here.
    limit: u64,
    /// The limit that the peer was told is too low.
    told: Option<u64>,
    pub(super) finish: Finish,
}

/// The end of the direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// More may come.
    Open,
    /// No more comes; the peer must be told.
    Asked,
    /// The peer was told.
    Told,
}

impl Outbox {
    pub(super) fn new() -> Outbox {
        Outbox {
            small: Vec::new(),
            long: None,
            sent: 0,
            limit: INITIAL_WINDOW,
            told: None,
            finish: Finish::Open,
        }
    }

    fn long_bytes(&self) -> usize {
        self.long.as_ref().map_or(0, |(_, end)| end - CHUNK_HEADER)
    }

    pub(super) fn queued(&self) -> usize {
        self.small.len() + self.long_bytes()
    }

    fn credit(&self) -> u64 {
        self.limit - self.sent - self.queued() as u64
    }

    /// Bytes that may be queued now.
    pub(super) fn room(&self) -> usize {
        let memory = (MESSAGE_BYTES - CHUNK_HEADER).saturating_sub(self.queued());
        usize::try_from(self.credit()).map_or(memory, |it| it.min(memory))
    }

    /// The limit that the peer has not been told is too low, if it is.
    pub(super) fn blocked_at(&mut self) -> Option<u64> {
        let blocked = self.credit() == 0 && self.told.replace(self.limit) != Some(self.limit);
        blocked.then_some(self.limit)
    }

    /// True if the credit grew.
    pub(super) fn raise(&mut self, limit: u64) -> bool {
        let grows = limit > self.limit;
        self.limit = self.limit.max(limit);
        grows
    }

    /// Memory to fill with up to [`Self::room`] bytes: the place behind what is queued.
    pub(super) fn place(&mut self) -> Option<&mut [u8]> {
        let room = self.room();
        let (region, end) = self.long.as_mut()?;
        Some(&mut region[*end..*end + room])
    }

    /// `len` bytes of [`Self::place`] were filled.
    pub(super) fn filled(&mut self, len: usize) {
        if let Some((_, end)) = &mut self.long {
            *end += len;
        }
    }

    /// Queues the `len` bytes behind the header's place in `region`, for which there is room. Returns the memory if
    /// they were copied.
    pub(super) fn queue(&mut self, region: Region, len: usize) -> Option<Region> {
        let bytes = CHUNK_HEADER..CHUNK_HEADER + len;
        if self.small.len() + len <= SMALL_BYTES {
            self.small.extend(&region[bytes]);
            return Some(region);
        }
        self.long = Some((region, CHUNK_HEADER + len));
        None
    }

    /// The short bytes, and their offset.
    pub(super) fn small(&self) -> (u64, &[u8]) {
        (self.sent, &self.small)
    }

    /// The short bytes were handed over.
    pub(super) fn small_sent(&mut self) {
        self.sent += self.small.len() as u64;
        // A stream that is idle holds no memory.
        self.small = Vec::new();
    }

    pub(super) fn has_small(&self) -> bool {
        !self.small.is_empty()
    }

    pub(super) fn has_long(&self) -> bool {
        self.long.is_some()
    }

    /// Hands over the long bytes: the memory with its header, and the length of both.
    pub(super) fn take_long(&mut self, stream: StreamId) -> Option<(Region, usize)> {
        let (mut region, end) = self.long.take()?;
        write_chunk_header(&mut region, stream, self.sent);
        self.sent += (end - CHUNK_HEADER) as u64;
        Some((region, end))
    }

    /// The length of the direction, if everything was handed over.
    pub(super) fn length(&self) -> Option<u64> {
        (self.queued() == 0).then_some(self.sent)
    }

    /// Drops what is queued; returns its memory.
    pub(super) fn clear(&mut self) -> Option<Region> {
        self.small = Vec::new();
        self.long.take().map(|(region, _)| region)
    }
}
