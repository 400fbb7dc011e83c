//! Changes existing entries for a sync: metadata of unchanged files, and exchanges of entries of different types.

use super::FileReceiver;
use crate::attributes::{replace_meta, with_permissions};
use crate::backup::BackupsOf;
use crate::error::{Cause, Error};
use crate::message::{Attributes, EntryKind, Meta};
use crate::name::check_name;
use crate::root::{READ_FILE, kind_of, meta_with, open_in, stat_at};
use crate::temporary::is_random_name;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, RenameFlags, Stat, fstat, fsync, renameat_with, unlinkat};

const NOT_ASKED: Error = Error::Protocol("a replacement in a copy that is no sync");

impl FileReceiver<'_> {
    pub(super) fn settle_meta(
        &mut self,
        name: &[u8],
        size: u64,
        meta: &Meta,
        was: &Meta,
    ) -> Result<(), Error> {
        if !self.may_replace {
            return Err(NOT_ASKED);
        }
        let wanted = self.wanted();
        let (directory, name) = self.place(name)?;
        let keep = self.options.no_permissions;
        let looked = directory.and_then(|directory| {
            let (file, stat, meta) = settled_file(&directory, &name, size, (meta, was, keep))?;
            Ok((directory, file, stat, meta))
        });
        let settled = match looked {
            // With hard links, the change applies to the file's other names, too. Otherwise they belong to another
            // tree.
            Ok((directory, file, stat, meta))
                if stat.st_nlink > 1 && !self.options.attributes.hard_links =>
            {
                let to = (&directory, &name[..]);
                self.copy_here((&file, &stat), to, (&meta, wanted, None))?
            }
            Ok((_, file, _, meta)) => replace_meta(file.as_fd(), &meta, wanted.as_ref()),
            Err(cause) => Err(cause),
        };
        self.at(&name, |this| match settled {
            Ok(not_kept) => this.note_not_kept(not_kept),
            Err(cause) => this.fail(cause),
        });
        Ok(())
    }

    pub(super) fn exchange(&mut self, name: &[u8], with: &[u8]) -> Result<(), Error> {
        // Only this copy or an earlier one made an entry with such a name.
        if !self.may_replace || !is_random_name(with) || check_name(with).is_err() {
            return Err(NOT_ASKED);
        }
        let (directory, name) = self.place(name)?;
        let backups = self.backups_here();
        let exchanged = directory.and_then(|directory| {
            exchange(&directory, &name, with, backups.as_ref())?;
            match self.options.durable {
                true => Ok(fsync(&directory)?),
                false => Ok(()),
            }
        });
        if let Err(cause) = exchanged {
            self.at(&name, |this| this.fail(cause));
        }
        Ok(())
    }
}

/// The file, if it is still as it was compared, and its new metadata.
fn settled_file(
    directory: &OwnedFd,
    name: &[u8],
    size: u64,
    (meta, was, keep_permissions): (&Meta, &Meta, bool),
) -> Result<(OwnedFd, Stat, Meta), Cause> {
    let file = open_in(directory, name, READ_FILE, Mode::empty())?;
    let stat = fstat(&file)?;
    let same = kind_of(&stat) == EntryKind::File && stat.st_size as u64 == size;
    let attributes = Attributes {
        owner: was.owner.is_some(),
        ..Attributes::NONE
    };
    let meta = match keep_permissions {
        true => with_permissions(meta, Some(stat.st_mode)),
        false => *meta,
    };
    match same && meta_with(&stat, attributes) == *was {
        true => Ok((file, stat, meta)),
        false => Err(Cause::ChangedSinceListed),
    }
}

/// Exchanges `with` and `name` in one step. An old directory is called `with` afterwards, and stays until everything
/// else is done.
fn exchange(
    directory: &OwnedFd,
    name: &[u8],
    with: &[u8],
    backups: Option<&BackupsOf>,
) -> Result<(), Cause> {
    let Ok(new) = stat_at(directory, with) else {
        return Err(Cause::NoReplacement);
    };
    if let Some(backups) = backups {
        backups.keep(directory, name, None)?;
    }
    let old = match stat_at(directory, name) {
        Ok(old) => kind_of(&old),
        Err(Cause::NotFound) => return rename(directory, with, name, RenameFlags::NOREPLACE),
        Err(cause) => return Err(cause),
    };
    match (kind_of(&new), old) {
        // The confined server of a served directory may not move a device, only remove it; it has no content to lose.
        (EntryKind::Directory, EntryKind::Special) => {
            unlinkat(directory, name, AtFlags::empty())?;
            rename(directory, with, name, RenameFlags::NOREPLACE)
        }
        (EntryKind::Directory, _) | (_, EntryKind::Directory) => {
            rename(directory, with, name, RenameFlags::EXCHANGE)?;
            match old {
                EntryKind::Directory => Ok(()),
                _ => Ok(unlinkat(directory, with, AtFlags::empty())?),
            }
        }
        _ => rename(directory, with, name, RenameFlags::empty()),
    }
}

fn rename(directory: &OwnedFd, from: &[u8], to: &[u8], how: RenameFlags) -> Result<(), Cause> {
    Ok(renameat_with(directory, from, directory, to, how)?)
}

#[cfg(test)]
#[path = "replace_tests.rs"]
mod tests;
