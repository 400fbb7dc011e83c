//! Standard input as a content.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};

use crate::interrupt::Interrupt;

/// How often a stop is looked for while nothing comes, in milliseconds.
const LOOK_MS: u8 = 100;

/// Standard input. It ends with an error once the user asked to stop.
pub(super) struct Input<'a> {
    from: File,
    interrupt: &'a Interrupt,
}

impl<'a> Input<'a> {
    /// What this process has as standard input, of which nothing was read before.
    pub(super) fn new(interrupt: &'a Interrupt) -> io::Result<Input<'a>> {
        let from = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        Ok(Input { from, interrupt })
    }
}

impl Read for Input<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.interrupt.requested() {
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
