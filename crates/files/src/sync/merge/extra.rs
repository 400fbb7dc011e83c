//! What only the target has, and goes if it may.

use super::Merge;
use crate::error::Error;
use crate::filter::Side;
use crate::sync::options::Action;
use crate::sync::plan::Step;
use crate::sync::sight::{Seen, Sight};

impl Merge<'_> {
    /// Something that only the target has; whether it will go, with all that is in it. `removing`: its directory goes, too.
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
        if directory && !self.empty_out(&seen.name)? {
            return Ok(false);
        }
        self.goes(seen);
        self.outcome.remove.add(&Step::Remove {
            name: seen.name.clone(),
            kind: seen.kind,
            inode: seen.inode,
        })?;
        Ok(true)
    }

    /// Counts something of the target that goes, and tells of it unless the limit is reached.
    pub(super) fn goes(&mut self, seen: &Seen) {
        self.outcome.totals.deleted += 1;
        if !self.is_over_limit() {
            self.tell(seen, Action::Remove);
        }
    }

    /// Whether more is to go than may. Steps are carried out in the order of their notes, so the last ones are left out.
    pub(super) fn is_over_limit(&self) -> bool {
        self.outcome.totals.deleted > self.options.most_deleted()
    }

    /// Removes what is in a directory of the target, called `name` by then; whether nothing stays.
    pub(super) fn empty_out(&mut self, name: &[u8]) -> Result<bool, Error> {
        self.outcome.remove.enter(name, None);
        let mut all = true;
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
