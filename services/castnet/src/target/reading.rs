//! Runs the consumers of content in order: the unpacking of a tree, and a command.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;

use crate::archive;
use crate::error::Error;
use crate::feed::{Feed, FeedReader};

use super::beside::{make_directory, stands_at};
use super::family::Family;

/// How often it is asked whether the content was given up.
const LOOK: Duration = Duration::from_millis(20);

/// Unpacks an archive into a directory, anew.
pub(super) fn unpack(into: &Path, content: FeedReader) -> Result<(), Error> {
    let directory = File::from(make_directory(into)?);
    let unpacked = archive::unpack(directory.as_fd(), content).and_then(|()| directory.metadata());
    let what = format!("unpacking into {}", into.display());
    match stands_at(into, &unpacked.map_err(Error::io(what))?) {
        true => Ok(()),
        false => Err(Error::InTheWay(into.to_owned())),
    }
}

/// Runs a shell command that reads the content. If the content stays incomplete, the command is ended. Its standard
/// input stays open until it is gone, because an end of file would present a part as the whole.
pub(super) fn run(command: &str, mut content: FeedReader) -> Result<(), Error> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::piped());
    let mut family = Family::start(&mut shell).map_err(Error::io("sh"))?;
    let feed = Arc::clone(&content.feed);
    let mut input = Input {
        pipe: family.first.stdin.take().expect("it is piped"),
        feed: Arc::clone(&feed),
    };
    let copied = input
        .never_blocks()
        .and_then(|()| io::copy(&mut content, &mut input));
    let reads_no_more = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    let status = match &copied {
        Err(error) if !reads_no_more(error) => family.end(),
        _ => {
            drop(input);
            wait(family, &feed)
        }
    };
    let status = status.map_err(Error::io("waiting for the command"))?;
    match (status.success(), copied) {
        (true, Ok(_)) => Ok(()),
        (true, Err(error)) => Err(Error::io("the command did not read all of the content")(
            error,
        )),
        (false, _) => Err(Error::Command(format!("the command ended with {status}"))),
    }
}

/// The standard input of a command.
struct Input {
    pipe: ChildStdin,
    feed: Arc<Feed>,
}

impl Input {
    fn never_blocks(&self) -> io::Result<()> {
        // The other end, which is the command's, is not changed by this.
        Ok(fcntl_setfl(&self.pipe, OFlags::NONBLOCK)?)
    }
}

impl Write for Input {
    /// Waits for a command that does not read, until the content is given up.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.pipe.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            if self.feed.is_given_up() {
                return Err(io::Error::other("the rest of the content did not arrive"));
            }
            let mut watched = [PollFd::new(&self.pipe, PollFlags::OUT)];
            let look = Timespec {
                tv_sec: 0,
                tv_nsec: LOOK.subsec_nanos().into(),
            };
            match poll(&mut watched, Some(&look)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits for the end of a command that reads no more, or ends it when the content is given up.
fn wait(mut family: Family, feed: &Feed) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = family.first.try_wait()? {
            return Ok(status);
        }
        if feed.is_given_up() {
            return family.end();
        }
        thread::sleep(LOOK);
    }
}
