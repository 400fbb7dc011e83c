//! Makes temporary files, finds those of killed copies, and renames them safely.
//!
//! A lasting temporary file, which `--resume` can find again, has a name derived from the target's, a [`Mark`], and a
//! lock (`flock`), which ends with its process. If another file has that name, the next one is used. All other
//! temporary files have a random name, for the duration of a rename. A file of another program is never touched.

use crate::error::Cause;
use crate::limits::{NAME_BYTES, TEMPORARY_NAMES};
use crate::mark::Mark;
use crate::root::{open_in, stat_at};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::sync::LazyLock;

/// How often one name is tried again if the file there disappears at that moment.
const TRIES: u32 = 8;

/// A lasting temporary file of this program: locked and marked.
#[derive(Debug)]
pub(super) struct Lasting {
    pub(super) file: OwnedFd,
    pub(super) name: Vec<u8>,
    pub(super) mark: Mark,
    /// Bytes of content that a killed copy left.
    pub(super) left_over: u64,
}

/// Name `number` of a lasting temporary file for `target`.
pub(super) fn lasting_name(target: &[u8], number: u32) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new_derive_key("zerolane 2026-11 name of a temporary file");
    hasher.update(&number.to_le_bytes());
    let digest = hasher.update(target).finalize().to_hex();
    let end = [b".", &digest.as_bytes()[..16], b".zlpart"].concat();
    match 1 + target.len() + end.len() <= NAME_BYTES {
        true => [b".", target, &end].concat(),
        false => end,
    }
}

/// A name that no other program can have chosen.
pub(super) fn random_name() -> Result<Vec<u8>, Cause> {
    let random = zerolane::security::random()
        .map_err(|error| Cause::Os(error.raw_os_error().unwrap_or_default()))?;
    let digits = blake3::Hash::from_bytes(random).to_hex();
    Ok([b".zlpart-", &digits.as_bytes()[..32]].concat())
}

/// Whether `name` has the form of [`random_name`].
pub(super) fn is_random_name(name: &[u8]) -> bool {
    name.strip_prefix(b".zlpart-")
        .is_some_and(|it| it.len() == 32 && it.iter().all(u8::is_ascii_hexdigit))
}

/// Makes and locks a lasting temporary file for `target`, or takes over that of a killed copy.
///
/// # Errors
/// [`Cause::Busy`]: another copy writes it. [`Cause::TemporaryTaken`]: other files have all names.
pub(super) fn claim(directory: BorrowedFd<'_>, target: &[u8]) -> Result<Lasting, Cause> {
    for number in 0..TEMPORARY_NAMES {
        let name = lasting_name(target, number);
        for _ in 0..TRIES {
            match find(directory, &name, target)? {
                Found::Ours(found) => return Ok(found),
                Found::Anothers => break,
                Found::Nothing => {}
            }
            if let Some(made) = make(directory, &name, target)? {
                return Ok(made);
            }
        }
    }
    Err(Cause::TemporaryTaken)
}

/// Removes the file that a killed copy left for `target`, unless another copy continues with it.
pub(super) fn remove_left_over(directory: BorrowedFd<'_>, target: &[u8]) {
    if let Ok(Found::Ours(found)) = find(directory, &lasting_name(target, 0), target) {
        remove(directory, &found.name, found.file.as_fd());
    }
}

/// Makes one with `name`; `None` if the name exists.
///
/// It is locked and marked before it gets the name: a copy killed before would leave a file without a mark, which no
/// later copy would recognize and remove. On a system without unnamed files it has the name a moment earlier.
fn make(directory: BorrowedFd<'_>, name: &[u8], target: &[u8]) -> Result<Option<Lasting>, Cause> {
    let (file, has_name) = match unnamed(directory)? {
        Some(file) => (Some(file), false),
        None => (create(directory, name)?, true),
    };
    let Some(file) = file else {
        return Ok(None);
    };
    // Marked after it is locked, so that no other copy takes it for the file of a killed one.
    match lock(file.as_fd()).and_then(|()| Mark::set(file.as_fd(), target)) {
        Ok(mark) if has_name || link(directory, file.as_fd(), name)? => Ok(Some(Lasting {
            file,
            name: name.to_vec(),
            mark,
            left_over: 0,
        })),
        Ok(_) => Ok(None),
        Err(cause) => {
            remove(directory, name, file.as_fd());
            Err(cause)
        }
    }
}

/// Makes a file with `name`; `None` if the name exists.
fn create(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Option<OwnedFd>, Cause> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match open_in(directory, name, flags, Mode::from_raw_mode(0o600)) {
        Err(Errno::EXIST) => Ok(None),
        made => Ok(Some(made?)),
    }
}

fn lock(file: BorrowedFd<'_>) -> Result<(), Cause> {
    match fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(Cause::Busy),
        locked => Ok(locked?),
    }
}

/// The entry under a temporary name.
enum Found {
    /// The file of a killed copy, now locked.
    Ours(Lasting),
    /// Not a temporary file for this target.
    Anothers,
    Nothing,
}

fn find(directory: BorrowedFd<'_>, name: &[u8], target: &[u8]) -> Result<Found, Cause> {
    let stat = match stat_at(directory, name) {
        Err(Cause::NotFound) => return Ok(Found::Nothing),
        stat => stat?,
    };
    // Another user's file could be changed by that user even when it is complete.
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !regular || stat.st_nlink != 1 || stat.st_uid != geteuid().as_raw() {
        return Ok(Found::Anothers);
    }
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match open_in(directory, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(Found::Nothing),
        Err(_) => return Ok(Found::Anothers),
        Ok(file) => file,
    };
    if Mark::find(file.as_fd(), target)?.is_none() {
        return Ok(Found::Anothers);
    }
    lock(file.as_fd())?;
    // Before the lock was free, its copy may have continued, or given it its final name.
    match Mark::find(file.as_fd(), target)? {
        Some((mark, left_over)) if stands_at(directory, name, file.as_fd()) => {
            Ok(Found::Ours(Lasting {
                file,
                name: name.to_vec(),
                mark,
                left_over,
            }))
        }
        _ => Ok(Found::Nothing),
    }
}

/// Whether `file` is the entry at `name`.
fn stands_at(directory: BorrowedFd<'_>, name: &[u8], file: BorrowedFd<'_>) -> bool {
    let (Ok(there), Ok(stat)) = (stat_at(directory, name), fs::fstat(file)) else {
        return false;
    };
    (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino)
}

/// Moves `file` from `name` to a random name, which no other program touches.
///
/// # Errors
/// [`Cause::TemporaryLost`]: it is no longer there. The entry that is there stays.
pub(super) fn set_aside(
    directory: BorrowedFd<'_>,
    name: &[u8],
    file: BorrowedFd<'_>,
) -> Result<Vec<u8>, Cause> {
    let aside = random_name()?;
    if !stands_at(directory, name, file) {
        return Err(Cause::TemporaryLost);
    }
    match fs::renameat(directory, name, directory, &aside) {
        Err(Errno::NOENT) => return Err(Cause::TemporaryLost),
        moved => moved?,
    }
    if stands_at(directory, &aside, file) {
        return Ok(aside);
    }
    // Another file appeared there between the check and the rename: it goes back.
    put_back(directory, &aside, name);
    Err(Cause::TemporaryLost)
}

/// Moves a file that was set aside back to `name`, unless a new entry appeared there.
pub(super) fn put_back(directory: BorrowedFd<'_>, aside: &[u8], name: &[u8]) {
    let _ = fs::renameat_with(directory, aside, directory, name, RenameFlags::NOREPLACE);
}

/// Removes `file` from `name`, if it is there.
pub(super) fn remove(directory: BorrowedFd<'_>, name: &[u8], file: BorrowedFd<'_>) {
    // There is no remedy for a temporary file that cannot be removed.
    if let Ok(aside) = set_aside(directory, name, file) {
        let _ = fs::unlinkat(directory, &aside, AtFlags::empty());
    }
}

/// Whether an unnamed file can get a name: by its descriptor's entry there.
static CAN_LINK: LazyLock<bool> = LazyLock::new(|| fs::stat("/proc/self/fd").is_ok());

/// An unnamed file, which vanishes with its process; `None` if the system cannot make one.
pub(super) fn unnamed(directory: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Cause> {
    if !*CAN_LINK {
        return Ok(None);
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match open_in(directory, b".", flags, Mode::from_raw_mode(0o600)) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => Ok(None),
        made => Ok(Some(made?)),
    }
}

/// Gives `file`, which is unnamed, this name. False if the name exists.
pub(super) fn link(
    directory: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    name: &[u8],
) -> Result<bool, Cause> {
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    match fs::linkat(CWD, from, directory, name, AtFlags::SYMLINK_FOLLOW) {
        Err(Errno::EXIST) => Ok(false),
        linked => Ok(linked.map(|()| true)?),
    }
}

/// Makes a file with a random name.
pub(super) fn random(directory: BorrowedFd<'_>) -> Result<(OwnedFd, Vec<u8>), Cause> {
    let name = random_name()?;
    let file = create(directory, &name)?.ok_or(Cause::Busy)?;
    Ok((file, name))
}

#[cfg(test)]
#[path = "temporary_tests.rs"]
mod tests;
