//! What reads content in order, as it comes: what unpacks a tree, and a command.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::Error;
use crate::feed::FeedReader;

/// Unpacks an archive into a directory, anew.
pub(super) fn unpack(into: &Path, content: FeedReader) -> Result<(), Error> {
    let what = || format!("unpacking into {}", into.display());
    if into.symlink_metadata().is_ok() {
        fs::remove_dir_all(into).map_err(Error::io(what()))?;
    }
    fs::create_dir(into).map_err(Error::io(what()))?;
    let mut archive = tar::Archive::new(content);
    archive.set_preserve_permissions(true);
    archive.set_preserve_mtime(true);
    archive.unpack(into).map_err(Error::io(what()))?;
    // What follows the last entry belongs to the archive.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(Error::io(what()))?;
    Ok(())
}

/// Has a command of the shell read the content.
pub(super) fn run(command: &str, mut content: FeedReader) -> Result<(), Error> {
    let child = Command::new("sh")
        .arg("-c")
        .arg(command)
        .stdin(Stdio::piped())
        .spawn();
    let mut child = child.map_err(Error::io("sh"))?;
    let mut input = child.stdin.take();
    let copied = input
        .as_mut()
        .map_or(Ok(0), |input| io::copy(&mut content, input));
    drop(input);
    if let Err(error) = &copied
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        // It must not take a part for the whole.
        let _ = child.kill();
    }
    let status = child.wait().map_err(Error::io("waiting for the command"))?;
    match (status.success(), copied) {
        (true, Ok(_)) => Ok(()),
        (true, Err(error)) => Err(Error::io("the command did not read all")(error)),
        (false, _) => Err(Error::Command(format!("the command ended with {status}"))),
    }
}
