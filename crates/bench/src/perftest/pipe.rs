//! What both kernel sockets can do for a run, and how they wait.

use std::io::{self, ErrorKind};
use std::time::Instant;

use anyhow::{Result, bail};

use super::content::Content;
use super::job::{Job, Streamed, Wait};
use crate::limits::STALL;

/// What the receiver of a stream says when its memory is ready, and when the last byte is there.
pub(crate) const GO: u8 = b'g';
pub(crate) const DONE: u8 = b'd';

/// A connection that carries messages whose lengths both ends know.
pub(crate) trait Pipe {
    /// Sends one message.
    fn send(&mut self, message: &[u8]) -> Result<()>;

    /// Fills `message` with the next one.
    fn receive(&mut self, message: &mut [u8]) -> Result<()>;

    /// Sends all messages of the job, as many at once as is best, when the receiver says so.
    fn send_stream(&mut self, job: &Job, content: &Content) -> Result<()>;

    /// Receives what [`Pipe::send_stream`] sends and checks each message.
    fn receive_stream(&mut self, job: &Job, content: &Content) -> Result<Streamed>;
}

/// Receives the one-byte message `word`.
pub(crate) fn await_word(pipe: &mut impl Pipe, word: u8) -> Result<()> {
    let mut heard = [0];
    pipe.receive(&mut heard)?;
    match heard == [word] {
        true => Ok(()),
        false => bail!(
            "the peer said {:?}, not {:?}",
            heard[0] as char,
            word as char
        ),
    }
}

/// Looks at an empty socket between two looks at the clock.
const LOOKS: u32 = 1 << 16;

/// Makes a call on a socket until it has done something. A socket that does not block is tried
/// again and again; one that blocks has [`STALL`] as its time-out.
pub(crate) fn insist<T>(wait: Wait, mut call: impl FnMut() -> io::Result<T>) -> Result<T> {
    let mut looks = 0_u32;
    let mut since = None;
    loop {
        match call() {
            Ok(done) => return Ok(done),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if is_idle(&error) && wait == Wait::Poll => {
                std::hint::spin_loop();
                looks += 1;
                if looks.is_multiple_of(LOOKS)
                    && since.get_or_insert_with(Instant::now).elapsed() > STALL
                {
                    return stalled();
                }
            }
            Err(error) if is_idle(&error) => return stalled(),
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_idle(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn stalled<T>() -> Result<T> {
    bail!("the peer did nothing for {} s", STALL.as_secs())
}
