//! Reads standard input and other streams until the user asks to stop.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, poll};

/// Poll interval for a stop while no input arrives, milliseconds.
const LOOK_MS: u8 = 100;

/// Whether the path is a stream, which can only be read in order: a FIFO, a terminal or another character device.
pub(crate) fn is_stream(path: &Path) -> bool {
    let kind = fs::metadata(path).map(|it| it.file_type());
    kind.is_ok_and(|it| it.is_fifo() || it.is_char_device())
}

/// Standard input, or another stream. After a stop, reads return an error.
pub(crate) struct Input<F> {
    from: File,
    stopped: F,
}

impl<F: Fn() -> bool> Input<F> {
    /// Standard input, which must be unread. `stopped` returns whether the user asked to stop.
    pub(crate) fn new(stopped: F) -> io::Result<Input<F>> {
        let from = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        Ok(Input { from, stopped })
    }

    /// The stream at `path`. A FIFO without a writer opens at once; the first read waits for a writer.
    pub(crate) fn open(path: &Path, stopped: F) -> io::Result<Input<F>> {
        let mut options = OpenOptions::new();
        let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
        let from = options.read(true).custom_flags(flags).open(path)?;
        Ok(Input { from, stopped })
    }
}

impl<F: Fn() -> bool> Read for Input<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if (self.stopped)() {
                return Err(io::Error::other("stopped"));
            }
            let mut watched = [PollFd::new(self.from.as_fd(), PollFlags::POLLIN)];
            match poll(&mut watched, LOOK_MS) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => match self.from.read(into) {
                    // Another process read it first.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return read,
                },
                Err(error) => return Err(error.into()),
            }
        }
    }
}
