//! Defines the SCSI commands (SPC-4, SBC-3), and converts them to and from CDBs.
//!
//! Parser and builder stand side by side, so target, initiator and tests share one definition.

mod build;
pub mod opcode;
mod parse;

use std::ops::Range;

/// Longest CDB, bytes.
pub const MAX_CDB_BYTES: usize = 16;

/// The bytes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cdb {
    bytes: [u8; MAX_CDB_BYTES],
    length: usize,
}

impl Cdb {
    /// All zeros but the operation code; none if its group has no length.
    fn new(opcode: u8) -> Option<Cdb> {
        let mut bytes = [0; MAX_CDB_BYTES];
        bytes[0] = opcode;
        opcode::cdb_bytes(opcode).map(|length| Cdb { bytes, length })
    }

    /// 6, 10, 12 or 16 bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The bytes, padded with zeros.
    pub fn padded(&self) -> [u8; MAX_CDB_BYTES] {
        self.bytes
    }
}

/// Length of the CDB, for commands with several forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Bytes, in words.
pub enum Form {
    Six,
    Ten,
    Twelve,
    Sixteen,
}

impl Form {
    /// Where the number of blocks is in a CDB: the byte at which it begins.
    pub(crate) fn count_byte(self) -> u16 {
        match self {
            Form::Six => 4,
            Form::Ten => 7,
            Form::Twelve => 6,
            Form::Sixteen => 10,
        }
    }
}

/// A run of consecutive logical blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Address of the first block.
    pub lba: u64,
    /// Number of blocks.
    pub blocks: u64,
}

impl Extent {
    /// Whether the run ends within a disk of `blocks` blocks.
    pub fn is_within(&self, blocks: u64) -> bool {
        self.lba
            .checked_add(self.blocks)
            .is_some_and(|end| end <= blocks)
    }

    /// The blocks' addresses. The extent must be within a disk.
    pub(crate) fn range(&self) -> Range<u64> {
        self.lba..self.lba + self.blocks
    }

    /// A block is in both.
    pub(crate) fn overlaps(&self, other: &Extent) -> bool {
        let (a, b) = (self.range(), other.range());
        a.start < b.end && b.start < a.end
    }
}

/// The requested values of a mode page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the standard's.
pub enum PageControl {
    Current,
    Changeable,
    Default,
    Saved,
}

/// The query of REPORT SUPPORTED OPERATION CODES.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpcodeQuery {
    /// All commands.
    All,
    /// One that has no service actions.
    Plain(u8),
    /// One with a service action.
    Action(u8, u16),
    /// One, whether it has service actions or not.
    Either(u8, u16),
}

/// Service action of PERSISTENT RESERVE IN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the standard's.
pub enum ReserveIn {
    Keys,
    Reservation,
    Capabilities,
    FullStatus,
}

/// Service action of PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the standard's.
pub enum ReserveOut {
    Register,
    Reserve,
    Release,
    Clear,
    Preempt,
    PreemptAndAbort,
    RegisterAndIgnore,
}

/// A parsed command. Its addresses are not checked against a disk yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Fields are called as in the standard, `allocation` being the allocation length in bytes.
pub enum Command {
    TestUnitReady,
    RequestSense {
        descriptor: bool,
        allocation: u8,
    },
    Inquiry {
        /// A page of vital product data; else the standard data.
        page: Option<u8>,
        allocation: u16,
    },
    ReadCapacity10,
    ReadCapacity16 {
        allocation: u32,
    },
    /// Of six or ten bytes.
    ModeSense {
        form: Form,
        no_descriptors: bool,
        long_lba: bool,
        control: PageControl,
        page: u8,
        subpage: u8,
        allocation: u16,
    },
    Read {
        form: Form,
        extent: Extent,
        dpo: bool,
        fua: bool,
    },
    Write {
        form: Form,
        extent: Extent,
        dpo: bool,
        fua: bool,
    },
    /// Not of six bytes.
    Verify {
        form: Form,
        extent: Extent,
        dpo: bool,
        /// With the initiator's bytes (BYTCHK 1); else the medium is read alone.
        compare: bool,
    },
    /// Of ten or sixteen bytes. No blocks: to the end.
    SynchronizeCache {
        form: Form,
        extent: Extent,
        immediate: bool,
    },
    /// Of ten or sixteen bytes. No blocks: to the end.
    Prefetch {
        form: Form,
        extent: Extent,
        immediate: bool,
    },
    /// Of ten or sixteen bytes.
    WriteSame {
        form: Form,
        extent: Extent,
        unmap: bool,
        /// Zeros, without a block from the initiator (sixteen bytes only).
        no_data: bool,
    },
    Unmap {
        parameter_bytes: u16,
    },
    /// At most 255 blocks.
    CompareAndWrite {
        extent: Extent,
        dpo: bool,
        fua: bool,
    },
    GetLbaStatus {
        lba: u64,
        allocation: u32,
    },
    ReportLuns {
        select: u8,
        allocation: u32,
    },
    ReportOpcodes {
        timeouts: bool,
        query: OpcodeQuery,
        allocation: u32,
    },
    StartStop {
        immediate: bool,
        start: bool,
        no_flush: bool,
    },
    PersistentReserveIn {
        action: ReserveIn,
        allocation: u16,
    },
    PersistentReserveOut {
        action: ReserveOut,
        /// 0 to 15.
        scope: u8,
        /// 0 to 15.
        kind: u8,
        parameter_bytes: u32,
    },
}

impl Command {
    /// Length of the payload that this command reads, with blocks of `block` bytes. Parameter data is not payload.
    pub fn bytes_in(&self, block: u32) -> u64 {
        match self {
            Command::Read { extent, .. } => extent.blocks.saturating_mul(block.into()),
            _ => 0,
        }
    }

    /// Bytes that the initiator must supply for this command, payload or parameters, with blocks of `block` bytes.
    pub fn bytes_out(&self, block: u32) -> u64 {
        let block = u64::from(block);
        match *self {
            Command::Write { extent, .. } => extent.blocks.saturating_mul(block),
            Command::Verify {
                extent,
                compare: true,
                ..
            } => extent.blocks.saturating_mul(block),
            Command::CompareAndWrite { extent, .. } => extent.blocks.saturating_mul(2 * block),
            Command::WriteSame { no_data: false, .. } => block,
            Command::Unmap { parameter_bytes } => parameter_bytes.into(),
            Command::PersistentReserveOut {
                parameter_bytes, ..
            } => parameter_bytes.into(),
            _ => 0,
        }
    }
}
