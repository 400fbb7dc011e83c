//! Executes PERSISTENT RESERVE OUT.

use super::{Effects, Held, Keys, Kind, Registrations, Reservations};
use crate::cdb::ReserveOut;
use crate::initiator::Initiator;
use crate::limits::MAX_REGISTRATIONS;
use crate::sense::{Code, Failure, Key, Sense};

/// The only scope: the logical unit.
const UNIT_SCOPE: u8 = 0;

impl Reservations {
    /// Executes the request of `initiator`, and returns its effect on other initiators.
    ///
    /// # Errors
    /// It may not, or the request is wrong; then nothing is changed.
    pub(crate) fn change(
        &mut self,
        initiator: &Initiator,
        action: ReserveOut,
        (scope, kind): (u8, u8),
        keys: Keys,
    ) -> Result<Effects, Failure> {
        let own = self.keys.get(initiator).copied();
        match action {
            ReserveOut::Register if own.unwrap_or(0) != keys.own => return Err(Failure::Conflict),
            ReserveOut::Register | ReserveOut::RegisterAndIgnore => {
                return self.register(initiator, keys.action);
            }
            _ if own != Some(keys.own) => return Err(Failure::Conflict),
            ReserveOut::Clear => return Ok(self.clear(initiator)),
            _ => {}
        }
        if scope != UNIT_SCOPE {
            return Err(Sense::cdb_bit(2, 7).into());
        }
        let kind = Kind::of(kind).ok_or(Sense::cdb_bit(2, 3))?;
        match action {
            ReserveOut::Reserve => self.reserve(initiator, kind),
            ReserveOut::Release => self.release(initiator, kind),
            ReserveOut::PreemptAndAbort => {
                let mut effects = self.preempt(initiator, kind, keys.action)?;
                let preempted = effects.told.iter();
                let preempted =
                    preempted.filter(|(_, code)| *code == Code::REGISTRATIONS_PREEMPTED);
                effects.aborted = preempted.map(|(it, _)| it.clone()).collect();
                Ok(effects)
            }
            _ => self.preempt(initiator, kind, keys.action),
        }
    }

    fn count(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    fn register(&mut self, initiator: &Initiator, key: u64) -> Result<Effects, Failure> {
        let is_new = !self.keys.contains_key(initiator);
        if key == 0 {
            let effects = if is_new {
                Effects::default()
            } else {
                self.unregister(initiator)
            };
            return Ok(effects);
        }
        if is_new && self.keys.len() >= MAX_REGISTRATIONS {
            let full = Sense::new(Key::IllegalRequest, Code::NO_REGISTRATION_RESOURCES);
            return Err(full.into());
        }
        self.keys.insert(initiator.clone(), key);
        self.count();
        Ok(Effects::default())
    }

    fn unregister(&mut self, initiator: &Initiator) -> Effects {
        let held = self.holds(initiator);
        self.keys.remove(initiator);
        self.count();
        let mut effects = Effects::default();
        let Some(reservation) = self.held.take_if(|it| {
            // One of all registrants goes with the last of them.
            held && (!it.kind.is_of_all() || self.keys.is_empty())
        }) else {
            return effects;
        };
        if reservation.kind.is_for_registrants() {
            effects.told = self.tell_others(initiator, Code::RESERVATIONS_RELEASED);
        }
        effects
    }

    fn clear(&mut self, initiator: &Initiator) -> Effects {
        let told = self.tell_others(initiator, Code::RESERVATIONS_PREEMPTED);
        self.keys.clear();
        self.held = None;
        self.count();
        Effects {
            told,
            ..Effects::default()
        }
    }

    fn reserve(&mut self, initiator: &Initiator, kind: Kind) -> Result<Effects, Failure> {
        match &self.held {
            Some(held) if held.kind == kind && self.holds(initiator) => {}
            Some(_) => return Err(Failure::Conflict),
            None => self.hold(initiator, kind),
        }
        Ok(Effects::default())
    }

    fn hold(&mut self, initiator: &Initiator, kind: Kind) {
        self.held = Some(Held {
            by: initiator.clone(),
            kind,
        });
    }

    fn release(&mut self, initiator: &Initiator, kind: Kind) -> Result<Effects, Failure> {
        let mut effects = Effects::default();
        let Some(held) = self.held.as_ref().filter(|_| self.holds(initiator)) else {
            return Ok(effects);
        };
        if held.kind != kind {
            return Err(Sense::illegal(Code::INVALID_RELEASE).into());
        }
        if kind.is_for_registrants() {
            effects.told = self.tell_others(initiator, Code::RESERVATIONS_RELEASED);
        }
        self.held = None;
        Ok(effects)
    }

    /// Takes the registrations with the key `victim` away, and the reservation if one of them holds it.
    fn preempt(
        &mut self,
        initiator: &Initiator,
        kind: Kind,
        victim: u64,
    ) -> Result<Effects, Failure> {
        let is_of_all = self.held.as_ref().is_some_and(|it| it.kind.is_of_all());
        // Zero names all others where all hold it.
        let takes_all = is_of_all && victim == 0;
        if victim == 0 && !takes_all {
            return Err(Sense::parameter_byte(8).into());
        }
        if !takes_all && !self.keys.values().any(|&key| key == victim) {
            return Err(Failure::Conflict);
        }
        let takes_over = takes_all || (!is_of_all && self.is_held_by_key(victim));
        let is_victim = |it: &Initiator, key: u64| it != initiator && (takes_all || key == victim);
        let (gone, left): (Registrations, Registrations) = std::mem::take(&mut self.keys)
            .into_iter()
            .partition(|(it, key)| is_victim(it, *key));
        self.keys = left;
        self.count();
        let gone = gone.into_keys();
        let mut told: Vec<_> = gone.map(|it| (it, Code::REGISTRATIONS_PREEMPTED)).collect();
        if takes_over {
            if self.held.as_ref().is_some_and(|it| it.kind != kind) {
                told.extend(self.tell_others(initiator, Code::RESERVATIONS_RELEASED));
            }
            self.hold(initiator, kind);
        }
        Ok(Effects {
            told,
            ..Effects::default()
        })
    }

    /// The holder registered with that key.
    fn is_held_by_key(&self, key: u64) -> bool {
        let holder = self.held.as_ref().map(|it| &it.by);
        holder.and_then(|it| self.keys.get(it)) == Some(&key)
    }
}
