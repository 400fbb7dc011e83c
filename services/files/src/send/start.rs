//! Opens the entries at which sending starts.

use crate::error::Cause;
use crate::name::RelativePath;
use crate::root::Root;
use rustix::fd::OwnedFd;
use std::sync::Arc;

/// An entry at which sending starts.
#[derive(Debug)]
pub(crate) enum Start {
    /// An entry of a directory, sent under its own name.
    Named {
        /// Its directory.
        directory: OwnedFd,
        /// Its name, there and at the target.
        name: Vec<u8>,
    },
    /// The entries of a directory, without the directory.
    Contents(OwnedFd),
    /// An entry at this path of a served directory. It is opened when its turn comes, because this process may not be
    /// able to open all of them at once.
    Below {
        /// The served directory.
        root: Arc<Root>,
        /// The path below it.
        path: Vec<u8>,
    },
    /// A requested entry that is not available.
    Missing {
        /// The path, as requested.
        path: Vec<u8>,
        /// The reason.
        cause: Cause,
    },
}

impl Start {
    /// Opens `path` below a served directory.
    pub(crate) fn open(root: &Root, path: &[u8], recursive: bool) -> Start {
        let found = RelativePath::parse(path).and_then(|path| find(root, &path, recursive));
        found.unwrap_or_else(|cause| Start::Missing {
            path: path.to_vec(),
            cause,
        })
    }

    /// The path of the parent directory of entries sent from here, which is at `path`.
    pub(super) fn above(&self, path: &[u8]) -> Vec<u8> {
        let around = |path: RelativePath| match self {
            Start::Contents(_) => Some(path.as_bytes()),
            _ => path.split_last().map(|(parent, _)| parent.as_bytes()),
        };
        RelativePath::parse(path)
            .ok()
            .and_then(around)
            .unwrap_or_default()
    }
}

fn find(root: &Root, path: &RelativePath, recursive: bool) -> Result<Start, Cause> {
    if path.must_be_directory() {
        let directory = root.open_directory(path)?;
        match (path.is_contents(), recursive) {
            (true, true) => return Ok(Start::Contents(directory)),
            (true, false) => return Err(Cause::NotRecursive),
            (false, _) => {}
        }
    }
    let found = root.open_parent(path)?;
    let (directory, name) = found.ok_or(Cause::IsADirectory)?;
    let name = name.to_vec();
    Ok(Start::Named { directory, name })
}
