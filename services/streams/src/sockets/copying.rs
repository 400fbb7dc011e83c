//! Copies bytes between a program's end and a TCP connection that Zerolane does not carry after all.

use crate::passing::After;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes read before they are written: what one read of a fast socket returns.
const BUFFER_BYTES: usize = 64 << 10;
/// Reads and writes in one turn, so that one busy socket does not keep others waiting.
const STEPS: usize = 4;

/// Both directions.
#[derive(Debug, Default)]
pub(super) struct Copying {
    out: Half,
    back: Half,
}

/// One direction.
#[derive(Debug, Default)]
struct Half {
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    read_over: bool,
    write_over: bool,
    bytes: u64,
}

/// Why a direction goes no further now.
enum Step {
    Sleeps,
    GoesOn,
    Over,
}

impl Copying {
    /// Copies in both directions. `program` and `tcp` do not block.
    pub(super) fn pass(&mut self, program: BorrowedFd<'_>, tcp: BorrowedFd<'_>) -> After {
        let steps = self
            .out
            .pass(program, tcp)
            .and_then(|out| Ok((out, self.back.pass(tcp, program)?)));
        match steps {
            Err(error) => After::Failed(error.to_string()),
            Ok((Step::Over, Step::Over)) => After::Over,
            Ok((Step::GoesOn, _) | (_, Step::GoesOn)) => After::GoesOn,
            Ok(_) => After::Sleeps,
        }
    }

    /// Bytes from the program, and to it.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.out.bytes, self.back.bytes)
    }
}

impl Half {
    fn pass(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<Step, Errno> {
        for _ in 0..STEPS {
            if self.write_over {
                return Ok(Step::Over);
            }
            if self.from == self.to && !self.read_over {
                self.buffer.resize(BUFFER_BYTES, 0);
                match rustix::io::read(from.as_fd(), &mut self.buffer[..]) {
                    Ok(0) => self.read_over = true,
                    Ok(len) => (self.from, self.to) = (0, len),
                    Err(Errno::AGAIN) => {
                        self.buffer = Vec::new();
                        (self.from, self.to) = (0, 0);
                        return Ok(Step::Sleeps);
                    }
                    Err(Errno::INTR) => continue,
                    Err(error) => return Err(error),
                }
            }
            if self.from == self.to {
                // A socket that has failed says so at the next read.
                let _ = shutdown(to, Shutdown::Write);
                self.write_over = true;
                self.buffer = Vec::new();
                return Ok(Step::Over);
            }
            match send(to, &self.buffer[self.from..self.to], SendFlags::NOSIGNAL) {
                Ok(len) => {
                    self.from += len;
                    self.bytes += len as u64;
                }
                Err(Errno::AGAIN) => return Ok(Step::Sleeps),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Step::GoesOn)
    }
}
