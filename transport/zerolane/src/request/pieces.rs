//! Puts and gets several pieces, each with a place of its own at the peer.

use super::{How, Request, options, sealed};
use crate::connection::Connection;
use crate::error::Error;
use crate::key::RegionKey;
use crate::vectored::Left;
#[cfg(doc)]
use zerolane_lane::PostError;
use zerolane_lane::{Memory, Region, TransferId};

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
        let left = left(to, pieces, immediate, how);
        let posted = connection.vectored.post(&mut connection.driver, left);
        posted.map_err(|(reason, pieces)| {
            let back = PutPieces {
                to,
                pieces,
                immediate,
                how,
            };
            (reason.into(), back)
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
        let left = left(from, pieces, None, how);
        let posted = connection.vectored.post(&mut connection.driver, left);
        posted.map_err(|(reason, pieces)| (reason.into(), GetPieces { from, pieces, how }))
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

/// The pieces of a request, of which none is posted.
fn left<M>(key: RegionKey, pieces: Vec<(u64, M)>, immediate: Option<u32>, how: How) -> Left<M> {
    let mut each = how;
    each.report.signalled = true;
    Left {
        key,
        pieces: pieces.into_iter(),
        immediate,
        flags: each.flags(),
        report: how.report(),
    }
}
