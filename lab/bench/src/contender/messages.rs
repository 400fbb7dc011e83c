//! Sends and receives messages over the kernel's sockets, by polling or asleep.

use std::io::{self, ErrorKind};
use std::time::Instant;

use anyhow::Result;

use super::contract::expect_word;
use super::gave_up::GaveUp;
use crate::content::message::Content;
use crate::cpu::{Core, CpuTime};
use crate::job::operations::{Operations, Wait};
use crate::limits::STALL;
use crate::measured::Measured;

/// A connection that carries messages whose lengths both ends know.
pub(super) trait Pipe {
    /// Sends one message.
    fn send(&mut self, message: &[u8]) -> Result<()>;

    /// Fills `message` with the next one.
    fn receive(&mut self, message: &mut [u8]) -> Result<()>;

    /// Sends all messages of the job, as many at once as is best, when the receiver says so. The CPU time of that.
    fn send_stream(
        &mut self,
        job: &Operations,
        content: &Content,
        core: Core<'_>,
    ) -> Result<CpuTime>;

    /// Receives what [`Pipe::send_stream`] sends and checks each message.
    fn receive_stream(
        &mut self,
        job: &Operations,
        content: &Content,
        core: Core<'_>,
    ) -> Result<Measured>;
}

/// Receives the one-byte message `word`.
pub(super) fn await_word(pipe: &mut impl Pipe, word: u8) -> Result<()> {
    let mut heard = [0];
    pipe.receive(&mut heard)?;
    expect_word(heard[0], word)
}

/// Looks at an empty socket between two looks at the clock.
const LOOKS: u32 = 1 << 16;

/// Makes a call on a socket until it has done something. A socket that does not block is tried
/// again and again; one that blocks has [`STALL`] as its time-out.
pub(super) fn insist<T>(wait: Wait, mut call: impl FnMut() -> io::Result<T>) -> Result<T> {
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

/// Whether a call on a socket failed only because there is nothing to do.
pub(super) fn is_idle(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn stalled<T>() -> Result<T> {
    Err(GaveUp("the peer did nothing for too long").into())
}
