//! Reads files whose length the system does not report, such as those in `/proc` and `/sys`.

use super::segments::changed;
use crate::attributes::set_time;
use crate::error::Cause;
use crate::limits::{INLINE_BYTES, UNSIZED_BYTES};
use crate::positioned::{read_full, write_at};
use crate::root::meta_of;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, Stat, fstat, memfd_create};

/// Reads all of such a file, and returns the content with a status that has the real length. `None`: the reported
/// length is right.
///
/// # Errors
/// [`Cause::SourceChanged`], [`Cause::LengthNotKnown`], or the system's error.
pub(super) fn read_to_end(
    file: BorrowedFd<'_>,
    stat: &Stat,
) -> Result<Option<(OwnedFd, Stat)>, Cause> {
    let size = stat.st_size as u64;
    // A file with blocks has a correct length.
    if stat.st_blocks > 0 || size > INLINE_BYTES as u64 || ends_at(file, size)? {
        return Ok(None);
    }
    let content = memfd_create("zerolane-source", MemfdFlags::CLOEXEC)?;
    let mut buffer = vec![0; INLINE_BYTES];
    let mut len = 0;
    loop {
        let read = read_full(file, &mut buffer, len)?;
        if len + read as u64 > UNSIZED_BYTES {
            return Err(Cause::LengthNotKnown);
        }
        write_at(content.as_fd(), &buffer[..read], len)?;
        len += read as u64;
        if read < buffer.len() {
            break;
        }
    }
    if changed(file, stat)? {
        return Err(Cause::SourceChanged);
    }
    set_time(content.as_fd(), &meta_of(stat))?;
    let copy = fstat(&content)?;
    let mut stat = *stat;
    (stat.st_size, stat.st_blocks) = (copy.st_size, copy.st_blocks);
    Ok(Some((content, stat)))
}

/// Whether the file ends at `size`.
fn ends_at(file: BorrowedFd<'_>, size: u64) -> Result<bool, Cause> {
    let mut byte = [0];
    let has_last = match size.checked_sub(1) {
        None => true,
        Some(last) => read_full(file, &mut byte, last)? == 1,
    };
    Ok(has_last && read_full(file, &mut byte, size)? == 0)
}
