//! The sources on this machine.

use crate::error::Cause;
use crate::message::CopyOptions;
use crate::send::Start;
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Where sending a local source starts. Symbolic links on the way to it are the user's own and
/// followed; the source itself, if it is one, is sent as a link.
pub(crate) fn local_start(source: &Path, options: &CopyOptions) -> Start {
    find_local(source, options).unwrap_or_else(|cause| Start::Missing {
        path: source.as_os_str().as_bytes().to_vec(),
        cause,
    })
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
        // Only a directory may be written so.
        open(source)?;
    }
    let parent = match source.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // One that may not be listed is no obstacle.
    let directory = openat(CWD, parent, flags | OFlags::PATH, Mode::empty())?;
    Ok(Start::Named {
        directory,
        name: name.as_bytes().to_vec(),
    })
}

/// Whether a local source stands for what is in a directory: it ends with `.`, or has no name of its own.
pub(super) fn is_contents(source: &Path) -> bool {
    source.file_name().is_none() || source.as_os_str().as_bytes().ends_with(b"/.")
}
