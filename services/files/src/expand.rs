//! Expands the patterns in a request's paths.

use crate::error::Cause;
use crate::glob::{Part, is_special};
use crate::limits::{PATTERN_HELD_BYTES, PATTERN_NAMES};
use crate::message::EntryKind;
use crate::name::RelativePath;
use crate::root::{Root, entry_kind, kind_of, stat_at};
use crate::send::Start;
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, Dir, FileType, statat};
use std::collections::HashSet;
use std::sync::Arc;

/// Expands the patterns of one request, limiting the work and the memory for all of them.
pub(crate) struct Expander<'a> {
    root: &'a Root,
    /// Names that may still be examined.
    names: u64,
    /// Bytes that paths may still take.
    bytes: usize,
}

impl<'a> Expander<'a> {
    pub(crate) fn new(root: &'a Root) -> Expander<'a> {
        Expander {
            root,
            names: PATTERN_NAMES,
            bytes: PATTERN_HELD_BYTES,
        }
    }

    /// The paths that `path` stands for, in order: `path` itself if it is not a pattern, or exists as written. Patterns
    /// match links, but only a login's follow them on the way.
    ///
    /// # Errors
    /// [`Cause::NoMatch`], [`Cause::TooManyMatches`], or the error of access.
    pub(crate) fn expand(&mut self, path: &[u8]) -> Result<Vec<Vec<u8>>, Cause> {
        let parsed = RelativePath::parse(path)?;
        if !is_special(path) {
            return Ok(vec![path.to_vec()]);
        }
        match self.exists(&parsed) {
            Ok(()) => return Ok(vec![path.to_vec()]),
            Err(Cause::NotFound | Cause::NotADirectory) => {}
            Err(cause) => return Err(cause),
        }
        let parts: Vec<_> = parsed
            .components()
            .iter()
            .map(|name| Part::new(name))
            .collect();
        let wild = parts.iter().any(|part| matches!(part, Part::Pattern(_)));
        let start: &[u8] = if parsed.is_absolute() { b"/" } else { b"" };
        let found = self.follow(start, &parts, parsed.must_be_directory())?;
        if found.is_empty() {
            return Err(if wild {
                Cause::NoMatch
            } else {
                Cause::NotFound
            });
        }
        let end: &[u8] = match (parsed.is_contents(), parsed.must_be_directory()) {
            (true, _) => b"/.",
            (false, true) => b"/",
            (false, false) => b"",
        };
        Ok(found
            .into_iter()
            .map(|path| [&path, end].concat())
            .collect())
    }

    fn exists(&self, path: &RelativePath) -> Result<(), Cause> {
        if path.must_be_directory() {
            return self.root.open_directory(path).map(drop);
        }
        let (parent, name) = self.root.open_parent(path)?.ok_or(Cause::NotFound)?;
        stat_at(parent, name).map(drop)
    }

    /// Follows `parts` from a directory. An inaccessible place matters only if nothing is found elsewhere.
    fn follow(
        &mut self,
        start: &[u8],
        parts: &[Part],
        directory: bool,
    ) -> Result<Vec<Vec<u8>>, Cause> {
        let mut found = vec![start.to_vec()];
        let mut trouble = None;
        for (at, part) in parts.iter().enumerate() {
            let last = at + 1 == parts.len();
            let mut next = Vec::new();
            for parent in found {
                let looked = self.step(&parent, part, !last || directory, &mut next);
                match looked {
                    Ok(()) | Err(Cause::NotFound | Cause::NotADirectory) => {}
                    Err(Cause::TooManyMatches) => return Err(Cause::TooManyMatches),
                    Err(cause) => trouble = trouble.or(Some(cause)),
                }
            }
            found = next;
        }
        match trouble {
            Some(cause) if found.is_empty() => Err(cause),
            _ => Ok(found),
        }
    }

    /// Adds the entries of `parent` that `part` matches to `found`.
    fn step(
        &mut self,
        parent: &[u8],
        part: &Part,
        directory: bool,
        found: &mut Vec<Vec<u8>>,
    ) -> Result<(), Cause> {
        self.look()?;
        let here = self.root.open_directory(&RelativePath::parse(parent)?)?;
        let begin = found.len();
        match part {
            Part::Name(name) => {
                let kind = kind_of(&stat_at(&here, name)?);
                if !directory || self.is_directory(&here, name, Some(kind)) {
                    self.add(parent, name, found)?;
                }
            }
            Part::Pattern(pattern) => {
                for entry in Dir::read_from(&here)? {
                    let entry = entry?;
                    self.look()?;
                    let name = entry.file_name().to_bytes();
                    if name == b"." || name == b".." || !pattern.matches(name) {
                        continue;
                    }
                    let kind = match entry.file_type() {
                        FileType::Unknown => None,
                        known => Some(entry_kind(known)),
                    };
                    if !directory || self.is_directory(&here, name, kind) {
                        self.add(parent, name, found)?;
                    }
                }
            }
        }
        found[begin..].sort_unstable();
        Ok(())
    }

    /// Whether `name` is a directory; for a login also a link to one, as in any other path.
    fn is_directory(&self, here: impl AsFd, name: &[u8], told: Option<EntryKind>) -> bool {
        let kind = match told {
            None => stat_at(&here, name).ok().map(|stat| kind_of(&stat)),
            Some(EntryKind::Link) if self.root.is_of_login() => {
                let stat = statat(&here, name, AtFlags::empty());
                stat.ok().map(|stat| kind_of(&stat))
            }
            known => known,
        };
        kind == Some(EntryKind::Directory)
    }

    fn look(&mut self) -> Result<(), Cause> {
        self.names = self.names.checked_sub(1).ok_or(Cause::TooManyMatches)?;
        Ok(())
    }

    fn add(&mut self, parent: &[u8], name: &[u8], found: &mut Vec<Vec<u8>>) -> Result<(), Cause> {
        let path = match parent {
            b"" => name.to_vec(),
            b"/" => [parent, name].concat(),
            _ => [parent, name].join(&b'/'),
        };
        let held = path.len() + size_of::<Vec<u8>>();
        self.bytes = self.bytes.checked_sub(held).ok_or(Cause::TooManyMatches)?;
        found.push(path);
        Ok(())
    }
}

/// The starts of sending: the entries that the patterns match, each once, and no two with one name.
pub(crate) fn starts(root: &Arc<Root>, sources: &[Vec<u8>]) -> Vec<Start> {
    let mut expander = Expander::new(root);
    let (mut paths, mut names) = (HashSet::new(), HashSet::new());
    let mut starts = Vec::new();
    for source in sources {
        let found = match expander.expand(source) {
            Ok(found) => found,
            Err(cause) => {
                let path = source.clone();
                starts.push(Start::Missing { path, cause });
                continue;
            }
        };
        for path in found {
            if let Ok(parsed) = RelativePath::parse(&path)
                && let Some((_, name)) = parsed.split_last()
                && !parsed.is_contents()
            {
                if !paths.insert(parsed.as_bytes()) {
                    continue;
                }
                if !names.insert(name.to_vec()) {
                    let cause = Cause::SameName;
                    starts.push(Start::Missing { path, cause });
                    continue;
                }
            }
            let root = Arc::clone(root);
            starts.push(Start::Below { root, path });
        }
    }
    starts
}

#[cfg(test)]
#[path = "expand_tests.rs"]
mod tests;
