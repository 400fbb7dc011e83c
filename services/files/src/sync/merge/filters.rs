//! Applies the filter files of the compared directories.
//!
//! Deletions follow the filter files that will be at the target after copying: the source's, where they are copied, and
//! otherwise the target's own. So does `rsync --delete-after`.

use super::Merge;
use crate::error::{Error, Failure};
use crate::filter::Side;
use crate::filter_files::{FilterText, Unusable, enter};
use crate::links::joined;
use crate::sync::sight::Sight;

impl Merge<'_> {
    /// Enters a directory of both ends. False: a filter file could not be used, which was reported.
    pub(super) fn enter_both(&mut self) -> Result<bool, Error> {
        let (new, old) = (self.filters(Side::Source)?, self.filters(Side::Target)?);
        let known = self.enter(Side::Source, &new);
        let there = new.into_iter().zip(old).zip(self.options.filter.files());
        let there = there.map(|((new, old), name)| {
            let path = joined(&self.path, &name);
            match matches!(new, FilterText::Text(_)) && !self.hidden.excludes(&path, false, false) {
                true => new,
                false => old,
            }
        });
        let there: Vec<_> = there.collect();
        self.enter_target(&there);
        Ok(known)
    }

    /// Enters a directory of the source alone.
    pub(super) fn enter_new(&mut self) -> Result<bool, Error> {
        let new = self.filters(Side::Source)?;
        Ok(self.enter(Side::Source, &new))
    }

    /// Enters a directory of the target alone, which is removed as far as allowed.
    pub(super) fn enter_extra(&mut self) -> Result<(), Error> {
        let old = self.filters(Side::Target)?;
        self.enter_target(&old);
        Ok(())
    }

    /// Ignores errors: after any failure nothing is deleted, so unknown rules of the target do not matter.
    fn enter_target(&mut self, texts: &[FilterText]) {
        match self.options.delete {
            true => drop(self.enter(Side::Target, texts)),
            false => drop(self.enter(Side::Target, &[])),
        }
    }

    /// Reads the filter files of the directory that begins.
    fn filters(&mut self, side: Side) -> Result<Vec<FilterText>, Error> {
        if self.options.filter.files().is_empty() {
            return Ok(Vec::new());
        }
        match self.listing(side).next()? {
            Sight::Filters(texts) => Ok(texts),
            _ => Err(Error::Internal),
        }
    }

    fn enter(&mut self, side: Side, texts: &[FilterText]) -> bool {
        let scope = match side {
            Side::Source => &mut self.hidden,
            Side::Target => &mut self.protected,
        };
        let Err(Unusable { index, cause }) = enter(scope, &self.path, texts) else {
            return true;
        };
        let name = self.options.filter.files().swap_remove(index);
        self.outcome.totals.failed += 1;
        let path = joined(&self.path, &name);
        self.observer.failed(&Failure::new(&path, cause));
        false
    }
}
