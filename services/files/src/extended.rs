//! Reads, compares and sets extended attributes, including access control lists.
//!
//! It handles only requested names. The marks of this program are never copied. An ordinary user may keep the
//! attributes in `user.`; root may keep the others too, but a server sets none of them for its clients, because they
//! give privileges to programs (`security.capability`) or belong to the system.

use crate::error::Cause;
use crate::limits::{
    ATTRIBUTE_BYTES, ATTRIBUTE_NAMES_BYTES, ATTRIBUTES_BYTES, ATTRIBUTES_OF_FILE, NAME_BYTES,
};
use crate::message::Attributes;
use rustix::fd::BorrowedFd;
use rustix::fs::{XattrFlags, fgetxattr, flistxattr, flistxattr_query, fremovexattr, fsetxattr};
use rustix::io::Errno;
use rustix::process::geteuid;

/// This program's marks of incomplete and temporary files.
const OWN: &[u8] = b"user.zerolane.";
const USER: &[u8] = b"user.";
const TRUSTED: &[u8] = b"trusted.";
/// Namespace of the access control lists; its other attributes are never copied.
const SYSTEM: &[u8] = b"system.";
const LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Whether attributes with this name are requested by these options.
pub(crate) fn is_asked_for(name: &[u8], attributes: Attributes) -> bool {
    if LISTS.contains(&name) {
        return attributes.acls;
    }
    let possible = name.len() <= NAME_BYTES && !name.contains(&0);
    let foreign = name.starts_with(OWN) || name.starts_with(SYSTEM);
    attributes.xattrs && possible && !foreign
}

/// Whether any user may have attributes of this kind.
fn is_common(name: &[u8]) -> bool {
    name.starts_with(USER) || LISTS.contains(&name)
}

/// The extended attributes of one file: names and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extended {
    list: Vec<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
}

impl Extended {
    /// The requested attributes of `file` that this user may copy, by name.
    ///
    /// # Errors
    /// [`Cause::TooManyAttributes`], or the system's error.
    pub(crate) fn read(file: BorrowedFd<'_>, attributes: Attributes) -> Result<Extended, Cause> {
        let mut extended = Extended::default();
        let root = geteuid().is_root();
        for name in names(file)? {
            if !is_asked_for(&name, attributes) || !(root || is_common(&name)) {
                continue;
            }
            let mut value = vec![0; ATTRIBUTE_BYTES];
            match fgetxattr(file, &name[..], &mut value[..]) {
                // The attribute disappeared, or this user may not read it.
                Err(Errno::NODATA | Errno::ACCESS | Errno::PERM) => continue,
                Err(Errno::RANGE | Errno::TOOBIG) => return Err(Cause::TooManyAttributes),
                len => value.truncate(len?),
            }
            extended.add(name, value).ok_or(Cause::TooManyAttributes)?;
        }
        extended.list.sort();
        Ok(extended)
    }

    /// Adds an attribute, unless it exceeds the limits of one file.
    pub(crate) fn add(&mut self, name: Vec<u8>, value: Vec<u8>) -> Option<()> {
        self.bytes += name.len() + value.len();
        let fits = value.len() <= ATTRIBUTE_BYTES
            && self.bytes <= ATTRIBUTES_BYTES
            && self.list.len() < ATTRIBUTES_OF_FILE;
        self.list.push((name, value));
        fits.then_some(())
    }

    /// The names and values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.list
            .iter()
            .map(|(name, value)| (&name[..], &value[..]))
    }

    /// All attributes in one piece, for comparison; `None` if there are none.
    pub(crate) fn encoded(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        for (name, value) in self.iter() {
            for part in [name, value] {
                bytes.extend((part.len() as u32).to_le_bytes());
                bytes.extend(part);
            }
        }
        (!bytes.is_empty()).then_some(bytes)
    }
}

fn names(file: BorrowedFd<'_>) -> Result<Vec<Vec<u8>>, Cause> {
    // Most files have none.
    match flistxattr_query(file) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        _ => {}
    }
    let mut list = vec![0_u8; ATTRIBUTE_NAMES_BYTES];
    let len = match flistxattr(file, &mut list[..]) {
        Err(Errno::RANGE | Errno::TOOBIG) => return Err(Cause::TooManyAttributes),
        len => len?,
    };
    let names = list[..len].split(|&byte| byte == 0);
    Ok(names
        .filter(|it| !it.is_empty())
        .map(<[u8]>::to_vec)
        .collect())
}

/// The extended attributes that a file must get.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) extended: Extended,
    /// The requested kinds: of these, no other attribute may stay.
    pub(crate) attributes: Attributes,
    /// Only kinds that any user may have.
    pub(crate) common_only: bool,
}

impl Wanted {
    /// Gives `file` exactly these attributes. Returns those that could not be set.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn set(&self, file: BorrowedFd<'_>) -> Result<Vec<Cause>, Cause> {
        let mut not_kept = Vec::new();
        let mut note = |name: &[u8], done: rustix::io::Result<()>| match done {
            Err(errno @ (Errno::IO | Errno::ROFS)) => Err(Cause::from(errno)),
            Err(Errno::NODATA) | Ok(()) => Ok(()),
            Err(_) => {
                not_kept.push(Cause::AttributeNotKept(name.to_vec()));
                Ok(())
            }
        };
        for name in names(file)? {
            let removable = is_common(&name) || name.starts_with(TRUSTED) && self.may_all();
            let stays = self.extended.iter().any(|(it, _)| it == name);
            if removable && !stays && is_asked_for(&name, self.attributes) {
                note(&name, fremovexattr(file, &name[..]))?;
            }
        }
        for (name, value) in self.extended.iter() {
            let set = match is_common(name) || self.may_all() {
                true => fsetxattr(file, name, value, XattrFlags::empty()),
                false => Err(Errno::PERM),
            };
            note(name, set)?;
        }
        Ok(not_kept)
    }

    fn may_all(&self) -> bool {
        !self.common_only && geteuid().is_root()
    }
}

#[cfg(test)]
#[path = "extended_tests.rs"]
mod tests;
