//! Posting requests: with memory that is owned, copied or lent, or without any.

use super::inline::MAX_INLINE;
use super::{Driver, NotPosted, WorkKind};
use crate::memory::Postable;
use crate::registry::EntryFlags;
use crate::{Lane, Memory, Region};
use zerolane_core::{PostError, RegionId, Span, TransferId, WorkRequest};

/// What the driver remembers of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestInfo {
    pub(super) kind: WorkKind,
    /// Its success is reported.
    pub(super) signalled: bool,
    /// Slot for the control of a message.
    pub(super) control: Option<u32>,
}

impl RequestInfo {
    pub(super) fn of(request: &WorkRequest) -> RequestInfo {
        let mut copy = *request;
        RequestInfo {
            kind: WorkKind::of(request),
            signalled: copy.flags_mut().is_none_or(|it| it.signalled),
            control: None,
        }
    }
}

/// A request that is not over, and what it was posted with.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) info: RequestInfo,
    pub(super) region: Option<RegionId>,
    pub(super) len: u64,
    pub(super) memory: Option<Memory>,
    /// A memory fault was found after the core had taken it for complete.
    pub(super) faulted: bool,
    /// No call waits for it any more.
    pub(super) abandoned: bool,
    /// A caller waits for this one in particular.
    pub(super) awaited: bool,
}

impl Posted {
    pub(super) fn without_memory(info: RequestInfo) -> Posted {
        Posted {
            info,
            region: None,
            len: 0,
            memory: None,
            faulted: false,
            abandoned: false,
            awaited: false,
        }
    }

    /// A put whose bytes were copied.
    pub(super) fn copied() -> Posted {
        Posted::without_memory(RequestInfo {
            kind: WorkKind::Put,
            signalled: true,
            control: None,
        })
    }
}

impl<L: Lane> Driver<L> {
    /// Posts a request that reads `memory`, which comes back with its completion.
    ///
    /// # Errors
    /// See [`PostError`]. The memory comes back at once.
    ///
    /// # Panics
    /// The request writes.
    pub fn post_source(
        &mut self,
        request: WorkRequest,
        memory: Memory,
    ) -> Result<TransferId, NotPosted<Memory>> {
        assert!(!request.writes(), "{request:?} writes");
        self.post_owned(request, RequestInfo::of(&request), memory)
    }

    /// Posts a request that writes `region`, which comes back with its completion.
    ///
    /// # Errors
    /// See [`PostError`]. The region comes back at once.
    ///
    /// # Panics
    /// The request reads.
    pub fn post_target(
        &mut self,
        request: WorkRequest,
        region: Region,
    ) -> Result<TransferId, NotPosted<Region>> {
        assert!(request.writes(), "{request:?} reads");
        self.post_owned(request, RequestInfo::of(&request), region)
    }

    /// Posts a request without memory.
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn post_bare(&mut self, request: WorkRequest) -> Result<TransferId, PostError> {
        let id = self.post(request, Span::EMPTY)?;
        self.remember(id, RequestInfo::of(&request));
        Ok(id)
    }

    /// Posts a put of a copy of at most [`MAX_INLINE`] bytes: `data` is the caller's again at once.
    ///
    /// # Errors
    /// See [`PostError`]; `Full` also while the copies in flight fill their ring.
    ///
    /// # Panics
    /// `data` is longer.
    pub fn post_inline(
        &mut self,
        request: WorkRequest,
        data: &[u8],
    ) -> Result<TransferId, PostError> {
        assert!(data.len() <= MAX_INLINE, "{} bytes inline", data.len());
        let span = self.copy_inline(data)?;
        let id = self.core.post(self.clock.now(), request, span)?;
        self.inline.take(id, span);
        Ok(id)
    }

    /// Copies `data` into the ring; whatever is posted next has to take it.
    pub(super) fn copy_inline(&mut self, data: &[u8]) -> Result<Span, PostError> {
        let oldest = || self.core.oldest_work();
        let copied = self.inline.copy(data, &mut self.memory, oldest);
        copied.ok().flatten().ok_or(PostError::Full)
    }

    /// Posts `request`. The driver is always told of its end, for it keeps the memory posted.
    pub(super) fn post(
        &mut self,
        request: WorkRequest,
        memory: Span,
    ) -> Result<TransferId, PostError> {
        self.core.post(self.clock.now(), signalled(request), memory)
    }

    pub(super) fn post_owned<M: Postable>(
        &mut self,
        request: WorkRequest,
        info: RequestInfo,
        memory: M,
    ) -> Result<TransferId, NotPosted<M>> {
        let (start, len) = memory.raw();
        let access = EntryFlags {
            writable: request.writes(),
            file: memory.is_file(),
            kept: true,
            shared: false,
        };
        // SAFETY: `memory` is kept in `posted` until the entry is closed, so its bytes stay mapped;
        // an exclusive region is ours alone, a shared one is only read. After a refusal the entry is
        // closed before the memory is given back.
        let span = unsafe { self.memory.open(start, len, access) };
        match self.post_open(request, info, span) {
            Ok((id, posted)) => {
                posted.memory = Some(memory.into());
                Ok(id)
            }
            Err(reason) => Err(NotPosted { reason, memory }),
        }
    }

    /// Posts an open entry, which is closed if that is refused.
    pub(super) fn post_open(
        &mut self,
        request: WorkRequest,
        info: RequestInfo,
        span: Span,
    ) -> Result<(TransferId, &mut Posted), PostError> {
        match self.post(request, span) {
            Ok(id) => {
                let posted = Posted {
                    region: Some(span.region),
                    len: span.len,
                    ..Posted::without_memory(info)
                };
                Ok((id, self.posted.entry(id).insert_entry(posted).into_mut()))
            }
            Err(error) => {
                self.memory.close(span.region);
                Err(error)
            }
        }
    }

    /// Remembers a request without memory of its own.
    pub(super) fn remember(&mut self, id: TransferId, info: RequestInfo) {
        self.posted.insert(id, Posted::without_memory(info));
    }
}

fn signalled(mut request: WorkRequest) -> WorkRequest {
    if let Some(flags) = request.flags_mut() {
        flags.signalled = true;
    }
    request
}
