//! Decides when the times or attributes of two files count as the same.

use super::options::SyncOptions;
use super::sight::Seen;
use crate::message::{EntryKind, Meta};

/// Resolutions of times in file systems, nanoseconds: ext3 and HFS+, exFAT, some network file systems, NTFS.
const GRAINS: [u32; 5] = [1_000_000_000, 10_000_000, 1_000_000, 1000, 100];

/// Whether `there` is the time `here` as the target's file system stores it, or differs by at most `window` whole
/// seconds. Only the times of the two files count, never a clock.
pub(crate) fn same_time(here: &Meta, there: &Meta, window: u32) -> bool {
    let apart = here.mtime_seconds.abs_diff(there.mtime_seconds);
    if apart > 0 || window > 0 {
        return apart <= u64::from(window);
    }
    let (here, there) = (here.mtime_nanoseconds, there.mtime_nanoseconds);
    here == there || GRAINS.iter().any(|grain| here - here % grain == there)
}

/// Whether the kept permissions are the same and, if requested, owner and extended attributes. `here` is at the source.
pub(super) fn same_attributes(here: &Seen, there: &Seen, options: &SyncOptions) -> bool {
    let directory = here.kind == EntryKind::Directory;
    let mode = options.modes.applied(here.meta.mode, directory);
    let same_mode = options.no_permissions || (mode ^ there.meta.mode) & 0o777 == 0;
    same_mode && here.meta.owner == there.meta.owner && here.extended == there.extended
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn at(seconds: i64, nanoseconds: u32) -> Meta {
        Meta {
            mode: 0,
            mtime_seconds: seconds,
            mtime_nanoseconds: nanoseconds,
            owner: None,
        }
    }

    #[test]
    fn same_time__what_a_coarse_file_system_keeps() {
        let here = at(100, 123_456_789);
        for there in [
            123_456_789,
            0,
            120_000_000,
            123_000_000,
            123_456_000,
            123_456_700,
        ] {
            assert!(same_time(&here, &at(100, there), 0), "{there}");
        }
        // The source was the one cut, so the target's time differs.
        for there in [1, 123_456_788, 123_456_790, 999_999_999] {
            assert!(!same_time(&here, &at(100, there), 0), "{there}");
        }
        assert!(!same_time(&at(100, 0), &here, 0));
        assert!(!same_time(&here, &at(101, 123_456_789), 0));
        assert!(!same_time(&at(i64::MIN, 0), &at(i64::MAX, 0), 0));
    }

    #[test]
    fn same_time__a_window_of_whole_seconds() {
        // FAT stores even seconds.
        assert!(same_time(&at(101, 900_000_000), &at(100, 0), 1));
        assert!(same_time(&at(100, 0), &at(101, 1), 1));
        assert!(!same_time(&at(102, 0), &at(100, 0), 1));
        assert!(same_time(&at(-1, 0), &at(1, 0), 2));
    }
}
