//! Defines the inputs and outputs of a target.

use crate::sense::Sense;
use crate::work::Work;

/// An initiator's connection to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NexusId(pub(super) u64);

/// A command in progress at a target. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub(super) u64);

/// When a command may begin (SAM-5, 8.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attribute {
    /// After all ordered ones, and those at the head, that came before it.
    #[default]
    Simple,
    /// After all that came before it.
    Ordered,
    /// At once.
    HeadOfQueue,
}

/// A command of an initiator.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The initiator's tag, unique among its commands.
    pub tag: u64,
    /// The bytes of the LUN.
    pub lun: [u8; 8],
    /// The task attribute.
    pub attribute: Attribute,
    /// The CDB.
    pub cdb: &'a [u8],
    /// The initiator's buffer for read data, bytes.
    pub data_in: u64,
    /// The data that the initiator offers to write, bytes.
    pub data_out: u64,
    /// Whether that data came with the command. Its length must match the CDB, or the command has no effect.
    pub in_capsule: bool,
}

/// Status of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)] // The names are the standard's.
pub enum Status {
    Good = 0x00,
    CheckCondition = 0x02,
    ReservationConflict = 0x18,
    TaskSetFull = 0x28,
}

impl Status {
    /// The status with this number.
    pub fn of(number: u8) -> Option<Status> {
        Some(match number {
            0x00 => Status::Good,
            0x02 => Status::CheckCondition,
            0x18 => Status::ReservationConflict,
            0x28 => Status::TaskSetFull,
            _ => return None,
        })
    }
}

/// The difference between the initiator's data length and the command's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residual {
    /// They are equal.
    #[default]
    None,
    /// So many bytes of the initiator's were not moved.
    Under(u64),
    /// The command would have moved so many bytes more.
    Over(u64),
}

impl Residual {
    pub(super) fn of(room: u64, wanted: u64) -> Residual {
        match room.checked_sub(wanted) {
            Some(0) => Residual::None,
            Some(left) => Residual::Under(left),
            None => Residual::Over(wanted - room),
        }
    }
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Its status.
    pub status: Status,
    /// Sense data, with CHECK CONDITION.
    pub sense: Option<Sense>,
    /// Parameter data, at most as long as the initiator's buffer. It does not include payload of READ.
    pub data: Vec<u8>,
    /// The difference between the moved and the offered length.
    pub residual: Residual,
}

/// A task management function (SAM-5, 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the standard's.
pub enum Function {
    /// The command of this initiator with that tag.
    AbortTask(u64),
    /// All commands of this initiator.
    AbortTaskSet,
    /// All commands of all initiators. Of those that may not write it is refused.
    ClearTaskSet,
    /// As after power on. Of those that may not write it is refused.
    ResetUnit,
    /// Whether the command of this initiator with that tag is there.
    QueryTask(u64),
}

/// The answer to a task management function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done. Aborted commands no longer touch disk or memory.
    Complete,
    /// The command that was asked for is there.
    Succeeded,
    /// There is no such unit.
    WrongLun,
    /// The initiator may not: it may not write, and commands of others would be aborted.
    Rejected,
}

/// The next step for the transport. A named task stays valid until the transport has reported the step's result or,
/// with [`Fetch`](Step::Fetch), until the task is aborted.
#[derive(Debug)]
pub enum Step {
    /// Tells the initiator how its command ended.
    Respond {
        /// Which initiator.
        nexus: NexusId,
        /// Its command.
        tag: u64,
        /// How it ended.
        response: Response,
    },
    /// Gets parameters from the initiator, and gives them to [`fetched`](crate::Target::fetched).
    Fetch {
        /// Which command.
        task: TaskId,
        /// Which initiator.
        nexus: NexusId,
        /// Its command.
        tag: u64,
        /// How many bytes.
        bytes: usize,
    },
    /// Moves the payload and has the work done, then calls [`done`](crate::Target::done).
    Work {
        /// Which command.
        task: TaskId,
        /// Which initiator.
        nexus: NexusId,
        /// Its command.
        tag: u64,
        /// The work to do.
        work: Work,
    },
    /// Answers a task management function.
    Managed {
        /// Which initiator.
        nexus: NexusId,
        /// The tag of its function.
        tag: u64,
        /// The answer.
        answer: Answer,
    },
}

/// Why the target refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The target has reached a limit.
    #[error("the target is full")]
    Full,
    /// The nexus does not exist, or no longer.
    #[error("no such nexus")]
    NoNexus,
    /// There is a unit with that number.
    #[error("a unit with that number exists")]
    Taken,
}
