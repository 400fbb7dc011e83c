//! Remembers files with several names, and the first name under which each was met.
//!
//! The sender marks such a file as one to remember, and sends each further name as a hard link. Only the reading end
//! knows which names are the same file; only the writing end knows whether the first name was written.

use crate::error::Cause;
use crate::limits::{LINKED_FILES, LINKED_PATHS_BYTES, PATH_BYTES};
use crate::links::{Identity, identity};
use crate::message::{Attributes, EntryKind};
use crate::root::kind_of;
use rustix::fs::Stat;
use std::collections::HashMap;

/// The identity of a file, if it has other names and hard links are requested.
pub(crate) fn shared(stat: &Stat, attributes: Attributes) -> Option<Identity> {
    let shared = kind_of(stat) == EntryKind::File && stat.st_nlink > 1;
    (attributes.hard_links && shared).then(|| identity(stat))
}

/// The first names of files that have several, with a value for each, in little memory: a directory is stored once for
/// consecutive files in it.
pub(crate) struct FirstNames<T> {
    files: HashMap<Identity, (Place, T)>,
    /// Paths of directories, and names.
    bytes: Vec<u8>,
    /// The directory of the last one.
    directory: Span,
}

/// The location of a file's directory path, and of its name.
#[derive(Clone, Copy, Debug)]
struct Place {
    directory: Span,
    name: Span,
}

/// A part of the bytes: its start and its length.
#[derive(Clone, Copy, Debug, Default)]
struct Span(u32, u16);

impl<T> Default for FirstNames<T> {
    fn default() -> FirstNames<T> {
        FirstNames {
            files: HashMap::new(),
            bytes: Vec::new(),
            directory: Span::default(),
        }
    }
}

impl<T> FirstNames<T> {
    /// The path under which this file was met first, and its value.
    pub(crate) fn get(&self, file: Identity) -> Option<(Vec<u8>, &T)> {
        let (place, known) = self.files.get(&file)?;
        let (directory, name) = (self.of(place.directory), self.of(place.name));
        let path = match directory.is_empty() {
            true => name.to_vec(),
            false => [directory, name].join(&b'/'),
        };
        Some((path, known))
    }

    /// Adds a file.
    ///
    /// # Errors
    /// [`Cause::TooManyLinked`], and [`Cause::TooDeep`] for a path that is too long to send.
    pub(crate) fn note(&mut self, file: Identity, path: &[u8], known: T) -> Result<(), Cause> {
        if path.len() > PATH_BYTES {
            return Err(Cause::TooDeep);
        }
        let (directory, name) = split(path);
        let held = self.bytes.len() + path.len();
        if self.files.len() >= LINKED_FILES || held > LINKED_PATHS_BYTES {
            return Err(Cause::TooManyLinked);
        }
        if self.of(self.directory) != directory {
            self.directory = self.add(directory);
        }
        let directory = self.directory;
        let name = self.add(name);
        self.files.insert(file, (Place { directory, name }, known));
        Ok(())
    }

    /// Forgets all files.
    pub(crate) fn clear(&mut self) {
        *self = FirstNames::default();
    }

    fn of(&self, Span(at, len): Span) -> &[u8] {
        &self.bytes[at as usize..][..len.into()]
    }

    /// Neither cast truncates: paths are short, and all of them together are less than 4 GiB.
    fn add(&mut self, part: &[u8]) -> Span {
        let span = Span(self.bytes.len() as u32, part.len() as u16);
        self.bytes.extend_from_slice(part);
        span
    }
}

/// The directory of a path, empty at the top, and the name in that directory.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// How many leading directories both paths have in common, and the rest of `first` below them.
pub(crate) fn from_common<'p>(path: &[u8], first: &'p [u8]) -> (u32, &'p [u8]) {
    let (mut level, mut rest) = (0, first);
    for directory in split(path).0.split(|&byte| byte == b'/') {
        let below = rest.strip_prefix(directory);
        match below.and_then(|it| it.strip_prefix(b"/")) {
            Some(below) if !directory.is_empty() => {
                rest = below;
                level += 1;
            }
            _ => break,
        }
    }
    (level, rest)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn note__of_paths_in_and_out_of_directories() {
        let mut names = FirstNames::default();
        let paths = [&b"a"[..], b"d/b", b"d/c", b"d/e/f", b"d/g", b"d/h"];
        for (at, path) in (0..).zip(paths) {
            assert!(names.get((1, at)).is_none());
            names.note((1, at), path, at).unwrap();
        }
        for (at, path) in (0..).zip(paths) {
            let (found, known) = names.get((1, at)).unwrap();
            assert_eq!((&found[..], *known), (path, at));
        }
        assert!(names.get((2, 0)).is_none());
        // `d` is stored once for consecutive files, and again after `d/e`.
        assert_eq!(names.bytes, b"adbcd/efdgh");
        names.clear();
        assert!(names.get((1, 0)).is_none() && names.bytes.is_empty());
    }

    #[test]
    fn note__no_more_than_the_limits() {
        let mut names = FirstNames::default();
        let long = vec![b'x'; PATH_BYTES + 1];
        assert_eq!(names.note((0, 0), &long, ()), Err(Cause::TooDeep));
        for file in 0..LINKED_FILES as u64 {
            names.note((0, file), b"d/n", ()).unwrap();
        }
        assert_eq!(names.note((1, 0), b"n", ()), Err(Cause::TooManyLinked));
        names.clear();
        let path = |directory: u64| [&directory.to_le_bytes()[..], &[b'x'; 4000], b"/n"].concat();
        let noted = (0..).take_while(|&file| names.note((0, file), &path(file), ()).is_ok());
        let noted = noted.count();
        assert!(noted < LINKED_PATHS_BYTES / 4000, "{noted}");
        assert!(names.bytes.len() <= LINKED_PATHS_BYTES);
    }

    #[test]
    fn from_common__counts_whole_directories() {
        for (path, first, level, rest) in [
            ("a", "b", 0, "b"),
            ("a", "a/b", 0, "a/b"),
            ("d/a", "d/b", 1, "b"),
            ("d/a", "de/b", 0, "de/b"),
            ("d/e/a", "d/f/b", 1, "f/b"),
            ("d/e/a", "d/e/f/b", 2, "f/b"),
            ("d/e/a", "d/b", 1, "b"),
            ("a", "d/b", 0, "d/b"),
        ] {
            let common = from_common(path.as_bytes(), first.as_bytes());
            assert_eq!(common, (level, rest.as_bytes()), "{path} {first}");
        }
    }
}
