//! Counts the files and bytes to send, for progress.

use super::start::Start;
use crate::error::Error;
use crate::filter::{Filter, Scope, Side};
use crate::filter_files::{FilterText, enter};
use crate::hard_links::shared;
use crate::limits::{LINKED_FILES, TREE_DEPTH};
use crate::links::{Identity, Links, SourceLinks, identity, joined};
use crate::message::{CopyOptions, EntryKind};
use crate::root::{DIRECTORY, READ_FILE, entry_kind, kind_of};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Dir, FileType, Stat, fstat};
use std::collections::HashSet;

/// Files and bytes below `starts` that `filter` does not exclude. Unreadable entries do not count: they are reported
/// later. `check` is called for each directory, because symbolic links can make a small tree large.
pub(crate) fn count(
    starts: &[Start],
    options: &CopyOptions,
    (links, filter): (&SourceLinks, Option<&Filter>),
    check: impl FnMut() -> Result<(), Error>,
) -> Result<(u64, u64), Error> {
    let scope = filter.map(|filter| Scope::new(filter, Side::Source));
    let mut count = Count {
        options,
        links,
        filter: scope.transpose()?,
        check,
        path: Vec::new(),
        above: 0,
        inside: Vec::new(),
        shared: HashSet::new(),
        files: 0,
        bytes: 0,
    };
    for start in starts {
        count.path.clear();
        count.above = 0;
        count.inside.clear();
        count.start(start)?;
    }
    Ok((count.files, count.bytes))
}

struct Count<'a, F> {
    options: &'a CopyOptions,
    links: &'a SourceLinks,
    filter: Option<Scope<'a>>,
    check: F,
    /// The path of the current directory, from the served one.
    path: Vec<u8>,
    /// Length of its part before the copied tree, bytes.
    above: usize,
    /// The open directories.
    inside: Vec<Identity>,
    /// Files with several names that were counted. Beyond the limit they are counted again, and will fail.
    shared: HashSet<Identity>,
    files: u64,
    bytes: u64,
}

impl<F: FnMut() -> Result<(), Error>> Count<'_, F> {
    fn start(&mut self, start: &Start) -> Result<(), Error> {
        match start {
            Start::Named { directory, name } => {
                self.entry(directory.as_fd(), name, None, TREE_DEPTH)
            }
            Start::Contents(directory) => self.contents(directory, TREE_DEPTH),
            Start::Below { root, path } => {
                let start = Start::open(root, path, self.options.recursive);
                self.path = start.above(path);
                self.above = self.path.len();
                self.start(&start)
            }
            Start::Missing { .. } => Ok(()),
        }
    }

    fn entry(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        kind: Option<EntryKind>,
        depth: usize,
    ) -> Result<(), Error> {
        let path = || joined(&self.path, name);
        let stat = match kind {
            Some(EntryKind::Directory | EntryKind::Special) => None,
            Some(EntryKind::Link) if !self.links().are_followed() => None,
            _ => self.links().stat(directory, name, path).ok(),
        };
        let kind = stat.as_ref().map(kind_of).or(kind);
        if self.is_excluded(&path(), kind == Some(EntryKind::Directory)) {
            return Ok(());
        }
        match kind {
            Some(EntryKind::File) => {
                self.files += 1;
                self.bytes += stat.map_or(0, |stat| self.bytes_of(&stat));
            }
            Some(EntryKind::Directory) if self.options.recursive && depth > 0 => {
                let opened = self.links().open(directory, name, path, DIRECTORY);
                if let Ok(directory) = opened {
                    let outer = self.path.len();
                    self.path = path();
                    self.contents(&directory, depth - 1)?;
                    self.path.truncate(outer);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn links(&self) -> &Links {
        self.links.inside(&self.inside)
    }

    /// Bytes that are sent: none for a further name.
    fn bytes_of(&mut self, stat: &Stat) -> u64 {
        let file = shared(stat, self.options.attributes);
        match file.filter(|_| self.shared.len() < LINKED_FILES) {
            Some(file) if !self.shared.insert(file) => 0,
            _ => stat.st_size as u64,
        }
    }

    fn contents(&mut self, directory: &OwnedFd, depth: usize) -> Result<(), Error> {
        (self.check)()?;
        let this = fstat(directory).map(|it| identity(&it));
        let (Ok(this), Ok(entries)) = (this, Dir::read_from(directory)) else {
            return Ok(());
        };
        if self.inside.contains(&this) {
            return Ok(());
        }
        self.inside.push(this);
        if self.enter_filters(directory) {
            self.entries(directory, entries, depth)?;
        }
        self.inside.pop();
        if let Some(scope) = &mut self.filter {
            scope.leave();
        }
        Ok(())
    }

    fn entries(&mut self, directory: &OwnedFd, entries: Dir, depth: usize) -> Result<(), Error> {
        for entry in entries.flatten() {
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let kind = match entry.file_type() {
                    FileType::Unknown => None,
                    known => Some(entry_kind(known)),
                };
                self.entry(directory.as_fd(), name, kind, depth)?;
            }
        }
        Ok(())
    }

    /// `path` without the part before the copied tree.
    fn copied<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let copied = &path[self.above..];
        copied.strip_prefix(b"/").unwrap_or(copied)
    }

    fn is_excluded(&self, path: &[u8], directory: bool) -> bool {
        let excludes = |scope: &Scope<'_>| scope.excludes(self.copied(path), directory, false);
        self.filter.as_ref().is_some_and(excludes)
    }

    /// Whether the filter files of the directory can be used.
    fn enter_filters(&mut self, directory: &OwnedFd) -> bool {
        let Some(mut scope) = self.filter.take() else {
            return true;
        };
        let texts = scope.files().map(|name| {
            let path = || joined(&self.path, name);
            FilterText::read(|| self.links().open(directory, name, path, READ_FILE))
        });
        let texts: Vec<_> = texts.collect();
        let entered = enter(&mut scope, self.copied(&self.path), &texts);
        self.filter = Some(scope);
        entered.is_ok()
    }
}
