//! Plans hard links for the further names of a source's file.

use super::Merge;
use crate::error::Error;
use crate::links::Identity;
use crate::message::Meta;
use crate::sync::options::Action;
use crate::sync::plan::{Linked, Step};
use crate::sync::sight::Seen;

/// The target's file under the first name.
#[derive(Debug, Default)]
pub(super) struct Linkable {
    /// Its identity, if it stays and has other names.
    there: Option<Identity>,
    /// Its metadata after the sync, if it stays.
    was: Option<Meta>,
}

impl Linkable {
    /// A file that stays, and has the metadata `meta` after the sync.
    pub(super) fn stays(old: &Seen, meta: Meta) -> Linkable {
        Linkable {
            there: old.shared(),
            was: Some(meta),
        }
    }
}

impl Merge<'_> {
    /// Remembers the first name of a file that has others. False: there are too many, and the file fails.
    pub(super) fn note_first(&mut self, seen: &Seen, known: Linkable) -> bool {
        let Some(file) = seen.shared() else {
            return true;
        };
        let noted = self.first_names.note(file, &self.path, known);
        let failed = noted.map_err(|cause| self.fail(cause));
        failed.is_ok()
    }

    /// The first name of the source's file, if it was met before.
    pub(super) fn linked(&self, seen: &Seen) -> Option<Linked> {
        let file = seen.shared()?;
        let (first, known) = self.first_names.get(file)?;
        Some(Linked {
            first,
            file,
            was: known.was,
        })
    }

    /// Whether the target's file is already a link to the right file, which stays.
    pub(super) fn is_linked(&self, new: &Seen, old: &Seen) -> bool {
        let first = new.shared().and_then(|file| self.first_names.get(file));
        let there = first.and_then(|(_, known)| known.there);
        there.is_some() && there == old.shared()
    }

    /// Plans a link.
    pub(super) fn link(
        &mut self,
        seen: &Seen,
        instead: Option<Vec<u8>>,
        linked: Linked,
    ) -> Result<(), Error> {
        let totals = &mut self.outcome.totals;
        totals.listed += 1;
        totals.copied.files += 1;
        totals.copied.hard_links += 1;
        self.tell(seen, Action::Link);
        let name = seen.name.clone();
        self.outcome.copy.add(&Step::Link {
            name,
            instead,
            linked,
        })
    }
}
