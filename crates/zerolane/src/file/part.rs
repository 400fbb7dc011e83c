//! A file in the making: written under a temporary name beside its target, locked, renamed when
//! complete and verified.
//!
//! The temporary name is a function of the target's (`.NAME.zlpart`), so that a later copy finds
//! what a killed one left. The lock is `flock`: it dies with its process, so what a killed copy
//! left is free at once, and what a living one writes is refused.

use super::error::Cause;
use super::limits::NAME_BYTES;
use super::message::Meta;
use super::root::{open_in, stat_at};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    self, AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, Timespec, Timestamps,
};
use rustix::io::{Errno, pwrite};
use std::sync::Arc;

const PREFIX: &[u8] = b".";
const SUFFIX: &[u8] = b".zlpart";

/// How often creation is tried again when another copy renames its finished file at that moment.
const CREATE_TRIES: u32 = 8;

/// How a target may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replace {
    /// Keep what a killed copy left, for the caller to verify.
    pub resume: bool,
    /// Replace a target without write permission.
    pub read_only: bool,
}

/// The temporary name for `name`.
pub(crate) fn part_name(name: &[u8]) -> Vec<u8> {
    if PREFIX.len() + name.len() + SUFFIX.len() <= NAME_BYTES {
        return [PREFIX, name, SUFFIX].concat();
    }
    let digest = blake3::hash(name).to_hex();
    [PREFIX, digest.as_bytes(), SUFFIX].concat()
}

/// A file in the making.
#[derive(Debug)]
pub(crate) struct Part {
    directory: Arc<OwnedFd>,
    name: Vec<u8>,
    part_name: Vec<u8>,
    file: OwnedFd,
    /// Bytes a killed copy left; 0 unless resuming.
    left_over: u64,
}

impl Part {
    /// Checks the target `name` in `directory`, then creates and locks its temporary file.
    ///
    /// # Errors
    /// [`Cause::IsADirectory`], [`Cause::ReadOnly`], [`Cause::Special`]: what stands under the
    /// name. [`Cause::Busy`]: another copy is writing it. Whatever the system says.
    pub(crate) fn create(
        directory: &Arc<OwnedFd>,
        name: &[u8],
        replace: Replace,
    ) -> Result<Part, Cause> {
        check_target(directory.as_fd(), name, replace.read_only)?;
        let part_name = part_name(name);
        let (file, left_over) = open_locked(directory.as_fd(), &part_name)?;
        let mut part = Part {
            directory: directory.clone(),
            name: name.to_vec(),
            part_name,
            file,
            left_over,
        };
        if !replace.resume && left_over > 0 {
            fs::ftruncate(&part.file, 0)?;
            part.left_over = 0;
        }
        Ok(part)
    }

    /// Bytes that a killed copy left, content unknown.
    pub(crate) fn left_over(&self) -> u64 {
        self.left_over
    }

    /// The temporary file.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Writes all of `bytes` at `offset`.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<(), Cause> {
        write_at(self.file.as_fd(), bytes, offset)
    }

    /// Makes `[offset, offset + len)` read as zeros, as a hole where the file system can. Only what
    /// a killed copy left needs it: elsewhere there is a hole already.
    pub(crate) fn make_hole(&self, offset: u64, len: u64) -> Result<(), Cause> {
        let len = len.min(self.left_over.saturating_sub(offset));
        if len == 0 {
            return Ok(());
        }
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fs::fallocate(&self.file, punch, offset, len) {
            Err(Errno::OPNOTSUPP) => self.write_zeros(offset, len),
            done => Ok(done?),
        }
    }

    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), Cause> {
        let zeros = [0; 64 << 10];
        let mut done = 0;
        while done < len {
            let step = (len - done).min(zeros.len() as u64);
            self.write(&zeros[..step as usize], offset + done)?;
            done += step;
        }
        Ok(())
    }

    /// Gives the file its size (holes at its end included), permissions and time, then its name.
    /// With `durable`, content and name are on the disk when it returns.
    pub(crate) fn commit(
        self,
        size: u64,
        written: u64,
        meta: &Meta,
        durable: bool,
    ) -> Result<(), Cause> {
        let done = self.settle(size, written, meta, durable);
        if done.is_err() {
            self.unlink();
        }
        done
    }

    fn settle(&self, size: u64, written: u64, meta: &Meta, durable: bool) -> Result<(), Cause> {
        if size != written {
            fs::ftruncate(&self.file, size)?;
        }
        set_meta(self.file.as_fd(), meta)?;
        if durable {
            fs::fsync(&self.file)?;
        }
        fs::renameat(
            &self.directory,
            &self.part_name,
            &self.directory,
            &self.name,
        )?;
        if durable {
            fs::fsync(&self.directory)?;
        }
        Ok(())
    }

    /// Removes the temporary file: its copy failed here.
    pub(crate) fn discard(self) {
        self.unlink();
    }

    fn unlink(&self) {
        // Nothing better can be done with a temporary file that cannot be removed.
        let _ = fs::unlinkat(&self.directory, &self.part_name, AtFlags::empty());
    }
}

/// Writes all of `bytes` to `file` at `offset`.
fn write_at(file: BorrowedFd<'_>, mut bytes: &[u8], mut offset: u64) -> Result<(), Cause> {
    while !bytes.is_empty() {
        match pwrite(file, bytes, offset) {
            Ok(0) => return Err(Cause::NoSpace),
            Ok(n) => {
                bytes = &bytes[n..];
                offset += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// What stands under the target's name must be replaceable by a file or a link.
pub(crate) fn check_target(
    directory: BorrowedFd<'_>,
    name: &[u8],
    replace_read_only: bool,
) -> Result<(), Cause> {
    let stat = match stat_at(directory, name) {
        Ok(stat) => stat,
        Err(Cause::NotFound) => return Ok(()),
        Err(cause) => return Err(cause),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Err(Cause::IsADirectory),
        FileType::Symlink => Ok(()),
        FileType::RegularFile if stat.st_mode & 0o222 != 0 || replace_read_only => Ok(()),
        FileType::RegularFile => Err(Cause::ReadOnly),
        _ => Err(Cause::Special),
    }
}

/// Opens or creates the temporary file and locks it; also its size.
fn open_locked(directory: BorrowedFd<'_>, part_name: &[u8]) -> Result<(OwnedFd, u64), Cause> {
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    for _ in 0..CREATE_TRIES {
        let file = open_in(directory, part_name, flags, Mode::from_raw_mode(0o600))?;
        match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(Cause::Busy),
            locked => locked?,
        }
        // Between open and lock another copy may have renamed this very file to its final name.
        let stat = fs::fstat(&file)?;
        let same = stat_at(directory, part_name)
            .is_ok_and(|there| (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino));
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink > 1 {
            return Err(Cause::Special);
        }
        if same {
            return Ok((file, stat.st_size as u64));
        }
    }
    Err(Cause::Busy)
}

/// Sets permissions and time of change.
pub(crate) fn set_meta(file: BorrowedFd<'_>, meta: &Meta) -> Result<(), Cause> {
    let mode = meta.mode & 0o777;
    if mode != 0o600 {
        fs::fchmod(file, Mode::from_raw_mode(mode))?;
    }
    fs::futimens(file, &times(meta))?;
    Ok(())
}

/// Makes the symbolic link `name`, replacing a file or link there.
pub(crate) fn make_link(
    directory: BorrowedFd<'_>,
    name: &[u8],
    target: &[u8],
    meta: &Meta,
    replace_read_only: bool,
) -> Result<(), Cause> {
    check_target(directory, name, replace_read_only)?;
    let part_name = part_name(name);
    match fs::symlinkat(target, directory, &part_name) {
        Err(Errno::EXIST) => {
            remove_stale(directory, &part_name)?;
            fs::symlinkat(target, directory, &part_name)?;
        }
        made => made?,
    }
    let named = fs::utimensat(
        directory,
        &part_name,
        &times(meta),
        AtFlags::SYMLINK_NOFOLLOW,
    )
    .and_then(|()| fs::renameat(directory, &part_name, directory, name));
    if named.is_err() {
        let _ = fs::unlinkat(directory, &part_name, AtFlags::empty());
    }
    Ok(named?)
}

/// Removes a temporary link, or a temporary file that no copy is writing.
fn remove_stale(directory: BorrowedFd<'_>, part_name: &[u8]) -> Result<(), Cause> {
    let stat = stat_at(directory, part_name)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        // Held until after the unlink.
        let _locked = open_locked(directory, part_name)?;
        return Ok(fs::unlinkat(directory, part_name, AtFlags::empty())?);
    }
    Ok(fs::unlinkat(directory, part_name, AtFlags::empty())?)
}

fn times(meta: &Meta) -> Timestamps {
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

#[cfg(test)]
#[path = "part_tests.rs"]
mod tests;
