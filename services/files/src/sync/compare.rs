//! Decides when the attributes of two files count as the same.

use super::options::SyncOptions;
use super::sight::Seen;
use crate::message::EntryKind;

/// Whether the kept permissions are the same and, if requested, owner and extended attributes. `here` is at the source.
pub(super) fn same_attributes(here: &Seen, there: &Seen, options: &SyncOptions) -> bool {
    let directory = here.kind == EntryKind::Directory;
    let mode = options.modes.applied(here.meta.mode, directory);
    let same_mode = options.no_permissions || (mode ^ there.meta.mode) & 0o777 == 0;
    same_mode && here.meta.owner == there.meta.owner && here.extended == there.extended
}
