//! Walks the sources, and skips without reading what an earlier connection did.

use super::FileSender;
use super::start::Start;
use crate::error::Error;
use crate::extended::Extended;
use crate::message::{Meta, Record, Totals};
use crate::position::{Position, Step};

/// The treatment of the entries that the walk meets.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// They are sent.
    Sending,
    /// They are skipped, up to `goal`.
    Skipping {
        goal: Position,
        /// The open directories.
        inside: Vec<(Vec<u8>, Meta, Extended)>,
    },
    /// The walk differs from the earlier one, and is abandoned.
    Astray,
}

impl Way {
    pub(super) fn to(goal: Position) -> Way {
        match goal.steps {
            0 => Way::Sending,
            _ => Way::Skipping {
                goal,
                inside: Vec::new(),
            },
        }
    }
}

impl FileSender<'_> {
    /// Sends everything. If the order or the names of entries changed among those sent before, everything is sent
    /// again; content that the receiver has of large files is compared, not sent.
    pub(super) fn walk(&mut self, starts: &[Start]) -> Result<(), Error> {
        self.walk_once(starts)?;
        if self.way == Way::Sending {
            return Ok(());
        }
        self.reached.restart();
        self.started = self.reached.started;
        self.before = Totals::default();
        self.position = Position::default();
        self.first_names.clear();
        self.way = Way::Sending;
        self.walk_once(starts)
    }

    fn walk_once(&mut self, starts: &[Start]) -> Result<(), Error> {
        starts.iter().try_for_each(|start| self.start(start))
    }

    pub(super) fn enter(
        &mut self,
        name: &[u8],
        meta: Meta,
        extended: Extended,
    ) -> Result<(), Error> {
        match &mut self.way {
            Way::Sending => {
                self.add_extended(&extended)?;
                self.add(&Record::Enter { name, meta }, 0)?;
            }
            Way::Skipping { inside, .. } => inside.push((name.to_vec(), meta, extended)),
            Way::Astray => {}
        }
        self.pass(Step::Enter, name)
    }

    pub(super) fn leave(&mut self) -> Result<(), Error> {
        match &mut self.way {
            Way::Sending => self.add(&Record::Leave, 0)?,
            Way::Skipping { inside, .. } => {
                inside.pop();
            }
            Way::Astray => {}
        }
        self.pass(Step::Leave, b"")
    }

    /// Passes a step, which was sent or skipped.
    pub(super) fn pass(&mut self, step: Step, name: &[u8]) -> Result<(), Error> {
        self.position.pass(step, name);
        match &mut self.way {
            Way::Sending => self.note_begun(),
            Way::Skipping { goal, inside } if *goal == self.position => {
                let inside = std::mem::take(inside);
                self.way = Way::Sending;
                return self.go_on(&inside);
            }
            Way::Skipping { goal, .. } if goal.steps <= self.position.steps => {
                self.way = Way::Astray;
            }
            Way::Skipping { .. } | Way::Astray => {}
        }
        Ok(())
    }

    /// Ends skipping at the position of the earlier connection: from now on everything is sent.
    fn go_on(&mut self, inside: &[(Vec<u8>, Meta, Extended)]) -> Result<(), Error> {
        let position = self.position;
        self.add(&Record::From { position }, 0)?;
        for (name, meta, extended) in inside {
            self.add_extended(extended)?;
            let (name, meta) = (&name[..], *meta);
            self.add(&Record::Reenter { name, meta }, 0)?;
        }
        Ok(())
    }

    /// Records that the next step may be in place from now on.
    pub(super) fn note_begun(&mut self) {
        let next = self.position.steps.saturating_add(1);
        self.reached.started = self.reached.started.max(next);
    }
}
