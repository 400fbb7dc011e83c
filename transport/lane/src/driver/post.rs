//! Posts requests: with owned, copied or lent memory, or without any.

use super::direct::{AtOnce, Local};
use super::{Driver, NotPosted, WorkKind};
use crate::lane::Lane;
use crate::memory::posted::Postable;
use crate::memory::registry::EntryKind;
use crate::memory::{Memory, Region, Registry, Writable, uninit};
use zerolane_core::limits::MAX_INLINE;
use zerolane_core::{PostError, RegionId, RemotePlace, Span, TransferId, WorkFlags, WorkRequest};

/// How the end of a request is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whether its success is reported. A failure always is.
    pub signalled: bool,
    /// The user's own number, which the completion returns (`wr_id` of verbs).
    pub context: u64,
}

/// Signalled, with context 0.
impl Default for Report {
    fn default() -> Report {
        Report {
            signalled: true,
            context: 0,
        }
    }
}

/// The driver's record of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestInfo {
    pub(super) kind: WorkKind,
    pub(super) report: Report,
    /// Slot for the control of a message.
    pub(super) control: Option<u32>,
    /// Its memory is a copy, which the user does not get.
    pub(super) copied: bool,
}

impl RequestInfo {
    pub(super) fn of(request: &WorkRequest<'_>, report: Report) -> RequestInfo {
        RequestInfo {
            kind: WorkKind::of(request),
            report,
            control: None,
            copied: false,
        }
    }
}

/// A request in progress, and the memory it was posted with.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) info: RequestInfo,
    pub(super) region: Option<RegionId>,
    pub(super) len: u64,
    pub(super) memory: Option<Memory>,
    /// A memory fault was found, possibly after the core had counted the request as complete.
    pub(super) faulted: bool,
    /// No call waits for it any more.
    pub(super) abandoned: bool,
    /// A caller waits for this request in particular.
    pub(super) awaited: bool,
    /// Its memory came from the connection's pool.
    pub(super) pooled: bool,
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
            pooled: false,
        }
    }

    /// A put whose bytes were copied.
    pub(super) fn copied() -> Posted {
        Posted::without_memory(RequestInfo {
            kind: WorkKind::Put,
            report: Report::default(),
            control: None,
            copied: true,
        })
    }
}

impl<L: Lane> Driver<L> {
    /// Posts a request that reads `memory`, which returns with its completion.
    ///
    /// # Errors
    /// See [`PostError`]. The memory returns at once.
    ///
    /// # Panics
    /// The request writes.
    pub fn post_source(
        &mut self,
        request: WorkRequest<'_>,
        report: Report,
        memory: Memory,
    ) -> Result<TransferId, NotPosted<Memory>> {
        assert!(!request.writes(), "{request:?} writes");
        let info = RequestInfo::of(&request, report);
        let parts = match self.may_be_direct(&request) {
            true => memory.parts(),
            false => None,
        };
        let done = parts.and_then(|it| self.access(&request, report.signalled, Local::Source(&it)));
        match done {
            Some(AtOnce::Done(done)) => Ok(self.report_direct(done, info, Some(memory))),
            Some(AtOnce::Placed(len)) => match self.post_placed(request, info, len) {
                Ok((id, posted)) => {
                    posted.memory = Some(memory);
                    Ok(id)
                }
                Err(reason) => Err(NotPosted { reason, memory }),
            },
            None => self.post_owned(request, info, memory),
        }
    }

    /// Posts a request that writes `memory`, which returns with its completion.
    ///
    /// # Errors
    /// See [`PostError`]. The memory returns at once.
    ///
    /// # Panics
    /// The request reads.
    pub fn post_target<M: Writable>(
        &mut self,
        request: WorkRequest<'_>,
        report: Report,
        mut memory: M,
    ) -> Result<TransferId, NotPosted<M>> {
        assert!(request.writes(), "{request:?} reads");
        let info = RequestInfo::of(&request, report);
        if self.may_be_direct(&request)
            && let Some(bytes) = memory.own_bytes()
            && let into = Local::Target(uninit::to_write(bytes))
            && let Some(AtOnce::Done(done)) = self.access(&request, report.signalled, into)
        {
            return Ok(self.report_direct(done, info, Some(memory.into())));
        }
        self.post_owned(request, info, memory)
    }

    /// Posts a request without memory.
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn post_bare(
        &mut self,
        request: WorkRequest<'_>,
        report: Report,
    ) -> Result<TransferId, PostError> {
        let info = RequestInfo::of(&request, report);
        if let Some(AtOnce::Done(done)) = self.access(&request, report.signalled, Local::None) {
            return Ok(self.report_direct(done, info, None));
        }
        let id = self.post(request, Span::EMPTY)?;
        self.remember(id, info);
        Ok(id)
    }

    /// How many more puts, gets, atomic operations and messages may be posted now.
    pub fn room_for_operations(&self) -> usize {
        self.core.room_for_operations()
    }

    /// Whether a put of `len` bytes to `place` would leave at once, unannounced.
    pub fn puts_at_once(&mut self, place: RemotePlace, len: u64) -> bool {
        self.core.puts_at_once(place, len)
    }

    /// Posts a put of a copy of at most [`MAX_INLINE`] bytes: the caller may reuse `data` at once.
    ///
    /// # Errors
    /// See [`PostError`].
    ///
    /// # Panics
    /// `data` is longer, or the request is no put.
    pub fn post_inline(
        &mut self,
        request: WorkRequest<'_>,
        report: Report,
        data: &[u8],
    ) -> Result<TransferId, PostError> {
        assert!(data.len() <= MAX_INLINE, "{} bytes inline", data.len());
        let WorkRequest::Put {
            place,
            immediate,
            flags,
        } = request
        else {
            panic!("{request:?} is no put");
        };
        let placed = match self.access(&request, report.signalled, Local::Source(&[data])) {
            Some(AtOnce::Done(done)) => {
                return Ok(self.report_direct(done, RequestInfo::of(&request, report), None));
            }
            Some(AtOnce::Placed(len)) => Some(len),
            None => None,
        };
        self.check_poster()?;
        // Those that leave together count as posted together: there may be millions in a second.
        let waits_since = self.core.unsent_since();
        let now = waits_since.unwrap_or_else(|| self.clock.now());
        // Not all are remembered, for the same reason.
        let remembered = report.context != 0;
        let signalled = flags.signalled || remembered;
        let flags = WorkFlags { signalled, ..flags };
        let id = match placed {
            Some(len) => self.core.post_placed(now, place, len, immediate, flags)?,
            None => self.core.post_inline(now, place, data, immediate, flags)?,
        };
        if remembered {
            self.remember(id, RequestInfo::of(&request, report));
        }
        Ok(id)
    }

    /// Posts `request`. The core always reports its end, because the driver keeps the memory until then.
    pub(super) fn post(
        &mut self,
        request: WorkRequest<'_>,
        memory: Span,
    ) -> Result<TransferId, PostError> {
        self.check_poster()?;
        self.core.post(self.clock.now(), signalled(request), memory)
    }

    /// # Errors
    /// [`PostError::Forked`], if [`Driver::check_process`] fails.
    pub(super) fn check_poster(&self) -> Result<(), PostError> {
        self.check_process().map_err(|_| PostError::Forked)
    }

    pub(super) fn post_owned<M: Postable>(
        &mut self,
        request: WorkRequest<'_>,
        info: RequestInfo,
        memory: M,
    ) -> Result<TransferId, NotPosted<M>> {
        // `memory` is kept in `posted` until the entry is closed. After a refusal the entry is closed before the memory is
        // returned.
        let Some(span) = open_any(&mut self.memory, &memory, &request) else {
            let reason = PostError::TooLong;
            return Err(NotPosted { reason, memory });
        };
        match self.post_open(request, info, span) {
            Ok((id, posted)) => {
                posted.memory = Some(memory.into());
                Ok(id)
            }
            Err(reason) => Err(NotPosted { reason, memory }),
        }
    }

    /// Posts the rest of a put whose `len` bytes are in place: its immediate, and its end.
    ///
    /// # Panics
    /// The request is no put.
    pub(super) fn post_placed(
        &mut self,
        request: WorkRequest<'_>,
        info: RequestInfo,
        len: u64,
    ) -> Result<(TransferId, &mut Posted), PostError> {
        self.check_poster()?;
        let WorkRequest::Put {
            place,
            immediate,
            flags,
        } = signalled(request)
        else {
            panic!("{request:?} is no put");
        };
        let now = self.clock.now();
        let id = self.core.post_placed(now, place, len, immediate, flags)?;
        let posted = Posted {
            len,
            ..Posted::without_memory(info)
        };
        Ok((id, self.posted.entry(id).insert_entry(posted).into_mut()))
    }

    /// Posts a request on an open entry, and closes the entry if the request is refused.
    pub(super) fn post_open(
        &mut self,
        request: WorkRequest<'_>,
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

fn signalled(mut request: WorkRequest<'_>) -> WorkRequest<'_> {
    if let Some(flags) = request.flags_mut() {
        flags.signalled = true;
    }
    request
}

/// Opens an entry for the memory of `request`, which the caller keeps until it closes the entry. `None`: several pieces
/// are too long together.
fn open_any<M: Postable>(
    registry: &mut Registry,
    memory: &M,
    request: &WorkRequest<'_>,
) -> Option<Span> {
    let (writable, file) = (request.writes(), memory.is_file());
    // The caller keeps the memory, so its bytes stay mapped. An exclusive region belongs to this end alone; a shared one
    // is only read.
    match memory.alone() {
        Some((start, len)) => {
            let kind = EntryKind::Posted { writable, file };
            // SAFETY: as above.
            Some(unsafe { registry.open(start, len, kind) })
        }
        None => {
            let pieces = memory.pieces();
            let mut lens = pieces.iter().map(|it| it.1);
            let total = lens.try_fold(0usize, |sum, len| sum.checked_add(len));
            total.filter(|&total| isize::try_from(total).is_ok())?;
            // SAFETY: as above.
            Some(unsafe { registry.open_pieces(&pieces, file) })
        }
    }
}

/// As [`open_any`], for memory in one piece.
pub(super) fn open(registry: &mut Registry, memory: &Region, request: &WorkRequest<'_>) -> Span {
    open_any(registry, memory, request).unwrap_or(Span::EMPTY)
}
