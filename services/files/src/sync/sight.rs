//! What a tree's listing says, entry by entry, and how it travels: many to a message.

use crate::digest::Digest;
use crate::error::{Cause, Error};
use crate::filter_files::FilterText;
use crate::links::Identity;
use crate::message::{EntryKind, Meta};
use serde::{Deserialize, Serialize};

/// One piece of a listing. The entries of a directory come in the order of their names' bytes; what
/// follows a directory, until its Leave, is in it. The Leave of the tree's top ends the listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Sight {
    /// There is this.
    Entry(Seen),
    /// There is something of this name that cannot be looked at.
    Unseen { name: Vec<u8>, cause: Cause },
    /// The rest of the directory is not known. A Leave follows.
    Cut { cause: Cause },
    /// That was all of the directory.
    Leave,
    /// The directory has these filter files. Comes first in each, if they were asked for.
    Filters(Vec<FilterText>),
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: EntryKind,
    pub(crate) size: u64,
    pub(crate) meta: Meta,
    /// By which it is known again.
    pub(crate) inode: u64,
    /// Of a file with other names, if these are asked for: with its inode it says which file that is.
    pub(crate) device: Option<u64>,
    pub(crate) detail: Detail,
    /// Of its extended attributes, if it has any and they are asked for.
    pub(crate) extended: Option<Digest>,
}

/// What a listing says beyond the metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Detail {
    None,
    /// Where a symbolic link leads.
    Link(Vec<u8>),
    /// Of a file's content, if that was asked for.
    Digest(Digest),
}

impl Seen {
    /// Which file it is, if it has other names.
    pub(crate) fn shared(&self) -> Option<Identity> {
        self.device.map(|device| (device, self.inode))
    }
}

impl Sight {
    /// The name by which it has its place in the order.
    pub(crate) fn name(&self) -> Option<&[u8]> {
        match self {
            Sight::Entry(seen) => Some(&seen.name),
            Sight::Unseen { name, .. } => Some(name),
            Sight::Filters(_) | Sight::Cut { .. } | Sight::Leave => None,
        }
    }

    /// Whether what follows is in it.
    pub(crate) fn is_directory(&self) -> bool {
        matches!(self, Sight::Entry(seen) if seen.kind == EntryKind::Directory)
    }

    /// Appends it to a page; its length, or `None` if there is no room for it.
    pub(crate) fn encode(&self, room: &mut [u8]) -> Option<usize> {
        postcard::to_slice(self, room).ok().map(|it| it.len())
    }

    /// Takes the first one off a page.
    pub(crate) fn decode(page: &mut &[u8]) -> Result<Sight, Error> {
        let (sight, rest) =
            postcard::take_from_bytes(page).map_err(|_| Error::Protocol("malformed listing"))?;
        *page = rest;
        Ok(sight)
    }
}

/// One of the two listings that are compared.
pub(crate) trait Listing {
    /// What comes next. Not called after the last Leave.
    fn next(&mut self) -> Result<Sight, Error>;

    /// The contents of the directory just listed are not needed: they may be left out.
    fn prune(&mut self) {}

    /// The digest of the file just listed.
    fn digest(&mut self, seen: &Seen) -> Result<Digest, Cause>;
}
