//! Records how far a copy has come, so that another connection can continue it.

use super::FileReceiver;
use crate::error::Error;
use crate::message::{Feedback, Record};
use crate::position::{Position, Step};

impl FileReceiver<'_> {
    /// Called before a record is taken. A sender that was asked to continue, and does not declare that first, starts
    /// from the beginning.
    pub(super) fn begin(&mut self, record: &Record<'_>) -> Result<(), Error> {
        let quiet = matches!(record, Record::From { .. } | Record::Total { .. });
        if !quiet && self.position.steps == 0 && self.asked.is_some_and(|asked| asked.steps > 0) {
            self.asked = Some(Position::default());
            self.reached.restart();
            self.written.clear();
        }
        Ok(())
    }

    /// Continues where an earlier connection ended.
    pub(super) fn go_on_from(&mut self, position: Position) -> Result<(), Error> {
        let first = self.position.steps == 0 && self.levels.is_empty();
        if !first || self.asked.is_some_and(|asked| asked != position) {
            return Err(Error::Protocol("goes on from where it was not asked to"));
        }
        self.position = position;
        self.totals = self.reached.totals;
        Ok(())
    }

    /// Whether the sender may ask for existing content of the next file. A client always may. A server may if the
    /// options say so, or if this end began the file on an earlier connection (perhaps all files, if the sender started
    /// again).
    pub(super) fn may_resume(&self) -> bool {
        let tells = self.told.is_some();
        tells
            || self.options.resume
            || self.options.delta
            || self.position.steps < self.reached.started
    }

    /// Records a step as done: its entry is in place, or has failed.
    pub(super) fn settle(&mut self, step: Step, name: &[u8]) {
        self.count_backups();
        self.position.pass(step, name);
        self.reached.position = self.position;
        self.reached.totals = self.totals;
        self.reached.units = 0;
    }

    /// Reports the position to the sender, if it is new and a buffer is free.
    pub(super) fn tell_settled(&mut self) -> Result<(), Error> {
        let news = self.told.is_some_and(|told| told < self.position.steps);
        if !news || self.finished {
            return Ok(());
        }
        self.port.poll()?;
        let Some(buffer) = self.port.take_free() else {
            return Ok(());
        };
        let settled = Feedback::Settled {
            position: self.position,
            totals: self.totals,
        };
        self.told = Some(self.position.steps);
        self.say_in(buffer, &settled)
    }
}
