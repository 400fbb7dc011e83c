//! Permissions and times of what a copy makes or meets.

use crate::error::Cause;
use crate::message::Meta;
use rustix::fd::BorrowedFd;
use rustix::fs::{self, Mode, Timespec, Timestamps};

/// Sets permissions and time of change of a file that was made here, open to its owner only.
pub(crate) fn set_meta(file: BorrowedFd<'_>, meta: &Meta) -> Result<(), Cause> {
    let mode = meta.mode & 0o777;
    if mode != 0o600 {
        fs::fchmod(file, Mode::from_raw_mode(mode))?;
    }
    set_time(file, meta)
}

/// Sets permissions and time of change of what may have had any others before.
pub(crate) fn replace_meta(file: BorrowedFd<'_>, meta: &Meta) -> Result<(), Cause> {
    fs::fchmod(file, Mode::from_raw_mode(meta.mode & 0o777))?;
    set_time(file, meta)
}

/// Sets the time of change.
pub(crate) fn set_time(file: BorrowedFd<'_>, meta: &Meta) -> Result<(), Cause> {
    Ok(fs::futimens(file, &times(meta))?)
}

/// The time of change as the system takes it; that of access stays.
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
