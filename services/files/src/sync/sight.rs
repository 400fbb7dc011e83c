//! Defines the entries of a tree's listing, and their encoding.

use crate::digest::Digest;
use crate::error::{Cause, Error};
use crate::filter_files::FilterText;
use crate::links::Identity;
use crate::message::{EntryKind, Meta};
use serde::{Deserialize, Serialize};

/// One piece of a listing. The entries of a directory come in the order of their names' bytes; a directory is followed
/// by its contents, up to its Leave. The Leave of the top directory ends the listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Sight {
    /// An entry.
    Entry(Seen),
    /// An entry that cannot be examined.
    Unseen { name: Vec<u8>, cause: Cause },
    /// The rest of the directory is unknown. A Leave follows.
    Cut { cause: Cause },
    /// The end of the directory.
    Leave,
    /// The directory's filter files. Comes first in each directory, if requested.
    Filters(Vec<FilterText>),
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: EntryKind,
    pub(crate) size: u64,
    pub(crate) meta: Meta,
    /// Identifies the entry later.
    pub(crate) inode: u64,
    /// For a file with other names, if hard links are requested: it identifies the file together with the inode.
    pub(crate) device: Option<u64>,
    pub(crate) detail: Detail,
    /// Digest of its extended attributes, if it has any and they are requested.
    pub(crate) extended: Option<Digest>,
}

/// Details of an entry beyond its metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Detail {
    None,
    /// The target of a symbolic link.
    Link(Vec<u8>),
    /// The digest of a file's content, if requested.
    Digest(Digest),
}

impl Seen {
    /// The identity of a file with other names.
    pub(crate) fn shared(&self) -> Option<Identity> {
        self.device.map(|device| (device, self.inode))
    }
}

impl Sight {
    /// The name that determines its place in the order.
    pub(crate) fn name(&self) -> Option<&[u8]> {
        match self {
            Sight::Entry(seen) => Some(&seen.name),
            Sight::Unseen { name, .. } => Some(name),
            Sight::Filters(_) | Sight::Cut { .. } | Sight::Leave => None,
        }
    }

    /// Whether its contents follow.
    pub(crate) fn is_directory(&self) -> bool {
        matches!(self, Sight::Entry(seen) if seen.kind == EntryKind::Directory)
    }

    /// Appends it to a page; returns its length, or `None` if there is no room.
    pub(crate) fn encode(&self, room: &mut [u8]) -> Option<usize> {
        postcard::to_slice(self, room).ok().map(|it| it.len())
    }

    /// Removes the first one from a page.
    pub(crate) fn decode(page: &mut &[u8]) -> Result<Sight, Error> {
        let (sight, rest) =
            postcard::take_from_bytes(page).map_err(|_| Error::Protocol("malformed listing"))?;
        *page = rest;
        Ok(sight)
    }
}

/// One of the two listings that are compared.
pub(crate) trait Listing {
    /// The next piece. Not called after the last Leave.
    fn next(&mut self) -> Result<Sight, Error>;

    /// Allows the listing to omit the contents of the directory just listed.
    fn prune(&mut self) {}

    /// The digest of the file just listed.
    fn digest(&mut self, seen: &Seen) -> Result<Digest, Cause>;
}
