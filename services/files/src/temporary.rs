//! Temporary files as entries of a directory: their names, finding what a killed copy left, and giving
//! them another name without touching a file that is not ours.
//!
//! A lasting temporary file, one that `--resume` is to find again, has a name that follows from the
//! target's, a [`Mark`], and a lock (`flock`), which dies with its process. If another file
//! has that name, the next is taken. All others have a random name, for as long as a rename takes.

use crate::error::Cause;
use crate::limits::{NAME_BYTES, TEMPORARY_NAMES};
use crate::mark::Mark;
use crate::root::{open_in, stat_at};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::sync::LazyLock;

/// How often one name is tried again when what stood there goes at that moment.
const TRIES: u32 = 8;

/// A lasting temporary file: locked, marked, ours.
#[derive(Debug)]
pub(super) struct Lasting {
    pub(super) file: OwnedFd,
    pub(super) name: Vec<u8>,
    pub(super) mark: Mark,
    /// Bytes of content that a killed copy left.
    pub(super) left_over: u64,
}

/// The `number`th name of a lasting temporary file for `target`.
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

/// Whether `name` is of the form of [`random_name`].
pub(super) fn is_random_name(name: &[u8]) -> bool {
    name.strip_prefix(b".zlpart-")
        .is_some_and(|it| it.len() == 32 && it.iter().all(u8::is_ascii_hexdigit))
}

/// Makes and locks a lasting temporary file for `target`, or takes what a killed copy left.
///
/// # Errors
/// [`Cause::Busy`]: another copy writes it. [`Cause::TemporaryTaken`]: files of others have all names.
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

/// Removes what a killed copy left for `target`, unless another copy goes on with it.
pub(super) fn remove_left_over(directory: BorrowedFd<'_>, target: &[u8]) {
    if let Ok(Found::Ours(found)) = find(directory, &lasting_name(target, 0), target) {
        remove(directory, &found.name, found.file.as_fd());
    }
}

/// A new one under `name`; `None` if there is something.
///
/// It is locked and marked before it has the name: without its mark, what a copy killed here leaves would be another's
/// for ever. Where files cannot be without a name, that is so for a moment.
fn make(directory: BorrowedFd<'_>, name: &[u8], target: &[u8]) -> Result<Option<Lasting>, Cause> {
    let (file, has_name) = match unnamed(directory)? {
        Some(file) => (Some(file), false),
        None => (create(directory, name)?, true),
    };
    let Some(file) = file else {
        return Ok(None);
    };
    // Marked after it is locked: no other copy takes it in between for what a killed one left.
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

/// A new file under `name`; `None` if there is something.
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

/// What stands under a temporary name.
enum Found {
    /// What a killed copy left; locked by now.
    Ours(Lasting),
    /// Something that is no temporary file for this target.
    Anothers,
    Nothing,
}

fn find(directory: BorrowedFd<'_>, name: &[u8], target: &[u8]) -> Result<Found, Cause> {
    let stat = match stat_at(directory, name) {
        Err(Cause::NotFound) => return Ok(Found::Nothing),
        stat => stat?,
    };
    // Another user's could be written to by that user even when it is complete.
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
    // Before the lock was free, its copy may have gone on, or given it its final name.
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

/// Whether `file` is what stands at `name`.
fn stands_at(directory: BorrowedFd<'_>, name: &[u8], file: BorrowedFd<'_>) -> bool {
    let (Ok(there), Ok(stat)) = (stat_at(directory, name), fs::fstat(file)) else {
        return false;
    };
    (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino)
}

/// Moves `file` from `name` to a random name, which no other program touches from then on.
///
/// # Errors
/// [`Cause::TemporaryLost`]: it does not stand there any more. What does, stays.
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
    // Another file came there between the look and the move: it goes back.
    put_back(directory, &aside, name);
    Err(Cause::TemporaryLost)
}

/// Moves what was set aside back to `name`, unless something came there meanwhile.
pub(super) fn put_back(directory: BorrowedFd<'_>, aside: &[u8], name: &[u8]) {
    let _ = fs::renameat_with(directory, aside, directory, name, RenameFlags::NOREPLACE);
}

/// Removes `file` from `name`, if it stands there.
pub(super) fn remove(directory: BorrowedFd<'_>, name: &[u8], file: BorrowedFd<'_>) {
    // Nothing better can be done with a temporary file that cannot be removed.
    if let Ok(aside) = set_aside(directory, name, file) {
        let _ = fs::unlinkat(directory, &aside, AtFlags::empty());
    }
}

/// Whether a file without a name can get one: by its descriptor's entry there.
static CAN_LINK: LazyLock<bool> = LazyLock::new(|| fs::stat("/proc/self/fd").is_ok());

/// A file that has no name and goes with its process; `None` where the system cannot.
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

/// Gives `file`, which has no name, this one. False if there is something.
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

/// A new file under a random name.
pub(super) fn random(directory: BorrowedFd<'_>) -> Result<(OwnedFd, Vec<u8>), Cause> {
    let name = random_name()?;
    let file = create(directory, &name)?.ok_or(Cause::Busy)?;
    Ok((file, name))
}

#[cfg(test)]
#[path = "temporary_tests.rs"]
mod tests;
