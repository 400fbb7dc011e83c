//! How a temporary file is recognized: by a mark in it, not by its name.
//!
//! The mark is a digest of the name that the file is to get and of the inode itself (number and time of
//! birth). So a copy of a temporary file, made by any program, is not a temporary file. Nor is a
//! file that was left for another name. It stands in an extended attribute; where the file system has none,
//! in the last bytes of the file, behind the content, and moved as that grows. Whenever the
//! process is killed, the last bytes are the mark.

use crate::error::Cause;
use crate::positioned::{read_full, write_at};
use rustix::fd::BorrowedFd;
use rustix::fs::{self, AtFlags, StatxFlags, XattrFlags};

const ATTRIBUTE: &str = "user.zerolane.temporary";
const BYTES: usize = 32;

/// A mark, and where it stands.
#[derive(Debug)]
pub(super) struct Mark {
    digest: [u8; BYTES],
    at: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Attribute,
    /// Behind the content.
    Trailer,
}

impl Mark {
    /// Marks `file`, which is empty, as the temporary one for `target`.
    pub(super) fn set(file: BorrowedFd<'_>, target: &[u8]) -> Result<Mark, Cause> {
        let digest = digest(file, target)?;
        let mut mark = Mark {
            digest,
            at: Place::Attribute,
        };
        match mark.write(file, 0) {
            Err(Cause::NoSpace) => return Err(Cause::NoSpace),
            Err(_) => {
                mark.at = Place::Trailer;
                mark.write(file, 0)?;
            }
            Ok(()) => {}
        }
        Ok(mark)
    }

    /// The mark of `file` as the temporary one for `target`, if it has one, and how long its content
    /// is, bytes.
    pub(super) fn find(file: BorrowedFd<'_>, target: &[u8]) -> Result<Option<(Mark, u64)>, Cause> {
        let digest = digest(file, target)?;
        let len = fs::fstat(file)?.st_size as u64;
        let mut found = [0; BYTES + 1];
        if fs::fgetxattr(file, ATTRIBUTE, &mut found[..]) == Ok(BYTES) && found[..BYTES] == digest {
            let at = Place::Attribute;
            return Ok(Some((Mark { digest, at }, len)));
        }
        let Some(content) = len.checked_sub(BYTES as u64) else {
            return Ok(None);
        };
        let mut found = [0; BYTES];
        let at = Place::Trailer;
        let whole = read_full(file, &mut found, content)? == BYTES;
        Ok((whole && found == digest).then_some((Mark { digest, at }, content)))
    }

    /// Sets the mark again, behind `end` bytes of content, whatever the length was to be.
    pub(super) fn restore(&self, file: BorrowedFd<'_>, end: u64) -> Result<(), Cause> {
        self.write(file, end)?;
        match self.at {
            Place::Attribute => Ok(()),
            Place::Trailer => Ok(fs::ftruncate(file, end + BYTES as u64)?),
        }
    }

    fn write(&self, file: BorrowedFd<'_>, end: u64) -> Result<(), Cause> {
        match self.at {
            Place::Attribute => {
                let any = XattrFlags::empty();
                Ok(fs::fsetxattr(file, ATTRIBUTE, &self.digest, any)?)
            }
            Place::Trailer => write_at(file, &self.digest, end),
        }
    }

    /// Before `[from, until)` is written to `file`, whose content ends at `end`, less than `until`.
    pub(super) fn make_way(
        &self,
        file: BorrowedFd<'_>,
        end: u64,
        from: u64,
        until: u64,
    ) -> Result<(), Cause> {
        if self.at == Place::Attribute {
            return Ok(());
        }
        self.write(file, until)?;
        // What is written covers the old one, unless it begins further on.
        let stale = from.saturating_sub(end).min(BYTES as u64) as usize;
        write_at(file, &[0; BYTES][..stale], end)
    }

    /// Discards the content and keeps the mark.
    pub(super) fn empty(&self, file: BorrowedFd<'_>) -> Result<(), Cause> {
        if self.at == Place::Attribute {
            return Ok(fs::ftruncate(file, 0)?);
        }
        self.write(file, 0)?;
        Ok(fs::ftruncate(file, BYTES as u64)?)
    }

    /// Gives `file`, with `end` bytes of content, the length `size`. A mark behind the content goes.
    pub(super) fn set_len(&self, file: BorrowedFd<'_>, end: u64, size: u64) -> Result<(), Cause> {
        if self.at == Place::Trailer {
            fs::ftruncate(file, end.min(size))?;
        }
        Ok(fs::ftruncate(file, size)?)
    }

    /// Removes the mark, once the length is set. One that cannot be removed does no harm: it means nothing
    /// under the final name.
    pub(super) fn remove(&self, file: BorrowedFd<'_>) {
        if self.at == Place::Attribute {
            let _ = fs::fremovexattr(file, ATTRIBUTE);
        }
    }
}

/// The mark of this file for `target`, which no other file can have.
fn digest(file: BorrowedFd<'_>, target: &[u8]) -> Result<[u8; BYTES], Cause> {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let stat = fs::statx(file, "", AtFlags::EMPTY_PATH, wanted)?;
    let born = match stat.stx_mask & StatxFlags::BTIME.bits() {
        0 => (0, 0),
        _ => (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec),
    };
    let mut hasher = blake3::Hasher::new_derive_key("zerolane 2026-11 mark of a temporary file");
    hasher.update(&stat.stx_ino.to_le_bytes());
    hasher.update(&born.0.to_le_bytes());
    hasher.update(&born.1.to_le_bytes());
    hasher.update(target);
    Ok(*hasher.finalize().as_bytes())
}

#[cfg(test)]
#[path = "mark_tests.rs"]
mod tests;
