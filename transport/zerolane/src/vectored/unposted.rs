//! Posts the pieces of a request one by one.

use crate::key::RegionKey;
use std::vec;
use zerolane_lane::{
    AnyLane, Driver, Memory, NotPosted, PostError, Region, RemotePlace, Report, TransferId,
    WorkFlags, WorkKind, WorkRequest,
};
use zerolane_wire::Rights;

/// The memory of a piece.
pub(crate) trait Piece: Into<Memory> {
    /// The right that its request needs.
    const RIGHT: Rights;

    fn bytes(&self) -> u64;

    /// Posts a request for this piece, or returns it.
    fn post(
        self,
        driver: &mut Driver<AnyLane>,
        place: RemotePlace,
        immediate: Option<u32>,
        flags: WorkFlags,
        report: Report,
    ) -> Result<TransferId, NotPosted<Self>>;

    fn unposted(left: Left<Self>) -> Unposted;
}

impl Piece for Memory {
    const RIGHT: Rights = Rights::WRITE;

    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn post(
        self,
        driver: &mut Driver<AnyLane>,
        place: RemotePlace,
        immediate: Option<u32>,
        flags: WorkFlags,
        report: Report,
    ) -> Result<TransferId, NotPosted<Memory>> {
        let put = WorkRequest::Put {
            place,
            immediate,
            flags,
        };
        driver.post_source(put, report, self)
    }

    fn unposted(left: Left<Memory>) -> Unposted {
        Unposted::Put(left)
    }
}

impl Piece for Region {
    const RIGHT: Rights = Rights::READ;

    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn post(
        self,
        driver: &mut Driver<AnyLane>,
        place: RemotePlace,
        _immediate: Option<u32>,
        flags: WorkFlags,
        report: Report,
    ) -> Result<TransferId, NotPosted<Region>> {
        driver.post_target(WorkRequest::Get { place, flags }, report, self)
    }

    fn unposted(left: Left<Region>) -> Unposted {
        Unposted::Get(left)
    }
}

/// The pieces of a request that are not posted yet, and what they have in common.
#[derive(Debug)]
pub(crate) struct Left<M> {
    pub(crate) key: RegionKey,
    pub(crate) pieces: vec::IntoIter<(u64, M)>,
    /// The last piece has it.
    pub(crate) immediate: Option<u32>,
    /// The fence is the first piece's.
    pub(crate) flags: WorkFlags,
    pub(crate) report: Report,
}

/// The piece posted, or why not, and the piece.
type Attempt<M> = Result<TransferId, (PostError, (u64, M))>;

impl<M: Piece> Left<M> {
    /// # Errors
    /// A piece lies outside the region, or the key has not the right.
    pub(super) fn check(&self) -> Result<(), PostError> {
        let mut pieces = self.pieces.as_slice().iter();
        pieces.try_for_each(|(at, it)| self.key.place(*at, it.bytes(), M::RIGHT).map(drop))
    }

    /// Posts the next piece, or returns it. `None` if none is left.
    pub(super) fn post_next(&mut self, driver: &mut Driver<AnyLane>) -> Option<Attempt<M>> {
        let (offset, memory) = self.pieces.next()?;
        let place = match self.key.place(offset, memory.bytes(), M::RIGHT) {
            Ok(place) => place,
            Err(reason) => return Some(Err((reason, (offset, memory)))),
        };
        let immediate = self.immediate.filter(|_| self.pieces.len() == 0);
        // Each piece is reported, so that the last is known.
        let report = Report {
            signalled: true,
            ..self.report
        };
        let posted = memory.post(driver, place, immediate, self.flags, report);
        self.flags.fence = false;
        Some(posted.map_err(|NotPosted { reason, memory }| (reason, (offset, memory))))
    }
}

/// The pieces of any request that are not posted yet.
#[derive(Debug)]
pub(crate) enum Unposted {
    Put(Left<Memory>),
    Get(Left<Region>),
}

impl Unposted {
    pub(super) fn kind(&self) -> WorkKind {
        match self {
            Unposted::Put(_) => WorkKind::Put,
            Unposted::Get(_) => WorkKind::Get,
        }
    }

    pub(super) fn report(&self) -> Report {
        match self {
            Unposted::Put(left) => left.report,
            Unposted::Get(left) => left.report,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Unposted::Put(left) => left.pieces.len(),
            Unposted::Get(left) => left.pieces.len(),
        }
    }

    /// Posts the next piece, or returns its memory. `None` if none is left.
    pub(super) fn post_next(
        &mut self,
        driver: &mut Driver<AnyLane>,
    ) -> Option<Result<TransferId, (PostError, Memory)>> {
        let posted = match self {
            Unposted::Put(left) => left.post_next(driver)?.map_err(|it| (it.0, it.1.1)),
            Unposted::Get(left) => {
                let posted = left.post_next(driver)?;
                posted.map_err(|it| (it.0, it.1.1.into()))
            }
        };
        Some(posted)
    }

    /// The memory of all.
    pub(super) fn into_memory(self) -> Vec<Memory> {
        match self {
            Unposted::Put(left) => left.pieces.map(|it| it.1).collect(),
            Unposted::Get(left) => left.pieces.map(|it| it.1.into()).collect(),
        }
    }
}
