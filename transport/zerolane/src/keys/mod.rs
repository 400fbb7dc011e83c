//! Keeps identities, known servers and lists of clients in files: [`identity`], [`KnownHosts`], [`AllowList`].
//!
//! ```
//! use zerolane::keys::{AllowList, Rights};
//! let key = zerolane::security::Identity::from_secret([7; 32]).public();
//! let list = AllowList::parse(&format!("{key} read below=pub # a friend\n"))?;
//! let rights = list.rights(&key).unwrap();
//! assert!(!rights.write);
//! # Ok::<(), zerolane::keys::Error>(())
//! ```

mod access;
mod allow;
mod allow_file;
mod file;
pub mod identity;
mod known;
mod place;

pub use access::Access;
pub use allow::{AllowList, AllowedKey, Rights};
pub use allow_file::AllowFile;
pub use known::{HostKeyCheck, HostTrust, KnownHosts};
pub use place::Place;

use std::path::PathBuf;

/// Most lines in one file of keys: far more than a list maintained by hand.
const MAX_LINES: usize = 10_000;
/// Most bytes in one file of keys, or in one identity.
const MAX_BYTES: u64 = 1 << 20;

/// Why a file of keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: std::io::Error,
    },
    /// Other users could read or change it.
    #[error(
        "{}: others may {what} it. Its permissions must be 0600: chmod 600 {}",
        path.display(),
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// What other users may do.
        what: &'static str,
    },
    /// The file is longer than 1 MiB, or would be, and stays unchanged.
    #[error("{}: longer than 1 MiB, the maximum for a file of keys; left unchanged", .0.display())]
    TooLong(PathBuf),
    /// The file exists and is not overwritten, so that no key is lost.
    #[error("{}: already exists; left unchanged", .0.display())]
    Exists(PathBuf),
    /// The content is malformed.
    #[error("line {line}: {problem}")]
    Syntax {
        /// The line's number, from 1.
        line: usize,
        /// The problem.
        problem: &'static str,
    },
    /// The rights have spaces, a `#`, or a path that is not below a directory: a line of a list cannot express them.
    #[error(
        "cannot be written as a line of the list: paths must be below the directory, without \
         '..', spaces and '#'; names of regions must have no spaces and no '#'; names of keys must have \
         no line breaks"
    )]
    Unsayable,
    /// The system has no random numbers.
    #[error("no random numbers: {0}")]
    Random(std::io::Error),
}

impl Error {
    fn io(path: &std::path::Path, error: impl Into<std::io::Error>) -> Error {
        let (path, error) = (path.to_owned(), error.into());
        Error::Io { path, error }
    }
}

/// The directory of a user's keys: `ZEROLANE_HOME`, or `zerolane` below `XDG_CONFIG_HOME` or `~/.config`. `None` if the
/// environment names none.
pub fn home() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let config = || {
        set("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".config")))
            .map(|config| config.join("zerolane"))
    };
    set("ZEROLANE_HOME").map(PathBuf::from).or_else(config)
}

/// The lines of a list without comments, each with its number.
///
/// # Errors
/// There are more than [`MAX_LINES`]: the rest must not be ignored silently.
fn lines(text: &str) -> Result<impl Iterator<Item = (&str, usize)>, Error> {
    match text.lines().nth(MAX_LINES) {
        None => Ok(text.lines().map(content).zip(1..)),
        Some(_) => Err(Error::Syntax {
            line: MAX_LINES + 1,
            problem: "more than 10000 lines",
        }),
    }
}

/// The content of a line without its comment and surrounding space.
fn content(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

/// The comment of a line, unless it is empty.
fn comment(line: &str) -> Option<&str> {
    let (_, comment) = line.split_once('#')?;
    Some(comment.trim()).filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests;
