//! Holds the commands in progress at a target.

use super::lun::Lun;
use super::protocol::{Attribute, NexusId};
use crate::cdb::{Command, Extent};
use crate::sense::Sense;
use crate::unit::{atomic, may_write};

/// Where a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Others have to end before.
    Waiting,
    /// So many bytes of parameters are fetched.
    Fetching(usize),
    /// The transport works.
    Working,
}

/// A command.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) nexus: NexusId,
    /// Its initiator may not write: commands of others do not wait for it.
    pub(super) yields: bool,
    pub(super) tag: u64,
    pub(super) lun: Lun,
    pub(super) attribute: Attribute,
    /// The command. An error in the CDB is reported when its turn comes.
    pub(super) command: Result<Command, Sense>,
    /// Length of the unit's blocks, by which the command moves payload.
    pub(super) block_bytes: u32,
    pub(super) data_in: u64,
    pub(super) data_out: u64,
    pub(super) in_capsule: bool,
    pub(super) state: State,
    /// Whether it was aborted: its end is not reported.
    pub(super) aborted: bool,
}

impl Task {
    /// It makes others wait, or may have to wait itself, for more than its own work.
    pub(super) fn is_special(&self) -> bool {
        self.attribute != Attribute::Simple || self.atomic().is_some()
    }

    fn atomic(&self) -> Option<Extent> {
        atomic(self.command.as_ref().ok()?)
    }

    /// Whether the data in its capsule does not match its CDB: one of the two is wrong.
    pub(super) fn is_cut(&self) -> bool {
        let takes = |command: &Command| command.bytes_out(self.block_bytes);
        let taken = self.command.as_ref().map_or(0, takes);
        self.in_capsule && taken != self.data_out
    }

    /// It may not run beside `other`: one compares and writes blocks that the other may write.
    fn excludes(&self, other: &Task) -> bool {
        let writes = |task: &Task, blocks: Extent| {
            task.command.as_ref().is_ok_and(|it| may_write(it, &blocks))
        };
        self.atomic().is_some_and(|it| writes(other, it))
            || other.atomic().is_some_and(|it| writes(self, it))
    }

    /// It waits until `other` has ended; `is_older`: `other` came before it.
    pub(super) fn waits_for(&self, other: &Task, is_older: bool) -> bool {
        if other.yields && other.nexus != self.nexus {
            return false;
        }
        let runs = other.state != State::Waiting;
        if self.excludes(other) && (runs || is_older && self.attribute != Attribute::HeadOfQueue) {
            return true;
        }
        is_older
            && match self.attribute {
                Attribute::HeadOfQueue => false,
                Attribute::Ordered => true,
                Attribute::Simple => other.attribute != Attribute::Simple,
            }
    }
}
