//! The rules of a filter where a walk is.

use super::matcher::Matcher;
use super::{Entry, Filter, FilterError, Side};
use crate::limits::FILTER_BYTES;

/// A filter, ready to be asked.
#[derive(Debug)]
pub(crate) struct Scope<'f> {
    filter: &'f Filter,
    side: Side,
    /// Rules for no end in particular do not count at the target.
    delete_excluded: bool,
    matcher: Matcher,
}

impl<'f> Scope<'f> {
    /// # Errors
    /// [`FilterError::TooLarge`].
    pub(crate) fn new(filter: &'f Filter, side: Side) -> Result<Scope<'f>, FilterError> {
        Ok(Scope {
            filter,
            side,
            delete_excluded: false,
            matcher: Matcher::new(filter.rules(), FILTER_BYTES)?,
        })
    }

    /// What rules for no end in particular exclude may be deleted.
    pub(crate) fn deleting_excluded(mut self, delete_excluded: bool) -> Scope<'f> {
        self.delete_excluded = delete_excluded;
        self
    }

    /// Whether what stands at `path`, below the top of the tree, is left alone. `removing`: it is in a directory that goes.
    pub(crate) fn excludes(&self, path: &[u8], directory: bool, removing: bool) -> bool {
        if self.filter.entries.is_empty() {
            return false;
        }
        let rooted = [b"\0", path, b"/"].concat();
        let matched = self.matcher.look(&rooted, directory);
        for (index, entry) in self.filter.entries.iter().enumerate() {
            let Entry::Rule(rule) = entry;
            if rule.counts(self.side, self.delete_excluded, removing)
                && rule.decides(matched.has(index, rule), directory)
            {
                return !rule.include;
            }
        }
        false
    }
}
