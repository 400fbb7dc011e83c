//! Encodes and parses what an initiator sends: commands and task management functions.

use super::{MAX_SLOTS, Malformed, exactly, reserved};
use crate::bytes::number;
use crate::cdb::{Cdb, MAX_CDB_BYTES};
use crate::target::{Attribute, Function, Request};

/// Length of a [`CommandUnit`].
pub const COMMAND_BYTES: usize = 56;

/// Length of a [`ManagementUnit`].
pub const MANAGEMENT_BYTES: usize = 32;

const COMMAND: u8 = 1;
const MANAGEMENT: u8 = 2;

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandUnit {
    /// The slot for its status, below [`MAX_SLOTS`].
    pub slot: u16,
    /// The task attribute.
    pub attribute: Attribute,
    /// Its tag.
    pub tag: u64,
    /// The bytes of the LUN.
    pub lun: [u8; 8],
    /// The CDB, padded with zeros.
    pub cdb: [u8; MAX_CDB_BYTES],
    /// The initiator's buffer for read data, bytes.
    pub data_in: u64,
    /// The data offered for writing, bytes.
    pub data_out: u64,
}

/// A task management function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagementUnit {
    /// The slot for its answer, below [`MAX_SLOTS`].
    pub slot: u16,
    /// Its own tag.
    pub tag: u64,
    /// The bytes of the function's LUN.
    pub lun: [u8; 8],
    /// The function.
    pub function: Function,
}

/// Kind, an octet of the kind's own, and the slot; the four bytes behind them are reserved.
fn head(bytes: &[u8], kind: u8) -> Result<(u8, u16), Malformed> {
    if bytes[0] != kind {
        return Err(Malformed::field("kind", bytes[0]));
    }
    let slot = number(&bytes[2..4]) as u16;
    if slot >= MAX_SLOTS {
        return Err(Malformed::field("slot", slot));
    }
    reserved(&bytes[4..8])?;
    Ok((bytes[1], slot))
}

impl CommandUnit {
    /// `cdb` for the unit `lun`, in `slot`.
    pub fn new(slot: u16, tag: u64, lun: [u8; 8], cdb: &Cdb) -> CommandUnit {
        CommandUnit {
            slot,
            attribute: Attribute::Simple,
            tag,
            lun,
            cdb: cdb.padded(),
            data_in: 0,
            data_out: 0,
        }
    }

    /// The request for a target. `in_capsule`: whether the data came with the command.
    pub fn request(&self, in_capsule: bool) -> Request<'_> {
        Request {
            tag: self.tag,
            lun: self.lun,
            attribute: self.attribute,
            cdb: &self.cdb,
            data_in: self.data_in,
            data_out: self.data_out,
            in_capsule,
        }
    }

    /// Encodes the message.
    pub fn encode(&self) -> [u8; COMMAND_BYTES] {
        let mut bytes = [0; COMMAND_BYTES];
        bytes[0] = COMMAND;
        bytes[1] = match self.attribute {
            Attribute::Simple => 0,
            Attribute::Ordered => 1,
            Attribute::HeadOfQueue => 2,
        };
        bytes[2..4].copy_from_slice(&self.slot.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.tag.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.lun);
        bytes[24..40].copy_from_slice(&self.cdb);
        bytes[40..48].copy_from_slice(&self.data_in.to_be_bytes());
        bytes[48..].copy_from_slice(&self.data_out.to_be_bytes());
        bytes
    }

    /// Parses the message. The target must check the CDB.
    ///
    /// # Errors
    /// The bytes are not a valid command.
    pub fn parse(bytes: &[u8]) -> Result<CommandUnit, Malformed> {
        let bytes = exactly::<COMMAND_BYTES>(bytes)?;
        let (attribute, slot) = head(bytes, COMMAND)?;
        let attribute = match attribute {
            0 => Attribute::Simple,
            1 => Attribute::Ordered,
            2 => Attribute::HeadOfQueue,
            other => return Err(Malformed::field("attribute", other)),
        };
        let mut cdb = [0; MAX_CDB_BYTES];
        cdb.copy_from_slice(&bytes[24..40]);
        Ok(CommandUnit {
            slot,
            attribute,
            tag: number(&bytes[8..16]),
            lun: number(&bytes[16..24]).to_be_bytes(),
            cdb,
            data_in: number(&bytes[40..48]),
            data_out: number(&bytes[48..]),
        })
    }
}

impl ManagementUnit {
    /// The bytes of the message.
    pub fn encode(&self) -> [u8; MANAGEMENT_BYTES] {
        let (function, referred) = match self.function {
            Function::AbortTask(tag) => (0x01, tag),
            Function::AbortTaskSet => (0x02, 0),
            Function::ClearTaskSet => (0x04, 0),
            Function::ResetUnit => (0x08, 0),
            Function::QueryTask(tag) => (0x80, tag),
        };
        let mut bytes = [0; MANAGEMENT_BYTES];
        (bytes[0], bytes[1]) = (MANAGEMENT, function);
        bytes[2..4].copy_from_slice(&self.slot.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.tag.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.lun);
        bytes[24..].copy_from_slice(&referred.to_be_bytes());
        bytes
    }

    /// Parses the message.
    ///
    /// # Errors
    /// The bytes are not a valid function, or name a task for a function that affects all tasks.
    pub fn parse(bytes: &[u8]) -> Result<ManagementUnit, Malformed> {
        let bytes = exactly::<MANAGEMENT_BYTES>(bytes)?;
        let (function, slot) = head(bytes, MANAGEMENT)?;
        let referred = number(&bytes[24..]);
        let function = match (function, referred) {
            (0x01, tag) => Function::AbortTask(tag),
            (0x80, tag) => Function::QueryTask(tag),
            (0x02, 0) => Function::AbortTaskSet,
            (0x04, 0) => Function::ClearTaskSet,
            (0x08, 0) => Function::ResetUnit,
            (0x02 | 0x04 | 0x08, tag) => return Err(Malformed::field("referred tag", tag)),
            (other, _) => return Err(Malformed::field("function", other)),
        };
        Ok(ManagementUnit {
            slot,
            tag: number(&bytes[8..16]),
            lun: number(&bytes[16..24]).to_be_bytes(),
            function,
        })
    }
}
