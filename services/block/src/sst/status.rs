//! Encodes and parses the status of a finished command, as written to the initiator's status region.

use super::{Malformed, exactly, reserved};
use crate::bytes::number;
use crate::sense::{Format, MAX_SENSE_BYTES, Sense};
use crate::target::{Answer, Residual, Status};

/// Length of a [`StatusUnit`], and of a slot of the status region.
pub const STATUS_BYTES: usize = 64;

const RESPONSE: u8 = 1;
const MANAGED: u8 = 2;

/// Where sense data begins.
const SENSE: usize = 32;

/// The outcome that the status reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Of a command.
    Response {
        /// Its status.
        status: Status,
        /// With CHECK CONDITION.
        sense: Option<Sense>,
        /// The difference between the moved and the offered length.
        residual: Residual,
        /// Bytes that were moved to the initiator.
        data_in: u64,
    },
    /// Of a task management function.
    Managed(Answer),
}

/// The content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusUnit {
    /// The tag of the command or function, by which an initiator recognises its status.
    pub tag: u64,
    /// The outcome.
    pub outcome: Outcome,
}

impl StatusUnit {
    /// Encodes the slot, with sense data in the descriptor format.
    pub fn encode(&self) -> [u8; STATUS_BYTES] {
        let mut bytes = [0; STATUS_BYTES];
        bytes[..8].copy_from_slice(&self.tag.to_be_bytes());
        match &self.outcome {
            Outcome::Managed(answer) => {
                bytes[8] = MANAGED;
                bytes[9] = match answer {
                    Answer::Complete => 0x00,
                    Answer::Rejected => 0x04,
                    Answer::Succeeded => 0x08,
                    Answer::WrongLun => 0x09,
                };
            }
            Outcome::Response {
                status,
                sense,
                residual,
                data_in,
            } => {
                let (direction, left) = match residual {
                    Residual::None => (0, 0),
                    Residual::Under(left) => (1, *left),
                    Residual::Over(left) => (2, *left),
                };
                bytes[8..11].copy_from_slice(&[RESPONSE, *status as u8, direction]);
                bytes[16..24].copy_from_slice(&left.to_be_bytes());
                bytes[24..SENSE].copy_from_slice(&data_in.to_be_bytes());
                if let Some(sense) = sense {
                    let sense = sense.encode(Format::Descriptor);
                    bytes[11] = sense.len() as u8;
                    bytes[SENSE..SENSE + sense.len()].copy_from_slice(&sense);
                }
            }
        }
        bytes
    }

    /// Parses a slot.
    ///
    /// # Errors
    /// The slot holds no valid status. A slot that was never written has no kind.
    pub fn parse(bytes: &[u8]) -> Result<StatusUnit, Malformed> {
        let bytes = exactly::<STATUS_BYTES>(bytes)?;
        let outcome = match bytes[8] {
            RESPONSE => response(bytes)?,
            MANAGED => {
                reserved(&bytes[10..])?;
                Outcome::Managed(match bytes[9] {
                    0x00 => Answer::Complete,
                    0x04 => Answer::Rejected,
                    0x08 => Answer::Succeeded,
                    0x09 => Answer::WrongLun,
                    other => return Err(Malformed::field("answer", other)),
                })
            }
            other => return Err(Malformed::field("kind", other)),
        };
        let tag = number(&bytes[..8]);
        Ok(StatusUnit { tag, outcome })
    }
}

fn response(bytes: &[u8; STATUS_BYTES]) -> Result<Outcome, Malformed> {
    let status = Status::of(bytes[9]).ok_or(Malformed::field("status", bytes[9]))?;
    let left = number(&bytes[16..24]);
    let residual = match (bytes[10], left) {
        (0, 0) => Residual::None,
        (1, 1..) => Residual::Under(left),
        (2, 1..) => Residual::Over(left),
        (direction, _) => return Err(Malformed::field("residual", direction)),
    };
    let length = usize::from(bytes[11]);
    if length > MAX_SENSE_BYTES || (length > 0) != (status == Status::CheckCondition) {
        return Err(Malformed::field("sense length", bytes[11]));
    }
    reserved(&bytes[12..16])?;
    let (sense, rest) = bytes[SENSE..].split_at(length);
    reserved(rest)?;
    let sense = match length {
        0 => None,
        _ => Some(exact(sense)?),
    };
    Ok(Outcome::Response {
        status,
        sense,
        residual,
        data_in: number(&bytes[24..SENSE]),
    })
}

/// Sense data as [`StatusUnit::encode`] makes them, and nothing else.
fn exact(bytes: &[u8]) -> Result<Sense, Malformed> {
    let sense = Sense::parse(bytes).ok();
    let sense = sense.filter(|it| it.encode(Format::Descriptor) == bytes);
    sense.ok_or(Malformed::field("sense", bytes[0]))
}
