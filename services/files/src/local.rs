//! Opens the sources of a copy on this machine.

use crate::error::Cause;
use crate::links::{end_of, identity};
use crate::message::{CopyOptions, EntryKind};
use crate::root::kind_of;
use crate::send::Start;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::io::fcntl_dupfd_cloexec;
use std::collections::HashSet;
use std::io::stdin;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The input at `path` that can be read only once, such as a pipe, if this process has it open: `/dev/stdin`, or the
/// name that a shell gives to `<(command)`. `None` for anything else, such as a FIFO with its own name.
pub fn open_stream(path: &Path) -> Option<OwnedFd> {
    let (end, has_name) = end_of(path).ok()?;
    if has_name || kind_of(&end) != EntryKind::Special {
        return None;
    }
    let input = stdin();
    match fstat(&input).is_ok_and(|input| identity(&input) == identity(&end)) {
        // Opening a FIFO again would wait for another writer, and a socket cannot be opened.
        true => fcntl_dupfd_cloexec(input, 0).ok(),
        false => openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok(),
    }
}

/// The start of sending a local source. Symbolic links in its path belong to the user and are followed.
pub(crate) fn local_start(source: &Path, options: &CopyOptions) -> Start {
    find_local(source, options).unwrap_or_else(|cause| Start::Missing {
        path: source.as_os_str().as_bytes().to_vec(),
        cause,
    })
}

/// The starts of sending these sources, each once. Of two with one name the first is sent: they would be one at the
/// receiver.
pub(crate) fn local_starts(sources: &[PathBuf], options: &CopyOptions) -> Vec<Start> {
    let (mut paths, mut names) = (HashSet::new(), HashSet::new());
    let mut starts = Vec::new();
    for source in sources {
        let start = local_start(source, options);
        if let Start::Named { name, .. } = &start {
            if !paths.insert(source.as_path()) {
                continue;
            }
            if !names.insert(name.clone()) {
                starts.push(Start::Missing {
                    path: source.as_os_str().as_bytes().to_vec(),
                    cause: Cause::SameName,
                });
                continue;
            }
        }
        starts.push(start);
    }
    starts
}

fn find_local(source: &Path, options: &CopyOptions) -> Result<Start, Cause> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |path: &Path| openat(CWD, path, flags | OFlags::RDONLY, Mode::empty());
    let Some(name) = source.file_name().filter(|_| !is_contents(source)) else {
        let directory = open(source)?;
        return match options.recursive {
            true => Ok(Start::Contents(directory)),
            false => Err(Cause::NotRecursive),
        };
    };
    if source.as_os_str().as_bytes().ends_with(b"/") {
        // Only a directory may be written this way.
        open(source)?;
    }
    let parent = match source.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // O_PATH, because a directory that may not be listed is still usable.
    let directory = openat(CWD, parent, flags | OFlags::PATH, Mode::empty())?;
    Ok(Start::Named {
        directory,
        name: name.as_bytes().to_vec(),
    })
}

/// Whether a local source stands for the contents of a directory: it ends with `.`, or has no name of its own.
pub(crate) fn is_contents(source: &Path) -> bool {
    source.file_name().is_none() || source.as_os_str().as_bytes().ends_with(b"/.")
}
