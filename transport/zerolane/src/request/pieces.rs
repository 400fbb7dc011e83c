//! Puts and gets several pieces, each with a place of its own at the peer.

use super::remote::{Get, Put};
use super::{How, Request, options, sealed};
use crate::connection::Connection;
use crate::error::Error;
use crate::key::RegionKey;
use std::vec;
use zerolane_lane::{Memory, PostError, Region, TransferId, WorkKind};
use zerolane_wire::Rights;

/// Writes several pieces, any number, each to an offset of its own: gathered here, scattered there. One completion, with
/// all memory, comes when all are placed. The first piece carries the fence, the last the immediate.
///
/// Pieces for which there is no room are posted as others complete. Until all are, later operations on remote memory
/// and messages are refused with [`PostError::Full`], because they would overtake them. If a piece fails or the request is
/// cancelled, the pieces that were not posted are not written.
#[derive(Debug)]
pub struct PutPieces {
    to: RegionKey,
    pieces: Vec<(u64, Memory)>,
    immediate: Option<u32>,
    how: How,
}

impl PutPieces {
    /// Writes `pieces`, each an offset of the region `to` and the memory to write there.
    pub fn new(to: &RegionKey, pieces: Vec<(u64, Memory)>) -> PutPieces {
        PutPieces {
            to: *to,
            pieces,
            immediate: None,
            how: How::default(),
        }
    }
}

options!(PutPieces: context, signalled, awaited, fence, immediate);

impl Request for PutPieces {
    type Memory = Vec<(u64, Memory)>;

    fn into_memory(self) -> Vec<(u64, Memory)> {
        self.pieces
    }
}

impl sealed::Post for PutPieces {
    fn post_to(self, connection: &mut Connection) -> Result<TransferId, (Error, Self)> {
        let PutPieces {
            to,
            pieces,
            immediate,
            how,
        } = self;
        let posted = Left::new(to, pieces, immediate, how).post(how.report.signalled, connection);
        posted.map_err(|(error, pieces)| {
            let back = PutPieces {
                to,
                pieces,
                immediate,
                how,
            };
            (error, back)
        })
    }

    fn give_back(self) -> Option<Memory> {
        gathered(self.pieces)
    }

    fn signal(self) -> Self {
        self.signalled(true)
    }
}

/// Reads several pieces, each from an offset of its own. Otherwise like [`PutPieces`].
#[derive(Debug)]
pub struct GetPieces {
    from: RegionKey,
    pieces: Vec<(u64, Region)>,
    how: How,
}

impl GetPieces {
    /// Reads `pieces`, each an offset of the region `from` and the memory to fill.
    pub fn new(from: &RegionKey, pieces: Vec<(u64, Region)>) -> GetPieces {
        GetPieces {
            from: *from,
            pieces,
            how: How::default(),
        }
    }
}

options!(GetPieces: context, signalled, fence);

impl Request for GetPieces {
    type Memory = Vec<(u64, Region)>;

    fn into_memory(self) -> Vec<(u64, Region)> {
        self.pieces
    }
}

impl sealed::Post for GetPieces {
    fn post_to(self, connection: &mut Connection) -> Result<TransferId, (Error, Self)> {
        let GetPieces { from, pieces, how } = self;
        let posted = Left::new(from, pieces, None, how).post(how.report.signalled, connection);
        posted.map_err(|(error, pieces)| (error, GetPieces { from, pieces, how }))
    }

    fn give_back(self) -> Option<Memory> {
        gathered(self.pieces)
    }

    fn signal(self) -> Self {
        self.signalled(true)
    }
}

/// The memory of pieces, without their offsets.
fn gathered<M: Into<Memory>>(pieces: Vec<(u64, M)>) -> Option<Memory> {
    let pieces: Vec<Memory> = pieces.into_iter().map(|it| it.1.into()).collect();
    Some(pieces.into())
}

/// The memory of a piece.
pub(crate) trait Piece: Into<Memory> {
    const RIGHT: Rights;

    fn bytes(&self) -> u64;

    /// Posts a request for this piece, or returns it.
    fn post(
        self,
        place: (&RegionKey, u64),
        immediate: Option<u32>,
        how: How,
        connection: &mut Connection,
    ) -> Result<TransferId, (Error, Self)>;

    fn unposted(left: Left<Self>) -> Unposted;
}

impl Piece for Memory {
    const RIGHT: Rights = Rights::WRITE;

    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn post(
        self,
        (to, offset): (&RegionKey, u64),
        immediate: Option<u32>,
        how: How,
        connection: &mut Connection,
    ) -> Result<TransferId, (Error, Memory)> {
        let put = Put::new(to, offset, self).with(how).immediate(immediate);
        let posted = sealed::Post::post_to(put, connection);
        posted.map_err(|(error, put)| (error, put.into_memory()))
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
        (from, offset): (&RegionKey, u64),
        _immediate: Option<u32>,
        how: How,
        connection: &mut Connection,
    ) -> Result<TransferId, (Error, Region)> {
        let get = Get::new(from, offset, self).with(how);
        let posted = sealed::Post::post_to(get, connection);
        posted.map_err(|(error, get)| (error, get.into_memory()))
    }

    fn unposted(left: Left<Region>) -> Unposted {
        Unposted::Get(left)
    }
}

/// The pieces of a request that are not posted yet, and what they have in common.
#[derive(Debug)]
pub(crate) struct Left<M> {
    key: RegionKey,
    pieces: vec::IntoIter<(u64, M)>,
    immediate: Option<u32>,
    how: How,
}

/// The same of any request.
#[derive(Debug)]
pub(crate) enum Unposted {
    Put(Left<Memory>),
    Get(Left<Region>),
}

impl<M: Piece> Left<M> {
    fn new(key: RegionKey, pieces: Vec<(u64, M)>, immediate: Option<u32>, how: How) -> Left<M> {
        let mut how = how;
        // Each piece is, so that the last is known.
        how.report.signalled = true;
        Left {
            key,
            pieces: pieces.into_iter(),
            immediate,
            how,
        }
    }

    /// Posts the next piece, or returns it. `None` if none is left.
    fn post_next(
        &mut self,
        connection: &mut Connection,
    ) -> Option<Result<TransferId, (Error, (u64, M))>> {
        let (offset, memory) = self.pieces.next()?;
        let how = self.how;
        let immediate = self.immediate.filter(|_| self.pieces.len() == 0);
        let posted = memory.post((&self.key, offset), immediate, how, connection);
        // The first has it for all.
        self.how.flags.fence = false;
        Some(posted.map_err(|(error, memory)| (error, (offset, memory))))
    }

    /// Posts as many pieces as there is room for, as one request, or returns all of them.
    fn post(
        mut self,
        signalled: bool,
        connection: &mut Connection,
    ) -> Result<TransferId, (Error, Vec<(u64, M)>)> {
        let checked = connection.vectored.check_order().and_then(|()| {
            let mut places = self.pieces.as_slice().iter();
            places.try_for_each(|(at, it)| self.key.place(*at, it.bytes(), M::RIGHT).map(drop))
        });
        if let Err(reason) = checked {
            return Err((reason.into(), self.pieces.collect()));
        }
        match self.post_next(connection) {
            Some(Ok(id)) => {
                let mut report = self.how.report;
                report.signalled = signalled;
                connection.vectored.begin(id, report, M::unposted(self));
                connection.post_unposted();
                Ok(id)
            }
            Some(Err((error, refused))) => {
                let all = std::iter::once(refused).chain(self.pieces);
                Err((error, all.collect()))
            }
            None => Err((PostError::NoPieces.into(), Vec::new())),
        }
    }
}

impl Unposted {
    /// Gets of some region, to be counted.
    #[cfg(test)]
    pub(crate) fn of_gets(pieces: Vec<(u64, Region)>) -> Unposted {
        let number = zerolane_lane::RegionNumber::new(1).expect("small");
        let key = RegionKey::numbered(number, 0);
        Unposted::Get(Left::new(key, pieces, None, How::default()))
    }

    pub(crate) fn kind(&self) -> WorkKind {
        match self {
            Unposted::Put(_) => WorkKind::Put,
            Unposted::Get(_) => WorkKind::Get,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Unposted::Put(left) => left.pieces.len(),
            Unposted::Get(left) => left.pieces.len(),
        }
    }

    /// Posts the next piece, or returns its memory. `None` if none is left.
    pub(crate) fn post_next(
        &mut self,
        connection: &mut Connection,
    ) -> Option<Result<TransferId, (Error, Memory)>> {
        let posted = match self {
            Unposted::Put(left) => left.post_next(connection)?.map_err(|it| (it.0, it.1.1)),
            Unposted::Get(left) => {
                let posted = left.post_next(connection)?;
                posted.map_err(|it| (it.0, it.1.1.into()))
            }
        };
        Some(posted)
    }

    /// The memory of all.
    pub(crate) fn into_memory(self) -> Vec<Memory> {
        match self {
            Unposted::Put(left) => left.pieces.map(|it| it.1).collect(),
            Unposted::Get(left) => left.pieces.map(|it| it.1.into()).collect(),
        }
    }
}
