//! Lists a tree on this machine in order.

use super::sight::{Detail, Listing, Seen, Sight};
use crate::digest::{Digest, Digester, unit_count, unit_len};
use crate::error::{Cause, Error};
use crate::extended::Extended;
use crate::extents::{Extents, UnitMap};
use crate::filter_files::FilterText;
use crate::hard_links::shared;
use crate::limits::{LISTING_HELD_BYTES, TREE_DEPTH, UNIT_BYTES};
use crate::links::{Identity, Links, identity, joined};
use crate::message::{Attributes, EntryKind};
use crate::port::Check;
use crate::positioned::read_full;
use crate::root::{DIRECTORY, READ_FILE, kind_of, meta_with};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Dir, Stat, fstat, readlinkat};

/// Walks a tree. For each open directory it holds one descriptor and the sorted names not yet listed.
pub(crate) struct Walker {
    levels: Vec<Level>,
    digester: Option<Digester>,
    /// Only the top directory is read.
    flat: bool,
    /// Whether a directory that cannot be opened is listed as an empty one, with the reason.
    lists_closed: bool,
    /// Whether to hash every file, for the other end.
    digests: bool,
    /// Bytes held for names, at all levels, and their limit.
    held: usize,
    most_held: usize,
    links: Links,
    /// The path of the tree from the served directory.
    above: Vec<u8>,
    attributes: Attributes,
    /// A directory that is not entered: the target, if it is on this machine.
    target: Option<Identity>,
    /// Names of the filter files to read in each directory.
    filter_files: Vec<Vec<u8>>,
    /// Called before each unit that is hashed.
    check: Check,
}

struct Level {
    name: Vec<u8>,
    /// The identity of the directory.
    this: Option<Identity>,
    /// `None`: the directory does not exist, or could not be opened.
    directory: Option<OwnedFd>,
    names: Names,
    /// Its filter files, until they were listed.
    filters: Option<Vec<FilterText>>,
    /// Why the names are incomplete.
    cut: Option<Cause>,
}

/// Sorted names in little memory.
#[derive(Default)]
struct Names {
    bytes: Vec<u8>,
    /// The start and length of each name; sorted, the next one last.
    places: Vec<(u32, u8)>,
}

impl Walker {
    /// Walks the tree below `directory`, or an empty tree if there is none. Without a digester there are no digests.
    pub(crate) fn new(directory: Option<OwnedFd>, digester: impl Into<Option<Digester>>) -> Walker {
        let mut walker = Walker {
            levels: Vec::new(),
            digester: digester.into(),
            flat: false,
            lists_closed: false,
            digests: false,
            held: 0,
            most_held: LISTING_HELD_BYTES,
            links: Links::Kept,
            above: Vec::new(),
            attributes: Attributes::NONE,
            target: None,
            filter_files: Vec::new(),
            check: Box::new(|| Ok(())),
        };
        walker.open(b"", directory.map(Ok));
        walker
    }

    /// Adds a digest of every file.
    pub(crate) fn with_digests(mut self, digests: bool) -> Walker {
        self.digests = digests;
        self
    }

    /// Treats links this way. `above`: the path of the tree from the served directory.
    pub(crate) fn with_links(mut self, links: Links, above: Vec<u8>) -> Walker {
        self.links = links;
        self.above = above;
        self
    }

    /// Does not enter the copy's target.
    pub(crate) fn with_target(mut self, target: Option<Identity>) -> Walker {
        self.target = target;
        self
    }

    /// Ends, even while hashing a file, with the error of `check`.
    pub(crate) fn heeding(mut self, check: Check) -> Walker {
        self.check = check;
        self
    }

    /// Adds these attributes to each entry.
    pub(crate) fn with_attributes(mut self, attributes: Attributes) -> Walker {
        self.attributes = attributes;
        self
    }

    /// Lists a directory that cannot be opened as an empty one, for display. In comparisons it is listed as an entry
    /// that cannot be examined, so that it fails only once.
    pub(crate) fn listing_closed(mut self) -> Walker {
        self.lists_closed = true;
        self
    }

    /// Adds the content of these filter files of each directory.
    pub(crate) fn with_filter_files(mut self, names: Vec<Vec<u8>>) -> Walker {
        self.filter_files = names;
        self.read_filters();
        self
    }

    /// Lists the directory alone: those in it are listed as empty ones.
    pub(crate) fn flat(mut self, flat: bool) -> Walker {
        self.flat = flat;
        self
    }

    fn open(&mut self, name: &[u8], directory: Option<Result<OwnedFd, Cause>>) {
        let mut level = Level {
            name: name.to_vec(),
            this: None,
            directory: None,
            names: Names::default(),
            filters: None,
            cut: None,
        };
        match directory {
            None => {}
            Some(Err(cause)) => level.cut = Some(cause),
            Some(Ok(directory)) => {
                let room = self.most_held.saturating_sub(self.held);
                level.this = fstat(&directory).ok().as_ref().map(identity);
                level.cut = level.names.read(&directory, room).err();
                level.directory = Some(directory);
            }
        }
        self.held += level.names.held();
        self.levels.push(level);
        self.read_filters();
    }

    /// Reads the filter files of the innermost directory.
    fn read_filters(&mut self) {
        if self.filter_files.is_empty() {
            return;
        }
        let directory = self
            .levels
            .last()
            .and_then(|level| level.directory.as_ref());
        let read = |name: &Vec<u8>| match directory {
            None => FilterText::Missing,
            Some(directory) => FilterText::read(|| {
                let path = || self.path(name);
                self.links.open(directory, name, path, READ_FILE)
            }),
        };
        let filters = self.filter_files.iter().map(read).collect();
        if let Some(level) = self.levels.last_mut() {
            level.filters = Some(filters);
        }
    }

    fn close(&mut self) {
        if let Some(level) = self.levels.pop() {
            self.held -= level.names.held();
        }
    }

    /// The entry `name` in the innermost directory; `None` if it vanished.
    fn look(&mut self, name: &[u8]) -> Option<Sight> {
        let directory = self.levels.last()?.directory.as_ref()?;
        let path = || self.path(name);
        let seen = see(directory, name, (&self.links, path), self.attributes);
        match seen.and_then(|seen| self.with_extended(directory, seen)) {
            Ok(mut seen) if self.digests && seen.kind == EntryKind::File => {
                match self.digest(&seen) {
                    Ok(digest) => seen.detail = Detail::Digest(digest),
                    Err(cause) => return Some(unseen(name, cause)),
                }
                Some(Sight::Entry(seen))
            }
            Ok(seen) if seen.kind == EntryKind::Directory => {
                if self.flat {
                    self.open(name, None);
                    return Some(Sight::Entry(seen));
                }
                if self.levels.len() > TREE_DEPTH {
                    return Some(unseen(name, Cause::TooDeep));
                }
                let below = self.links.open(directory, name, path, DIRECTORY);
                if self.links.are_followed()
                    && let Ok(below) = &below
                    && self.is_inside(below)
                {
                    return Some(unseen(name, Cause::LinkLoop));
                }
                if let (Some(_), Ok(below)) = (self.target, &below)
                    && fstat(below).ok().as_ref().map(identity) == self.target
                {
                    return Some(unseen(name, Cause::IntoItself));
                }
                match below {
                    Err(cause) if !self.lists_closed => Some(unseen(name, cause)),
                    below => {
                        self.open(name, Some(below));
                        Some(Sight::Entry(seen))
                    }
                }
            }
            Ok(seen) => Some(Sight::Entry(seen)),
            Err(Cause::NotFound) => None,
            Err(cause) => Some(unseen(name, cause)),
        }
    }

    /// Adds a digest of its extended attributes. Without one if it cannot be opened: a copy reports that.
    fn with_extended(&self, directory: &OwnedFd, mut seen: Seen) -> Result<Seen, Cause> {
        let openable = matches!(seen.kind, EntryKind::File | EntryKind::Directory);
        if let (true, true, Some(digester)) =
            (self.attributes.are_extended(), openable, &self.digester)
        {
            let path = || self.path(&seen.name);
            if let Ok(file) = self.links.open(directory, &seen.name, path, READ_FILE) {
                let extended = Extended::read(file.as_fd(), self.attributes)?;
                seen.extended = extended.encoded().map(|it| digester.digest(&it));
            }
        }
        Ok(seen)
    }

    /// Whether the walk is in this directory already.
    fn is_inside(&self, directory: &OwnedFd) -> bool {
        let this = fstat(directory).ok().as_ref().map(identity);
        self.levels.iter().any(|level| level.this == this)
    }

    /// The path of `name` in the innermost directory, from the served one.
    fn path(&self, name: &[u8]) -> Vec<u8> {
        let below = self.levels.iter().skip(1).map(|level| &level.name[..]);
        let path = below.fold(self.above.clone(), |path, name| joined(&path, name));
        joined(&path, name)
    }
}

fn unseen(name: &[u8], cause: Cause) -> Sight {
    Sight::Unseen {
        name: name.to_vec(),
        cause,
    }
}

impl Listing for Walker {
    fn next(&mut self) -> Result<Sight, Error> {
        loop {
            let level = self.levels.last_mut().ok_or(Error::Internal)?;
            if let Some(filters) = level.filters.take() {
                return Ok(Sight::Filters(filters));
            }
            match level.names.pop() {
                Some(name) => {
                    let sight = self.look(&name);
                    // An interrupted digest says nothing about the file.
                    (self.check)()?;
                    if let Some(sight) = sight {
                        return Ok(sight);
                    }
                }
                None => {
                    if let Some(cause) = level.cut.take() {
                        return Ok(Sight::Cut { cause });
                    }
                    self.close();
                    return Ok(Sight::Leave);
                }
            }
        }
    }

    fn prune(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            self.held -= level.names.held();
            level.names = Names::default();
            level.filters = None;
            level.cut = None;
        }
    }

    fn digest(&mut self, seen: &Seen) -> Result<Digest, Cause> {
        let level = self.levels.last().ok_or(Cause::NotFound)?;
        let directory = level.directory.as_ref().ok_or(Cause::NotFound)?;
        let digester = self.digester.as_ref().ok_or(Cause::ChangedSinceListed)?;
        let path = || self.path(&seen.name);
        let file = self.links.open(directory, &seen.name, path, READ_FILE)?;
        digest(file, seen.size, (digester, &self.check))
    }
}

impl Names {
    /// Reads the names of `directory`. None are kept unless all fit `room` bytes.
    fn read(&mut self, directory: &OwnedFd, room: usize) -> Result<(), Cause> {
        let entries = Dir::read_from(directory)?;
        let mut outcome = Ok(());
        for entry in entries {
            match entry {
                Err(errno) => outcome = Err(errno.into()),
                Ok(entry) => self.add(entry.file_name().to_bytes()),
            }
            if outcome.is_err() {
                break;
            }
            if self.held() > room {
                *self = Names::default();
                return Err(Cause::TooManyNames);
            }
        }
        let bytes = &self.bytes;
        let name = |&(at, len): &(u32, u8)| &bytes[at as usize..][..len as usize];
        self.places.sort_unstable_by(|a, b| name(b).cmp(name(a)));
        outcome
    }

    fn add(&mut self, name: &[u8]) {
        if name == b"." || name == b".." {
            return;
        }
        // File systems have no longer names, and `room` fits u32.
        if let (Ok(len), Ok(at)) = (u8::try_from(name.len()), u32::try_from(self.bytes.len())) {
            self.places.push((at, len));
            self.bytes.extend_from_slice(name);
        }
    }

    fn pop(&mut self) -> Option<Vec<u8>> {
        let (at, len) = self.places.pop()?;
        Some(self.bytes[at as usize..][..len as usize].to_vec())
    }

    fn held(&self) -> usize {
        self.bytes.capacity() + self.places.capacity() * size_of::<(u32, u8)>()
    }
}

/// The entry `name`, or the target of a link that is followed. `path`: as in [`Links::stat`].
pub(crate) fn see(
    directory: &OwnedFd,
    name: &[u8],
    (links, path): (&Links, impl FnOnce() -> Vec<u8>),
    attributes: Attributes,
) -> Result<Seen, Cause> {
    let stat = links.stat(directory, name, path)?;
    let kind = kind_of(&stat);
    let detail = match kind {
        EntryKind::Link => Detail::Link(readlinkat(directory, name, Vec::new())?.into_bytes()),
        _ => Detail::None,
    };
    Ok(Seen {
        name: name.to_vec(),
        kind,
        size: stat.st_size as u64,
        meta: meta_with(&stat, attributes),
        inode: stat.st_ino,
        device: shared(&stat, attributes).map(|(device, _)| device),
        detail,
        extended: None,
    })
}

/// The digest of a file's content, as a copy computes it: holes are not read. When `check` fails, the computation
/// stops: the caller checks that next.
fn digest(
    file: OwnedFd,
    size: u64,
    (digester, check): (&Digester, &Check),
) -> Result<Digest, Cause> {
    let stat = fstat(&file)?;
    let has_shrunk = |stat: &Stat| (stat.st_size as u64) < size;
    if kind_of(&stat) != EntryKind::File || has_shrunk(&stat) {
        return Err(Cause::ChangedSinceListed);
    }
    let mut extents = Extents::of(file.as_fd(), &stat);
    let mut unit = vec![0; unit_len(size, 0)];
    let mut units = digester.hasher();
    for index in 0..unit_count(size) {
        check().map_err(|_| Cause::ChangedSinceListed)?;
        let len = unit_len(size, index);
        if extents.unit(index) == UnitMap::Hole {
            units.update(&digester.digest_of_zeros(len));
            continue;
        }
        let unit = &mut unit[..len];
        if read_full(file.as_fd(), unit, index * UNIT_BYTES as u64)? < len {
            return Err(Cause::ChangedSinceListed);
        }
        units.update(&digester.digest(unit));
    }
    // A part that was truncated meanwhile looks like a hole.
    match has_shrunk(&fstat(&file)?) {
        true => Err(Cause::ChangedSinceListed),
        false => Ok(units.finish()),
    }
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;
