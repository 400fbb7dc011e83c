//! Writes a file in a hidden place until it is complete and verified, then gives it its name.
//!
//! A small file has no name until then, and vanishes with its process. A large one is a lasting temporary file beside
//! its target, so that a later copy finds what a killed one left; a full disk leaves it there too. In both cases the
//! name goes to the file that was written, even if another file has taken the temporary name.

use crate::attributes::{NotKept, set_meta, set_owner_at, times, with_permissions};
use crate::backup::BackupsOf;
use crate::error::Cause;
use crate::extended::Wanted;
use crate::in_place::InPlace;
use crate::mark::Mark;
use crate::message::{CopyOptions, EntryKind, Meta};
use crate::positioned::write_at;
use crate::root::{is_write_protected, kind_of, stat_at};
use crate::temporary::{self, Lasting};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FallocateFlags, FileType, Mode, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::sync::Arc;

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct Part {
    directory: Arc<OwnedFd>,
    target: Vec<u8>,
    file: OwnedFd,
    place: Place,
    /// Bytes of content that a killed copy left; 0 unless resuming.
    left_over: u64,
    /// The end of the content.
    end: u64,
    /// The metadata that it must get.
    meta: Meta,
    /// The extended attributes that it must get, if requested.
    wanted: Option<Wanted>,
    /// Keeps a backup of the file that it replaces.
    backups: Option<BackupsOf>,
}

/// Its place until it is complete.
#[derive(Debug)]
enum Place {
    /// No name.
    Unnamed,
    /// A random name, where the system has no unnamed files.
    Random(Vec<u8>),
    /// The name where a later copy looks for it.
    Lasting { name: Vec<u8>, mark: Mark },
    /// The target itself.
    Target(InPlace),
}

impl Part {
    /// A file that is written at once: a killed copy leaves nothing.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn brief(directory: &Arc<OwnedFd>, target: &[u8]) -> Result<Part, Cause> {
        let (file, place) = match temporary::unnamed(directory.as_fd())? {
            Some(file) => (file, Place::Unnamed),
            None => {
                let (file, name) = temporary::random(directory.as_fd())?;
                (file, Place::Random(name))
            }
        };
        Ok(Part {
            directory: directory.clone(),
            target: target.to_vec(),
            file,
            place,
            left_over: 0,
            end: 0,
            meta: Meta::default(),
            wanted: None,
            backups: None,
        })
    }

    /// Opens the existing file or device under the target's name, to be written in place and then `size` bytes long.
    /// `None` if there is nothing of the kind. `named`: as in [`InPlace::open`].
    ///
    /// # Errors
    /// Those of [`InPlace::open`].
    pub(crate) fn in_place(
        directory: &Arc<OwnedFd>,
        target: &[u8],
        (size, meta): (u64, Meta),
        named: bool,
        options: &CopyOptions,
    ) -> Result<Option<Part>, Cause> {
        if !options.in_place {
            return Ok(None);
        }
        let opened = InPlace::open(directory.as_fd(), target, size, named, options)?;
        Ok(opened.map(|(file, in_place)| Part {
            directory: directory.clone(),
            target: target.to_vec(),
            file,
            left_over: in_place.len(),
            end: in_place.len(),
            place: Place::Target(in_place),
            meta,
            wanted: None,
            backups: None,
        }))
    }

    /// Makes a file that outlives a killed copy, or takes over such a file if this copy resumes. The target is checked
    /// first.
    ///
    /// # Errors
    /// [`Cause::IsADirectory`], [`Cause::ReadOnly`], [`Cause::Special`]: the entry under the name cannot be replaced.
    /// [`Cause::Busy`]: another copy is writing it. [`Cause::TemporaryTaken`]. Or the system's error.
    pub(crate) fn lasting(
        directory: &Arc<OwnedFd>,
        target: &[u8],
        options: &CopyOptions,
    ) -> Result<Part, Cause> {
        // When resuming, a target without write permission may already have the right content: it is checked again
        // before it is replaced.
        let read_only = options.replace_read_only || options.resume;
        check_target(directory.as_fd(), target, read_only)?;
        let Lasting {
            file,
            name,
            mark,
            mut left_over,
        } = temporary::claim(directory.as_fd(), target)?;
        if !options.resume && left_over > 0 {
            mark.empty(file.as_fd())?;
            left_over = 0;
        }
        Ok(Part {
            directory: directory.clone(),
            target: target.to_vec(),
            file,
            place: Place::Lasting { name, mark },
            left_over,
            end: left_over,
            meta: Meta::default(),
            wanted: None,
            backups: None,
        })
    }

    /// Sets these extended attributes on completion, and removes others of the requested kinds.
    pub(crate) fn wanting(mut self, wanted: Option<Wanted>) -> Part {
        self.wanted = wanted;
        self
    }

    /// Makes a backup of the file that it replaces.
    pub(crate) fn backing_up(mut self, backups: Option<BackupsOf>) -> Part {
        self.backups = backups;
        self
    }

    /// Bytes of unknown content that a killed copy left.
    pub(crate) fn left_over(&self) -> u64 {
        self.left_over
    }

    /// The temporary file.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The directory of the target.
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Writes all of `bytes` at `offset`.
    pub(crate) fn write(&mut self, bytes: &[u8], offset: u64) -> Result<(), Cause> {
        self.begin(offset, offset + bytes.len() as u64)?;
        write_at(self.file.as_fd(), bytes, offset)
    }

    /// Copies `[offset, offset + len)` of another file to the same place, sharing blocks of the disk if the file system
    /// can. False if the system cannot copy; the range is then undefined.
    pub(crate) fn copy(
        &mut self,
        from: BorrowedFd<'_>,
        offset: u64,
        len: u64,
    ) -> Result<bool, Cause> {
        self.begin(offset, offset + len)?;
        let (mut here, mut there) = (offset, offset);
        while here < offset + len {
            let left = usize::try_from(offset + len - here).unwrap_or(usize::MAX);
            let file = self.file.as_fd();
            match fs::copy_file_range(from, Some(&mut here), file, Some(&mut there), left) {
                Ok(0) => return Ok(false),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::NOSPC | Errno::DQUOT) => return Err(Cause::NoSpace),
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Prepares for a write to `[offset, until)`.
    fn begin(&mut self, offset: u64, until: u64) -> Result<(), Cause> {
        if let Place::Target(in_place) = &mut self.place {
            in_place.change(self.file.as_fd(), &self.meta)?;
        }
        if until > self.end {
            if let Place::Lasting { mark, .. } = &self.place {
                mark.make_way(self.file.as_fd(), self.end, offset, until)?;
            }
            self.end = until;
        }
        Ok(())
    }

    /// Makes `[offset, offset + len)` read as zeros, as a hole if the file system can. Needed only for content that a
    /// killed copy left, or in place: elsewhere there is a hole already.
    pub(crate) fn make_hole(&mut self, offset: u64, len: u64) -> Result<(), Cause> {
        let len = len.min(self.left_over.saturating_sub(offset));
        if len == 0 {
            return Ok(());
        }
        if let Place::Target(in_place) = &mut self.place {
            in_place.change(self.file.as_fd(), &self.meta)?;
        }
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fs::fallocate(&self.file, punch, offset, len) {
            Err(Errno::OPNOTSUPP) => self.write_zeros(offset, len),
            done => Ok(done?),
        }
    }

    fn write_zeros(&mut self, offset: u64, len: u64) -> Result<(), Cause> {
        let zeros = [0; 64 << 10];
        let mut done = 0;
        while done < len {
            let step = (len - done).min(zeros.len() as u64);
            self.write(&zeros[..step as usize], offset + done)?;
            done += step;
        }
        Ok(())
    }

    /// Gives the file its size (holes at its end included), permissions and time, then its name, if the entry there may
    /// still be replaced. With `durable`, content and name are on disk when it returns. Attributes that could not be
    /// kept do not fail the file.
    pub(crate) fn commit(
        mut self,
        size: u64,
        meta: &Meta,
        options: &CopyOptions,
    ) -> Result<NotKept, Cause> {
        let meta = self.meta_there(meta, options);
        let done = self.settle(size, &meta, options.durable);
        let done = done.and_then(|not_kept| {
            self.give_name(options.replace_read_only)?;
            Ok(not_kept)
        });
        if let Err(cause) = &done {
            self.give_up(cause);
            return done;
        }
        if options.durable && !matches!(self.place, Place::Target(_)) {
            fs::fsync(&self.directory)?;
        }
        done
    }

    /// The metadata to set, given the file that is there.
    fn meta_there(&self, meta: &Meta, options: &CopyOptions) -> Meta {
        if !options.no_permissions {
            return *meta;
        }
        let there = match &self.place {
            Place::Target(_) => fs::fstat(&self.file).ok(),
            _ => stat_at(&self.directory, &self.target).ok(),
        };
        let there = there.filter(|it| kind_of(it) == EntryKind::File);
        with_permissions(meta, there.map(|it| it.st_mode))
    }

    fn settle(&mut self, size: u64, meta: &Meta, durable: bool) -> Result<NotKept, Cause> {
        let file = self.file.as_fd();
        match &mut self.place {
            Place::Target(in_place) => {
                return in_place.finish(file, size, meta, self.wanted.as_ref());
            }
            Place::Lasting { mark, .. } => {
                if durable {
                    // This takes long. While the mark exists, a resumed copy finds the file of a copy killed now.
                    fs::fsync(file)?;
                }
                mark.set_len(file, self.end, size)?;
                mark.remove(file);
            }
            Place::Unnamed | Place::Random(_) => fs::ftruncate(file, size)?,
        }
        let not_kept = set_meta(file, meta, self.wanted.as_ref())?;
        if durable {
            fs::fsync(file)?;
        }
        Ok(not_kept)
    }

    fn give_name(&self, replace_read_only: bool) -> Result<(), Cause> {
        let directory = self.directory.as_fd();
        match &self.place {
            Place::Target(_) => Ok(()),
            Place::Unnamed => {
                if !temporary::link(directory, self.file.as_fd(), &self.target)? {
                    self.make_way(replace_read_only)?;
                    let name = temporary::random_name()?;
                    temporary::link(directory, self.file.as_fd(), &name)?;
                    let named = fs::renameat(directory, &name, directory, &self.target);
                    if named.is_err() {
                        let _ = fs::unlinkat(directory, &name, AtFlags::empty());
                    }
                    named?;
                }
                temporary::remove_left_over(directory, &self.target);
                Ok(())
            }
            Place::Random(name) => {
                self.make_way(replace_read_only)?;
                fs::renameat(directory, name, directory, &self.target)?;
                temporary::remove_left_over(directory, &self.target);
                Ok(())
            }
            Place::Lasting { name, .. } => {
                self.make_way(replace_read_only)?;
                let aside = temporary::set_aside(directory, name, self.file.as_fd())?;
                let named = fs::renameat(directory, &aside, directory, &self.target);
                if named.is_err() {
                    temporary::put_back(directory, &aside, name);
                }
                Ok(named?)
            }
        }
    }

    /// Checks the entry that it replaces, and makes a backup.
    fn make_way(&self, replace_read_only: bool) -> Result<(), Cause> {
        let directory = self.directory.as_fd();
        make_way(
            directory,
            &self.target,
            replace_read_only,
            self.backups.as_ref(),
            Some(&fs::fstat(&self.file)?),
        )
    }

    /// Ends the copy of this file because of `cause`. After a full disk the content stays, so that a later copy can
    /// resume.
    pub(crate) fn give_up(&self, cause: &Cause) {
        let file = self.file.as_fd();
        if let (Cause::NoSpace, Place::Lasting { mark, .. }) = (cause, &self.place) {
            // It may have been complete except for its name.
            let marked = fs::fchmod(file, Mode::from_raw_mode(0o600))
                .and_then(|()| fs::fchown(file, Some(geteuid()), None))
                .map_err(Cause::from)
                .and_then(|()| mark.restore(file, self.end));
            if marked.is_ok() {
                return;
            }
        }
        self.discard();
    }

    /// Removes the temporary file.
    pub(crate) fn discard(&self) {
        match &self.place {
            // A target that was not written completely stays marked.
            Place::Unnamed | Place::Target(_) => {}
            Place::Random(name) | Place::Lasting { name, .. } => {
                temporary::remove(self.directory.as_fd(), name, self.file.as_fd());
            }
        }
    }
}

/// Checks that a file or a link may replace the entry under the target's name.
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
        FileType::RegularFile if !is_write_protected(stat.st_mode) || replace_read_only => Ok(()),
        FileType::RegularFile => Err(Cause::ReadOnly),
        _ => Err(Cause::Special),
    }
}

/// Like [`check_target`], and makes a backup of the entry.
pub(crate) fn make_way(
    directory: BorrowedFd<'_>,
    name: &[u8],
    replace_read_only: bool,
    backups: Option<&BackupsOf>,
    by: Option<&Stat>,
) -> Result<(), Cause> {
    check_target(directory, name, replace_read_only)?;
    backups.map_or(Ok(()), |backups| backups.keep(directory, name, by))
}

/// Makes the symbolic link `name`, replacing a file or link there. With `durable`, it is on disk when it returns.
pub(crate) fn make_link(
    directory: BorrowedFd<'_>,
    name: &[u8],
    target: &[u8],
    meta: &Meta,
    options: &CopyOptions,
    backups: Option<&BackupsOf>,
) -> Result<NotKept, Cause> {
    check_target(directory, name, options.replace_read_only)?;
    let aside = temporary::random_name()?;
    fs::symlinkat(target, directory, &aside)?;
    let named = set_owner_at(directory, &aside, meta).and_then(|not_kept| {
        fs::utimensat(directory, &aside, &times(meta), AtFlags::SYMLINK_NOFOLLOW)?;
        make_way(directory, name, options.replace_read_only, backups, None)?;
        fs::renameat(directory, &aside, directory, name)?;
        Ok(not_kept)
    });
    if named.is_err() {
        let _ = fs::unlinkat(directory, &aside, AtFlags::empty());
    }
    let not_kept = named?;
    temporary::remove_left_over(directory, name);
    if options.durable {
        fs::fsync(directory)?;
    }
    Ok(not_kept)
}

#[cfg(test)]
#[path = "part_tests.rs"]
mod tests;
