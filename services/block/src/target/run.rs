//! Takes a command through its states: submitted, started in its turn, data fetched, executed, ended.

use super::ending::{cut, failed, format, response, unstarted};
use super::lun::Address;
use super::protocol::{NexusId, Refused, Request, Residual, Response, Status, Step, TaskId};
use super::task::{State, Task};
use super::{Lun, Target};
use crate::cdb::{Command, ReserveOut};
use crate::limits::MAX_TASKS;
use crate::reservations::Effects;
use crate::sense::{Code, Failure, Key, Sense};
use crate::unit::{Caller, End, Next};
use crate::work::Payload;

impl Target {
    /// Takes a command. What follows is said by [`next_step`](Target::next_step).
    ///
    /// # Errors
    /// The nexus does not exist.
    pub fn submit(&mut self, nexus: NexusId, request: &Request<'_>) -> Result<(), Refused> {
        let of = self.nexuses.get(&nexus).ok_or(Refused::NoNexus)?;
        if of.tags.contains_key(&request.tag) {
            let sense = Sense::new(Key::AbortedCommand, Code::OVERLAPPED_COMMANDS);
            self.respond(nexus, request, End::Check(sense));
            return Ok(());
        }
        if of.tags.len() >= MAX_TASKS {
            let response = Response {
                status: Status::TaskSetFull,
                sense: None,
                data: Vec::new(),
                residual: Residual::None,
            };
            self.tell(nexus, request.tag, response);
            return Ok(());
        }
        let command = Command::parse(request.cdb);
        let address = Address::parse(request.lun);
        match address {
            Address::Unit(lun) if self.units.contains_key(&lun) && of.access.sees(lun) => {
                self.take(nexus, lun, command, request);
            }
            _ => {
                let end = self.without_unit(nexus, address, command);
                self.respond(nexus, request, end);
            }
        }
        Ok(())
    }

    /// Puts a command in its unit's task set.
    fn take(
        &mut self,
        nexus: NexusId,
        lun: Lun,
        command: Result<Command, Sense>,
        request: &Request<'_>,
    ) {
        let id = TaskId(self.number());
        let of = self.nexuses.get(&nexus);
        let task = Task {
            nexus,
            yields: of.is_some_and(|it| it.access.read_only),
            tag: request.tag,
            lun,
            attribute: request.attribute,
            command,
            block_bytes: self
                .units
                .get(&lun)
                .map_or(0, |it| it.disk.geometry.block_bytes),
            data_in: request.data_in,
            data_out: request.data_out,
            in_capsule: request.in_capsule,
            state: State::Waiting,
            aborted: false,
        };
        *self.special.entry(lun).or_default() += usize::from(task.is_special());
        self.tasks.insert(id, task);
        if let Some(nexus) = self.nexuses.get_mut(&nexus) {
            nexus.tags.insert(request.tag, id);
        }
        if self.may_begin(id) {
            self.begin(id);
        }
        self.settle();
    }

    /// No other command of its unit has to end before.
    pub(super) fn may_begin(&self, id: TaskId) -> bool {
        let Some(task) = self.tasks.get(&id) else {
            return false;
        };
        let is_plain = self.special.get(&task.lun).is_none_or(|&it| it == 0);
        is_plain
            || !self.tasks.iter().any(|(&other_id, other)| {
                other_id != id && other.lun == task.lun && task.waits_for(other, other_id < id)
            })
    }

    fn begin(&mut self, id: TaskId) {
        let Some((task, caller)) = self.caller(id) else {
            return;
        };
        let (nexus, lun, command) = (task.nexus, task.lun, task.command);
        let heeds = !ignores_attention(&command);
        if let Some(attention) = heeds.then(|| self.take_attention(nexus, lun)).flatten() {
            return self.end(id, End::Check(attention));
        }
        let next = match command {
            Err(sense) => Next::End(End::Check(sense)),
            Ok(Command::RequestSense {
                descriptor,
                allocation,
            }) => {
                let sense = self.take_attention(nexus, lun).unwrap_or(Sense::NONE);
                Next::End(cut(sense.encode(format(descriptor)), allocation.into()))
            }
            Ok(Command::ReportLuns { select, allocation }) => {
                self.know_units(nexus);
                Next::End(self.report_luns(nexus, select, allocation))
            }
            Ok(command) => match self.units.get_mut(&lun) {
                Some(unit) => unit.begin(&command, &caller),
                None => Next::from(Sense::illegal(Code::UNIT_NOT_SUPPORTED)),
            },
        };
        self.follow(id, next);
    }

    /// The task, and the initiator that it is done for.
    fn caller(&self, id: TaskId) -> Option<(&Task, Caller)> {
        let task = self.tasks.get(&id)?;
        let nexus = self.nexuses.get(&task.nexus)?;
        let caller = Caller {
            initiator: nexus.initiator.clone(),
            read_only: nexus.access.read_only,
            data_in: task.data_in,
            data_out: task.data_out,
        };
        Some((task, caller))
    }

    /// Executes `next`, after checking it against the length of the initiator's data.
    fn follow(&mut self, id: TaskId, next: Next) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let needed = match &next {
            Next::End(_) => 0,
            Next::Fetch(bytes) => *bytes as u64,
            Next::Work(work) => match work.payload() {
                Payload::Out(bytes) => bytes,
                _ => 0,
            },
        };
        let is_over = matches!(next, Next::End(_));
        if needed > task.data_out || !is_over && task.is_cut() {
            let sense = Sense::illegal(Code::INVALID_FIELD_IN_IU);
            return self.end(id, End::Check(sense));
        }
        if !is_over && let Some(sense) = exactly(task, needed) {
            return self.end(id, End::Check(sense));
        }
        let (nexus, tag, task_id) = (task.nexus, task.tag, id);
        match next {
            Next::End(end) => self.end(id, end),
            Next::Fetch(bytes) => {
                task.state = State::Fetching(bytes);
                self.steps.push_back(Step::Fetch {
                    task: task_id,
                    nexus,
                    tag,
                    bytes,
                });
            }
            Next::Work(work) => {
                task.state = State::Working;
                self.steps.push_back(Step::Work {
                    task: task_id,
                    nexus,
                    tag,
                    work,
                });
            }
        }
    }

    /// Delivers the fetched parameters of a task. They are dropped if the task was aborted meanwhile.
    pub fn fetched(&mut self, id: TaskId, parameters: &[u8]) {
        self.go_on(id, parameters);
        self.settle();
    }

    fn go_on(&mut self, id: TaskId, parameters: &[u8]) {
        let Some((task, caller)) = self.caller(id) else {
            return;
        };
        let (lun, Ok(command)) = (task.lun, task.command) else {
            return;
        };
        match task.state {
            State::Fetching(bytes) if bytes == parameters.len() => {}
            State::Fetching(_) => {
                let sense = Sense::illegal(Code::INVALID_FIELD_IN_IU);
                return self.end(id, End::Check(sense));
            }
            _ => return,
        }
        let Some(unit) = self.units.get_mut(&lun) else {
            return;
        };
        let Command::PersistentReserveOut {
            action,
            scope,
            kind,
            ..
        } = command
        else {
            let next = unit.proceed(&command, &caller, parameters);
            return self.follow(id, next);
        };
        match unit.reserve(&caller, action, (scope, kind), parameters) {
            Ok(effects) => self.reserved(id, action, effects),
            Err(failure) => self.end(id, failed(failure)),
        }
    }

    /// Tells others what a reservation did to them; the command ends when those that it aborted are over.
    fn reserved(&mut self, id: TaskId, action: ReserveOut, effects: Effects) {
        let Some(task) = self.tasks.get(&id) else {
            return;
        };
        let lun = task.lun;
        for nexus in self.nexuses.values_mut() {
            for (_, code) in effects.told.iter().filter(|(it, _)| *it == nexus.initiator) {
                nexus.attentions.entry(lun).or_default().add(*code);
            }
        }
        if action != ReserveOut::PreemptAndAbort {
            return self.end(id, End::Good(Vec::new()));
        }
        let is_victim = |task: &Task| {
            let nexus = self.nexuses.get(&task.nexus);
            task.lun == lun && nexus.is_some_and(|it| effects.aborted.contains(&it.initiator))
        };
        let victims = self
            .tasks
            .iter()
            .filter(|&(&it, task)| it != id && is_victim(task));
        let victims: Vec<_> = victims.map(|(&it, _)| it).collect();
        let response = self
            .tasks
            .get(&id)
            .map(|task| response(task, End::Good(Vec::new())));
        let Some((task, response)) = self.forget(id).zip(response) else {
            return;
        };
        let step = Step::Respond {
            nexus: task.nexus,
            tag: task.tag,
            response,
        };
        self.after(&victims, step);
    }

    /// Reports the end of a task's work. An error becomes the command's failure. Parameter data from
    /// [`finish`](crate::Work::finish) goes to the initiator.
    pub fn done(&mut self, id: TaskId, outcome: Result<Vec<u8>, Failure>) {
        let Some(task) = self.tasks.get(&id).filter(|it| it.state == State::Working) else {
            return;
        };
        if task.aborted {
            self.forget(id);
            return self.settle();
        }
        let end = match (outcome, task.command) {
            (Ok(data), Ok(Command::GetLbaStatus { allocation, .. })) => {
                cut(data, allocation as usize)
            }
            (Ok(_), _) => End::Good(Vec::new()),
            (Err(failure), _) => failed(failure),
        };
        self.end(id, end);
        self.settle();
    }

    /// Ends a task.
    pub(super) fn end(&mut self, id: TaskId, end: End) {
        let Some(task) = self.tasks.get(&id) else {
            return;
        };
        let (nexus, tag, response) = (task.nexus, task.tag, response(task, end));
        self.tell(nexus, tag, response);
        self.forget(id);
    }

    /// A task is no more: what waited for that comes.
    pub(super) fn forget(&mut self, id: TaskId) -> Option<Task> {
        let task = self.tasks.remove(&id)?;
        if let Some(nexus) = self.nexuses.get_mut(&task.nexus) {
            nexus.tags.remove(&task.tag);
        }
        for pending in &mut self.pending {
            pending.tasks.remove(&id);
        }
        let ready = self.pending.extract_if(.., |it| it.tasks.is_empty());
        self.steps.extend(ready.map(|it| it.step));
        let special = self.special.entry(task.lun).or_default();
        if *special > 0 {
            self.unsettled.insert(task.lun);
        }
        *special -= usize::from(task.is_special());
        Some(task)
    }

    pub(super) fn begin_waiting(&mut self, lun: Lun) {
        let waiting = self.tasks.iter().filter(|(_, task)| task.lun == lun);
        let waiting = waiting.filter(|(_, task)| task.state == State::Waiting && !task.aborted);
        let waiting: Vec<_> = waiting.map(|(&id, _)| id).collect();
        for id in waiting {
            if self.may_begin(id) {
                self.begin(id);
            }
        }
    }

    /// Ends a command that never became a task.
    fn respond(&mut self, nexus: NexusId, request: &Request<'_>, end: End) {
        let response = unstarted(end, request.data_in, request.data_out);
        self.tell(nexus, request.tag, response);
    }

    fn tell(&mut self, nexus: NexusId, tag: u64, response: Response) {
        self.steps.push_back(Step::Respond {
            nexus,
            tag,
            response,
        });
    }
}

/// Data that is more than the one block, or the two runs of blocks, that the command names was meant for something else
/// than what the CDB says: nothing is written.
fn exactly(task: &Task, needed: u64) -> Option<Sense> {
    let byte = match &task.command {
        Ok(Command::CompareAndWrite { .. }) => 13,
        Ok(Command::WriteSame {
            form,
            no_data: false,
            ..
        }) => form.count_byte(),
        _ => return None,
    };
    (needed != task.data_out && task.state == State::Waiting).then(|| Sense::cdb_byte(byte))
}

/// Commands that are done whatever attention waits.
fn ignores_attention(command: &Result<Command, Sense>) -> bool {
    use Command::{Inquiry, ReportLuns, RequestSense};
    matches!(
        command,
        Ok(Inquiry { .. } | ReportLuns { .. } | RequestSense { .. })
    )
}
