//! Names and paths from outside: checked once, here, then trusted.
//!
//! A name is bytes, as the kernel sees it: not necessarily UTF-8, newlines allowed.

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

/// A path below a served directory: components only, none of them `..`; the directory itself when
/// it has no component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RelativePath {
    components: Vec<Vec<u8>>,
    /// Written with a final `/`: must be a directory.
    directory: bool,
}

impl RelativePath {
    /// Parses what stands after `HOST:`. `.` and repeated `/` mean nothing.
    ///
    /// # Errors
    /// [`Cause::OutsideRoot`] for an absolute path or a `..`, [`Cause::InvalidName`] for a NUL, a
    /// component or a path too long.
    pub(crate) fn parse(path: &[u8]) -> Result<RelativePath, Cause> {
        if path.len() > PATH_BYTES {
            return Err(Cause::InvalidName);
        }
        if path.first() == Some(&b'/') {
            return Err(Cause::OutsideRoot);
        }
        let mut components = Vec::new();
        for component in path.split(|&b| b == b'/') {
            match component {
                b"" | b"." => {}
                b".." => return Err(Cause::OutsideRoot),
                name => components.push(check_name(name)?.to_vec()),
            }
        }
        let directory = path.ends_with(b"/") || path.ends_with(b"/.") || components.is_empty();
        Ok(RelativePath {
            components,
            directory,
        })
    }

    /// Whether it was written so that only a directory fits.
    pub(crate) fn must_be_directory(&self) -> bool {
        self.directory
    }

    /// The path as the kernel takes it; `.` for the served directory itself.
    pub(crate) fn as_bytes(&self) -> Vec<u8> {
        match self.components.is_empty() {
            true => b".".to_vec(),
            false => self.components.join(&b'/'),
        }
    }

    /// The directory that holds it and its name there; `None` for the served directory itself.
    pub(crate) fn split_last(&self) -> Option<(RelativePath, &[u8])> {
        let (name, parents) = self.components.split_last()?;
        let parent = RelativePath {
            components: parents.to_vec(),
            directory: true,
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
    }

    #[test]
    fn relative_path__outside_is_refused() {
        for bad in [&b"/etc/passwd"[..], b"..", b"a/../..", b"a/..", b"../x"] {
            assert_eq!(RelativePath::parse(bad), Err(Cause::OutsideRoot), "{bad:?}");
        }
        assert_eq!(RelativePath::parse(b"a\0"), Err(Cause::InvalidName));
        assert_eq!(RelativePath::parse(&[b'a'; 5000]), Err(Cause::InvalidName));
    }
}
