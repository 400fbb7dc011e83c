//! The identity of an end and the peers it trusts, in files: an [`identity`], the servers met before
//! ([`KnownHosts`]), and the keys a server lets in ([`AllowList`]).
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

pub use access::Access;
pub use allow::{AllowList, AllowedKey, Rights};
pub use allow_file::AllowFile;
pub use known::{HostTrust, KnownHosts, Meeting};

use std::path::PathBuf;

/// Lines in one file of keys: a list kept by hand is shorter.
const MAX_LINES: usize = 10_000;
/// Bytes in one file of keys, or in one identity.
const MAX_BYTES: u64 = 1 << 20;

/// Why a file of keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refuses.
    #[error("{}: {error}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Others could read or change it.
    #[error(
        "{}: others may {what} it. Its permissions must be 0600: chmod 600 {}",
        path.display(),
        path.display()
    )]
    Exposed {
        /// Which file.
        path: PathBuf,
        /// What others may do.
        what: &'static str,
    },
    /// It is longer than 1 MiB, or would be, and stays as it is.
    #[error("{}: longer than 1 MiB, which no file of keys may be; it stays as it is", .0.display())]
    TooLong(PathBuf),
    /// There is one already, and no key may be lost.
    #[error("{}: is there already, and stays as it is", .0.display())]
    Exists(PathBuf),
    /// The content is not what it should be.
    #[error("line {line}: {problem}")]
    Syntax {
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// What a key was to be allowed has spaces, a `#`, or is no path below a directory: a line of a list cannot say it.
    #[error(
        "a line of a list cannot say this: a path below the directory, without '..', and names of regions have no \
         spaces and no '#', a name of a key has no line breaks"
    )]
    Unsayable,
    /// The system gives no random numbers.
    #[error("no random numbers: {0}")]
    Random(std::io::Error),
}

impl Error {
    fn io(path: &std::path::Path, error: impl Into<std::io::Error>) -> Error {
        let (path, error) = (path.to_owned(), error.into());
        Error::Io { path, error }
    }
}

/// The directory where a user's keys are kept: `ZEROLANE_HOME`, or `zerolane` below
/// `XDG_CONFIG_HOME` or `~/.config`. `None` if the environment names none.
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

/// The lines of a list, each with its number and without its comment.
///
/// # Errors
/// There are more than [`MAX_LINES`]: the last of them may not be ignored silently.
fn lines(text: &str) -> Result<impl Iterator<Item = (&str, usize)>, Error> {
    match text.lines().nth(MAX_LINES) {
        None => Ok(text.lines().map(content).zip(1..)),
        Some(_) => Err(Error::Syntax {
            line: MAX_LINES + 1,
            problem: "more than 10000 lines",
        }),
    }
}

/// The content of a line without comment and space around it.
fn content(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

/// The comment of a line, if it says anything.
fn comment(line: &str) -> Option<&str> {
    let (_, comment) = line.split_once('#')?;
    Some(comment.trim()).filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests;
