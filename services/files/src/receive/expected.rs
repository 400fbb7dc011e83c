//! Checks that the sender follows the plan that the client requested, step by step.

use crate::error::Error;
use crate::message::{Meta, Record};
use crate::sync::plan::{Step, next_step};

const NOT_ASKED: Error = Error::Protocol("something that was not asked for");

/// The steps that were not answered so far.
pub(super) struct Expected {
    plan: Vec<u8>,
    /// Bytes of the plan that were answered.
    answered: usize,
    /// The open directories, with the name under which each was made first.
    open: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// The exchange of names that must come next.
    exchange: Option<(Vec<u8>, Vec<u8>)>,
}

impl Expected {
    pub(super) fn new(plan: Vec<u8>) -> Expected {
        Expected {
            plan,
            answered: 0,
            open: Vec::new(),
            exchange: None,
        }
    }

    /// Checks that `record` is the next step.
    pub(super) fn check(&mut self, record: &Record<'_>) -> Result<(), Error> {
        if let Some((first, second)) = self.exchange.take() {
            return match record {
                Record::Exchange { name, with } if *name == first && *with == second => Ok(()),
                _ => Err(NOT_ASKED),
            };
        }
        match record {
            Record::Enter { name, .. } => self.entered(name),
            Record::Leave => self.left(),
            Record::Link { name, .. } | Record::File { name, .. } | Record::Open { name, .. } => {
                self.came(name)
            }
            Record::HardLink {
                name,
                level,
                first,
                before,
                ..
            } => {
                let first = before.then(|| self.path(*level, first)).transpose()?;
                self.linked(name, first)
            }
            Record::Same {
                name,
                directory,
                path,
                size,
                was,
                ..
            } => self.same(name, (*directory, path, *size, was)),
            Record::SetAttributes { name, .. } => match self.next()? {
                Step::SetAttributes { name: asked, .. } if asked == *name => Ok(()),
                _ => Err(NOT_ASKED),
            },
            Record::Unreadable { name, .. } => self.failed(name),
            Record::Finish if self.answered < self.plan.len() => Err(Error::Protocol(
                "finished before everything that was asked for",
            )),
            Record::Exchange { .. } | Record::Stream { .. } | Record::Skipped { .. } => {
                Err(NOT_ASKED)
            }
            _ => Ok(()),
        }
    }

    fn next(&mut self) -> Result<Step, Error> {
        let mut rest = &self.plan[self.answered..];
        let step = next_step(&mut rest)?.ok_or(NOT_ASKED)?;
        self.answered = self.plan.len() - rest.len();
        Ok(step)
    }

    fn entered(&mut self, came: &[u8]) -> Result<(), Error> {
        match self.next()? {
            Step::Enter { name, instead } if instead.as_deref().unwrap_or(&name) == came => {
                self.open.push((name, instead));
                Ok(())
            }
            _ => Err(NOT_ASKED),
        }
    }

    fn left(&mut self) -> Result<(), Error> {
        match (self.next()?, self.open.pop()) {
            (Step::Leave, Some((name, instead))) => {
                self.exchange = instead.map(|with| (name, with));
                Ok(())
            }
            _ => Err(NOT_ASKED),
        }
    }

    fn came(&mut self, came: &[u8]) -> Result<(), Error> {
        match self.next()? {
            Step::Copy { name, instead, .. } if instead.as_deref().unwrap_or(&name) == came => {
                self.exchange = instead.map(|with| (name, with));
                Ok(())
            }
            // It changed since it was listed.
            Step::SetAttributes { name, .. } if name == came => Ok(()),
            Step::Link { name, instead, .. } | Step::Same { name, instead, .. }
                if instead.as_deref().unwrap_or(&name) == came =>
            {
                self.exchange = instead.map(|with| (name, with));
                Ok(())
            }
            _ => Err(NOT_ASKED),
        }
    }

    /// Checks a file declared the same as another: it must be the one that was compared.
    fn same(&mut self, came: &[u8], said: (u8, &[u8], u64, &Meta)) -> Result<(), Error> {
        let mut rest = &self.plan[self.answered..];
        let is_asked = match next_step(&mut rest)? {
            Some(Step::Same {
                name,
                directory,
                size,
                was,
                ..
            }) => {
                let path = self.path(self.open.len() as u32, &name)?;
                (directory, &path[..], size, &was) == said
            }
            _ => false,
        };
        match is_asked {
            true => self.came(came),
            false => Err(NOT_ASKED),
        }
    }

    /// Checks a further name: of `first`, which must be as planned, or of a file that came before.
    fn linked(&mut self, came: &[u8], first: Option<Vec<u8>>) -> Result<(), Error> {
        let mut rest = &self.plan[self.answered..];
        let asked = match next_step(&mut rest)? {
            Some(Step::Link { linked, .. }) => Some(linked.first),
            _ => None,
        };
        match first.is_none() || first == asked {
            true => self.came(came),
            false => Err(NOT_ASKED),
        }
    }

    /// The path below the first `level` open directories, by their final names.
    fn path(&self, level: u32, below: &[u8]) -> Result<Vec<u8>, Error> {
        let open = self.open.get(..level as usize).ok_or(NOT_ASKED)?;
        let names = open.iter().map(|(name, _)| &name[..]);
        Ok(names.chain([below]).collect::<Vec<_>>().join(&b'/'))
    }

    /// Handles a step whose file the sender cannot read: of a directory, nothing comes.
    fn failed(&mut self, failed: &[u8]) -> Result<(), Error> {
        match self.next()? {
            Step::Copy { name, .. }
            | Step::Same { name, .. }
            | Step::Link { name, .. }
            | Step::SetAttributes { name, .. }
                if name == failed =>
            {
                Ok(())
            }
            Step::Enter { name, .. } if name == failed => {
                let mut depth = 1_usize;
                while depth > 0 {
                    match self.next()? {
                        Step::Enter { .. } => depth += 1,
                        Step::Leave => depth -= 1,
                        _ => {}
                    }
                }
                Ok(())
            }
            _ => Err(NOT_ASKED),
        }
    }
}

#[cfg(test)]
#[path = "expected_tests.rs"]
mod tests;
