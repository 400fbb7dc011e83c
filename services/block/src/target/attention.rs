//! Queues the unit attention conditions of one initiator at one unit (SAM-5, 5.14).

use crate::sense::{Code, Key, Sense};

/// The conditions to report, in this order.
#[derive(Debug, Default)]
pub(super) struct Attentions(Vec<Code>);

impl Attentions {
    /// Adds a condition unless it waits already. A reset replaces all earlier conditions.
    pub(super) fn add(&mut self, code: Code) {
        if is_reset(code) {
            self.0.clear();
        } else if self.0.contains(&code) {
            return;
        }
        self.0.push(code);
    }

    /// The next one, which waits no more.
    pub(super) fn take(&mut self) -> Option<Sense> {
        let next = (!self.0.is_empty()).then(|| self.0.remove(0))?;
        Some(Sense::new(Key::UnitAttention, next))
    }

    /// That the units have changed is known now.
    pub(super) fn clear_changed(&mut self) {
        self.0.retain(|&it| it != Code::LUNS_CHANGED);
    }
}

fn is_reset(code: Code) -> bool {
    code.asc == Code::POWER_ON.asc
}
