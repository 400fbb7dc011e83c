//! Lists files on the server (`ls`).

use super::{Client, close};
use crate::error::{Error, Failure};
use crate::message::{EntryKind, ListOptions, Meta, Request};
use crate::name::RelativePath;
use crate::pump::{self, CONTROL, DATA};
use crate::sync::pages::Pages;
use crate::sync::sight::{Detail, Listing, Seen, Sight};
use std::ops::ControlFlow;

/// The listing of one file, directory or link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its type.
    pub kind: EntryKind,
    /// Bytes of content.
    pub size: u64,
    /// Permission bits and modification time.
    pub meta: Meta,
    /// The target, if it is a symbolic link.
    pub target: Option<Vec<u8>>,
}

/// A piece of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed<'a> {
    /// A requested entry, at this path. If it is a directory, its contents follow.
    Top(&'a [u8], &'a Entry),
    /// An entry at this path below the last requested directory.
    Below(&'a [u8], &'a Entry),
    /// An entry that cannot be listed.
    Failed(&'a Failure),
}

impl Client {
    /// Passes the entries that the paths match to `each`; paths are patterns as in [`Client::get`]. Files come first,
    /// then each directory and its contents, in the order of the names' bytes. Nothing is buffered; `each` may end the
    /// listing.
    ///
    /// # Errors
    /// Any error that ends the listing.
    pub fn list(
        &self,
        paths: &[Vec<u8>],
        options: ListOptions,
        each: impl FnMut(Listed<'_>) -> ControlFlow<()> + Send,
    ) -> Result<(), Error> {
        let paths = paths.to_vec();
        let leaves = |path: &Vec<u8>| RelativePath::parse(path).is_ok_and(|path| path.leaves());
        let leaving = paths.iter().any(leaves);
        let request = Request::List { paths, options };
        let mut connection = self.begin(&request, self.transport.times.connect)?;
        let listed = pump::run(&mut connection, CONTROL, DATA, &self.stop, |port| {
            read(Pages::of_paths(port, leaving), each)
        });
        close(connection);
        listed
    }
}

fn read(
    mut pages: Pages,
    mut each: impl FnMut(Listed<'_>) -> ControlFlow<()>,
) -> Result<(), Error> {
    let mut top = Vec::new();
    let mut path = Vec::new();
    // Lengths of the paths of the open directories.
    let mut outer = Vec::new();
    loop {
        let flow = match pages.next()? {
            Sight::Leave => match outer.pop() {
                None => return Ok(()),
                Some(len) => {
                    path.truncate(len);
                    continue;
                }
            },
            Sight::Entry(seen) => {
                let len = path.len();
                let directory = seen.kind == EntryKind::Directory;
                let flow = match outer.is_empty() {
                    true => {
                        top.clone_from(&seen.name);
                        each(Listed::Top(&top, &entry(seen)))
                    }
                    false => {
                        push(&mut path, &seen.name);
                        each(Listed::Below(&path, &entry(seen)))
                    }
                };
                match directory {
                    true => outer.push(len),
                    false => path.truncate(len),
                }
                flow
            }
            Sight::Unseen { name, cause } => {
                let mut at = Vec::new();
                if !outer.is_empty() {
                    at.clone_from(&top);
                    push(&mut at, &path);
                }
                push(&mut at, &name);
                each(Listed::Failed(&Failure::new(&at, cause)))
            }
            Sight::Filters(_) => continue,
            Sight::Cut { cause } => {
                let mut at = top.clone();
                push(&mut at, &path);
                each(Listed::Failed(&Failure::new(&at, cause)))
            }
        };
        if flow.is_break() {
            return Ok(());
        }
    }
}

fn push(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() && !name.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

fn entry(seen: Seen) -> Entry {
    Entry {
        kind: seen.kind,
        size: seen.size,
        meta: seen.meta,
        target: match seen.detail {
            Detail::Link(target) => Some(target),
            _ => None,
        },
    }
}
