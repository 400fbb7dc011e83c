//! Stores the steps of a sync while listings are compared, to carry them out afterwards.
//!
//! The steps follow the order of the listings. Their memory is bounded: beyond a limit they go to an unnamed temporary
//! file.

use crate::error::{Cause, Error};
use crate::limits::{PATH_BYTES, PLAN_BYTES, PLAN_HELD_BYTES, TREE_DEPTH};
use crate::links::Identity;
use crate::message::{EntryKind, Meta};
use crate::name::check_name;
use crate::sync::sight::Seen;
use serde::{Deserialize, Serialize};
use std::io::{BufReader, Read, Seek, Write};
use tempfile::SpooledTempFile;

/// One action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// The following steps, until the matching Leave, are in this directory. With a name `instead`, it is made under
    /// that name first, and exchanged with the entry under its own name when it is complete.
    Enter {
        name: Vec<u8>,
        instead: Option<Vec<u8>>,
    },
    /// The following steps are in the directory that was called `name`. Another entry took that name, and the directory
    /// is now called `aside`.
    EnterAside { name: Vec<u8>, aside: Vec<u8> },
    /// The directory is done.
    Leave,
    /// Copy this file or link; `instead` as above. `old`: the target has a file with this name.
    Copy {
        name: Vec<u8>,
        instead: Option<Vec<u8>>,
        old: bool,
    },
    /// Copy this file, unless a link directory has the same. Only while the trees are compared.
    Wanted {
        seen: Seen,
        instead: Option<Vec<u8>>,
        old: bool,
    },
    /// This file is the same as the one with its path in link directory number `directory` at the target: it becomes a
    /// link to that. `meta`: its metadata at the source; `was`: the metadata of the other file. `instead` as above.
    Same {
        name: Vec<u8>,
        instead: Option<Vec<u8>>,
        directory: u8,
        size: u64,
        meta: Meta,
        was: Meta,
    },
    /// This file is at the target under another name: it becomes a link to that. `instead` as above.
    Link {
        name: Vec<u8>,
        instead: Option<Vec<u8>>,
        linked: Linked,
    },
    /// The file's content is up to date; its permissions or time are not. The metadata at the source, and that of the
    /// target.
    SetAttributes {
        name: Vec<u8>,
        size: u64,
        meta: Meta,
        was: Meta,
    },
    /// Remove this; a directory only if it is empty.
    Remove {
        name: Vec<u8>,
        kind: EntryKind,
        inode: u64,
    },
}

/// The file that another name belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Linked {
    /// Its first name, as a path below the directories.
    pub(crate) first: Vec<u8>,
    /// Its identity at the source.
    pub(crate) file: Identity,
    /// The target's metadata, if the file is not copied: with the source's metadata it counts as unchanged.
    pub(crate) was: Option<Meta>,
}

impl Step {
    pub(crate) fn copy(name: Vec<u8>, instead: Option<Vec<u8>>, old: bool) -> Step {
        Step::Copy { name, instead, old }
    }

    /// The names in this step.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Vec<u8>> {
        let (name, instead) = match self {
            Step::Enter { name, instead }
            | Step::Copy { name, instead, .. }
            | Step::Same { name, instead, .. }
            | Step::Link { name, instead, .. } => (Some(name), instead.as_ref()),
            Step::EnterAside { name, aside } => (Some(name), Some(aside)),
            Step::Wanted { seen, instead, .. } => (Some(&seen.name), instead.as_ref()),
            Step::SetAttributes { name, .. } | Step::Remove { name, .. } => (Some(name), None),
            Step::Leave => (None, None),
        };
        name.into_iter().chain(instead)
    }
}

/// Removes the next step from a plan that may have come from a peer.
///
/// # Errors
/// [`Error::Protocol`]: it is malformed, or has a name that is not one component.
pub(crate) fn next_step(plan: &mut &[u8]) -> Result<Option<Step>, Error> {
    if plan.is_empty() {
        return Ok(None);
    }
    let (step, rest) =
        postcard::take_from_bytes::<Step>(plan).map_err(|_| Error::Protocol("malformed plan"))?;
    *plan = rest;
    let checked: Result<Vec<_>, Cause> = step.names().map(|name| check_name(name)).collect();
    checked.map_err(|_| Error::Protocol("a name that is not one component"))?;
    if let Step::Link { linked, .. } = &step
        && linked.first.len() > PATH_BYTES
    {
        return Err(Error::Protocol("a path that is too long"));
    }
    Ok(Some(step))
}

/// Collects steps. A directory is noted when there is a step in it, or about itself.
pub(crate) struct Notes {
    spool: SpooledTempFile,
    /// The open directories, and whether they were noted.
    open: Vec<(Step, bool)>,
    empty: bool,
}

impl Notes {
    pub(crate) fn new() -> Notes {
        Notes {
            spool: SpooledTempFile::new(PLAN_HELD_BYTES),
            open: Vec::new(),
            empty: true,
        }
    }

    /// Whether there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.empty
    }

    /// Enters a directory.
    pub(crate) fn enter(&mut self, name: &[u8], instead: Option<Vec<u8>>) {
        let name = name.to_vec();
        self.open.push((Step::Enter { name, instead }, false));
    }

    /// Enters a directory whose name another entry has by then.
    pub(crate) fn enter_aside(&mut self, name: &[u8], aside: &[u8]) {
        let (name, aside) = (name.to_vec(), aside.to_vec());
        self.open.push((Step::EnterAside { name, aside }, false));
    }

    /// Notes the directory itself, even if there is no step in it.
    pub(crate) fn touch(&mut self) -> Result<(), Error> {
        for at in 0..self.open.len() {
            let (step, noted) = &mut self.open[at];
            if !std::mem::replace(noted, true) {
                let frame = frame(step)?;
                self.write(&frame)?;
            }
        }
        Ok(())
    }

    /// Adds a step in the directory.
    pub(crate) fn add(&mut self, step: &Step) -> Result<(), Error> {
        self.touch()?;
        let frame = frame(step)?;
        self.write(&frame)
    }

    /// Leaves the directory.
    pub(crate) fn leave(&mut self) -> Result<(), Error> {
        match self.open.pop() {
            Some((_, true)) => self.write(&frame(&Step::Leave)?),
            _ => Ok(()),
        }
    }

    fn write(&mut self, frame: &[u8]) -> Result<(), Error> {
        self.empty = false;
        self.spool.write_all(frame).map_err(Error::Notes)
    }

    /// The steps, to be carried out.
    pub(crate) fn batches(mut self) -> Result<Batches, Error> {
        self.spool.rewind().map_err(Error::Notes)?;
        Ok(Batches {
            notes: BufReader::new(self.spool),
            open: Vec::new(),
            pending: None,
            removals: u64::MAX,
        })
    }
}

/// An encoded step: its length, then its content.
fn frame(step: &Step) -> Result<Vec<u8>, Error> {
    let bytes = postcard::to_extend(step, vec![0; 2]).map_err(|_| Error::Internal)?;
    let len = u16::try_from(bytes.len() - 2).map_err(|_| Error::Internal)?;
    let mut bytes: Vec<u8> = bytes;
    bytes[..2].copy_from_slice(&len.to_le_bytes());
    Ok(bytes)
}

/// Bytes left free in a batch, to leave all directories.
const ROOM: usize = 2 * TREE_DEPTH;

/// The steps in batches that one request can carry, each complete in itself.
pub(crate) struct Batches {
    notes: BufReader<SpooledTempFile>,
    /// The open directories, as the next batch enters them.
    open: Vec<Step>,
    /// A step for which the last batch had no room.
    pending: Option<Vec<u8>>,
    /// Removals that are still allowed.
    removals: u64,
}

impl Batches {
    /// Stops after that many removals.
    pub(crate) fn with_most_removals(mut self, most: u64) -> Batches {
        self.removals = most;
        self
    }

    /// The next batch, of at most `limit` bytes; `None` after the last.
    pub(crate) fn next(&mut self, limit: usize) -> Result<Option<Vec<u8>>, Error> {
        let mut batch = Vec::new();
        for step in &self.open {
            batch = encode(step, batch)?;
        }
        let mut any = false;
        while let Some(step) = self.read()? {
            if any && batch.len() + step.len() + ROOM > limit {
                self.pending = Some(step);
                break;
            }
            if !self.follow(&step)? {
                self.pending = Some(step);
                break;
            }
            batch.extend(step);
            any = true;
        }
        for _ in &self.open {
            batch = encode(&Step::Leave, batch)?;
        }
        Ok(any.then_some(batch))
    }

    /// Tracks the open directories. False: the step exceeds the limit of removals.
    fn follow(&mut self, mut step: &[u8]) -> Result<bool, Error> {
        match next_step(&mut step)? {
            // The directory has its final name once the batch that made it is done.
            Some(Step::Enter { name, .. }) => {
                let instead = None;
                self.open.push(Step::Enter { name, instead });
            }
            Some(step @ Step::EnterAside { .. }) => self.open.push(step),
            Some(Step::Leave) => drop(self.open.pop()),
            Some(Step::Remove { .. }) => match self.removals.checked_sub(1) {
                Some(left) => self.removals = left,
                None => return Ok(false),
            },
            _ => {}
        }
        Ok(true)
    }

    /// The next step alone.
    pub(crate) fn step(&mut self) -> Result<Option<Step>, Error> {
        match self.read()? {
            Some(step) => next_step(&mut &step[..]),
            None => Ok(None),
        }
    }

    fn read(&mut self) -> Result<Option<Vec<u8>>, Error> {
        if let Some(step) = self.pending.take() {
            return Ok(Some(step));
        }
        let mut len = [0; 2];
        match self.notes.read(&mut len[..1]).map_err(Error::Notes)? {
            0 => return Ok(None),
            _ => self.notes.read_exact(&mut len[1..]).map_err(Error::Notes)?,
        }
        let mut step = vec![0; u16::from_le_bytes(len).into()];
        self.notes.read_exact(&mut step).map_err(Error::Notes)?;
        Ok(Some(step))
    }
}

fn encode(step: &Step, batch: Vec<u8>) -> Result<Vec<u8>, Error> {
    postcard::to_extend(step, batch).map_err(|_| Error::Internal)
}

/// Size of the batches that are sent, bytes.
pub(crate) const BATCH_BYTES: usize = PLAN_BYTES;

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
