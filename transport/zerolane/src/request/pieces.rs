//! Puts and gets several pieces, each with a place of its own at the peer.

use super::remote::{Get, Put};
use super::{How, Request, options, sealed};
use crate::connection::Connection;
use crate::error::Error;
use crate::key::RegionKey;
use zerolane_lane::{Memory, PostError, Region, TransferId, limits};
use zerolane_wire::Rights;

/// Writes several pieces, each to an offset of its own: gathered here, scattered there. One completion, with all memory,
/// comes when all are placed. The first piece carries the fence, the last the immediate.
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
        let piece = |it: Piece<Memory>| {
            let put = Put::new(&to, it.offset, it.memory).with(it.how);
            put.immediate(immediate.filter(|_| it.is_last))
        };
        let posted = connection.post_pieces(&to, pieces, how, Rights::WRITE, Memory::len, piece);
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
        let piece = |it: Piece<Region>| Get::new(&from, it.offset, it.memory).with(it.how);
        let bytes = |region: &Region| region.len();
        let posted = connection.post_pieces(&from, pieces, how, Rights::READ, bytes, piece);
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

/// One piece of a request, with the options that it carries.
struct Piece<M> {
    offset: u64,
    memory: M,
    is_last: bool,
    how: How,
}

impl<M> Piece<M> {
    /// Piece `index` of `count` of a request with the options `how`. All pieces are signalled.
    fn new((offset, memory): (u64, M), index: usize, count: usize, how: How) -> Self {
        let mut how = how;
        how.report.signalled = true;
        how.flags.fence &= index == 0;
        Piece {
            offset,
            memory,
            is_last: index + 1 == count,
            how,
        }
    }
}

impl Connection {
    /// Posts `pieces`, each made a request by `piece`, as one request.
    fn post_pieces<M, R: Request<Memory = M>>(
        &mut self,
        key: &RegionKey,
        pieces: Vec<(u64, M)>,
        how: How,
        right: Rights,
        bytes: impl Fn(&M) -> usize,
        piece: impl Fn(Piece<M>) -> R,
    ) -> Result<TransferId, (Error, Vec<(u64, M)>)> {
        let mut lens = pieces.iter().map(|(at, piece)| (*at, bytes(piece) as u64));
        let outside = lens.find_map(|(at, len)| key.place(at, len, right).err());
        let room = match pieces.len() {
            0 => Some(PostError::NoPieces),
            count if count > limits::MAX_POSTED => Some(PostError::TooManyPieces),
            count if count > self.driver.room_for_operations() => Some(PostError::Full),
            _ => None,
        };
        if let Some(reason) = outside.or(room) {
            return Err((reason.into(), pieces));
        }
        let (count, mut ids) = (pieces.len(), Vec::with_capacity(pieces.len()));
        let mut pieces = pieces.into_iter().enumerate();
        while let Some((index, it)) = pieces.next() {
            let at = it.0;
            match piece(Piece::new(it, index, count, how)).post_to(self) {
                Ok(id) => ids.push(id),
                Err((error, refused)) => {
                    // The caller gets no identifier, so the group's completion is not reported.
                    self.vectored.begin(ids, false);
                    let rest = pieces.map(|(_, piece)| piece);
                    let memory = std::iter::once((at, refused.into_memory()))
                        .chain(rest)
                        .collect();
                    return Err((error, memory));
                }
            }
        }
        let last = ids.last().copied();
        self.vectored.begin(ids, how.report.signalled);
        last.ok_or((PostError::NoPieces.into(), Vec::new()))
    }
}
