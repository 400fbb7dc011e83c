//! Executes task management functions, and raises unit attentions.

use super::attention::Attentions;
use super::lun::Address;
use super::protocol::{Answer, Function, NexusId, Refused, Step, TaskId};
use super::task::{State, Task};
use super::{Lun, Pending, Target};
use crate::sense::{Code, Sense};

impl Target {
    /// Starts a task management function with its own tag `tag`. The answer, [`Step::Managed`], follows when all
    /// aborted commands have ended.
    ///
    /// # Errors
    /// The nexus does not exist.
    pub fn manage(
        &mut self,
        nexus: NexusId,
        tag: u64,
        lun: [u8; 8],
        function: Function,
    ) -> Result<(), Refused> {
        let of = self.nexuses.get(&nexus).ok_or(Refused::NoNexus)?;
        let managed = |answer| Step::Managed { nexus, tag, answer };
        let lun = match Address::parse(lun) {
            Address::Unit(lun) if self.units.contains_key(&lun) && of.access.sees(lun) => lun,
            _ => {
                self.steps.push_back(managed(Answer::WrongLun));
                return Ok(());
            }
        };
        let is_for_all = matches!(function, Function::ClearTaskSet | Function::ResetUnit);
        if is_for_all && of.access.read_only {
            // Who may not write does not end the writes of others.
            self.steps.push_back(managed(Answer::Rejected));
            return Ok(());
        }
        let is_own = |task: &Task| task.lun == lun && task.nexus == nexus && !task.aborted;
        let victims = match function {
            Function::QueryTask(tag) => {
                let is_there = self.tasks.values().any(|it| is_own(it) && it.tag == tag);
                let answer = if is_there {
                    Answer::Succeeded
                } else {
                    Answer::Complete
                };
                self.steps.push_back(managed(answer));
                return Ok(());
            }
            Function::AbortTask(tag) => self.find(|it| is_own(it) && it.tag == tag),
            Function::AbortTaskSet => self.find(is_own),
            Function::ClearTaskSet | Function::ResetUnit => self.find(|it| it.lun == lun),
        };
        match function {
            Function::ClearTaskSet => self.tell_cleared(nexus, lun, &victims),
            Function::ResetUnit => self.reset(lun),
            _ => {}
        }
        self.after(&victims, managed(Answer::Complete));
        self.settle();
        Ok(())
    }

    fn find(&self, is_meant: impl Fn(&Task) -> bool) -> Vec<TaskId> {
        let meant = self.tasks.iter().filter(|(_, task)| is_meant(task));
        meant.map(|(&id, _)| id).collect()
    }

    /// Notifies the other initiators whose commands were cleared.
    fn tell_cleared(&mut self, by: NexusId, lun: Lun, victims: &[TaskId]) {
        for task in victims.iter().filter_map(|it| self.tasks.get(it)) {
            if task.nexus == by || task.aborted {
                continue;
            }
            if let Some(nexus) = self.nexuses.get_mut(&task.nexus) {
                nexus
                    .attentions
                    .entry(lun)
                    .or_default()
                    .add(Code::COMMANDS_CLEARED);
            }
        }
    }

    fn reset(&mut self, lun: Lun) {
        if let Some(unit) = self.units.get_mut(&lun) {
            unit.reset();
        }
        for nexus in self.nexuses.values_mut() {
            nexus
                .attentions
                .entry(lun)
                .or_default()
                .add(Code::UNIT_RESET);
        }
    }

    /// Aborts `victims`, and `step` comes when they are over.
    pub(super) fn after(&mut self, victims: &[TaskId], step: Step) {
        // Determine first which tasks to wait for: an abort may start others.
        let tasks = victims.iter().copied().collect();
        self.pending.push(Pending { tasks, step });
        for &id in victims {
            self.mark(id);
        }
        for &id in victims {
            self.abort(id);
        }
        let ready = self.pending.extract_if(.., |it| it.tasks.is_empty());
        self.steps.extend(ready.map(|it| it.step));
    }

    /// Keeps a task from beginning.
    pub(super) fn mark(&mut self, id: TaskId) {
        if let Some(task) = self.tasks.get_mut(&id) {
            task.aborted = true;
        }
    }

    /// Ends a task that is [marked](Target::mark): at once, or when its work completes. Work that the transport has not
    /// taken is dropped.
    pub(super) fn abort(&mut self, id: TaskId) {
        let steps = self.steps.len();
        self.steps.retain(|step| match step {
            Step::Work { task, .. } | Step::Fetch { task, .. } => *task != id,
            _ => true,
        });
        let is_untaken = self.steps.len() < steps;
        let works = self
            .tasks
            .get(&id)
            .is_some_and(|it| it.state == State::Working);
        if !works || is_untaken {
            self.forget(id);
        }
    }

    /// The next attention of `nexus` at `lun`, if one waits.
    pub(super) fn take_attention(&mut self, nexus: NexusId, lun: Lun) -> Option<Sense> {
        let nexus = self.nexuses.get_mut(&nexus)?;
        nexus.attentions.get_mut(&lun)?.take()
    }

    /// An initiator has asked which units there are.
    pub(super) fn know_units(&mut self, nexus: NexusId) {
        if let Some(nexus) = self.nexuses.get_mut(&nexus) {
            nexus
                .attentions
                .values_mut()
                .for_each(Attentions::clear_changed);
        }
    }
}
