//! Implements a SCSI target without IO: takes initiators' commands, and returns [`Step`]s for a transport to execute.

mod absent;
mod attention;
mod control;
mod ending;
mod lun;
mod manage;
mod protocol;
mod run;
mod task;

pub use control::Access;
pub use lun::{Address, Lun};
pub use protocol::{
    Answer, Attribute, Function, NexusId, Refused, Request, Residual, Response, Status, Step,
    TaskId,
};

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use attention::Attentions;
use task::Task;

use crate::initiator::Initiator;
use crate::unit::Unit;

/// An initiator at the target.
#[derive(Debug)]
struct Nexus {
    initiator: Initiator,
    access: Access,
    attentions: BTreeMap<Lun, Attentions>,
    /// Its commands that are not over.
    tags: BTreeMap<u64, TaskId>,
}

/// A step that comes when these tasks are over.
#[derive(Debug)]
struct Pending {
    tasks: BTreeSet<TaskId>,
    step: Step,
}

/// Logical units, the initiators at them, and their commands.
///
/// The transport calls [`submit`](Target::submit) and [`manage`](Target::manage) for the requests of initiators, and
/// executes the steps that [`next_step`](Target::next_step) returns. Every command ends with one [`Step::Respond`]
/// unless it is aborted.
#[derive(Debug, Default)]
pub struct Target {
    units: BTreeMap<Lun, Unit>,
    nexuses: BTreeMap<NexusId, Nexus>,
    tasks: BTreeMap<TaskId, Task>,
    /// Live tasks of each unit that are special: [`Task::is_special`].
    special: BTreeMap<Lun, usize>,
    steps: VecDeque<Step>,
    pending: Vec<Pending>,
    /// Units at which a command has ended, so that others may begin. Empty between calls.
    unsettled: BTreeSet<Lun>,
    /// The next number of a nexus or a task.
    next: u64,
}

impl Target {
    /// A target without units.
    pub fn new() -> Target {
        Target::default()
    }

    /// The next step for the transport; `None`: nothing to do now.
    pub fn next_step(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    /// Begins what may begin now. In a loop: a command that ends at once lets others begin, and an initiator may have
    /// many.
    fn settle(&mut self) {
        while let Some(lun) = self.unsettled.pop_first() {
            self.begin_waiting(lun);
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
