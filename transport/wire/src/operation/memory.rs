//! Defines the operations on persistent memory.

use super::{OPTIONS_LEN, Options, be32, be64, not_zero, out_of_range};
use crate::header::{Field, Flags, Header, ParseError, Problem};

/// What the holder of a region handle may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights {
    /// Get.
    pub read: bool,
    /// Put.
    pub write: bool,
    /// FetchOp.
    pub atomic: bool,
}

impl Rights {
    /// Nothing.
    pub const NONE: Rights = Rights::new(false, false, false);
    /// Get.
    pub const READ: Rights = Rights::new(true, false, false);
    /// Put.
    pub const WRITE: Rights = Rights::new(false, true, false);
    /// FetchOp.
    pub const ATOMIC: Rights = Rights::new(false, false, true);
    /// All of them.
    pub const ALL: Rights = Rights::new(true, true, true);

    const fn new(read: bool, write: bool, atomic: bool) -> Rights {
        Rights {
            read,
            write,
            atomic,
        }
    }

    /// These rights and `other`'s.
    #[must_use]
    pub const fn with(self, other: Rights) -> Rights {
        Rights::new(
            self.read || other.read,
            self.write || other.write,
            self.atomic || other.atomic,
        )
    }

    /// Whether these include all of `other`.
    pub const fn contains(self, other: Rights) -> bool {
        (self.read || !other.read) && (self.write || !other.write) && (self.atomic || !other.atomic)
    }

    /// As bits: 1 read, 2 write, 4 atomic.
    pub const fn bits(self) -> u16 {
        self.read as u16 | (self.write as u16) << 1 | (self.atomic as u16) << 2
    }

    /// The rights of the bits; `None` if any bit beyond these three is set.
    pub const fn from_bits(bits: u16) -> Option<Rights> {
        if bits > 7 {
            return None;
        }
        Some(Rights::new(bits & 1 != 0, bits & 2 != 0, bits & 4 != 0))
    }

    pub(super) fn parse(param: u16) -> Result<Rights, ParseError> {
        Rights::from_bits(param).ok_or(out_of_range(Field::Param, u64::from(param)))
    }
}

/// Asks for a persistent memory region.
///
/// Answered by [`MemoryRegionAvailable`] or [`RequestAnswer`](super::RequestAnswer).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestMemoryRegion {
    /// Rights wanted.
    pub rights: Rights,
    /// Bytes wanted, 0 for the whole region.
    pub length: u64,
    /// The requester's identifier of this request, not 0.
    pub s_id: u32,
    /// Name of the region, padded with zeros.
    pub name: [u8; OPTIONS_LEN],
}

impl RequestMemoryRegion {
    pub(super) fn emit(&self, header: Header) -> (Header, Option<Options>) {
        let header = Header {
            param: self.rights.bits(),
            s_id: self.s_id,
            ..header
        };
        (header.with_wide(self.length), Some(self.name))
    }

    pub(super) fn parse(
        header: &Header,
        options: &Options,
    ) -> Result<RequestMemoryRegion, ParseError> {
        Ok(RequestMemoryRegion {
            rights: Rights::parse(header.param)?,
            length: header.wide(),
            s_id: not_zero(Field::SId, header.s_id)?,
            name: *options,
        })
    }
}

/// Grants a persistent memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryRegionAvailable {
    /// Rights granted.
    pub rights: Rights,
    /// Memory index to put into B_id of Data, Get and FetchOp.
    pub mx: u16,
    /// Buffer the region starts in.
    pub bufx: u32,
    /// Offset within that buffer.
    pub offset: u32,
    /// The requester's identifier of the request this answers, not 0.
    pub d_id: u32,
    /// Handle: identifies region and generation, goes into D_id of Data, Get and FetchOp.
    pub handle: u32,
    /// Length of the region, bytes.
    pub length: u64,
}

impl MemoryRegionAvailable {
    pub(super) fn emit(&self, header: Header) -> (Header, Option<Options>) {
        let mut options = [0; OPTIONS_LEN];
        options[..8].copy_from_slice(&self.length.to_be_bytes());
        let header = Header {
            param: self.rights.bits(),
            b_id: self.mx,
            bufx: self.bufx,
            offset: self.offset,
            d_id: self.d_id,
            s_id: self.handle,
            ..header
        };
        (header, Some(options))
    }

    pub(super) fn parse(
        header: &Header,
        options: &Options,
    ) -> Result<MemoryRegionAvailable, ParseError> {
        Ok(MemoryRegionAvailable {
            rights: Rights::parse(header.param)?,
            mx: header.b_id,
            bufx: header.bufx,
            offset: header.offset,
            d_id: not_zero(Field::DId, header.d_id)?,
            handle: header.s_id,
            length: be64(options, 0),
        })
    }
}

/// Asks for bytes of a persistent memory region. Answered by Data to the place named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Get {
    /// Memory index of the region read.
    pub mx: u16,
    /// Buffer read from.
    pub bufx: u32,
    /// Offset within that buffer.
    pub offset: u32,
    /// Handle of the region read.
    pub handle: u32,
    /// The Initiator's identifier, not 0, echoed in D_id of the Data.
    pub s_id: u32,
    /// Memory index of the Initiator's landing place.
    pub return_mx: u16,
    /// Buffer of the landing place.
    pub return_bufx: u32,
    /// Offset within that buffer.
    pub return_offset: u32,
    /// Bytes wanted, not 0.
    pub length: u32,
    /// The answer must follow all operations numbered below this.
    pub after: u32,
    /// Echoed in B_num of the Data.
    pub b_num: u32,
    /// The bursts of the answer must be numbered, so that their sender gets progress reports.
    pub numbered: bool,
    /// It repeats an earlier request, which was not answered.
    pub repeated: bool,
    /// The answer may come as trains.
    pub trains: bool,
}

impl Get {
    pub(super) fn emit(&self, header: Header) -> (Header, Option<Options>) {
        let mut options = [0; OPTIONS_LEN];
        options[..4].copy_from_slice(&self.return_bufx.to_be_bytes());
        options[4..8].copy_from_slice(&self.return_offset.to_be_bytes());
        options[8..12].copy_from_slice(&self.length.to_be_bytes());
        options[12..14].copy_from_slice(&self.return_mx.to_be_bytes());
        let header = Header {
            flags: header
                .flags
                .with_if(Flags::NUMBERED, self.numbered)
                .with_if(Flags::REPEATED, self.repeated)
                .with_if(Flags::TRAIN, self.trains),
            b_id: self.mx,
            bufx: self.bufx,
            offset: self.offset,
            d_id: self.handle,
            s_id: self.s_id,
            sync: self.after,
            b_num: self.b_num,
            ..header
        };
        (header, Some(options))
    }

    pub(super) fn parse(header: &Header, options: &Options) -> Result<Get, ParseError> {
        Ok(Get {
            mx: header.b_id,
            bufx: header.bufx,
            offset: header.offset,
            handle: header.d_id,
            s_id: not_zero(Field::SId, header.s_id)?,
            return_mx: u16::from_be_bytes([options[12], options[13]]),
            return_bufx: be32(options, 0),
            return_offset: be32(options, 4),
            length: not_zero(Field::Options, be32(options, 8))?,
            after: header.sync,
            b_num: header.b_num,
            numbered: header.flags.contains(Flags::NUMBERED),
            repeated: header.flags.contains(Flags::REPEATED),
            trains: header.flags.contains(Flags::TRAIN),
        })
    }
}

/// An atomic operation on a word, which it takes as an unsigned integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FetchOpKind {
    /// Adds the operand, wrapping.
    Add,
    /// Adds one, wrapping.
    Increment,
    /// Subtracts one, wrapping.
    Decrement,
    /// Stores zero.
    Clear,
    /// Stores the operand.
    Swap,
    /// Stores the operand if the word equals the comparand.
    CompareAndSwap,
    /// Clears the bits that the operand does not have.
    And,
    /// Sets the bits of the operand.
    Or,
    /// Flips the bits of the operand.
    Xor,
    /// Stores the operand if it is less.
    Min,
    /// Stores the operand if it is greater.
    Max,
}

impl FetchOpKind {
    /// All kinds, in order of their code points (from 0).
    pub const ALL: [FetchOpKind; 11] = [
        FetchOpKind::Add,
        FetchOpKind::Increment,
        FetchOpKind::Decrement,
        FetchOpKind::Clear,
        FetchOpKind::Swap,
        FetchOpKind::CompareAndSwap,
        FetchOpKind::And,
        FetchOpKind::Or,
        FetchOpKind::Xor,
        FetchOpKind::Min,
        FetchOpKind::Max,
    ];
}

/// The size of a word that an atomic operation changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Word {
    /// 64 bits.
    #[default]
    U64,
    /// 32 bits. Operand, comparand and value are below 2^32.
    U32,
}

impl Word {
    /// Its length, bytes. A word begins at a multiple of it.
    pub const fn bytes(self) -> u32 {
        match self {
            Word::U64 => 8,
            Word::U32 => 4,
        }
    }

    /// The largest value.
    pub const fn max(self) -> u64 {
        match self {
            Word::U64 => u64::MAX,
            Word::U32 => u32::MAX as u64,
        }
    }
}

/// Asks for an atomic operation on a word.
///
/// Answered by Data of 8 bytes (the old value, big-endian), then [`FetchOpComplete`](super::Operation::FetchOpComplete).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FetchOp {
    /// Which operation.
    pub kind: FetchOpKind,
    /// Size of the word.
    pub word: Word,
    /// Memory index of the region.
    pub mx: u16,
    /// Buffer of the word.
    pub bufx: u32,
    /// Offset of the word, a multiple of its length.
    pub offset: u32,
    /// Handle of the region.
    pub handle: u32,
    /// The Initiator's identifier, not 0, echoed in D_id of the Data.
    pub s_id: u32,
    /// Number of this operation on the connection. Once executed, a repeat is answered with the same value.
    pub sync: u32,
    /// The Initiator has the values of all FetchOps numbered below this.
    pub confirmed: u32,
    /// Operand.
    pub operand: u64,
    /// Comparand of [`FetchOpKind::CompareAndSwap`].
    pub comparand: u64,
}

impl FetchOp {
    pub(super) fn emit(&self, header: Header) -> (Header, Option<Options>) {
        let mut options = [0; OPTIONS_LEN];
        options[..8].copy_from_slice(&self.operand.to_be_bytes());
        options[8..16].copy_from_slice(&self.comparand.to_be_bytes());
        options[16..20].copy_from_slice(&self.confirmed.to_be_bytes());
        let header = Header {
            flags: header
                .flags
                .with_if(Flags::HALF_WORD, self.word == Word::U32),
            param: self.kind as u16,
            b_id: self.mx,
            bufx: self.bufx,
            offset: self.offset,
            d_id: self.handle,
            s_id: self.s_id,
            sync: self.sync,
            ..header
        };
        (header, Some(options))
    }

    pub(super) fn parse(header: &Header, options: &Options) -> Result<FetchOp, ParseError> {
        let kind = *FetchOpKind::ALL
            .get(usize::from(header.param))
            .ok_or(ParseError::new(
                Field::Param,
                Problem::Unassigned(u32::from(header.param)),
            ))?;
        let word = match header.flags.contains(Flags::HALF_WORD) {
            true => Word::U32,
            false => Word::U64,
        };
        if !header.offset.is_multiple_of(word.bytes()) {
            return Err(out_of_range(Field::Offset, u64::from(header.offset)));
        }
        let (operand, comparand) = (be64(options, 0), be64(options, 8));
        if let Some(long) = [operand, comparand].into_iter().find(|it| *it > word.max()) {
            return Err(out_of_range(Field::Options, long));
        }
        Ok(FetchOp {
            kind,
            word,
            mx: header.b_id,
            bufx: header.bufx,
            offset: header.offset,
            handle: header.d_id,
            s_id: not_zero(Field::SId, header.s_id)?,
            sync: header.sync,
            operand,
            comparand,
            confirmed: be32(options, 16),
        })
    }
}

/// Confirms operations on persistent memory by number: a separate kind of State.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryState {
    /// All operations numbered below this were executed.
    pub expected: u32,
    /// Requests all operations from `expected` on again.
    pub resend: bool,
    /// Operations may come as trains from now on.
    pub trains: bool,
}

impl MemoryState {
    pub(super) fn emit(&self, header: Header) -> Header {
        Header {
            flags: Flags::MEMORY
                .with_if(Flags::COMPLETE, !self.resend)
                .with_if(Flags::TRAIN, self.trains),
            sync: self.expected,
            ..header
        }
    }

    pub(super) fn parse(header: &Header) -> MemoryState {
        MemoryState {
            expected: header.sync,
            resend: !header.flags.contains(Flags::COMPLETE),
            trains: header.flags.contains(Flags::TRAIN),
        }
    }
}

/// A place in a persistent memory region of the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// Handle of the region.
    pub handle: u32,
    /// Its memory index.
    pub mx: u16,
    /// Buffer.
    pub bufx: u32,
    /// Offset within that buffer.
    pub offset: u32,
}

impl Place {
    pub(super) fn emit(&self) -> Options {
        let mut options = [0; OPTIONS_LEN];
        options[..4].copy_from_slice(&self.bufx.to_be_bytes());
        options[4..8].copy_from_slice(&self.offset.to_be_bytes());
        options
    }

    pub(super) fn parse(header: &Header, options: &Options) -> Place {
        Place {
            handle: header.d_id,
            mx: header.b_id,
            bufx: be32(options, 0),
            offset: be32(options, 4),
        }
    }
}
