//! Writes a file or block device in place, and marks it while it is incomplete.
//!
//! The mark is an extended attribute of the file, [`ATTRIBUTE`]. It is set before the first byte changes, and removed
//! when the whole content has been verified. No copy reads a file with the mark. The file is repaired by any copy that
//! writes it completely: a copy in place, which removes the mark, or one that replaces the file. Devices cannot have
//! such a mark; they are never copied from.

use crate::attributes::{NotKept, replace_meta, set_time};
use crate::error::Cause;
use crate::extended::Wanted;
use crate::message::{CopyOptions, Meta};
use crate::root::{open_in, stat_at};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, FileType, FlockOperation, Mode, OFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;

/// The mark.
const ATTRIBUTE: &str = "user.zerolane.unfinished";

/// Seconds by which the time of an unfinished file differs from its final one, so that it never looks like the complete
/// file.
const ANOTHER_TIME: i64 = 1_000_000;

/// A file or device that is written in place.
#[derive(Debug)]
pub(super) struct InPlace {
    device: bool,
    durable: bool,
    /// Whether its content was changed. If not, nothing was written so far.
    changed: bool,
    /// Its length in bytes; the capacity of a device.
    len: u64,
}

impl InPlace {
    /// Opens and locks the file or device at `target`, to get `size` bytes. `None`: there is nothing that can be
    /// written in place. `named`: the user named this target, which may then be a block device.
    ///
    /// # Errors
    /// As for a copy that replaces it; [`Cause::NoSpace`] if a device is too small.
    pub(super) fn open(
        directory: BorrowedFd<'_>,
        target: &[u8],
        size: u64,
        named: bool,
        options: &CopyOptions,
    ) -> Result<Option<(OwnedFd, InPlace)>, Cause> {
        let kind = match stat_at(directory, target) {
            Err(Cause::NotFound) => return Ok(None),
            stat => FileType::from_raw_mode(stat?.st_mode),
        };
        let device = kind == FileType::BlockDevice && named;
        if kind != FileType::RegularFile && !device {
            return Ok(None);
        }
        // With EXCL the kernel refuses a device in use, such as a mounted one.
        let exclusive = match device {
            true => OFlags::EXCL,
            false => OFlags::empty(),
        };
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match open_in(directory, target, flags | exclusive, Mode::empty()) {
            Err(Errno::BUSY | Errno::TXTBSY) => return Err(Cause::InUse),
            opened => opened?,
        };
        let stat = fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != kind {
            return Err(Cause::ChangedSinceListed);
        }
        if !device && stat.st_mode & 0o222 == 0 && !options.replace_read_only {
            return Err(Cause::ReadOnly);
        }
        match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(Cause::Busy),
            locked => locked?,
        }
        let len = match device {
            true => fs::seek(&file, SeekFrom::End(0))?,
            false => stat.st_size as u64,
        };
        if device && size > len {
            return Err(Cause::NoSpace);
        }
        let in_place = InPlace {
            device,
            durable: options.durable,
            changed: false,
            len,
        };
        Ok(Some((file, in_place)))
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Marks the file before its content changes. `meta` is the final metadata.
    pub(super) fn change(&mut self, file: BorrowedFd<'_>, meta: &Meta) -> Result<(), Cause> {
        if self.changed || self.device {
            return Ok(());
        }
        clear_set_ids(file)?;
        match fs::fsetxattr(file, ATTRIBUTE, b"1", XattrFlags::empty()) {
            Err(Errno::OPNOTSUPP) => return Err(Cause::CannotMark),
            marked => marked?,
        }
        self.changed = true;
        // Only the owner can set a time; without it, the time changes with the first write.
        let _ = set_time(
            file,
            &Meta {
                mtime_seconds: meta.mtime_seconds.wrapping_sub(ANOTHER_TIME),
                ..*meta
            },
        );
        match self.durable {
            true => Ok(fs::fsync(file)?),
            false => Ok(()),
        }
    }

    /// Completes the file after its content was verified: removes the mark, sets permissions and time.
    pub(super) fn finish(
        &mut self,
        file: BorrowedFd<'_>,
        size: u64,
        meta: &Meta,
        wanted: Option<&Wanted>,
    ) -> Result<NotKept, Cause> {
        if self.device {
            // fsync also reports errors that the device returned to the kernel's writeback.
            return Ok(fs::fsync(file).map(|()| Vec::new())?);
        }
        if self.len != size {
            self.change(file, meta)?;
        }
        if fs::fstat(file)?.st_size as u64 != size {
            fs::ftruncate(file, size)?;
        }
        if self.durable {
            fs::fsync(file)?;
        }
        // A killed copy may have left the mark, even if no content had to change now.
        match fs::fremovexattr(file, ATTRIBUTE) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            removed => removed?,
        }
        let not_kept = replace_meta(file, meta, wanted)?;
        if self.durable {
            fs::fsync(file)?;
        }
        Ok(not_kept)
    }
}

/// Clears set-user-ID and set-group-ID, which belonged to the old content. The kernel does not clear them when root
/// writes.
fn clear_set_ids(file: BorrowedFd<'_>) -> Result<(), Cause> {
    let mode = fs::fstat(file)?.st_mode;
    match mode & 0o6000 {
        0 => Ok(()),
        _ => Ok(fs::fchmod(file, Mode::from_raw_mode(mode & 0o1777))?),
    }
}

/// Whether a killed copy in place left `file` incomplete.
pub(super) fn is_unfinished(file: BorrowedFd<'_>) -> bool {
    // An attribute longer than expected counts as a mark, too.
    !matches!(
        fs::fgetxattr(file.as_fd(), ATTRIBUTE, &mut [0_u8; 8][..]),
        Err(Errno::NODATA | Errno::OPNOTSUPP)
    )
}

#[cfg(test)]
#[path = "in_place_tests.rs"]
mod tests;
