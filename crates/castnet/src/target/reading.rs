//! What reads content in order, as it comes: what unpacks a tree, and a command.

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::error::Error;
use crate::feed::{Feed, FeedReader};
use crate::limits::COMMAND_PATIENCE;

use super::paths::remove_all;

/// How often it is asked whether the content was given up, in milliseconds.
const LOOK_MS: u8 = 20;

/// Unpacks an archive into a directory, anew.
pub(super) fn unpack(into: &Path, content: FeedReader) -> Result<(), Error> {
    let what = || format!("unpacking into {}", into.display());
    if into.symlink_metadata().is_ok() {
        remove_all(into).map_err(Error::io(what()))?;
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

/// Has a command of the shell read the content. If the rest does not come it is ended, whether it reads or not. Until it
/// is gone its standard input stays open: an end would tell it that a part is the whole.
pub(super) fn run(command: &str, mut content: FeedReader) -> Result<(), Error> {
    let mut shell = Command::new("sh");
    // A group of its own, with which all ends that it starts.
    shell.arg("-c").arg(command).process_group(0);
    let child = shell.stdin(Stdio::piped()).spawn();
    let mut child = child.map_err(Error::io("sh"))?;
    let feed = Arc::clone(&content.feed);
    let mut input = Input {
        pipe: child.stdin.take().expect("it is piped"),
        feed: Arc::clone(&feed),
    };
    let copied = input
        .never_blocks()
        .and_then(|()| io::copy(&mut content, &mut input));
    let reads_no_more = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    let status = match &copied {
        Err(error) if !reads_no_more(error) => end(&mut child),
        _ => {
            drop(input);
            wait(&mut child, &feed)
        }
    };
    let status = status.map_err(Error::io("waiting for the command"))?;
    match (status.success(), copied) {
        (true, Ok(_)) => Ok(()),
        (true, Err(error)) => Err(Error::io("the command did not read all")(error)),
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
        fcntl(&self.pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(())
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
                return Err(io::Error::other("the rest of the content did not come"));
            }
            let mut watched = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLOUT)];
            match poll(&mut watched, LOOK_MS) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits for the end of a command that reads no more, or ends it when the content is given up.
fn wait(child: &mut Child, feed: &Feed) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if feed.is_given_up() {
            return end(child);
        }
        thread::sleep(Duration::from_millis(u64::from(LOOK_MS)));
    }
}

/// Ends a command, and all that it started: by SIGTERM, which it may catch to clean up, at last by SIGKILL.
fn end(child: &mut Child) -> io::Result<ExitStatus> {
    let group = Pid::from_raw(child.id().cast_signed());
    // Those that are gone already need none.
    let _ = killpg(group, Signal::SIGTERM);
    let until = Instant::now() + COMMAND_PATIENCE;
    // It stays a zombie, so that the number of its group is no other's.
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while waitid(Id::Pid(group), look) == Ok(WaitStatus::StillAlive) && Instant::now() < until {
        thread::sleep(Duration::from_millis(u64::from(LOOK_MS)));
    }
    let _ = killpg(group, Signal::SIGKILL);
    child.wait()
}
