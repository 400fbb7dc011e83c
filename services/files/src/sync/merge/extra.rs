//! Plans the removal of entries that only the target has.

use super::Merge;
use crate::backup::has_backup;
use crate::error::Error;
use crate::filter::Side;
use crate::message::Backup;
use crate::sync::options::Action;
use crate::sync::plan::Step;
use crate::sync::sight::{Seen, Sight};

impl Merge<'_> {
    /// Handles an entry that only the target has; returns whether it will be removed with all its contents. `removing`:
    /// its directory is removed, too.
    pub(super) fn extra(&mut self, sight: &Sight, removing: bool) -> Result<bool, Error> {
        let directory = sight.is_directory();
        if !self.options.delete || self.protected.excludes(&self.path, directory, removing) {
            self.pass_over(Side::Target, sight)?;
            return Ok(false);
        }
        let seen = match sight {
            Sight::Entry(seen) => seen,
            Sight::Unseen { cause, .. } => {
                self.fail(cause.clone());
                return Ok(false);
            }
            Sight::Filters(_) | Sight::Cut { .. } | Sight::Leave => return Ok(false),
        };
        if directory {
            self.outcome.remove.enter(&seen.name, None);
            if !self.empty_out()? {
                return Ok(false);
            }
        }
        self.goes(seen);
        self.outcome.remove.add(&Step::Remove {
            name: seen.name.clone(),
            kind: seen.kind,
            inode: seen.inode,
        })?;
        // A backup beside the file keeps the directory.
        let backup = self.backup_of(seen);
        Ok(backup.is_none_or(|backup| backup.directory.is_some()))
    }

    /// The options of a removed entry's backup, if it gets one.
    fn backup_of(&self, seen: &Seen) -> Option<&Backup> {
        let backup = self.options.backup.as_ref()?;
        (has_backup(seen.kind) && !backup.is_backup(&seen.name)).then_some(backup)
    }

    /// Counts a removal, and reports it unless the limit is reached.
    pub(super) fn goes(&mut self, seen: &Seen) {
        self.outcome.totals.deleted += 1;
        if self.is_over_limit() {
            return;
        }
        self.tell(seen, Action::Remove);
        if self.backup_of(seen).is_some() {
            self.outcome.totals.deleted_to_backups += 1;
            self.tell(seen, Action::BackUp);
        }
    }

    /// Whether there are more removals than allowed. Steps are carried out in the order of their notes, so the last
    /// ones are left out.
    pub(super) fn is_over_limit(&self) -> bool {
        self.outcome.totals.deleted > self.options.most_deleted()
    }

    /// Removes the contents of a directory of the target that the notes have entered; returns whether nothing stays.
    pub(super) fn empty_out(&mut self) -> Result<bool, Error> {
        let mut all = !self.protected.has_backups_in(&self.path);
        self.enter_extra()?;
        loop {
            let (inner, cut) = self.next_and_cut(Side::Target)?;
            all &= !cut;
            let Some(inner) = inner else { break };
            all &= self.named(&inner, |this, inner| this.extra(inner, true))?;
        }
        self.protected.leave();
        self.outcome.remove.leave()?;
        Ok(all)
    }
}
