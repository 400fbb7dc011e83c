//! Implements a logical unit: a disk, and the commands on it.

mod media;
mod parameters;

pub use parameters::unmap_list;

use std::sync::Arc;

use crate::cdb::{Command, Extent, ReserveOut};
use crate::disk::Disk;
use crate::initiator::Initiator;
use crate::report::{self, ModeQuery};
use crate::reservations::{Effects, Keys, Need, PARAMETER_BYTES, Reservations};
use crate::sense::{Code, Failure, Key, Sense};
use crate::store::Store;
use crate::work::{Operation, Work};

/// How a command ends.
#[derive(Debug)]
pub(crate) enum End {
    /// GOOD, with parameter data, which the allocation length has cut already.
    Good(Vec<u8>),
    /// CHECK CONDITION.
    Check(Sense),
    /// RESERVATION CONFLICT.
    Conflict,
}

/// What follows.
#[derive(Debug)]
pub(crate) enum Next {
    End(End),
    /// So many bytes of parameters are needed of the initiator.
    Fetch(usize),
    Work(Work),
}

impl From<Sense> for Next {
    fn from(sense: Sense) -> Next {
        Next::End(End::Check(sense))
    }
}

/// The initiator of a command.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) initiator: Initiator,
    pub(crate) read_only: bool,
    /// Room for data at the initiator, bytes.
    pub(crate) data_in: u64,
    /// What it has to be written, bytes.
    pub(crate) data_out: u64,
}

/// A logical unit.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) disk: Disk,
    store: Arc<dyn Store>,
    reservations: Reservations,
    stopped: bool,
}

/// Parameter data, cut to the allocation length.
fn good(mut data: Vec<u8>, allocation: impl TryInto<usize>) -> Next {
    data.truncate(allocation.try_into().unwrap_or(usize::MAX));
    Next::End(End::Good(data))
}

const DONE: Next = Next::End(End::Good(Vec::new()));

impl Unit {
    pub(crate) fn new(disk: Disk, store: Arc<dyn Store>) -> Unit {
        Unit {
            disk,
            store,
            reservations: Reservations::default(),
            stopped: false,
        }
    }

    /// As after power on, but for reservations.
    pub(crate) fn reset(&mut self) {
        self.stopped = false;
    }

    /// Begins a command that this unit answers.
    pub(crate) fn begin(&mut self, command: &Command, caller: &Caller) -> Next {
        if !self.reservations.allows(&caller.initiator, need(command)) {
            return Next::End(End::Conflict);
        }
        if self.stopped && needs_medium(command) {
            return Sense::new(Key::NotReady, Code::STOPPED).into();
        }
        self.dispatch(command, caller).unwrap_or_else(Next::from)
    }

    fn dispatch(&mut self, command: &Command, caller: &Caller) -> Result<Next, Sense> {
        let disk = &self.disk;
        Ok(match *command {
            Command::TestUnitReady => DONE,
            Command::Inquiry {
                page: None,
                allocation,
            } => good(report::standard_inquiry(), allocation),
            Command::Inquiry {
                page: Some(page),
                allocation,
            } => {
                let page = report::vital_page(page, disk).ok_or(Sense::cdb_byte(2))?;
                good(page, allocation)
            }
            Command::ReadCapacity10 => good(report::capacity_10(disk), usize::MAX),
            Command::ReadCapacity16 { allocation } => good(report::capacity_16(disk), allocation),
            Command::ModeSense {
                form,
                no_descriptors,
                long_lba,
                control,
                page,
                subpage,
                allocation,
            } => {
                let query = ModeQuery {
                    form,
                    no_descriptors,
                    long_lba,
                    control,
                    page,
                    subpage,
                };
                let read_only = caller.read_only || disk.read_only;
                good(report::mode_sense(&query, disk, read_only)?, allocation)
            }
            Command::ReportOpcodes {
                timeouts,
                query,
                allocation,
            } => good(report::opcodes(query, timeouts)?, allocation),
            Command::PersistentReserveIn { action, allocation } => {
                good(self.reservations.report(action), allocation)
            }
            Command::PersistentReserveOut {
                parameter_bytes, ..
            } => {
                check_may_change(caller)?;
                if parameter_bytes as usize != PARAMETER_BYTES {
                    return Err(Sense::illegal(Code::PARAMETER_LIST_LENGTH));
                }
                Next::Fetch(PARAMETER_BYTES)
            }
            Command::StartStop {
                start, no_flush, ..
            } => {
                if !start {
                    check_may_change(caller)?;
                }
                self.start_stop(start, no_flush)
            }
            _ => return self.medium(command, caller),
        })
    }

    fn start_stop(&mut self, start: bool, no_flush: bool) -> Next {
        self.stopped = !start;
        if start || no_flush {
            return DONE;
        }
        self.work(Operation::Flush, false)
    }

    /// Goes on with the parameters that were fetched, for commands that need some.
    pub(crate) fn proceed(&self, command: &Command, caller: &Caller, parameters: &[u8]) -> Next {
        // Others may have reserved the unit meanwhile.
        if !self.reservations.allows(&caller.initiator, need(command)) {
            return Next::End(End::Conflict);
        }
        let next = match *command {
            Command::Unmap { .. } => self.unmap(parameters),
            Command::WriteSame { extent, unmap, .. } => {
                Ok(self.write_same(extent, unmap, parameters))
            }
            _ => Err(Sense::new(Key::HardwareError, Code::INTERNAL_FAILURE)),
        };
        next.unwrap_or_else(Next::from)
    }

    /// Does a PERSISTENT RESERVE OUT of which the parameters came.
    pub(crate) fn reserve(
        &mut self,
        caller: &Caller,
        action: ReserveOut,
        scope_and_kind: (u8, u8),
        parameters: &[u8],
    ) -> Result<Effects, Failure> {
        let keys = Keys::parse(parameters)?;
        self.reservations
            .change(&caller.initiator, action, scope_and_kind, keys)
    }

    /// The work `operation`; `flush`: what it writes is on the medium before the status.
    fn work(&self, operation: Operation, flush: bool) -> Next {
        let store = self.store.clone();
        Next::Work(Work::new(store, self.disk.geometry, operation, flush))
    }
}

/// Who may not write changes nothing that those who may would feel.
fn check_may_change(caller: &Caller) -> Result<(), Sense> {
    if caller.read_only {
        return Err(Sense::new(Key::DataProtect, Code::WRITE_PROTECTED));
    }
    Ok(())
}

/// What `command` needs of a reservation held by another initiator (SPC-4, table 63; SBC-3, table 13).
fn need(command: &Command) -> Need {
    match command {
        Command::TestUnitReady
        | Command::RequestSense { .. }
        | Command::Inquiry { .. }
        | Command::ReadCapacity10
        | Command::ReadCapacity16 { .. }
        | Command::ReportLuns { .. }
        | Command::PersistentReserveIn { .. }
        | Command::PersistentReserveOut { .. }
        | Command::StartStop { start: true, .. } => Need::Nothing,
        Command::Read { .. }
        | Command::Verify { .. }
        | Command::Prefetch { .. }
        | Command::ModeSense { .. }
        | Command::GetLbaStatus { .. }
        | Command::ReportOpcodes { .. } => Need::Read,
        Command::Write { .. }
        | Command::SynchronizeCache { .. }
        | Command::WriteSame { .. }
        | Command::Unmap { .. }
        | Command::CompareAndWrite { .. }
        | Command::StartStop { start: false, .. } => Need::Write,
    }
}

/// A unit that is stopped cannot do it.
fn needs_medium(command: &Command) -> bool {
    matches!(
        command,
        Command::TestUnitReady
            | Command::Read { .. }
            | Command::Write { .. }
            | Command::Verify { .. }
            | Command::SynchronizeCache { .. }
            | Command::Prefetch { .. }
            | Command::WriteSame { .. }
            | Command::Unmap { .. }
            | Command::CompareAndWrite { .. }
            | Command::GetLbaStatus { .. }
    )
}

/// The blocks of a command that no other may touch meanwhile.
pub(crate) fn atomic(command: &Command) -> Option<Extent> {
    match command {
        Command::CompareAndWrite { extent, .. } => Some(*extent),
        _ => None,
    }
}

/// `command` may write one of the blocks.
pub(crate) fn may_write(command: &Command, blocks: &Extent) -> bool {
    let far = |extent: &Extent| extent.lba.checked_add(extent.blocks).is_none();
    match command {
        Command::Write { extent, .. }
        | Command::WriteSame { extent, .. }
        | Command::CompareAndWrite { extent, .. } => {
            !far(extent) && !far(blocks) && extent.overlaps(blocks)
        }
        // Which ones, its parameters say.
        Command::Unmap { .. } => true,
        _ => false,
    }
}
