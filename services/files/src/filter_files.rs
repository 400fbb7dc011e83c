//! Reads the files of rules that a filter wants to be looked for in each directory.

use crate::error::Cause;
use crate::filter::{FilterError, Scope};
use crate::limits::FILTER_FILE_BYTES;
use crate::message::EntryKind;
use crate::positioned::read_full;
use crate::root::kind_of;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::fstat;
use serde::{Deserialize, Serialize};

/// What a directory has of one of these files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FilterText {
    /// None.
    Missing,
    /// Its content.
    Text(Vec<u8>),
    /// It is there and cannot be used.
    Unusable(Cause),
}

impl FilterText {
    /// Reads the one that `open` opens.
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

/// Which of the filter files of a directory cannot be used, and why.
pub(crate) struct Unusable {
    pub(crate) index: usize,
    pub(crate) cause: Cause,
}

/// Into the directory at `path`, which has these filter files; into it in any case.
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
