//! What goes in and out of a target.

use crate::sense::Sense;
use crate::work::Work;

/// An initiator's connection to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NexusId(pub(super) u64);

/// A command that a target has. Numbers are not used again.
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
    /// The initiator's name for it, unused by its other commands.
    pub tag: u64,
    /// Which unit.
    pub lun: [u8; 8],
    /// When.
    pub attribute: Attribute,
    /// What.
    pub cdb: &'a [u8],
    /// Room for what the initiator reads, bytes.
    pub data_in: u64,
    /// What the initiator has to be written, bytes.
    pub data_out: u64,
    /// That came with the command: it is as long as the CDB says, or the command does nothing.
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
    /// By its number.
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
    /// The command would have moved so many more.
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
    /// With CHECK CONDITION.
    pub sense: Option<Sense>,
    /// Parameter data for the initiator, no more than it has room for. Payload of READ is not here.
    pub data: Vec<u8>,
    /// What was not moved.
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

/// Answer to a task management function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done. What was aborted touches neither disk nor memory any more.
    Complete,
    /// The command that was asked for is there.
    Succeeded,
    /// There is no such unit.
    WrongLun,
    /// The initiator may not: it may not write, and commands of others would be aborted.
    Rejected,
}

/// What the transport does next. Tasks named here are the target's until the transport has told what became of it,
/// or, with [`Fetch`](Step::Fetch), until they are aborted.
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
        /// What to do.
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

/// Why the target took nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It has as many of them as it may have.
    #[error("the target is full")]
    Full,
    /// There is no such nexus, or not any more.
    #[error("no such nexus")]
    NoNexus,
    /// There is a unit with that number.
    #[error("there is a unit with that number")]
    Taken,
}
