//! Adds and removes units and initiators while the target runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::protocol::{NexusId, Refused, Step};
use super::task::State;
use super::{Lun, Nexus, Target};
use crate::disk::Disk;
use crate::initiator::Initiator;
use crate::limits::{MAX_NEXUSES, MAX_UNITS};
use crate::sense::{Code, Sense};
use crate::store::Store;
use crate::unit::{End, Unit};

/// The access of an initiator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The units that it can see; `None`: all.
    pub units: Option<Vec<Lun>>,
    /// It may not write.
    pub read_only: bool,
}

impl Access {
    /// Whether it can see the unit `lun`, if that exists.
    pub fn sees(&self, lun: Lun) -> bool {
        self.units.as_ref().is_none_or(|it| it.contains(&lun))
    }
}

impl Target {
    /// Adds a unit, and notifies attached initiators.
    ///
    /// # Errors
    /// The number is taken, or there are [`MAX_UNITS`].
    pub fn add_unit(&mut self, lun: Lun, disk: Disk, store: Arc<dyn Store>) -> Result<(), Refused> {
        if self.units.contains_key(&lun) {
            return Err(Refused::Taken);
        }
        if self.units.len() >= MAX_UNITS {
            return Err(Refused::Full);
        }
        self.tell_change(lun);
        self.units.insert(lun, Unit::new(disk, store));
        for nexus in self.nexuses.values_mut() {
            nexus.attentions.entry(lun).or_default().add(Code::POWER_ON);
        }
        Ok(())
    }

    /// Removes a unit. Its waiting commands fail; those in progress complete normally. False if there is no such unit.
    pub fn remove_unit(&mut self, lun: Lun) -> bool {
        if self.units.remove(&lun).is_none() {
            return false;
        }
        let of_unit = self.tasks.iter().filter(|(_, task)| task.lun == lun);
        let idle = of_unit.filter(|(_, task)| task.state != State::Working && !task.aborted);
        let idle: Vec<_> = idle.map(|(&id, _)| id).collect();
        for id in idle {
            self.end(id, End::Check(Sense::illegal(Code::UNIT_NOT_SUPPORTED)));
        }
        for nexus in self.nexuses.values_mut() {
            nexus.attentions.remove(&lun);
        }
        self.tell_change(lun);
        self.settle();
        true
    }

    /// Initiators hear at the other units that there are others now than they know.
    fn tell_change(&mut self, changed: Lun) {
        for nexus in self.nexuses.values_mut() {
            if !nexus.access.sees(changed) {
                continue;
            }
            for &lun in self.units.keys().filter(|&&it| it != changed) {
                nexus
                    .attentions
                    .entry(lun)
                    .or_default()
                    .add(Code::LUNS_CHANGED);
            }
        }
    }

    /// Attaches an initiator, which gets a reset attention at each unit.
    ///
    /// # Errors
    /// There are [`MAX_NEXUSES`].
    pub fn attach(&mut self, initiator: Initiator, access: Access) -> Result<NexusId, Refused> {
        if self.nexuses.len() >= MAX_NEXUSES {
            return Err(Refused::Full);
        }
        let mut nexus = Nexus {
            initiator,
            access,
            attentions: BTreeMap::new(),
            tags: BTreeMap::new(),
        };
        for &lun in self.units.keys() {
            nexus.attentions.entry(lun).or_default().add(Code::POWER_ON);
        }
        let id = NexusId(self.number());
        self.nexuses.insert(id, nexus);
        Ok(id)
    }

    /// Whether `nexus` has a command with that tag that neither completed nor was aborted.
    pub fn has_command(&self, nexus: NexusId, tag: u64) -> bool {
        let id = self.nexuses.get(&nexus).and_then(|it| it.tags.get(&tag));
        let task = id.and_then(|id| self.tasks.get(id));
        task.is_some_and(|task| !task.aborted)
    }

    /// Removes the nexus of a departed initiator. Its commands are aborted, and its registrations stay. The transport
    /// must still report the work that it holds. Pending steps for this nexus are dropped.
    pub fn detach(&mut self, nexus: NexusId) {
        let own = self.tasks.iter().filter(|(_, task)| task.nexus == nexus);
        let own: Vec<_> = own.map(|(&id, _)| id).collect();
        own.iter().for_each(|&id| self.mark(id));
        for id in own {
            self.abort(id);
        }
        self.steps.retain(|step| step.nexus() != nexus);
        self.pending.retain(|it| it.step.nexus() != nexus);
        self.nexuses.remove(&nexus);
        self.settle();
    }
}

impl Step {
    /// The initiator that it concerns.
    fn nexus(&self) -> NexusId {
        match self {
            Step::Respond { nexus, .. }
            | Step::Fetch { nexus, .. }
            | Step::Work { nexus, .. }
            | Step::Managed { nexus, .. } => *nexus,
        }
    }
}
