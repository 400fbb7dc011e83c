//! Parses and checks requests.

use super::bytes::Taker;
use super::errno::Errno;
use super::export::Export;
use super::{Offence, Terms};
use crate::limits::MAX_PAYLOAD;

const MAGIC: u32 = 0x2560_9513;
/// Bytes of a request without its payload.
pub(super) const HEADER: usize = 28;

const FUA: u16 = 1;
const NO_HOLE: u16 = 1 << 1;
const DF: u16 = 1 << 2;
const REQ_ONE: u16 = 1 << 3;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes of the disk.
    Read,
    /// Bytes to the disk; on the medium when it is answered, if durable.
    Write {
        /// FUA.
        durable: bool,
    },
    /// Puts all writes answered before on the medium.
    Flush,
    /// The bytes are no longer needed. The disk may ignore this.
    Trim {
        /// FUA.
        durable: bool,
    },
    /// Zeros.
    Zero {
        /// Their space may be given back.
        unmap: bool,
        /// FUA.
        durable: bool,
    },
    /// Which of these bytes have a place: one extent, or more.
    Status {
        /// Whether the client accepts only one extent.
        one: bool,
    },
    /// A request that this server does not know.
    Unknown,
}

/// A request. Its range is within the disk unless it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The client's identifier of the request.
    pub cookie: u64,
    /// Its kind.
    pub kind: Kind,
    /// Offset on the disk, bytes.
    pub at: u64,
    /// Length, bytes.
    pub bytes: u32,
    /// Why it is refused.
    pub refused: Option<Errno>,
}

impl Request {
    /// A request, or `None`: the client leaves.
    pub(super) fn parse(
        header: &[u8; HEADER],
        export: &Export,
        terms: Terms,
    ) -> Result<Option<Request>, Offence> {
        let mut taker = Taker(header);
        let magic = taker.u32();
        let (flags, kind) = (taker.u16(), taker.u16());
        let (cookie, at, bytes) = (taker.u64(), taker.u64(), taker.u32());
        let (Some(MAGIC), Some(flags), Some(kind)) = (magic, flags, kind) else {
            return Err(Offence::Magic);
        };
        let (Some(cookie), Some(at), Some(bytes)) = (cookie, at, bytes) else {
            return Err(Offence::Magic);
        };
        let durable = flags & FUA != 0;
        let mut known = FUA;
        let kind = match kind {
            DISCONNECT => return Ok(None),
            READ => {
                known |= if terms.structured { DF } else { 0 };
                Kind::Read
            }
            WRITE => Kind::Write { durable },
            FLUSH => Kind::Flush,
            TRIM => Kind::Trim { durable },
            WRITE_ZEROES => {
                known |= NO_HOLE;
                let unmap = flags & NO_HOLE == 0;
                Kind::Zero { unmap, durable }
            }
            BLOCK_STATUS => {
                known |= REQ_ONE;
                let one = flags & REQ_ONE != 0;
                Kind::Status { one }
            }
            _ => Kind::Unknown,
        };
        let mut request = Request {
            cookie,
            kind,
            at,
            bytes,
            refused: None,
        };
        if request.payload() > MAX_PAYLOAD {
            return Err(Offence::Payload(bytes));
        }
        request.refused = match flags & !known {
            0 => request.wrong(export, terms),
            _ => Some(Errno::INVALID),
        };
        Ok(Some(request))
    }

    /// Length of the payload that follows it, bytes.
    pub fn payload(&self) -> u32 {
        match self.kind {
            Kind::Write { .. } => self.bytes,
            _ => 0,
        }
    }

    /// Whether it changes the disk.
    pub fn writes(&self) -> bool {
        matches!(
            self.kind,
            Kind::Write { .. } | Kind::Trim { .. } | Kind::Zero { .. }
        )
    }

    fn wrong(&self, export: &Export, terms: Terms) -> Option<Errno> {
        let has = export.has(self.at, self.bytes.into());
        match self.kind {
            Kind::Unknown => Some(Errno::INVALID),
            Kind::Flush => (self.at != 0 || self.bytes != 0).then_some(Errno::INVALID),
            _ if self.writes() && export.read_only => Some(Errno::PERMISSION),
            Kind::Write { .. } | Kind::Zero { .. } => (!has).then_some(Errno::SPACE),
            Kind::Read if self.bytes > MAX_PAYLOAD => Some(Errno::INVALID),
            Kind::Status { .. } if !terms.allocation || self.bytes == 0 => Some(Errno::INVALID),
            Kind::Read | Kind::Trim { .. } | Kind::Status { .. } => {
                (!has).then_some(Errno::INVALID)
            }
        }
    }
}
