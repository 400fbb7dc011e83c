//! Files of the source with several names: the first of them is compared as any file, all others are links of it.

use super::Merge;
use crate::error::Error;
use crate::links::Identity;
use crate::message::Meta;
use crate::sync::options::Action;
use crate::sync::plan::{Linked, Step};
use crate::sync::sight::Seen;

/// What is known of the target's file under the first name.
#[derive(Debug, Default)]
pub(super) struct Linkable {
    /// Which file it is, if it stays and has other names.
    there: Option<Identity>,
    /// What it is then, if it stays.
    was: Option<Meta>,
}

impl Linkable {
    /// It stays, and is as `meta` says then.
    pub(super) fn stays(old: &Seen, meta: Meta) -> Linkable {
        Linkable {
            there: old.shared(),
            was: Some(meta),
        }
    }
}

impl Merge<'_> {
    /// Notes the first name of a file that has others. False: there are too many, and it fails.
    pub(super) fn note_first(&mut self, seen: &Seen, known: Linkable) -> bool {
        let Some(file) = seen.shared() else {
            return true;
        };
        let noted = self.first_names.note(file, &self.path, known);
        let failed = noted.map_err(|cause| self.fail(cause));
        failed.is_ok()
    }

    /// Under which name the file of the source was met first.
    pub(super) fn linked(&self, seen: &Seen) -> Option<Linked> {
        let file = seen.shared()?;
        let (first, known) = self.first_names.get(file)?;
        Some(Linked {
            first,
            file,
            was: known.was,
        })
    }

    /// Whether the target's file is what it is to be a link of, and stays.
    pub(super) fn is_linked(&self, new: &Seen, old: &Seen) -> bool {
        let first = new.shared().and_then(|file| self.first_names.get(file));
        let there = first.and_then(|(_, known)| known.there);
        there.is_some() && there == old.shared()
    }

    /// It is to be a link.
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
