//! Finds files of a plan in a directory at the target, so that they are linked instead of sent.
//!
//! It reads the steps of the plan and the listing of that directory side by side, both in the order of names.

use super::compare::same_attributes;
use super::options::{Action, Change, SyncObserver, SyncOptions, SyncTotals};
use super::plan::{Batches, Notes, Step};
use super::sight::{Listing, Seen, Sight};
use crate::attributes::same_time;
use crate::error::{Cause, Error};
use crate::links::joined;
use crate::message::EntryKind;
use crate::name::RelativePath;
use crate::stop::Stop;

/// The path of a directory given relative to `destination`. No link is followed: `..` goes up by name.
///
/// # Errors
/// [`Cause::InvalidName`].
pub(crate) fn from(destination: &[u8], path: &[u8]) -> Result<RelativePath, Cause> {
    Ok(RelativePath::parse(destination)?.join(&RelativePath::parse(path)?))
}

/// One directory that may have files of the plan.
pub(crate) struct LinkDest<'a> {
    pub(crate) listing: &'a mut dyn Listing,
    /// Its index among the given directories; `last`: there are no further ones.
    pub(crate) index: u8,
    pub(crate) last: bool,
    pub(crate) options: &'a SyncOptions,
    pub(crate) observer: &'a dyn SyncObserver,
    pub(crate) stop: &'a Stop,
    /// The totals of the sync.
    pub(crate) totals: &'a mut SyncTotals,
}

/// The position in the listing.
struct There {
    /// Whether the listing is in the directory of the current steps, and not at its end.
    inside: bool,
    /// The next entry there, which sorts after the step.
    ahead: Option<Sight>,
}

impl LinkDest<'_> {
    /// The plan, with links for the files that the directory has.
    pub(crate) fn applied(mut self, plan: Notes) -> Result<Notes, Error> {
        let mut steps = plan.batches()?;
        let mut done = Notes::new();
        let inside = true;
        self.directory(&mut steps, &mut done, (b"", inside))?;
        Ok(done)
    }

    fn directory(
        &mut self,
        steps: &mut Batches,
        done: &mut Notes,
        (path, inside): (&[u8], bool),
    ) -> Result<(), Error> {
        let ahead = None;
        let mut there = There { inside, ahead };
        while let Some(step) = steps.step()? {
            self.stop.check()?;
            match step {
                Step::Leave => break,
                Step::Enter { name, instead } => {
                    let found = self.seek(&mut there, &name)?;
                    let below = found.as_ref().is_some_and(Sight::is_directory);
                    done.enter(&name, instead);
                    done.touch()?;
                    self.directory(steps, done, (&joined(path, &name), below))?;
                    done.leave()?;
                }
                Step::Wanted { seen, instead, old } => {
                    let found = match self.seek(&mut there, &seen.name)? {
                        Some(Sight::Entry(found)) if found.kind == EntryKind::Directory => {
                            self.pass_rest()?;
                            None
                        }
                        Some(Sight::Entry(found)) => Some(found),
                        _ => None,
                    };
                    let step = match found.filter(|found| self.is_same(&seen, found)) {
                        Some(found) => self.same(path, seen, (instead, found)),
                        None if self.last => Step::copy(seen.name, instead, old),
                        None => Step::Wanted { seen, instead, old },
                    };
                    done.add(&step)?;
                }
                step => done.add(&step)?,
            }
        }
        // That entry may be a directory that the listing is in.
        if there.ahead.take().is_some_and(|sight| sight.is_directory()) {
            self.pass_rest()?;
        }
        match there.inside {
            true => self.pass_rest(),
            false => Ok(()),
        }
    }

    /// The entry with this name in the listing's directory. If it is a directory, the listing is in it afterwards.
    fn seek(&mut self, there: &mut There, name: &[u8]) -> Result<Option<Sight>, Error> {
        while there.inside {
            let sight = match there.ahead.take() {
                Some(sight) => sight,
                None => self.listing.next()?,
            };
            self.stop.check()?;
            match sight.name().map(|it| it.cmp(name)) {
                Some(std::cmp::Ordering::Equal) => return Ok(Some(sight)),
                Some(std::cmp::Ordering::Greater) => {
                    there.ahead = Some(sight);
                    return Ok(None);
                }
                Some(std::cmp::Ordering::Less) if sight.is_directory() => {
                    self.listing.prune();
                    self.pass_rest()?;
                }
                _ if sight == Sight::Leave => there.inside = false,
                _ => {}
            }
        }
        Ok(None)
    }

    /// Skips the rest of the directory.
    fn pass_rest(&mut self) -> Result<(), Error> {
        let mut depth = 1_usize;
        while depth > 0 {
            self.stop.check()?;
            match self.listing.next()? {
                Sight::Leave => depth -= 1,
                sight if sight.is_directory() => depth += 1,
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether all compared attributes of the file are the same, and its time as stored there.
    fn is_same(&mut self, new: &Seen, there: &Seen) -> bool {
        let same = there.kind == EntryKind::File
            && new.size == there.size
            && same_attributes(new, there, self.options)
            && same_time(&new.meta, &there.meta, 0);
        if !same || !self.options.checksum {
            return same;
        }
        let digest = match new.detail {
            super::sight::Detail::Digest(digest) => digest,
            _ => return false,
        };
        self.listing.digest(there).is_ok_and(|it| it == digest)
    }

    fn same(&mut self, path: &[u8], new: Seen, there: (Option<Vec<u8>>, Seen)) -> Step {
        let (instead, there) = there;
        let copied = &mut self.totals.copied;
        copied.hard_links += 1;
        copied.bytes = copied.bytes.saturating_sub(new.size);
        self.observer.change(&Change {
            path: &joined(path, &new.name),
            kind: new.kind,
            size: new.size,
            action: Action::Link,
        });
        Step::Same {
            name: new.name,
            instead,
            directory: self.index,
            size: new.size,
            meta: new.meta,
            was: there.meta,
        }
    }
}

#[cfg(test)]
#[path = "link_dest_tests.rs"]
mod tests;
