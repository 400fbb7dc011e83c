//! Compares two listings side by side and turns differences into steps.
//!
//! `extra`, `filters`, `linked` and `pair` hold parts of [`Merge`]'s own code, so they and this file name each other.

mod extra;
mod filters;
mod linked;
mod pair;

use super::options::{Action, Change, SyncObserver, SyncOptions, SyncTotals};
use super::plan::{Notes, Step};
use super::sight::{Detail, Listing, Seen, Sight};
use crate::backup::has_backup;
use crate::error::{Cause, Error, Failure};
use crate::filter::{Scope, Side};
use crate::hard_links::FirstNames;
use crate::message::EntryKind;
use crate::stop::Stop;
use linked::Linkable;

/// The result of a comparison.
pub(crate) struct Outcome {
    pub(crate) copy: Notes,
    pub(crate) remove: Notes,
    /// Files to copy that a link directory may have.
    pub(crate) wanted: u64,
    /// `copied` and `deleted` count planned work, without the limit on removals.
    pub(crate) totals: SyncTotals,
    /// Whether the source is empty: not even directories or skipped entries.
    pub(crate) source_is_empty: bool,
}

/// A comparison.
pub(crate) struct Merge<'a> {
    source: &'a mut dyn Listing,
    target: &'a mut dyn Listing,
    options: &'a SyncOptions,
    observer: &'a dyn SyncObserver,
    stop: &'a Stop,
    /// Source files that are left out, and target files that are not deleted.
    hidden: Scope<'a>,
    protected: Scope<'a>,
    path: Vec<u8>,
    outcome: Outcome,
    /// Files of the source with several names, if hard links are kept.
    first_names: FirstNames<Linkable>,
}

/// An entry of a directory at either end or at both.
enum Pair {
    New(Sight),
    Extra(Sight),
    Both(Sight, Sight),
}

impl<'a> Merge<'a> {
    pub(crate) fn new(
        source: &'a mut dyn Listing,
        target: &'a mut dyn Listing,
        options: &'a SyncOptions,
        observer: &'a dyn SyncObserver,
        stop: &'a Stop,
    ) -> Result<Merge<'a>, Error> {
        let filter = &options.filter;
        let suffix = options
            .backup
            .as_ref()
            .filter(|backup| backup.directory.is_none() && !options.delete_excluded);
        let suffix = suffix.map(|backup| backup.suffix.clone());
        Ok(Merge {
            source,
            target,
            options,
            observer,
            stop,
            hidden: Scope::new(filter, Side::Source)?,
            protected: Scope::new(filter, Side::Target)?
                .deleting_excluded(options.delete_excluded)
                .leaving_suffix(suffix),
            path: Vec::new(),
            outcome: Outcome {
                copy: Notes::new(),
                remove: Notes::new(),
                wanted: 0,
                totals: SyncTotals::default(),
                source_is_empty: true,
            },
            first_names: FirstNames::default(),
        })
    }

    /// Sets the path of the directory of backups below the target.
    pub(crate) fn with_backups_at(mut self, path: Option<Vec<u8>>) -> Merge<'a> {
        self.protected = self.protected.leaving_backups(path);
        self
    }

    /// Compares the listings to their ends.
    pub(crate) fn run(mut self) -> Result<Outcome, Error> {
        self.directory()?;
        Ok(self.outcome)
    }

    /// Compares the contents of a directory that is at both ends.
    fn directory(&mut self) -> Result<(), Error> {
        match self.enter_both()? {
            true => self.pairs()?,
            // Without the filter files it is unknown which entries to exclude.
            false => {
                self.pass_rest(Side::Source)?;
                self.pass_rest(Side::Target)?;
            }
        }
        self.hidden.leave();
        self.protected.leave();
        Ok(())
    }

    fn pairs(&mut self) -> Result<(), Error> {
        let (mut here, mut there) = (self.next(Side::Source)?, self.next(Side::Target)?);
        loop {
            let pair = match (here.take(), there.take()) {
                (None, None) => return Ok(()),
                (Some(new), None) => Pair::New(new),
                (None, Some(extra)) => Pair::Extra(extra),
                (Some(new), Some(extra)) => match new.name().cmp(&extra.name()) {
                    std::cmp::Ordering::Less => {
                        there = Some(extra);
                        Pair::New(new)
                    }
                    std::cmp::Ordering::Greater => {
                        here = Some(new);
                        Pair::Extra(extra)
                    }
                    std::cmp::Ordering::Equal => Pair::Both(new, extra),
                },
            };
            // One listing is a name ahead. Its directory's contents come after that name, so they are not read yet.
            match pair {
                Pair::New(sight) => {
                    self.named(&sight, |this, sight| this.new_entry(sight, None))?;
                    here = self.next(Side::Source)?;
                }
                Pair::Extra(sight) => {
                    self.named(&sight, |this, sight| this.extra(sight, false).map(drop))?;
                    there = self.next(Side::Target)?;
                }
                Pair::Both(new, extra) => {
                    self.named(&new, |this, new| this.both(new, &extra))?;
                    here = self.next(Side::Source)?;
                    there = self.next(Side::Target)?;
                }
            }
        }
    }

    fn listing(&mut self, side: Side) -> &mut dyn Listing {
        match side {
            Side::Source => self.source,
            Side::Target => self.target,
        }
    }

    /// The next entry of the directory that is not excluded; `None` at its end.
    fn next(&mut self, side: Side) -> Result<Option<Sight>, Error> {
        self.next_and_cut(side).map(|(sight, _)| sight)
    }

    /// Like `next`, and whether entries before it are unknown.
    fn next_and_cut(&mut self, side: Side) -> Result<(Option<Sight>, bool), Error> {
        let mut cut = false;
        loop {
            self.stop.check()?;
            let sight = self.listing(side).next()?;
            match (&sight, side) {
                (Sight::Leave, _) => return Ok((None, cut)),
                (Sight::Cut { cause }, _) => {
                    let cause = cause.clone();
                    self.fail(cause);
                    cut = true;
                }
                (_, Side::Target) => return Ok((Some(sight), cut)),
                (_, Side::Source) => {
                    let directory = sight.is_directory();
                    let unknown = matches!(sight, Sight::Unseen { .. });
                    let hidden = self.named(&sight, |this, _| {
                        let hidden = |directory| this.hidden.excludes(&this.path, directory, false);
                        Ok(hidden(directory) || unknown && hidden(true))
                    })?;
                    if !hidden {
                        self.outcome.source_is_empty = false;
                        return Ok((Some(sight), cut));
                    }
                    self.pass_over(side, &sight)?;
                }
            }
        }
    }

    /// Skips the contents of a directory.
    fn pass_over(&mut self, side: Side, sight: &Sight) -> Result<(), Error> {
        if !sight.is_directory() {
            return Ok(());
        }
        self.listing(side).prune();
        self.pass_rest(side)
    }

    /// Skips the rest of the directory.
    fn pass_rest(&mut self, side: Side) -> Result<(), Error> {
        let mut depth = 1_usize;
        while depth > 0 {
            self.stop.check()?;
            match self.listing(side).next()? {
                Sight::Leave => depth -= 1,
                sight if sight.is_directory() => depth += 1,
                _ => {}
            }
        }
        Ok(())
    }

    /// Runs `work` with the path of `sight` as the current one.
    fn named<T>(
        &mut self,
        sight: &Sight,
        work: impl FnOnce(&mut Self, &Sight) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let outer = self.path.len();
        if outer > 0 {
            self.path.push(b'/');
        }
        self.path
            .extend_from_slice(sight.name().unwrap_or_default());
        let done = work(self, sight);
        self.path.truncate(outer);
        done
    }

    fn fail(&mut self, cause: Cause) {
        self.outcome.totals.failed += 1;
        let path: &[u8] = match self.path.is_empty() {
            true => b".",
            false => &self.path,
        };
        self.observer.failed(&Failure::new(path, cause));
    }

    fn tell(&self, seen: &Seen, action: Action) {
        self.observer.change(&Change {
            path: &self.path,
            kind: seen.kind,
            size: seen.size,
            action,
        });
    }

    /// Counts and reports that a target entry becomes a backup when it is replaced.
    fn backs_up(&mut self, old: &Seen) {
        if self.options.backup.is_some() && has_backup(old.kind) {
            self.outcome.totals.copied.backed_up += 1;
            self.tell(old, Action::BackUp);
        }
    }

    /// Plans a source entry to be copied, under its name or another one first.
    fn new_entry(&mut self, sight: &Sight, instead: Option<Vec<u8>>) -> Result<(), Error> {
        let seen = match sight {
            Sight::Entry(seen) => seen,
            Sight::Unseen { cause, .. } => {
                self.fail(cause.clone());
                return Ok(());
            }
            Sight::Filters(_) | Sight::Cut { .. } | Sight::Leave => return Ok(()),
        };
        let action = match instead {
            None => Action::Create,
            Some(_) => Action::Replace,
        };
        match seen.kind {
            EntryKind::Special => self.skip(seen),
            EntryKind::File | EntryKind::Link => self.copy(seen, instead, action)?,
            EntryKind::Directory => {
                self.tell(seen, action);
                self.outcome.totals.copied.directories += 1;
                self.outcome.copy.enter(&seen.name, instead);
                self.outcome.copy.touch()?;
                match self.enter_new()? {
                    true => {
                        while let Some(inner) = self.next(Side::Source)? {
                            self.named(&inner, |this, inner| this.new_entry(inner, None))?;
                        }
                    }
                    false => self.pass_rest(Side::Source)?,
                }
                self.hidden.leave();
                self.outcome.copy.leave()?;
            }
        }
        Ok(())
    }

    fn skip(&mut self, seen: &Seen) {
        self.outcome.totals.skipped += 1;
        self.tell(seen, Action::Skip);
    }

    fn copy(&mut self, seen: &Seen, instead: Option<Vec<u8>>, action: Action) -> Result<(), Error> {
        if let Some(linked) = self.linked(seen) {
            return self.link(seen, instead, linked);
        }
        if !self.note_first(seen, Linkable::default()) {
            return Ok(());
        }
        let totals = &mut self.outcome.totals;
        totals.listed += 1;
        match seen.kind {
            EntryKind::File => {
                totals.copied.files += 1;
                totals.copied.bytes += seen.size;
            }
            _ => totals.copied.links += 1,
        }
        self.tell(seen, action);
        let old = action == Action::Update;
        let step = match seen.kind == EntryKind::File && !self.options.link_dest.is_empty() {
            true => {
                self.outcome.wanted += 1;
                let seen = self.with_digest(seen);
                Step::Wanted { seen, instead, old }
            }
            false => Step::copy(seen.name.clone(), instead, old),
        };
        self.outcome.copy.add(&step)
    }

    /// Adds the digest of a source file, if contents are compared. If it cannot be read, the copy reports that.
    fn with_digest(&mut self, seen: &Seen) -> Seen {
        let mut seen = seen.clone();
        if self.options.checksum
            && let Ok(digest) = self.source.digest(&seen)
        {
            seen.detail = Detail::Digest(digest);
        }
        seen
    }
}
