//! One end of a run: a connection, memory of its own that the peer may reach, and the peer's.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use zerolane::{Completion, Connection, ExportedRegion, Region, RegionKey, Rights};

use super::super::super::contract::DONE;
use super::super::connection::await_word;
use crate::content::message::Content;
use crate::job::operations::{Operations, Wait};
use crate::limits::{self, STALL};
use crate::measured::Measured;

/// What each end says when its memory can be reached.
const READY: u8 = b'r';
/// The name of each end's memory.
const NAME: &str = "perftest";
/// Looks at an idle connection between two looks at the clock.
const LOOKS: u32 = 1 << 16;

/// One end of a run.
pub(super) struct End<'a> {
    pub(super) connection: Connection,
    pub(super) job: &'a Operations,
    /// This end's memory that the peer may reach.
    pub(super) exported: ExportedRegion,
    /// The peer's.
    pub(super) peer: RegionKey,
}

/// Memory for all messages that are in flight at once, made known under [`NAME`]: a peer in shared memory maps it. For
/// a get it holds what is to be got, in slot n the message of number n; for a fetch a word of 0.
fn export(
    connection: &mut Connection,
    job: &Operations,
    content: impl Fn(u64, usize) -> Content,
) -> Result<ExportedRegion> {
    let mut region = Region::memfd(job.size * job.depth)?;
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
    pub(super) fn responder(mut connection: Connection, job: &Operations) -> Result<End<'_>> {
        let exported = export(&mut connection, job, Content::reply)?;
        connection.send(&[READY])?;
        await_word(&mut connection, READY)?;
        let peer = connection.open_region(NAME, Rights::ALL)?;
        Ok(End {
            connection,
            job,
            exported,
            peer,
        })
    }

    pub(super) fn initiator(mut connection: Connection, job: &Operations) -> Result<End<'_>> {
        let exported = export(&mut connection, job, Content::new)?;
        await_word(&mut connection, READY)?;
        let peer = connection.open_region(NAME, Rights::ALL)?;
        connection.send(&[READY])?;
        Ok(End {
            connection,
            job,
            exported,
            peer,
        })
    }

    /// Says that this end is ready.
    pub(super) fn say_ready(&mut self) -> Result<()> {
        Ok(self.connection.send(&[READY])?)
    }

    /// Waits until the peer says that it is ready.
    pub(super) fn await_ready(&mut self) -> Result<()> {
        await_word(&mut self.connection, READY)
    }

    /// The next completion, however the job waits for it.
    pub(super) fn next(&mut self) -> Result<Completion> {
        self.next_within(STALL)
    }

    fn next_within(&mut self, patience: Duration) -> Result<Completion> {
        match self.job.wait {
            Wait::Event => self.connection.wait(Some(patience))?.context(STALLED),
            Wait::Poll => look(patience, || Ok(self.connection.poll()?)),
        }
    }

    /// Lets the peer use this end's memory until it says that it is done, which may take as long as the run.
    pub(super) fn serve(&mut self) -> Result<Measured> {
        self.connection.post_recv(Region::anonymous(1)?)?;
        is_done(self.next_within(limits::deadline(self.job.bytes()))?)?;
        Ok(Measured::default())
    }

    /// Tells a responder that serves that it may stop.
    pub(super) fn say_done(&mut self) -> Result<()> {
        Ok(self.connection.send(&[DONE])?)
    }

    /// Waits until the initiator, which may not know yet that all it said has come, closes the connection.
    pub(super) fn await_close(mut self) -> Result<()> {
        match self.connection.wait(Some(STALL)) {
            Err(_) => Ok(()),
            Ok(None) => bail!(STALLED),
            Ok(Some(more)) => bail!("{:?} came after the end", more.kind),
        }
    }
}

/// Whether `word` says that the initiator is done.
pub(super) fn is_done(word: Completion) -> Result<()> {
    word.result?;
    if word.into_region()[..] != [DONE] {
        bail!("the initiator said something else than that it is done");
    }
    Ok(())
}

/// Looks again and again until there is something, for so long.
pub(super) fn look<T>(patience: Duration, mut at: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let mut looks = 0_u32;
    let mut since = None;
    loop {
        if let Some(seen) = at()? {
            return Ok(seen);
        }
        looks += 1;
        if looks.is_multiple_of(LOOKS)
            && since.get_or_insert_with(Instant::now).elapsed() > patience
        {
            bail!(STALLED);
        }
    }
}

pub(super) const STALLED: &str = "the peer stalled";
