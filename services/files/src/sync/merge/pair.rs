//! Compares two entries with the same name: equal, changed, or of different types.

use super::Merge;
use super::linked::Linkable;
use crate::attributes::same_time;
use crate::error::{Cause, Error};
use crate::filter::Side;
use crate::message::EntryKind;
use crate::sync::compare::same_attributes;
use crate::sync::options::Action;
use crate::sync::plan::Step;
use crate::sync::sight::{Detail, Seen, Sight};
use crate::temporary::random_name;

impl Merge<'_> {
    /// Compares the entries of both ends.
    pub(super) fn both(&mut self, here: &Sight, there: &Sight) -> Result<(), Error> {
        let (Sight::Entry(new), Sight::Entry(old)) = (here, there) else {
            return self.half_seen(here, there);
        };
        match (new.kind, old.kind) {
            (EntryKind::Special, _) => {
                self.skip(new);
                self.pass_over(Side::Target, there)
            }
            (EntryKind::Directory, EntryKind::Directory) => {
                self.outcome.copy.enter(&new.name, None);
                self.outcome.remove.enter(&new.name, None);
                if !same_attributes(new, old, self.options) || !self.same_time(new, old) {
                    self.tell(new, Action::SetAttributes);
                    self.outcome.copy.touch()?;
                }
                self.directory()?;
                self.outcome.copy.leave()?;
                self.outcome.remove.leave()
            }
            (EntryKind::Directory, _) | (_, EntryKind::Special) => {
                let instead = random_name().map_err(|_| Error::NoRandom)?;
                self.new_entry(here, Some(instead))?;
                self.backs_up(old);
                Ok(())
            }
            (_, EntryKind::Directory) => self.file_for_directory(here, there),
            (EntryKind::File, EntryKind::File) => self.files(new, old),
            (EntryKind::Link, EntryKind::Link)
                if new.detail == old.detail && new.meta.owner == old.meta.owner =>
            {
                self.unchanged();
                Ok(())
            }
            _ => self.update(new, old),
        }
    }

    /// Plans a file or link that replaces another one.
    fn update(&mut self, new: &Seen, old: &Seen) -> Result<(), Error> {
        self.copy(new, None, Action::Update)?;
        self.backs_up(old);
        Ok(())
    }

    /// Handles a pair of which one could not be examined.
    fn half_seen(&mut self, here: &Sight, there: &Sight) -> Result<(), Error> {
        match here {
            // A target that cannot be read may still be replaced.
            Sight::Entry(new) if new.kind != EntryKind::Directory => self.new_entry(here, None),
            Sight::Entry(_) => {
                if let Sight::Unseen { cause, .. } = there {
                    self.fail(cause.clone());
                }
                self.pass_over(Side::Source, here)
            }
            Sight::Unseen { cause, .. } => {
                self.fail(cause.clone());
                self.pass_over(Side::Target, there)
            }
            Sight::Filters(_) | Sight::Cut { .. } | Sight::Leave => Ok(()),
        }
    }

    /// Handles a file or link where the target has a directory, which is replaced only if it may be emptied.
    fn file_for_directory(&mut self, here: &Sight, there: &Sight) -> Result<(), Error> {
        // As with other extra entries, filters keep the directory, and thus its contents.
        if !self.options.delete || self.protected.excludes(&self.path, true, false) {
            self.fail(Cause::InTheWay);
            return self.pass_over(Side::Target, there);
        }
        let Sight::Entry(old) = there else {
            return Ok(());
        };
        let instead = random_name().map_err(|_| Error::NoRandom)?;
        self.outcome.remove.enter_aside(&old.name, &instead);
        if !self.empty_out()? {
            self.fail(Cause::InTheWay);
            return Ok(());
        }
        self.goes(old);
        if self.is_over_limit() {
            self.fail(Cause::InTheWay);
            return Ok(());
        }
        self.outcome.remove.add(&Step::Remove {
            name: instead.clone(),
            kind: old.kind,
            inode: old.inode,
        })?;
        self.new_entry(here, Some(instead))
    }

    fn files(&mut self, new: &Seen, old: &Seen) -> Result<(), Error> {
        if self.is_linked(new, old) {
            self.unchanged();
            return Ok(());
        }
        if self.linked(new).is_some() {
            return self.update(new, old);
        }
        let same = match (new.size == old.size, self.options.checksum) {
            (false, _) => false,
            (true, false) => self.same_time(new, old),
            (true, true) => self.same_content(new, old),
        };
        if !same {
            return self.update(new, old);
        }
        if same_attributes(new, old, self.options) && self.same_time(new, old) {
            if self.note_first(new, Linkable::stays(old, old.meta)) {
                self.unchanged();
            }
            return Ok(());
        }
        // A file that its owner cannot open is replaced.
        if old.meta.mode & 0o400 == 0 {
            return self.update(new, old);
        }
        if !self.note_first(new, Linkable::stays(old, new.meta)) {
            return Ok(());
        }
        self.outcome.totals.listed += 1;
        self.outcome.totals.attributes_set += 1;
        self.tell(new, Action::SetAttributes);
        self.outcome.copy.add(&Step::SetAttributes {
            name: new.name.clone(),
            size: new.size,
            meta: new.meta,
            was: old.meta,
        })
    }

    fn unchanged(&mut self) {
        self.outcome.totals.listed += 1;
        self.outcome.totals.unchanged += 1;
    }

    fn same_time(&self, new: &Seen, old: &Seen) -> bool {
        same_time(&new.meta, &old.meta, self.options.modify_window)
    }

    /// Whether the contents are the same. If one cannot be read, the copy reports that.
    fn same_content(&mut self, new: &Seen, old: &Seen) -> bool {
        // The end that sent the digest with its listing is asked first.
        let known = matches!(old.detail, Detail::Digest(_));
        let (first, second) = match known {
            true => (self.target.digest(old), self.source.digest(new)),
            false => (self.source.digest(new), self.target.digest(old)),
        };
        matches!((first, second), (Ok(one), Ok(another)) if one == another)
    }
}
