//! Excludes files of the source by the filter.

use super::FileSender;
use crate::error::Error;
use crate::filter::{Filter, Scope, Side};
use crate::filter_files::{FilterText, Unusable, enter};
use crate::links::joined;
use crate::root::READ_FILE;
use rustix::fd::OwnedFd;

impl<'a> FileSender<'a> {
    /// Excludes files by `filter`.
    ///
    /// # Errors
    /// [`Error::Filter`].
    pub(crate) fn filtered(mut self, filter: &'a Filter) -> Result<FileSender<'a>, Error> {
        if !filter.is_empty() {
            self.filter = Some(Scope::new(filter, Side::Source)?);
        }
        Ok(self)
    }

    /// Whether the entry at the current path is excluded. `None`: its type is unknown.
    pub(super) fn is_excluded(&self, directory: Option<bool>) -> bool {
        let kinds = directory.map_or(&[false, true][..], |it| match it {
            true => &[true],
            false => &[false],
        });
        let excludes = |scope: &Scope<'_>| {
            let mut kinds = kinds.iter();
            kinds.any(|&directory| scope.excludes(&self.path, directory, false))
        };
        self.filter.as_ref().is_some_and(excludes)
    }

    /// Enters the directory at the current path. False: its filter files cannot be used, so its contents are excluded.
    pub(super) fn enter_filters(&mut self, directory: &OwnedFd) -> Result<bool, Error> {
        let Some(mut scope) = self.filter.take() else {
            return Ok(true);
        };
        let texts: Vec<_> = scope
            .files()
            .map(|name| self.filter_text(directory, name))
            .collect();
        let entered = enter(&mut scope, &self.path, &texts);
        let unusable = entered.map_err(|Unusable { index, cause }| {
            let name = scope.files().nth(index).unwrap_or_default();
            (name.to_vec(), cause)
        });
        self.filter = Some(scope);
        match unusable {
            Ok(()) => Ok(true),
            Err((name, cause)) => {
                let path = joined(&self.path, &name);
                self.unreadable_at(&name, &path, cause)?;
                Ok(false)
            }
        }
    }

    pub(super) fn leave_filters(&mut self) {
        if let Some(scope) = &mut self.filter {
            scope.leave();
        }
    }

    fn filter_text(&self, directory: &OwnedFd, name: &[u8]) -> FilterText {
        let path = || joined(&joined(&self.above, &self.path), name);
        FilterText::read(|| self.links().open(directory, name, path, READ_FILE))
    }
}
