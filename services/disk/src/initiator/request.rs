//! Splits requests into the commands that they consist of.

use zerolane::Region;
use zerolane_block::cdb::{Cdb, Command, Extent, Form};

use super::error::Error;
use super::unit::Unit;

/// Blocks that become zeros by one command, bytes: so that it does not hold the disk for long.
const ZERO_BYTES: u64 = 64 << 20;

/// What an answer to GET LBA STATUS has at least: its length, and one descriptor.
const LEAST_STATUS: u64 = 24;

/// A request to a queue. Addresses and lengths are in bytes, and must be whole blocks.
#[derive(Debug)]
pub enum Request {
    /// Fills `memory` with the bytes at `at`.
    Read {
        /// Where.
        at: u64,
        /// As many bytes as are read. Its address is a multiple of 8.
        memory: Region,
    },
    /// Writes `memory` at `at`.
    Write {
        /// Where.
        at: u64,
        /// As many bytes as are written. Its address is a multiple of 8.
        memory: Region,
        /// Whether the data is on the medium when the request completes.
        durable: bool,
    },
    /// Writes the second half of `memory` at `at` if the first half equals the bytes there, atomically with respect to
    /// other initiators. Otherwise writes nothing, and fails with the sense key MISCOMPARE. It is not repeated after
    /// its connection breaks, because it would compare with its own write: it fails with [`Error::InDoubt`].
    CompareAndWrite {
        /// Where.
        at: u64,
        /// Twice the written length, at most 255 blocks and the longest payload of a command. Aligned to 8 bytes.
        memory: Region,
    },
    /// Fills `memory` with the standard's answer to GET LBA STATUS from `at` on, as far as there is room: see
    /// [`Queue::extents`](super::Queue::extents).
    Status {
        /// Where.
        at: u64,
        /// At least 24 bytes, at an address that is a multiple of 8.
        memory: Region,
    },
    /// Puts all earlier completed requests on the medium.
    Flush,
    /// These bytes become zeros.
    Zero {
        /// Where.
        at: u64,
        /// How many.
        bytes: u64,
        /// Their space is given back, if the unit gives any back.
        unmap: bool,
    },
}

/// A completed request.
#[derive(Debug)]
pub struct Done {
    /// Its result.
    pub result: Result<(), Error>,
    /// The memory that came with it; empty if there was none, or it is lost ([`Error::Panicked`]).
    pub memory: Region,
}

/// Where data of a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    None,
    In,
    Out,
}

/// The effect of a command, once it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    /// Something may be lost until a flush.
    Dirties,
    /// The same, and done twice it does not do what it does when done once.
    Exchanges,
    /// What was done before is on the medium.
    Flushes,
}

/// A command of a request.
#[derive(Debug)]
pub(super) struct Part {
    /// Its request.
    pub(super) request: u64,
    pub(super) cdb: Cdb,
    pub(super) direction: Direction,
    /// Where in the request's memory its data begins.
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// So many of them come, or more.
    pub(super) least: u64,
    pub(super) effect: Effect,
    /// When it came: repeats keep the order.
    pub(super) order: u64,
    pub(super) repeats: u32,
    /// Its connection broke, and it may be done.
    pub(super) is_in_doubt: bool,
    /// What a flush makes safe, once it was sent.
    pub(super) mark: Option<u64>,
}

impl Request {
    /// The commands, of at most `most` bytes of payload each, as CDB, data and effect.
    ///
    /// # Errors
    /// Bytes that are not on the disk, or no whole blocks.
    pub(super) fn parts(&self, unit: &Unit, most: u64) -> Result<Vec<Part>, Error> {
        match *self {
            Request::Read { at, ref memory } => {
                let command = |extent| Command::Read {
                    form: Form::Sixteen,
                    extent,
                    dpo: false,
                    fua: false,
                };
                let kind = (Direction::In, Effect::None);
                cut(unit, (at, memory.len() as u64), most, kind, command)
            }
            Request::Write {
                at,
                ref memory,
                durable,
            } => {
                let command = |extent| Command::Write {
                    form: Form::Sixteen,
                    extent,
                    dpo: false,
                    fua: durable,
                };
                let effect = if durable {
                    Effect::None
                } else {
                    Effect::Dirties
                };
                let kind = (Direction::Out, effect);
                cut(unit, (at, memory.len() as u64), most, kind, command)
            }
            Request::CompareAndWrite { at, ref memory } => {
                let bytes = memory.len() as u64;
                let command = |extent| Command::CompareAndWrite {
                    extent,
                    dpo: false,
                    fua: false,
                };
                if !bytes.is_multiple_of(2) || bytes > most {
                    let capacity = unit.bytes();
                    return Err(Error::Range {
                        at,
                        bytes,
                        capacity,
                    });
                }
                let kind = (Direction::Out, Effect::Exchanges);
                let parts = cut(unit, (at, bytes / 2), bytes, kind, command)?;
                let whole = |it| Part { bytes, ..it };
                Ok(parts.into_iter().map(whole).collect())
            }
            Request::Status { at, ref memory } => {
                let block = u64::from(unit.block_bytes);
                let bytes = memory.len() as u64;
                let allocation = u32::try_from(bytes).ok();
                let allocation =
                    allocation.filter(|_| at < unit.bytes() && at.is_multiple_of(block));
                let allocation = allocation.ok_or(Error::Range {
                    at,
                    bytes,
                    capacity: unit.bytes(),
                })?;
                let lba = at / block;
                let command = Command::GetLbaStatus { lba, allocation };
                let part = part(&command, (Direction::In, Effect::None), (0, bytes));
                let least = bytes.min(LEAST_STATUS);
                Ok(part.into_iter().map(|it| Part { least, ..it }).collect())
            }
            Request::Zero { at, bytes, unmap } => {
                let unmap = unmap && unit.thin;
                let command = |extent| Command::WriteSame {
                    form: Form::Sixteen,
                    extent,
                    unmap,
                    no_data: true,
                };
                let kind = (Direction::None, Effect::Dirties);
                cut(unit, (at, bytes), ZERO_BYTES, kind, command)
            }
            Request::Flush => {
                let command = Command::SynchronizeCache {
                    form: Form::Sixteen,
                    extent: Extent::default(),
                    immediate: false,
                };
                let part = part(&command, (Direction::None, Effect::Flushes), (0, 0));
                Ok(part.into_iter().collect())
            }
        }
    }

    /// The memory of the request, and whether the request fills it.
    pub(super) fn into_memory(self) -> (Region, bool) {
        match self {
            Request::Read { memory, .. } | Request::Status { memory, .. } => (memory, true),
            Request::Write { memory, .. } | Request::CompareAndWrite { memory, .. } => {
                (memory, false)
            }
            Request::Flush | Request::Zero { .. } => (Region::empty(), false),
        }
    }
}

fn cut(
    unit: &Unit,
    (at, bytes): (u64, u64),
    most: u64,
    kind: (Direction, Effect),
    command: impl Fn(Extent) -> Command,
) -> Result<Vec<Part>, Error> {
    let block = u64::from(unit.block_bytes);
    let capacity = unit.bytes();
    let end = at.checked_add(bytes).filter(|&end| end <= capacity);
    if end.is_none() || !at.is_multiple_of(block) || !bytes.is_multiple_of(block) {
        return Err(Error::Range {
            at,
            bytes,
            capacity,
        });
    }
    let most = (most / block).max(1) * block;
    let mut parts = Vec::new();
    let mut offset = 0;
    while offset < bytes {
        let piece = (bytes - offset).min(most);
        let extent = Extent {
            lba: (at + offset) / block,
            blocks: piece / block,
        };
        let part = part(&command(extent), kind, (offset, piece));
        parts.push(part.ok_or(Error::Range {
            at,
            bytes,
            capacity,
        })?);
        offset += piece;
    }
    Ok(parts)
}

fn part(
    command: &Command,
    (direction, effect): (Direction, Effect),
    (offset, bytes): (u64, u64),
) -> Option<Part> {
    let bytes = match direction {
        Direction::None => 0,
        Direction::In | Direction::Out => bytes,
    };
    Some(Part {
        request: 0,
        cdb: command.cdb()?,
        direction,
        offset,
        bytes,
        least: bytes,
        effect,
        order: 0,
        repeats: 0,
        is_in_doubt: false,
        mark: None,
    })
}
