//! Recognizes a temporary file by a mark in it, not by its name.
//!
//! The mark is a digest of the final name of the file and of the inode (number and time of birth). So neither a copy of
//! a temporary file, made by any program, nor one made for another name is a temporary file. The mark is an extended
//! attribute. If the file system has none, it is the last bytes of the file, after the content, and is moved as the
//! content grows; whenever the process is killed, the last bytes are the mark.

use crate::error::Cause;
use crate::positioned::{read_full, write_at};
use rustix::fd::BorrowedFd;
use rustix::fs::{self, AtFlags, StatxFlags, XattrFlags};

const ATTRIBUTE: &str = "user.zerolane.temporary";
const BYTES: usize = 32;

/// A mark, and its place.
#[derive(Debug)]
pub(super) struct Mark {
    digest: [u8; BYTES],
    at: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Attribute,
    /// After the content.
    Trailer,
}

impl Mark {
    /// Marks `file`, which is empty, as the temporary file for `target`.
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

    /// The mark of `file` as the temporary file for `target`, if it has one, and the length of its content in bytes.
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

    /// Sets the mark again, after `end` bytes of content, whatever the final length.
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

    /// Moves the mark before `[from, until)` is written to `file`, whose content ends at `end`, less than `until`.
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
        // The write covers the old mark, except for the part before `from`.
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

    /// Sets the length of `file`, with `end` bytes of content, to `size`. This removes a mark after the content.
    pub(super) fn set_len(&self, file: BorrowedFd<'_>, end: u64, size: u64) -> Result<(), Cause> {
        if self.at == Place::Trailer {
            fs::ftruncate(file, end.min(size))?;
        }
        Ok(fs::ftruncate(file, size)?)
    }

    /// Removes the mark, once the length is set. If that fails, the mark is harmless: it is invalid under the final
    /// name.
    pub(super) fn remove(&self, file: BorrowedFd<'_>) {
        if self.at == Place::Attribute {
            let _ = fs::fremovexattr(file, ATTRIBUTE);
        }
    }
}

/// The mark of this file for `target`, which is unique to the file.
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
