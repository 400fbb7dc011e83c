//! Reads the filter files that a filter looks for in each directory.

use crate::error::{Cause, FilterError};
use crate::filter::Scope;
use crate::limits::FILTER_FILE_BYTES;
use crate::message::EntryKind;
use crate::positioned::read_full;
use crate::root::kind_of;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::fstat;
use serde::{Deserialize, Serialize};

/// The content of a directory's filter file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FilterText {
    /// There is no such file.
    Missing,
    /// Its content.
    Text(Vec<u8>),
    /// It exists and cannot be used.
    Unusable(Cause),
}

impl FilterText {
    /// Reads the file that `open` opens.
    pub(crate) fn read(open: impl FnOnce() -> Result<OwnedFd, Cause>) -> FilterText {
        match open().and_then(text) {
            Ok(text) => FilterText::Text(text),
            Err(Cause::NotFound) => FilterText::Missing,
            Err(Cause::OutsideRoot | Cause::LinkToNothing) => {
                FilterText::Unusable(Cause::FilterFile)
            }
            Err(cause) => FilterText::Unusable(cause),
        }
    }
}

fn text(file: OwnedFd) -> Result<Vec<u8>, Cause> {
    let stat = fstat(&file)?;
    if kind_of(&stat) != EntryKind::File || stat.st_size as u64 > FILTER_FILE_BYTES as u64 {
        return Err(Cause::FilterFile);
    }
    let mut text = vec![0; stat.st_size as usize];
    let len = read_full(file.as_fd(), &mut text, 0)?;
    text.truncate(len);
    Ok(text)
}

/// A filter file of a directory that cannot be used, and the reason.
pub(crate) struct Unusable {
    pub(crate) index: usize,
    pub(crate) cause: Cause,
}

/// Enters the directory at `path` with these filter files, even if some cannot be used.
pub(crate) fn enter(
    scope: &mut Scope<'_>,
    path: &[u8],
    texts: &[FilterText],
) -> Result<(), Unusable> {
    let unusable = texts
        .iter()
        .enumerate()
        .find_map(|(index, text)| match text {
            FilterText::Unusable(cause) => Some(Unusable {
                index,
                cause: cause.clone(),
            }),
            FilterText::Missing | FilterText::Text(_) => None,
        });
    let texts = texts.iter().map(|text| match text {
        FilterText::Text(text) => Some(&text[..]),
        FilterText::Missing | FilterText::Unusable(_) => None,
    });
    let entered = scope.enter(path, texts).map_err(|(index, why)| Unusable {
        index,
        cause: match why {
            FilterError::Line { line, .. } => {
                Cause::FilterRule(u32::try_from(line).unwrap_or(u32::MAX))
            }
            _ => Cause::FilterTooLarge,
        },
    });
    unusable.map_or(entered, Err)
}
