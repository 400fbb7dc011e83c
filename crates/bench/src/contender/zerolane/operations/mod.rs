//! Zerolane's side: remote memory and messages, as a user of the library would have them.
//!
//! Polling, an end calls [`Connection::poll`] again and again and looks at its memory; for events it
//! sleeps in [`Connection::wait`] without spinning first. A blocking call of the library spins
//! without end in the one case and not at all in the other.

mod latency;
mod stream;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use zerolane::{Completion, Connection, ExportedRegion, Region, RegionKey, Rights};

use super::super::DONE;
use super::await_word;
use crate::content::message::Content;
use crate::job::operations::{Operations, Wait};
use crate::job::test::Test;
use crate::limits::STALL;
use crate::measured::Measured;

/// What each end says when its memory can be reached.
const READY: u8 = b'r';
/// The name of each end's memory.
const NAME: &str = "perftest";
/// Looks at an idle connection between two looks at the clock.
const LOOKS: u32 = 1 << 16;

/// One end of a run.
struct End<'a> {
    connection: Connection,
    job: &'a Operations,
    /// This end's memory that the peer may reach.
    exported: ExportedRegion,
    /// The peer's.
    peer: RegionKey,
}

/// How long a connection looks again and again inside its blocking calls, before it sleeps.
pub(super) fn spin(job: &Operations) -> Duration {
    match job.wait {
        Wait::Poll => STALL,
        Wait::Event => Duration::ZERO,
    }
}

/// Answers what the initiator of `job` asks.
pub(super) fn respond(mut connection: Connection, job: &Operations) -> Result<Measured> {
    let exported = export(&mut connection, job, Content::reply)?;
    connection.send(&[READY])?;
    await_word(&mut connection, READY)?;
    let peer = connection.open_region(NAME, Rights::ALL)?;
    let mut end = End {
        connection,
        job,
        exported,
        peer,
    };
    let measured = match job.test {
        Test::PutLat => latency::answer_puts(&mut end),
        Test::SendLat => latency::answer_messages(&mut end),
        Test::SendBw => stream::receive_messages(&mut end),
        Test::PutBw | Test::PutRate => stream::be_put_to(&mut end),
        Test::GetLat | Test::GetBw | Test::FetchLat => end.serve(),
    }?;
    end.await_close()?;
    Ok(measured)
}

/// Does the operations of `job`.
pub(super) fn initiate(mut connection: Connection, job: &Operations) -> Result<Measured> {
    let exported = export(&mut connection, job, Content::new)?;
    await_word(&mut connection, READY)?;
    let peer = connection.open_region(NAME, Rights::ALL)?;
    connection.send(&[READY])?;
    let mut end = End {
        connection,
        job,
        exported,
        peer,
    };
    let measured = match job.test {
        Test::PutLat => latency::puts(&mut end),
        Test::GetLat => latency::gets(&mut end),
        Test::FetchLat => latency::fetches(&mut end),
        Test::SendLat => latency::messages(&mut end),
        Test::PutBw | Test::PutRate => stream::puts(&mut end),
        Test::GetBw => stream::gets(&mut end),
        Test::SendBw => stream::messages(&mut end),
    }?;
    end.connection.close()?;
    Ok(measured)
}

/// Memory for all messages that are under way at once, made known under [`NAME`]. For a get it
/// holds what is to be got, in slot n the message of number n; for a fetch a word of 0.
fn export(
    connection: &mut Connection,
    job: &Operations,
    content: impl Fn(u64, usize) -> Content,
) -> Result<ExportedRegion> {
    let mut region = Region::anonymous(job.size * job.depth)?;
    if job.test.is_inward() {
        let content = content(job.seed, job.size);
        for (slot, message) in region.chunks_mut(job.size).enumerate() {
            content.fill(message);
            content.stamp(message, slot as u64);
        }
    }
    let Ok(exported) = ExportedRegion::new(region) else {
        bail!("fresh memory is not aligned");
    };
    connection.export_named(NAME, &exported, Rights::ALL)?;
    Ok(exported)
}

impl End<'_> {
    /// The next completion, however the job waits for it.
    fn next(&mut self) -> Result<Completion> {
        match self.job.wait {
            Wait::Event => self.connection.wait(Some(STALL))?.context(STALLED),
            Wait::Poll => look(|| Ok(self.connection.poll()?)),
        }
    }

    /// Lets the peer use this end's memory until it says that it is done.
    fn serve(&mut self) -> Result<Measured> {
        self.connection.post_recv(Region::anonymous(1)?)?;
        let word = self.next()?;
        word.result?;
        if word.into_region()[..] != [DONE] {
            bail!("the initiator said something else than that it is done");
        }
        Ok(Measured::default())
    }

    /// Tells a responder that serves that it may stop.
    fn say_done(&mut self) -> Result<()> {
        Ok(self.connection.send(&[DONE])?)
    }

    /// Waits until the initiator, which may not know yet that all it said has come, closes the connection.
    fn await_close(mut self) -> Result<()> {
        match self.connection.wait(Some(STALL)) {
            Err(_) => Ok(()),
            Ok(None) => bail!(STALLED),
            Ok(Some(more)) => bail!("{:?} came after the end", more.kind),
        }
    }
}

/// Looks again and again until there is something.
fn look<T>(mut at: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let mut looks = 0_u32;
    let mut since = None;
    loop {
        if let Some(seen) = at()? {
            return Ok(seen);
        }
        looks += 1;
        if looks.is_multiple_of(LOOKS) && since.get_or_insert_with(Instant::now).elapsed() > STALL {
            bail!(STALLED);
        }
    }
}

const STALLED: &str = "the peer stalled";
