//! Standard input, of which a stop ends the reading.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};

/// How often a stop is looked for while nothing comes, in milliseconds.
const LOOK_MS: u8 = 100;

/// Standard input. It ends with an error once the user asked to stop.
pub(crate) struct Input<F> {
    from: File,
    stopped: F,
}

impl<F: Fn() -> bool> Input<F> {
    /// What this process has as standard input, of which nothing was read before. `stopped`: whether the user asked to stop.
    pub(crate) fn new(stopped: F) -> io::Result<Input<F>> {
        let from = File::from(io::stdin().as_fd().try_clone_to_owned()?);
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
                Ok(_) => return self.from.read(into),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
