//! The filter files of the directories that are compared.
//!
//! What is deleted follows the rules that stand at the target once all is copied: those of the source's files, where
//! these go over, and its own where they do not. So does `rsync --delete-after`.

use super::Merge;
use crate::error::{Error, Failure};
use crate::filter::Side;
use crate::filter_files::{FilterText, Unusable, enter};
use crate::links::joined;
use crate::sync::sight::Sight;

impl Merge<'_> {
    /// Into a directory of both ends. False: what is left alone in it is not known, and was told.
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

    /// Into one of the source alone.
    pub(super) fn enter_new(&mut self) -> Result<bool, Error> {
        let new = self.filters(Side::Source)?;
        Ok(self.enter(Side::Source, &new))
    }

    /// Into one of the target alone, which goes as far as it may.
    pub(super) fn enter_extra(&mut self) -> Result<(), Error> {
        let old = self.filters(Side::Target)?;
        self.enter_target(&old);
        Ok(())
    }

    /// Nothing is deleted once something failed, so rules of the target that are not known matter no more.
    fn enter_target(&mut self, texts: &[FilterText]) {
        match self.options.delete {
            true => drop(self.enter(Side::Target, texts)),
            false => drop(self.enter(Side::Target, &[])),
        }
    }

    /// The filter files of the directory that begins.
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
