//! Checks names and paths from outside, so that other code can trust them.
//!
//! A name is bytes, as the kernel sees it: not necessarily UTF-8, possibly with newlines.

use crate::error::Cause;
use crate::limits::{NAME_BYTES, PATH_BYTES};

/// Checks that `name` is one path component that names an entry of its directory: not empty, not
/// `.` or `..`, no `/`, no NUL, at most [`NAME_BYTES`] long.
pub(crate) fn check_name(name: &[u8]) -> Result<&[u8], Cause> {
    let special = name.is_empty() || name == b"." || name == b"..";
    if special || name.len() > NAME_BYTES || name.iter().any(|&b| b == b'/' || b == 0) {
        return Err(Cause::InvalidName);
    }
    Ok(name)
}

/// A path from a served directory, as components; none for the directory itself. A path that is absolute or contains
/// `..` is recognized ([`leaves`](Self::leaves)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RelativePath {
    /// Names; `..` only in a path that leaves.
    components: Vec<Vec<u8>>,
    /// Written with a leading `/`.
    absolute: bool,
    /// Written with a final `/`: must be a directory.
    directory: bool,
    /// Written with a final `.` or `..`, or empty: the contents of the directory, without its name.
    contents: bool,
}

const UP: &[u8] = b"..";

impl RelativePath {
    /// Parses the text after `HOST:`. `.` and repeated `/` are ignored.
    ///
    /// # Errors
    /// [`Cause::InvalidName`] for a NUL, or a component or path that is too long.
    pub(crate) fn parse(path: &[u8]) -> Result<RelativePath, Cause> {
        if path.len() > PATH_BYTES {
            return Err(Cause::InvalidName);
        }
        let mut components = Vec::new();
        for component in path.split(|&b| b == b'/') {
            match component {
                b"" | b"." => {}
                UP => components.push(UP.to_vec()),
                name => components.push(check_name(name)?.to_vec()),
            }
        }
        let nameless = components.last().is_none_or(|last| last == UP);
        let contents = path.ends_with(b"/.") || nameless;
        let directory = path.ends_with(b"/") || contents;
        Ok(RelativePath {
            components,
            absolute: path.first() == Some(&b'/'),
            directory,
            contents,
        })
    }

    /// Whether it may lead out of a served directory: it is absolute, or contains `..`.
    pub(crate) fn leaves(&self) -> bool {
        self.absolute || self.components.iter().any(|it| it == UP)
    }

    /// Whether it can only be a directory, by the way it is written.
    pub(crate) fn must_be_directory(&self) -> bool {
        self.directory
    }

    /// Whether, as a source, it stands for the contents of the directory.
    pub(crate) fn is_contents(&self) -> bool {
        self.contents
    }

    /// Whether it begins at the top of the file system.
    pub(crate) fn is_absolute(&self) -> bool {
        self.absolute
    }

    /// Its names, from the top; `..` only in a path that leaves.
    pub(crate) fn components(&self) -> &[Vec<u8>] {
        &self.components
    }

    /// The path for the kernel; `.` for the served directory itself.
    pub(crate) fn as_bytes(&self) -> Vec<u8> {
        let path = self.components.join(&b'/');
        match (self.absolute, path.is_empty()) {
            (true, _) => [b"/", &path[..]].concat(),
            (false, true) => b".".to_vec(),
            (false, false) => path,
        }
    }

    /// `path`, taken from this directory without following links: `..` in it goes up by name.
    pub(crate) fn join(&self, path: &RelativePath) -> RelativePath {
        if path.absolute {
            return path.clone();
        }
        let mut components = self.components.clone();
        for name in &path.components {
            let up = name == UP && components.last().is_some_and(|last| last != UP);
            match up {
                true => drop(components.pop()),
                false => components.push(name.clone()),
            }
        }
        RelativePath {
            components,
            absolute: self.absolute,
            directory: true,
            contents: false,
        }
    }

    /// Its names below `directory`; `None` if it is not below that.
    pub(crate) fn below(&self, directory: &RelativePath) -> Option<&[Vec<u8>]> {
        let below = self.components.strip_prefix(&directory.components[..])?;
        let same = self.absolute == directory.absolute && !below.iter().any(|it| it == UP);
        same.then_some(below)
    }

    /// Its parent directory and its name there; `None` for the served directory itself, and for a path without a name,
    /// such as `..`.
    pub(crate) fn split_last(&self) -> Option<(RelativePath, &[u8])> {
        let (name, parents) = self.components.split_last()?;
        if name == UP {
            return None;
        }
        let parent = RelativePath {
            components: parents.to_vec(),
            absolute: self.absolute,
            directory: true,
            contents: false,
        };
        Some((parent, name))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn check_name__refuses_what_leaves_the_directory() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b", &[b'x'; 256]] {
            assert_eq!(check_name(bad), Err(Cause::InvalidName), "{bad:?}");
        }
        for good in [
            &b"a"[..],
            b"...",
            b".a",
            b"new\nline",
            b"\xff\xfe",
            &[b'x'; 255],
        ] {
            assert_eq!(check_name(good), Ok(good));
        }
    }

    #[test]
    fn relative_path__normalises() {
        let path = RelativePath::parse(b"./a//b/./c").unwrap();
        assert_eq!(path.as_bytes(), b"a/b/c");
        assert!(!path.must_be_directory());
        let (parent, name) = path.split_last().unwrap();
        assert_eq!((parent.as_bytes(), name), (b"a/b".to_vec(), &b"c"[..]));
    }

    #[test]
    fn relative_path__root_in_every_spelling() {
        for root in [&b""[..], b".", b"./", b"././/"] {
            let path = RelativePath::parse(root).unwrap();
            assert_eq!(path.as_bytes(), b".");
            assert!(path.must_be_directory());
            assert!(path.split_last().is_none());
        }
    }

    #[test]
    fn relative_path__final_slash_asks_for_a_directory() {
        assert!(RelativePath::parse(b"a/").unwrap().must_be_directory());
        assert!(RelativePath::parse(b"a/.").unwrap().must_be_directory());
        for (path, contents) in [
            (&b"a"[..], false),
            (b"a/", false),
            (b"a/.", true),
            (b"", true),
            (b"./", true),
            (b"a.", false),
        ] {
            let path = RelativePath::parse(path).unwrap();
            assert_eq!(path.is_contents(), contents, "{path:?}");
        }
    }

    #[test]
    fn relative_path__outside_is_told_apart() {
        for (outside, same, name) in [
            (&b"/etc/passwd"[..], &b"/etc/passwd"[..], Some("passwd")),
            (b"//etc/", b"/etc", Some("etc")),
            (b"/", b"/", None),
            (b"..", b"..", None),
            (b"a/../..", b"a/../..", None),
            (b"a/..", b"a/..", None),
            (b"../x", b"../x", Some("x")),
        ] {
            let path = RelativePath::parse(outside).unwrap();
            assert!(path.leaves());
            assert_eq!(path.as_bytes(), same);
            let last = path.split_last();
            assert_eq!(last.map(|(_, name)| name), name.map(str::as_bytes));
            assert_eq!(path.is_contents(), name.is_none());
        }
        for inside in [&b""[..], b".", b"a/b", b"..a/b.."] {
            assert!(!RelativePath::parse(inside).unwrap().leaves());
        }
        assert_eq!(RelativePath::parse(b"a\0"), Err(Cause::InvalidName));
        assert_eq!(RelativePath::parse(&[b'a'; 5000]), Err(Cause::InvalidName));
    }
}
