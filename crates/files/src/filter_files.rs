//! Reads the files of rules that a filter wants to be looked for in each directory.

use crate::error::Cause;
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
