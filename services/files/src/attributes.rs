//! Sets owners, permissions and times of files that a copy writes, and reports what was not kept. Decides when two times
//! count as the same.

use crate::error::Cause;
use crate::extended::Wanted;
use crate::message::Meta;
use crate::root::meta_of;
use crate::umask::umask;
use rustix::fd::BorrowedFd;
use rustix::fs::{self, AtFlags, Gid, Mode, Timespec, Timestamps, Uid};
use rustix::io::Errno;

/// Attributes that could not be kept of a file whose content is in place.
pub(crate) type NotKept = Vec<Cause>;

/// Sets owner, extended attributes, permissions and modification time of a new file with mode 0600.
pub(crate) fn set_meta(
    file: BorrowedFd<'_>,
    meta: &Meta,
    wanted: Option<&Wanted>,
) -> Result<NotKept, Cause> {
    let mut not_kept = set_owner(file, meta)?;
    if let Some(wanted) = wanted {
        not_kept.extend(wanted.set(file)?);
    }
    let mode = meta.mode & 0o777;
    // An access control list may have changed them.
    if mode != 0o600 || wanted.is_some() {
        fs::fchmod(file, Mode::from_raw_mode(mode))?;
    }
    not_kept.extend(keep_time(file, meta)?);
    Ok(not_kept)
}

/// Sets owner, extended attributes, permissions and modification time of a file whose current ones are unknown.
pub(crate) fn replace_meta(
    file: BorrowedFd<'_>,
    meta: &Meta,
    wanted: Option<&Wanted>,
) -> Result<NotKept, Cause> {
    let mut not_kept = set_owner(file, meta)?;
    if let Some(wanted) = wanted {
        // Setting extended attributes needs write permission.
        fs::fchmod(file, Mode::from_raw_mode(0o700))?;
        not_kept.extend(wanted.set(file)?);
    }
    fs::fchmod(file, Mode::from_raw_mode(meta.mode & 0o777))?;
    not_kept.extend(keep_time(file, meta)?);
    Ok(not_kept)
}

/// Sets user and group, if requested; the group alone if only that is permitted.
fn set_owner(file: BorrowedFd<'_>, meta: &Meta) -> Result<NotKept, Cause> {
    let Some(owner) = meta.owner else {
        return Ok(Vec::new());
    };
    let stat = fs::fstat(file)?;
    if (stat.st_uid, stat.st_gid) == (owner.uid, owner.gid) {
        return Ok(Vec::new());
    }
    let (user, group) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    not_kept(fs::fchown(file, Some(user), Some(group)), || {
        fs::fchown(file, None, Some(group))
    })
}

/// Sets user and group of a symbolic link.
pub(crate) fn set_owner_at(
    directory: BorrowedFd<'_>,
    name: &[u8],
    meta: &Meta,
) -> Result<NotKept, Cause> {
    let Some(owner) = meta.owner else {
        return Ok(Vec::new());
    };
    let (user, group) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    let set = |user| {
        fs::chownat(
            directory,
            name,
            user,
            Some(group),
            AtFlags::SYMLINK_NOFOLLOW,
        )
    };
    not_kept(set(Some(user)), || set(None))
}

/// The result of a change of owner. Another user's number needs a privilege, or does not exist here.
fn not_kept(
    set: rustix::io::Result<()>,
    group_alone: impl FnOnce() -> rustix::io::Result<()>,
) -> Result<NotKept, Cause> {
    match set {
        Err(Errno::PERM | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            // The failure is reported in any case.
            let _ = group_alone();
            Ok(vec![Cause::OwnerNotKept])
        }
        set => Ok(set.map(|()| Vec::new())?),
    }
}

/// Sets the modification time.
pub(crate) fn set_time(file: BorrowedFd<'_>, meta: &Meta) -> Result<(), Cause> {
    Ok(fs::futimens(file, &times(meta))?)
}

/// Sets the modification time, and checks whether it was kept.
fn keep_time(file: BorrowedFd<'_>, meta: &Meta) -> Result<Option<Cause>, Cause> {
    set_time(file, meta)?;
    Ok(time_not_kept(meta, &meta_of(&fs::fstat(file)?)))
}

/// The cause to report if a time was not kept. A time cut to the file system's resolution counts as kept, as in
/// comparisons of trees.
fn time_not_kept(wanted: &Meta, kept: &Meta) -> Option<Cause> {
    let apart = wanted.mtime_seconds.abs_diff(kept.mtime_seconds).max(1);
    (!same_time(wanted, kept, 0)).then_some(Cause::TimeNotKept(apart))
}

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

/// The modification time for utimensat; the access time stays.
pub(crate) fn times(meta: &Meta) -> Timestamps {
    let modified = Timespec {
        tv_sec: meta.mtime_seconds,
        tv_nsec: i64::from(meta.mtime_nanoseconds.min(999_999_999)),
    };
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: rustix::fs::UTIME_OMIT,
    };
    Timestamps {
        last_access: now,
        last_modification: modified,
    }
}

/// `meta` with the permissions of the existing file, or else with those of a new file of this process.
pub(crate) fn with_permissions(meta: &Meta, there: Option<u32>) -> Meta {
    Meta {
        mode: there.map_or(meta.mode & !umask(), |mode| mode & 0o777),
        ..*meta
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn at(mtime_seconds: i64, mtime_nanoseconds: u32) -> Meta {
        Meta {
            mtime_seconds,
            mtime_nanoseconds,
            ..Meta::default()
        }
    }

    #[test]
    fn time_not_kept__is_what_a_sync_would_send_again() {
        for (wanted, kept, off) in [
            (at(101, 5), at(101, 5), None),
            // Cut to a second, or to 100 ns.
            (at(101, 999_999_999), at(101, 0), None),
            (at(101, 123), at(101, 100), None),
            // FAT stores even seconds.
            (at(101, 5), at(100, 0), Some(1)),
            (at(100, 5), at(100, 6), Some(1)),
            // The last time that ext4 can store.
            (
                at(20_000_000_000, 0),
                at(15_032_385_535, 0),
                Some(4_967_614_465),
            ),
        ] {
            let cause = off.map(Cause::TimeNotKept);
            assert_eq!(time_not_kept(&wanted, &kept), cause, "{wanted:?}");
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
