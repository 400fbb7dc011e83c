//! A file or block device that is written where it is, and marked while it is incomplete.
//!
//! The mark is an extended attribute of the file, [`ATTRIBUTE`]. It is set before the first byte changes, and
//! removed when the whole content has been compared. A file with the mark is not read by any copy. Whatever puts
//! a complete file there repairs it: a copy in place, which takes the mark away, or one that replaces the file.
//! Devices cannot have such a mark; nothing is ever copied from one.

use crate::attributes::{NotKept, replace_meta, set_time};
use crate::error::Cause;
use crate::extended::Wanted;
use crate::message::Meta;
use crate::root::{open_in, stat_at};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, FileType, FlockOperation, Mode, OFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;

/// The mark.
const ATTRIBUTE: &str = "user.zerolane.unfinished";

/// Seconds by which the time of a file that is being written differs from the one that it will get: whatever
/// happens, it does not look like the complete one.
const ANOTHER_TIME: i64 = 1_000_000;

/// What is written in place.
#[derive(Debug)]
pub(super) struct InPlace {
    device: bool,
    durable: bool,
    /// Whether its content is that of no file: nothing was written so far if not.
    changed: bool,
    /// Bytes that it has; of a device, all that it can have.
    len: u64,
}

impl InPlace {
    /// Opens and locks what stands at `target`, to get `size` bytes. `None`: there is nothing that could be written
    /// in place. `named`: the user named this target, which may be a block device then.
    ///
    /// # Errors
    /// As those of a copy that replaces it; [`Cause::NoSpace`] if a device is too small.
    pub(super) fn open(
        directory: BorrowedFd<'_>,
        target: &[u8],
        size: u64,
        named: bool,
        options: &crate::CopyOptions,
    ) -> Result<Option<(OwnedFd, InPlace)>, Cause> {
        let kind = match stat_at(directory, target) {
            Err(Cause::NotFound) => return Ok(None),
            stat => FileType::from_raw_mode(stat?.st_mode),
        };
        let device = kind == FileType::BlockDevice && named;
        if kind != FileType::RegularFile && !device {
            return Ok(None);
        }
        // A device in use, such as one that is mounted, is refused with EXCL.
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

    /// Bytes that it has.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Before the content changes: marks the file. `meta`: what it is to get.
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
        // Another owner's file keeps its time until it is written to.
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

    /// The content is complete and verified: the mark goes, permissions and time come.
    pub(super) fn finish(
        &mut self,
        file: BorrowedFd<'_>,
        size: u64,
        meta: &Meta,
        wanted: Option<&Wanted>,
    ) -> Result<NotKept, Cause> {
        if self.device {
            // Also the kernel's own copy of what a device refuses is told here.
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
        // Also that of a copy that was killed, if nothing of its content had to be changed.
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

/// Takes set-user-ID and set-group-ID away, which were given to another content. What root writes the system leaves them.
fn clear_set_ids(file: BorrowedFd<'_>) -> Result<(), Cause> {
    let mode = fs::fstat(file)?.st_mode;
    match mode & 0o6000 {
        0 => Ok(()),
        _ => Ok(fs::fchmod(file, Mode::from_raw_mode(mode & 0o1777))?),
    }
}

/// Whether a killed copy in place left `file` incomplete.
pub(super) fn is_unfinished(file: BorrowedFd<'_>) -> bool {
    // Longer than expected is a mark, too.
    !matches!(
        fs::fgetxattr(file.as_fd(), ATTRIBUTE, &mut [0_u8; 8][..]),
        Err(Errno::NODATA | Errno::OPNOTSUPP)
    )
}

#[cfg(test)]
#[path = "in_place_tests.rs"]
mod tests;
