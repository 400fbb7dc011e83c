//! Sends the files in the plan of a sync.

use super::FileSender;
use super::trouble::Trouble;
use crate::error::{Cause, Error};
use crate::limits::{PATH_BYTES, TREE_DEPTH};
use crate::message::{EntryKind, Meta, Record, Totals};
use crate::root::{DIRECTORY, READ_FILE, kind_of, meta_with};
use crate::sync::plan::{Step, next_step};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::fstat;

/// A directory of the source with the current steps.
struct Level {
    /// `None` if it cannot be read: none of its contents are sent.
    directory: Option<OwnedFd>,
    name: Vec<u8>,
    instead: Option<Vec<u8>>,
    /// Length of the path before it.
    outer: usize,
}

impl FileSender<'_> {
    /// Carries out the steps of `plan` below `base` and waits until the receiver has written everything.
    ///
    /// # Errors
    /// As for [`FileSender::send_all`], and [`Error::Protocol`] for a malformed plan.
    pub(crate) fn send_planned(mut self, base: OwnedFd, mut plan: &[u8]) -> Result<Totals, Error> {
        let mut levels = vec![Level {
            directory: Some(base),
            name: Vec::new(),
            instead: None,
            outer: 0,
        }];
        while let Some(step) = next_step(&mut plan)? {
            match step {
                Step::Enter { name, instead } => self.enter_planned(&mut levels, name, instead)?,
                Step::Leave if levels.len() > 1 => self.leave_planned(&mut levels)?,
                step => self.carry_out(levels.last(), &step)?,
            }
        }
        match levels.len() {
            1 => self.finish(),
            _ => Err(Error::Protocol("a plan that ends inside a directory")),
        }
    }

    fn enter_planned(
        &mut self,
        levels: &mut Vec<Level>,
        name: Vec<u8>,
        instead: Option<Vec<u8>>,
    ) -> Result<(), Error> {
        if levels.len() > TREE_DEPTH {
            return Err(Error::Protocol("directories nest too deeply"));
        }
        let parent = levels.last().and_then(|level| level.directory.as_ref());
        let outer = self.path.len();
        if outer > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(&name);
        let opened = parent.map(|parent| -> Result<_, Cause> {
            let directory = self.open_source(parent.as_fd(), &name, DIRECTORY)?;
            let meta = self.meta(&fstat(&directory)?);
            let extended = self.extended(directory.as_fd())?;
            Ok((directory, meta, extended))
        });
        let directory = match opened {
            // Reported already.
            None => None,
            Some(Err(cause)) => {
                self.unreadable(&name, since_compared(cause))?;
                None
            }
            Some(Ok((directory, meta, extended))) => {
                let name = instead.as_deref().unwrap_or(&name);
                self.enter(name, meta, extended)?;
                Some(directory)
            }
        };
        levels.push(Level {
            directory,
            name,
            instead,
            outer,
        });
        Ok(())
    }

    fn leave_planned(&mut self, levels: &mut Vec<Level>) -> Result<(), Error> {
        let level = levels.pop().ok_or(Error::Internal)?;
        self.path.truncate(level.outer);
        if level.directory.is_some() {
            self.leave()?;
            self.exchange(&level.name, level.instead.as_deref())?;
        }
        Ok(())
    }

    /// Exchanges the entry made under the name `instead` with the one at its own name.
    fn exchange(&mut self, name: &[u8], instead: Option<&[u8]>) -> Result<(), Error> {
        match instead {
            Some(with) => self.add(&Record::Exchange { name, with }, 0),
            None => Ok(()),
        }
    }

    fn carry_out(&mut self, level: Option<&Level>, step: &Step) -> Result<(), Error> {
        let directory = level.and_then(|level| level.directory.as_ref());
        let (name, instead) = match step {
            Step::Copy { name, instead, old } => {
                self.may_be_there = *old;
                (name, instead.as_deref())
            }
            Step::Link { name, instead, .. } => {
                self.may_be_there = false;
                (name, instead.as_deref())
            }
            Step::Same { name, instead, .. } => {
                self.may_be_there = true;
                (name, instead.as_deref())
            }
            Step::SetAttributes { name, .. } => {
                self.may_be_there = true;
                (name, None)
            }
            _ => return Err(Error::Protocol("a step that sends nothing")),
        };
        let Some(directory) = directory else {
            return Ok(());
        };
        let outer = self.path.len();
        if outer > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        let sent = match step {
            Step::SetAttributes {
                size, meta, was, ..
            } => self.settle(directory, name, *size, meta, was),
            Step::Same {
                directory: number,
                size,
                meta,
                was,
                ..
            } => {
                let names = (&name[..], instead.unwrap_or(name));
                self.same(directory, names, (*number, *size, *meta, *was))
            }
            Step::Link { linked, .. } => {
                self.link_chosen(directory, (name, instead.unwrap_or(name)), linked)
            }
            _ => self.chosen(directory, name, instead.unwrap_or(name)),
        };
        let told = match sent {
            Ok(()) => self.exchange(name, instead),
            Err(Trouble::Copy(error)) => Err(error),
            Err(Trouble::File(cause)) => self.unreadable(name, since_compared(cause)),
            Err(Trouble::Refused) => Ok(()),
        };
        self.path.truncate(outer);
        told
    }

    /// Sends a file or link.
    pub(super) fn chosen(
        &mut self,
        directory: &OwnedFd,
        name: &[u8],
        sent_as: &[u8],
    ) -> Result<(), Trouble> {
        let directory = directory.as_fd();
        match kind_of(&self.look(directory, name)?) {
            EntryKind::File => self.file(directory, name, sent_as)?,
            EntryKind::Link => self.link(directory, name, sent_as)?,
            EntryKind::Directory | EntryKind::Special => {
                return Err(Cause::ChangedSinceListed.into());
            }
        }
        Ok(self.pass(crate::position::Step::Entry, sent_as)?)
    }

    /// Declares the file the same as one in a link directory, if the source still is as compared.
    fn same(
        &mut self,
        directory: &OwnedFd,
        (name, sent_as): (&[u8], &[u8]),
        (number, size, meta, was): (u8, u64, Meta, Meta),
    ) -> Result<(), Trouble> {
        let now = self.look(directory.as_fd(), name)?;
        let is_file = kind_of(&now) == EntryKind::File && now.st_size as u64 == size;
        let same = is_file && meta_with(&now, self.options.attributes) == meta;
        if !same || self.path.len() > PATH_BYTES {
            return self.chosen(directory, name, sent_as);
        }
        self.observer.file_started(&self.path, size);
        let path = std::mem::take(&mut self.path);
        let added = self.add(
            &Record::Same {
                name: sent_as,
                directory: number,
                path: &path,
                size,
                meta: self.meta(&now),
                was,
            },
            0,
        );
        self.path = path;
        added?;
        Ok(self.pass(crate::position::Step::Entry, sent_as)?)
    }

    /// Sends only permissions and time, if the source still is as compared.
    fn settle(
        &mut self,
        directory: &OwnedFd,
        name: &[u8],
        size: u64,
        meta: &Meta,
        was: &Meta,
    ) -> Result<(), Trouble> {
        let now = self.look(directory.as_fd(), name)?;
        let same = kind_of(&now) == EntryKind::File && now.st_size as u64 == size;
        if !same || meta_with(&now, self.options.attributes) != *meta {
            return self.chosen(directory, name, name);
        }
        if self.options.attributes.are_extended() {
            let file = self.open_source(directory.as_fd(), name, READ_FILE)?;
            let extended = self.extended(file.as_fd())?;
            self.add_extended(&extended)?;
        }
        let (meta, was) = (self.meta(&now), *was);
        Ok(self.add(
            &Record::SetAttributes {
                name,
                size,
                meta,
                was,
            },
            0,
        )?)
    }
}

/// The cause to report for an entry that existed when the trees were compared.
fn since_compared(cause: Cause) -> Cause {
    match cause {
        Cause::NotFound => Cause::Vanished,
        cause => cause,
    }
}
