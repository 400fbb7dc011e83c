//! Keeps the persistent reservations of one logical unit (SPC-4, 5.12) while the target runs. APTPL is refused.

mod change;
mod kind;
mod report;

pub(crate) use kind::{Kind, Need};

use std::collections::BTreeMap;

use crate::bytes::number;
use crate::initiator::Initiator;
use crate::sense::{Code, Sense};

/// Bytes of the parameter list of PERSISTENT RESERVE OUT.
pub(crate) const PARAMETER_BYTES: usize = 24;

/// Keys of registered initiators.
type Registrations = BTreeMap<Initiator, u64>;

/// A reservation that is held.
#[derive(Debug)]
struct Held {
    /// The initiator that made it. Of types that all registrants hold it holds no more than the others.
    by: Initiator,
    kind: Kind,
}

/// The registrations and the reservation.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    /// Counts changes of registrations.
    generation: u32,
    /// Keys, none of them zero.
    keys: Registrations,
    held: Option<Held>,
}

/// The parameter list of PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    pub(crate) own: u64,
    pub(crate) action: u64,
}

impl Keys {
    /// Of `bytes`, all of the list.
    ///
    /// # Errors
    /// The list has the wrong length, or asks for something unsupported: other ports, other initiators, persistence
    /// through power loss.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Keys, Sense> {
        const FLAGS: u16 = 20;
        let &[ref keys @ .., flags, _, _, _] = bytes else {
            return Err(Sense::illegal(Code::PARAMETER_LIST_LENGTH));
        };
        if bytes.len() != PARAMETER_BYTES {
            return Err(Sense::illegal(Code::PARAMETER_LIST_LENGTH));
        }
        // SPEC_I_PT, ALL_TG_PT, APTPL.
        for bit in [3, 2, 0] {
            if flags >> bit & 1 == 1 {
                return Err(Sense::parameter_bit(FLAGS, bit));
            }
        }
        Ok(Keys {
            own: number(&keys[..8]),
            action: number(&keys[8..16]),
        })
    }
}

/// The effect of a change on other initiators.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Unit attentions.
    pub(crate) told: Vec<(Initiator, Code)>,
    /// The initiators whose commands are aborted.
    pub(crate) aborted: Vec<Initiator>,
}

impl Reservations {
    /// Whether `initiator` may do what `need` requires.
    pub(crate) fn allows(&self, initiator: &Initiator, need: Need) -> bool {
        let Some(held) = &self.held else {
            return true;
        };
        let is_registered = self.keys.contains_key(initiator);
        match need {
            Need::Nothing => true,
            _ if self.holds(initiator) => true,
            _ if is_registered && held.kind.is_for_registrants() => true,
            Need::Read => !held.kind.is_exclusive_access(),
            Need::Write => false,
        }
    }

    /// `initiator` holds the reservation.
    fn holds(&self, initiator: &Initiator) -> bool {
        self.held.as_ref().is_some_and(|held| {
            if held.kind.is_of_all() {
                self.keys.contains_key(initiator)
            } else {
                held.by == *initiator
            }
        })
    }

    /// Queues `code` for all registered initiators except `initiator`.
    fn tell_others(&self, initiator: &Initiator, code: Code) -> Vec<(Initiator, Code)> {
        let others = self.keys.keys().filter(|it| *it != initiator);
        others.map(|it| (it.clone(), code)).collect()
    }
}
