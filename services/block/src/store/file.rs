//! Stores a disk in a file or on a block device.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{
    Advice, FallocateFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT, fadvise, fallocate,
    futimens, ioctl_blksszget, major, minor, seek,
};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::flushes::Flushes;
use super::holder::{Holder, holder_of};
use super::{Run, Store};

const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// In an [`io::Error`] of kind [`WouldBlock`](io::ErrorKind::WouldBlock): the file is open for writing elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse(Option<Holder>);

impl InUse {
    /// Whether the file is open in this process.
    pub fn is_here(&self) -> bool {
        let own = std::process::id();
        self.0.as_ref().is_some_and(|it| it.process == own)
    }
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            _ if self.is_here() => f.write_str("this process already has it open for writing"),
            Some(holder) => write!(f, "{holder} has it open for writing"),
            None => f.write_str("another process has it open for writing"),
        }
    }
}

impl std::error::Error for InUse {}

/// A regular file, in which holes are kept and made, or a block device.
#[derive(Debug)]
pub struct FileStore {
    file: File,
    bytes: u64,
    read_only: bool,
    /// Of a device.
    block_bytes: Option<u32>,
    /// The file system, or the device, makes holes.
    makes_holes: AtomicBool,
    flushes: Flushes,
}

impl FileStore {
    /// The file or device at `path`. One that may be written is locked against others that would.
    ///
    /// # Errors
    /// The path is neither a regular file nor a block device, cannot be opened, or is open for writing elsewhere
    /// ([`io::ErrorKind::WouldBlock`], with [`InUse`]).
    pub fn open(path: &Path, read_only: bool) -> io::Result<FileStore> {
        let kind = path.metadata()?.file_type();
        // The opened file may differ by now, but this check avoids blocking on a FIFO.
        if !kind.is_file() && !kind.is_block_device() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "neither a file nor a block device",
            ));
        }
        let file = OpenOptions::new().read(true).write(!read_only).open(path)?;
        if !read_only {
            file.try_lock().map_err(|error| match error {
                TryLockError::WouldBlock => {
                    io::Error::new(io::ErrorKind::WouldBlock, InUse(holder_of(&file)))
                }
                TryLockError::Error(error) => error,
            })?;
        }
        let is_device = file.metadata()?.file_type().is_block_device();
        let block_bytes = is_device.then(|| ioctl_blksszget(&file)).transpose()?;
        let bytes = seek(&file, SeekFrom::End(0))?;
        // A read-only file is not probed; its existing holes are reported.
        let makes_holes = match (read_only, is_device) {
            (true, _) => true,
            (false, true) => device_makes_holes(&file),
            (false, false) => file_makes_holes(&file, bytes),
        };
        Ok(FileStore {
            file,
            bytes,
            read_only,
            block_bytes,
            makes_holes: AtomicBool::new(makes_holes),
            flushes: Flushes::default(),
        })
    }

    /// Whether it is a block device.
    pub fn is_device(&self) -> bool {
        self.block_bytes.is_some()
    }

    fn check(&self, at: u64, bytes: u64) -> io::Result<()> {
        let end = at.checked_add(bytes);
        if end.is_none_or(|end| end > self.bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

/// Whether the file system can make holes in this file of `bytes` bytes. Probes by a hole after the end, which changes
/// only the time of the last change.
fn file_makes_holes(file: &File, bytes: u64) -> bool {
    let before = file.metadata();
    let punched = fallocate(file, PUNCH, bytes, 1);
    if let Ok(before) = before {
        let omitted = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        };
        let times = Timestamps {
            last_access: omitted,
            last_modification: Timespec {
                tv_sec: before.mtime(),
                tv_nsec: before.mtime_nsec(),
            },
        };
        // Only the owner may; for others it is the time of this start.
        let _ = futimens(file, &times);
    }
    !matches!(punched, Err(Errno::OPNOTSUPP | Errno::NOSYS))
}

/// Whether the device supports holes (WRITE ZEROES). A device that does not say is assumed to, until it refuses.
fn device_makes_holes(file: &File) -> bool {
    let Ok(device) = file.metadata().map(|it| it.rdev()) else {
        return true;
    };
    let own = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    // For a partition, ask the disk above it.
    let said = ["queue", "../queue"]
        .iter()
        .find_map(|queue| fs::read_to_string(format!("{own}/{queue}/write_zeroes_max_bytes")).ok());
    said.is_none_or(|it| it.trim() != "0")
}

impl Store for FileStore {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn least_block_bytes(&self) -> u32 {
        self.block_bytes.unwrap_or(1)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.check(at, into.len() as u64)?;
        self.file.read_exact_at(into, at)
    }

    /// Reads only from the kernel's page cache, on file systems that support this.
    fn read_at_once(&self, at: u64, into: &mut [u8]) -> bool {
        let length = into.len();
        let vector = &mut [IoSliceMut::new(into)];
        let read = |vector| preadv2(&self.file, vector, at, ReadWriteFlags::NOWAIT);
        self.check(at, length as u64).is_ok() && read(vector).is_ok_and(|it| it == length)
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.check(at, from.len() as u64)?;
        self.file.write_all_at(from, at)
    }

    fn flush(&self) -> io::Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.flushes.flush(|| self.file.sync_data())
    }

    fn has_failed(&self) -> bool {
        self.flushes.have_failed()
    }

    fn gives_back(&self) -> bool {
        self.makes_holes.load(Ordering::Relaxed)
    }

    fn unmap(&self, at: u64, bytes: u64) -> io::Result<bool> {
        self.check(at, bytes)?;
        if bytes == 0 {
            return Ok(true);
        }
        if !self.gives_back() {
            return Ok(false);
        }
        match fallocate(&self.file, PUNCH, at, bytes) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.makes_holes.store(false, Ordering::Relaxed);
                Ok(false)
            }
            // These bytes alone: of a device no whole blocks.
            Err(Errno::INVAL) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn run(&self, at: u64) -> io::Result<Run> {
        self.check(at, 1)?;
        let all = Run {
            mapped: true,
            bytes: self.bytes - at,
        };
        if self.is_device() {
            return Ok(all);
        }
        // The file's own position is used by nothing else.
        let data = match seek(&self.file, SeekFrom::Data(at)) {
            Ok(data) => data.min(self.bytes),
            // A hole up to the end.
            Err(Errno::NXIO) => self.bytes,
            // The file system does not know.
            Err(Errno::INVAL) => return Ok(all),
            Err(error) => return Err(error.into()),
        };
        if data > at {
            return Ok(Run {
                mapped: false,
                bytes: data - at,
            });
        }
        let hole = match seek(&self.file, SeekFrom::Hole(at)) {
            Ok(hole) => hole.min(self.bytes),
            Err(Errno::NXIO) => self.bytes,
            Err(error) => return Err(error.into()),
        };
        // A hole may have been made meanwhile.
        let bytes = hole.saturating_sub(at).max(1);
        Ok(Run {
            mapped: true,
            bytes,
        })
    }

    /// The kernel keeps written data.
    fn outlives_process(&self) -> bool {
        true
    }

    fn expect(&self, at: u64, bytes: u64) {
        // This is a hint, so a failure does not matter.
        let _ = fadvise(
            &self.file,
            at,
            std::num::NonZeroU64::new(bytes),
            Advice::WillNeed,
        );
    }
}
