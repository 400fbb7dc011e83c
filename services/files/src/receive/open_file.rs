//! Takes the segments of one large file in order: hashes and writes them, verifies the file at the end.

use crate::attributes::{NotKept, replace_meta, with_permissions};
use crate::backup::BackupsOf;
use crate::digest::{Digest, Digester, Hasher, unit_count, unit_len};
use crate::error::{Cause, Error};
use crate::extended::Wanted;
use crate::extents::{Extents, UnitMap};
use crate::in_place::is_unfinished;
use crate::limits::{HAVE_DIGESTS, RESUME_UNITS, UNIT_BYTES};
use crate::links::{Identity, identity};
use crate::message::{CopyOptions, EntryKind, Meta, Piece};
use crate::part::Part;
use crate::positioned::read_full;
use crate::root::{READ_FILE, kind_of, open_in};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, Stat, fstat, fsync};
use std::sync::Arc;

/// The old file under the target's name, if a copy can use its content: it must have the right size, unless this is a
/// delta copy.
#[derive(Debug)]
struct Old {
    file: OwnedFd,
    size: u64,
    /// Its status before anything was read.
    before: Stat,
}

/// A file between Open and Close.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) number: u64,
    pub(crate) size: u64,
    /// Length of the path before this file's.
    pub(crate) outer_path: usize,
    pub(crate) bytes_kept: u64,
    pub(crate) bytes_in_holes: u64,
    meta: Meta,
    /// Extended attributes, if requested.
    pub(crate) wanted: Option<Wanted>,
    /// Keeps a backup of the file that it replaces.
    pub(crate) backups: Option<BackupsOf>,
    /// Whether it has other names, and whether any file may.
    pub(crate) shared: bool,
    may_share: bool,
    /// `None` once the file has failed here: segments that still arrive are discarded.
    part: Option<Part>,
    /// Units in the temporary file of a killed copy, or in the file that is written in place.
    part_units: u64,
    /// Has the units after these.
    old: Option<Old>,
    /// Units of both that are offered, and the digests of those hashed so far.
    basis_units: u64,
    have: Vec<Digest>,
    /// Units at the start that were kept of the old file, without copying them yet: if the whole file is kept, nothing
    /// is copied.
    kept_first: u64,
    /// How many of these were copied since.
    copied: u64,
    /// The next unit to arrive.
    next: u64,
    digester: Digester,
    /// Digest of its units' digests.
    units: Hasher,
    /// A unit being assembled or copied.
    scratch: Vec<u8>,
}

impl OpenFile {
    /// Creates the temporary file, or opens the file to be written in place, and finds usable content. `named`: the
    /// user named the target.
    pub(crate) fn create(
        directory: &Arc<OwnedFd>,
        (name, named): (&[u8], bool),
        meta: Meta,
        size: u64,
        options: &CopyOptions,
        digester: &Digester,
    ) -> Result<OpenFile, Cause> {
        let mut open = OpenFile::failed(meta, size, digester);
        let in_place = Part::in_place(directory, name, (size, meta), named, options)?;
        let replaces = in_place.is_none();
        let part = match in_place {
            Some(part) => part,
            None => Part::lasting(directory, name, options)?,
        };
        open.part_units = usable_units(size, part.left_over());
        if options.resume && replaces {
            let fits = |old: &Old| options.delta || part.left_over() == 0 && old.size == size;
            open.old = open_old(directory.as_fd(), name).filter(fits);
        }
        let old = open.old.as_ref().map_or(0, |old| old.size);
        open.basis_units = open.part_units.max(usable_units(size, old));
        open.part = Some(part);
        open.may_share = options.attributes.hard_links;
        Ok(open)
    }

    /// A file that could not be created: its segments are discarded.
    pub(crate) fn failed(meta: Meta, size: u64, digester: &Digester) -> OpenFile {
        OpenFile {
            number: 0,
            size,
            outer_path: 0,
            bytes_kept: 0,
            bytes_in_holes: 0,
            meta,
            wanted: None,
            backups: None,
            shared: false,
            may_share: false,
            part: None,
            part_units: 0,
            old: None,
            basis_units: 0,
            have: Vec::new(),
            kept_first: 0,
            copied: 0,
            next: 0,
            units: digester.hasher(),
            digester: digester.clone(),
            scratch: Vec::new(),
        }
    }

    /// Whether it has failed here.
    pub(crate) fn has_failed(&self) -> bool {
        self.part.is_none()
    }

    /// Units still to come.
    pub(crate) fn units_left(&self) -> u64 {
        unit_count(self.size) - self.next
    }

    /// Length of the next unit, bytes.
    pub(crate) fn next_unit_len(&self) -> usize {
        unit_len(self.size, self.next)
    }

    /// Takes the next unit, all data. Units kept before it may not be copied yet, see [`OpenFile::copy_next`].
    ///
    /// # Errors
    /// Outer: the length is not that of the unit. Inner: it could not be written.
    pub(crate) fn take_unit(&mut self, bytes: &[u8]) -> Result<Result<(), Cause>, Error> {
        if bytes.len() != self.next_unit_len() || bytes.is_empty() {
            return Err(Error::Protocol("a unit of the wrong length"));
        }
        if self.has_failed() {
            self.next += 1;
            return Ok(Ok(()));
        }
        let digest = self.digester.digest(bytes);
        let offset = self.advance(digest);
        Ok(self.write(bytes, offset))
    }

    /// Takes the next unit as a hole.
    pub(crate) fn take_hole(&mut self) -> Result<(), Cause> {
        if self.has_failed() {
            self.next += 1;
            return Ok(());
        }
        let len = self.next_unit_len() as u64;
        let offset = self.advance(self.digester.digest_of_zeros(len as usize));
        self.bytes_in_holes += len;
        match &mut self.part {
            Some(part) => part.make_hole(offset, len),
            None => Ok(()),
        }
    }

    /// Takes the next unit as a hole with pieces of data in it, which were checked to fit.
    pub(crate) fn take_patch(&mut self, pieces: &[Piece], contents: &[u8]) -> Result<(), Cause> {
        if self.has_failed() {
            self.next += 1;
            return Ok(());
        }
        let len = self.next_unit_len();
        let digest = self.assemble(pieces, contents, len);
        let offset = self.advance(digest);
        if let Some(part) = &mut self.part {
            part.make_hole(offset, len as u64)?;
        }
        let mut rest = contents;
        for piece in pieces {
            let (bytes, after) = rest.split_at(piece.len as usize);
            self.write(bytes, offset + u64::from(piece.offset))?;
            rest = after;
        }
        self.bytes_in_holes += (len - contents.len()) as u64;
        Ok(())
    }

    /// Digest of the next unit, assembled from its pieces.
    fn assemble(&mut self, pieces: &[Piece], contents: &[u8], len: usize) -> Digest {
        self.scratch.clear();
        self.scratch.resize(len, 0);
        let mut rest = contents;
        for piece in pieces {
            let (bytes, after) = rest.split_at(piece.len as usize);
            self.scratch[piece.offset as usize..][..bytes.len()].copy_from_slice(bytes);
            rest = after;
        }
        self.digester.digest(&self.scratch)
    }

    /// Takes the next unit from the existing content.
    ///
    /// # Errors
    /// Outer: it was never offered. Inner: it could not be copied.
    pub(crate) fn take_kept(&mut self) -> Result<Result<(), Cause>, Error> {
        const NEVER_OFFERED: Error = Error::Protocol("keeps a unit that was never offered");
        if self.units_left() == 0 {
            return Err(NEVER_OFFERED);
        }
        let digest = *self.have.get(self.next as usize).ok_or(NEVER_OFFERED)?;
        let len = self.next_unit_len() as u64;
        self.bytes_kept += len;
        let elsewhere = self.next >= self.part_units && !self.has_failed();
        self.advance(digest);
        if elsewhere && self.copied == 0 && self.kept_first == self.next - 1 {
            self.kept_first += 1;
        } else if elsewhere {
            return Ok(self.copy_kept(self.next - 1));
        }
        Ok(Ok(()))
    }

    /// Whether all units so far were kept of the old file, and none of them was copied.
    pub(crate) fn keeps_all(&self) -> bool {
        self.copied == 0 && self.kept_first == self.next
    }

    /// Whether the old file is kept as a whole, now that all units have come.
    pub(crate) fn keeps_file(&self) -> bool {
        // An old file that may have changed is copied, because copies are verified.
        let usable = |old: &Old| {
            // Another name of it may belong to another tree, which must stay as it is.
            let alone = self.may_share || old.before.st_nlink == 1;
            alone && old.size == self.size && !is_unfinished(old.file.as_fd()) && old.is_unchanged()
        };
        self.keeps_all() && self.old.as_ref().is_some_and(usable)
    }

    /// Whether kept units of the old file must still be copied, if the new file turns out to differ.
    pub(crate) fn is_behind(&self) -> bool {
        self.copied < self.kept_first && !self.has_failed()
    }

    /// Copies the next of these units.
    pub(crate) fn copy_next(&mut self) -> Result<(), Cause> {
        let index = self.copied;
        self.copied += 1;
        self.copy_kept(index)
    }

    /// Copies the data of unit `index` from the old file; its holes stay holes. The copied content must still match the
    /// offered digest.
    fn copy_kept(&mut self, index: u64) -> Result<(), Cause> {
        let (Some(old), Some(part)) = (&self.old, &mut self.part) else {
            return Ok(());
        };
        let (offset, len) = (index * UNIT_BYTES as u64, unit_len(self.size, index));
        let offered = self.have.get(index as usize).copied();
        if offered == Some(self.digester.digest_of_zeros(len)) {
            return part.make_hole(offset, len as u64);
        }
        let pieces = old.unit(index).data(len);
        if pieces.iter().map(|piece| piece.len as usize).sum::<usize>() < len {
            part.make_hole(offset, len as u64)?;
        }
        self.scratch.clear();
        self.scratch.resize(len, 0);
        for piece in pieces {
            let at = offset + u64::from(piece.offset);
            let bytes = &mut self.scratch[piece.offset as usize..][..piece.len as usize];
            let copied = part.copy(old.file.as_fd(), at, u64::from(piece.len))?;
            let from = match copied {
                true => part.file(),
                false => old.file.as_fd(),
            };
            if read_full(from, bytes, at)? < bytes.len() {
                return Err(Cause::TargetChanged);
            }
            if !copied {
                part.write(bytes, at)?;
            }
        }
        match Some(self.digester.digest(&self.scratch)) == offered {
            true => Ok(()),
            false => Err(Cause::TargetChanged),
        }
    }

    /// Digest of unit `index` of the existing content.
    fn hash_unit(&self, index: u64, scratch: &mut Vec<u8>) -> Result<Digest, Cause> {
        let (offset, len) = (index * UNIT_BYTES as u64, unit_len(self.size, index));
        let (file, stat) = match (&self.old, &self.part) {
            (_, Some(part)) if index < self.part_units => (part.file(), fstat(part.file())?),
            (Some(old), _) => (old.file.as_fd(), old.before),
            _ => return Err(Cause::NotFound),
        };
        // The metadata of a device has no length, and a device has no holes.
        let has_map = stat.st_size as u64 >= offset + len as u64;
        if has_map && Extents::of(file, &stat).unit(index).data(len).is_empty() {
            return Ok(self.digester.digest_of_zeros(len));
        }
        scratch.resize(len, 0);
        match read_full(file, scratch, offset)? < len {
            true => Err(Cause::SourceChanged),
            false => Ok(self.digester.digest(scratch)),
        }
    }

    /// Advances to the next unit; returns the offset of the previous one.
    fn advance(&mut self, digest: Digest) -> u64 {
        let offset = self.next * UNIT_BYTES as u64;
        self.units.update(&digest);
        self.next += 1;
        offset
    }

    fn write(&mut self, bytes: &[u8], offset: u64) -> Result<(), Cause> {
        match &mut self.part {
            Some(part) => part.write(bytes, offset),
            None => Ok(()),
        }
    }

    /// Verifies the digest and gives the file its name; returns the file's identity.
    pub(crate) fn close(
        mut self,
        digest: &Digest,
        options: &CopyOptions,
    ) -> Result<(NotKept, Identity), Cause> {
        let units = std::mem::replace(&mut self.units, self.digester.hasher());
        let kept = match self.keeps_file() {
            true => self.old.take(),
            false => None,
        };
        let mut complete = match units.finish() == *digest {
            true => Ok(()),
            false => Err(Cause::DigestMismatch),
        };
        // Most were copied before. The old file may have changed since.
        while complete.is_ok() && kept.is_none() && self.is_behind() {
            complete = self.copy_next();
        }
        let part = self.part.take().ok_or(Cause::NoDirectory)?;
        if let Err(cause) = complete {
            part.give_up(&cause);
            return Err(cause);
        }
        match kept {
            Some(old) => {
                part.discard();
                let meta = match options.no_permissions {
                    true => with_permissions(&self.meta, Some(fstat(&old.file)?.st_mode)),
                    false => self.meta,
                };
                let not_kept = replace_meta(old.file.as_fd(), &meta, self.wanted.as_ref())?;
                if options.durable {
                    // The program that wrote it may not have synced it.
                    sync(old.file.as_fd(), part.directory())?;
                }
                Ok((not_kept, identity(&fstat(old.file)?)))
            }
            None => {
                let file = identity(&fstat(part.file())?);
                let part = part.wanting(self.wanted.take());
                let part = part.backing_up(self.backups.take());
                Ok((part.commit(self.size, &self.meta, options)?, file))
            }
        }
    }

    /// Fails the file, because of an error here.
    pub(crate) fn give_up(&mut self, cause: &Cause) {
        if let Some(part) = self.part.take() {
            part.give_up(cause);
        }
    }

    /// Drops the file, because of an error at the sender.
    pub(crate) fn discard(self) {
        if let Some(part) = self.part {
            part.discard();
        }
    }
}

/// Units of a file of `size` bytes that lie completely in the first `present` bytes.
fn usable_units(size: u64, present: u64) -> u64 {
    let units = match present >= size {
        true => unit_count(size),
        false => present / UNIT_BYTES as u64,
    };
    units.min(RESUME_UNITS)
}

/// The entry at the target, if it is a file.
fn open_old(directory: BorrowedFd<'_>, name: &[u8]) -> Option<Old> {
    let file = open_in(directory, name, READ_FILE, Mode::empty()).ok()?;
    let stat = fstat(&file).ok()?;
    let size = stat.st_size as u64;
    let before = stat;
    (kind_of(&stat) == EntryKind::File).then_some(Old { file, size, before })
}

impl Old {
    /// The map of its unit `index`.
    fn unit(&self, index: u64) -> UnitMap {
        Extents::of(self.file.as_fd(), &self.before).unit(index)
    }

    /// Whether nothing was written to it since it was opened, by its times. No writer can reset the inode's time of
    /// change.
    fn is_unchanged(&self) -> bool {
        let state = |stat: &Stat| {
            (
                stat.st_size,
                (stat.st_mtime, stat.st_mtime_nsec),
                (stat.st_ctime, stat.st_ctime_nsec),
            )
        };
        fstat(&self.file).is_ok_and(|now| state(&now) == state(&self.before))
    }
}

/// Syncs a file, and its name in this directory, to disk.
fn sync(file: BorrowedFd<'_>, directory: BorrowedFd<'_>) -> Result<(), Cause> {
    fsync(file)?;
    Ok(fsync(directory)?)
}

/// Hashes more of the existing content: returns digests for one message, and whether they are the last. Unreadable
/// content is not offered.
pub(crate) fn hash_left_over(open: &mut OpenFile) -> (Vec<Digest>, bool) {
    let first = open.have.len() as u64;
    let until = open.basis_units.min(first + HAVE_DIGESTS as u64);
    let mut scratch = std::mem::take(&mut open.scratch);
    let units = (first..until).map_while(|index| open.hash_unit(index, &mut scratch).ok());
    let digests: Vec<_> = units.collect();
    open.scratch = scratch;
    open.have.extend_from_slice(&digests);
    let hashed = open.have.len() as u64;
    if hashed < until {
        open.basis_units = hashed;
    }
    (digests, hashed >= open.basis_units)
}

#[cfg(test)]
#[path = "open_file_tests.rs"]
mod tests;
