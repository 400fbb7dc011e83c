//! Many operations in flight at once.
//!
//! There is a slot of memory for each of them at both ends; they take turns. Small puts are copied
//! when posted and tell of their completion one in [`SIGNAL_EVERY`], as in perftest (`--cq-mod`):
//! they take effect in order, so one tells of all before it.

use std::collections::HashMap;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use zerolane::failure::PostError;
use zerolane::request::{MAX_CONTROL, MAX_INLINE, WorkKind};
use zerolane::{Completion, Error, Region, TransferId, Work};

use super::end::End;
use crate::content::message::Content;
use crate::job::operations::Operations;
use crate::measured::Measured;

/// Small puts for which one tells of its completion.
const SIGNAL_EVERY: u64 = 64;

/// The slots' own memory, and which of them is in flight for what.
struct Slots {
    /// By slot; `None` while it is posted.
    here: Vec<Option<Region>>,
    posted: HashMap<TransferId, Posted>,
}

/// An operation in flight.
struct Posted {
    slot: usize,
    index: u64,
    /// The slot's memory, if it was not posted: control bytes are copied.
    kept: Option<Region>,
}

impl Slots {
    /// Slots with the content of their messages.
    fn new(job: &Operations, content: &Content) -> Result<Slots> {
        let slot = || -> Result<Option<Region>> {
            let mut region = Region::anonymous(job.size)?;
            content.fill(&mut region);
            Ok(Some(region))
        };
        Ok(Slots {
            here: (0..job.depth).map(|_| slot()).collect::<Result<_>>()?,
            posted: HashMap::new(),
        })
    }

    /// The slot of this operation, if it is free.
    fn take(&mut self, index: u64) -> Option<(usize, Region)> {
        // Less than the number of slots.
        let slot = (index % self.here.len() as u64) as usize;
        Some((slot, self.here[slot].take()?))
    }

    /// The operation that is over, and its slot's memory, which stays with the slot.
    fn put_back(&mut self, done: Completion) -> Result<(u64, &mut Region)> {
        let posted = self.posted.remove(&done.id);
        let Posted { slot, index, kept } = posted.context("an operation of nobody")?;
        done.result?;
        let region = kept.unwrap_or_else(|| done.into_region());
        Ok((index, self.here[slot].insert(region)))
    }
}

/// Puts, from the first one posted to the last one complete. Seconds are those of the puts: their
/// memory was filled before.
pub(super) fn puts(end: &mut End<'_>) -> Result<Measured> {
    let seconds = match end.job.size <= MAX_INLINE {
        true => inline_puts(end)?,
        false => placed_puts(end)?,
    };
    end.say_done()?;
    Ok(Measured::stream(end.job.bytes(), seconds))
}

fn inline_puts(end: &mut End<'_>) -> Result<f64> {
    let job = end.job;
    let content = Content::new(job.seed, job.size);
    let mut message = vec![0; job.size];
    content.fill(&mut message);
    let every = SIGNAL_EVERY.min(job.depth as u64);
    let (mut posted, mut complete, started) = (0, 0, Instant::now());
    while complete < job.rounds() {
        while posted < job.rounds() && posted - complete < job.depth as u64 {
            content.stamp(&mut message, posted);
            let offset = posted % job.depth as u64 * job.size as u64;
            let tells = (posted + 1).is_multiple_of(every) || posted + 1 == job.rounds();
            let work = match tells {
                true => Work::default(),
                false => Work::default().unsignalled(),
            };
            let connection = &mut end.connection;
            match connection.post_put_inline(&end.peer, offset, &message, work) {
                Ok(_) => posted += 1,
                Err(Error::Post(PostError::Full)) => break,
                Err(error) => return Err(error.into()),
            }
        }
        end.next()?.result?;
        complete = (complete + every).min(job.rounds());
    }
    Ok(started.elapsed().as_secs_f64())
}

fn placed_puts(end: &mut End<'_>) -> Result<f64> {
    let job = end.job;
    let content = Content::new(job.seed, job.size);
    let mut slots = Slots::new(job, &content)?;
    let (mut index, started) = (0, Instant::now());
    while index < job.rounds() || !slots.posted.is_empty() {
        while index < job.rounds()
            && let Some((slot, mut region)) = slots.take(index)
        {
            content.stamp(&mut region, index);
            let offset = (slot * job.size) as u64;
            let id = end
                .connection
                .post_put(&end.peer, offset, region, Work::default())?;
            slots.posted.insert(
                id,
                Posted {
                    slot,
                    index,
                    kept: None,
                },
            );
            index += 1;
        }
        slots.put_back(end.next()?)?;
    }
    Ok(started.elapsed().as_secs_f64())
}

/// The other end of [`puts`]: its memory holds the last message of each slot.
pub(super) fn be_put_to(end: &mut End<'_>) -> Result<Measured> {
    let served = end.serve()?;
    let job = end.job;
    let content = Content::new(job.seed, job.size);
    let mut message = vec![0; job.size];
    for index in job.rounds().saturating_sub(job.depth as u64)..job.rounds() {
        let slot = (index % job.depth as u64) as usize;
        end.exported.read(slot * job.size, &mut message);
        content.check_all(&message, index)?;
    }
    Ok(served)
}

/// Gets, from the first one posted to the last one complete.
pub(super) fn gets(end: &mut End<'_>) -> Result<Measured> {
    let job = end.job;
    let content = Content::reply(job.seed, job.size);
    let mut slots = Slots::new(job, &content)?;
    let (mut index, started) = (0, Instant::now());
    while index < job.rounds() || !slots.posted.is_empty() {
        while index < job.rounds()
            && let Some((slot, mut region)) = slots.take(index)
        {
            // So that what an earlier get brought does not look right.
            content.stamp(&mut region, u64::MAX);
            let offset = (slot * job.size) as u64;
            let id = end
                .connection
                .post_get(&end.peer, offset, region, Work::default())?;
            let posted = Posted {
                slot,
                index: slot as u64,
                kept: None,
            };
            slots.posted.insert(id, posted);
            index += 1;
        }
        let (slot, region) = slots.put_back(end.next()?)?;
        content.check(region, slot)?;
    }
    let seconds = started.elapsed().as_secs_f64();
    for (slot, region) in slots.here.iter().enumerate() {
        let region = region.as_ref().context("a slot is still posted")?;
        if (slot as u64) < job.rounds() {
            content.check_all(region, slot as u64)?;
        }
    }
    end.say_done()?;
    Ok(Measured::stream(job.bytes(), seconds))
}

/// Sends messages.
pub(super) fn messages(end: &mut End<'_>) -> Result<Measured> {
    let job = end.job;
    let content = Content::new(job.seed, job.size);
    let mut slots = Slots::new(job, &content)?;
    let mut index = 0;
    end.await_ready()?;
    while index < job.rounds() || !slots.posted.is_empty() {
        while index < job.rounds()
            && let Some((slot, mut region)) = slots.take(index)
        {
            content.stamp(&mut region, index);
            let connection = &mut end.connection;
            let work = Work::default();
            let (id, kept) = match job.size <= MAX_CONTROL {
                true => (connection.post_message(&region, None, work)?, Some(region)),
                false => (
                    connection.post_message(&[], Some(region.into()), work)?,
                    None,
                ),
            };
            slots.posted.insert(id, Posted { slot, index, kept });
            index += 1;
        }
        slots.put_back(end.next()?)?;
    }
    Ok(Measured::default())
}

/// The other end of [`messages`], from the go to the last one received.
pub(super) fn receive_messages(end: &mut End<'_>) -> Result<Measured> {
    let job = end.job;
    let content = Content::new(job.seed, job.size);
    let mut slots = Slots::new(job, &content)?;
    let mut posted = 0;
    expect(end, &mut slots, &mut posted)?;
    end.say_ready()?;
    let started = Instant::now();
    for index in 0..job.rounds() {
        let message = end.next()?;
        ensure!(
            message.kind == WorkKind::MessageReceived,
            "{:?} came instead of a message",
            message.kind
        );
        if job.size <= MAX_CONTROL {
            content.check_all(&message.control, index)?;
        }
        // One of several datagrams may be complete before the one in front of it, of which a datagram is on its way
        // again; the n-th receive has the n-th message all the same.
        let (received, region) = slots.put_back(message)?;
        if job.size > MAX_CONTROL {
            content.check(region, received)?;
        }
        expect(end, &mut slots, &mut posted)?;
    }
    Ok(Measured::stream(
        job.bytes(),
        started.elapsed().as_secs_f64(),
    ))
}

/// Posts a receive for each slot that is free.
fn expect(end: &mut End<'_>, slots: &mut Slots, posted: &mut u64) -> Result<()> {
    while *posted < end.job.rounds()
        && let Some((slot, region)) = slots.take(*posted)
    {
        let (payload, kept) = match end.job.size <= MAX_CONTROL {
            true => (None, Some(region)),
            false => (Some(region), None),
        };
        let id = end.connection.post_message_recv(payload)?;
        let index = *posted;
        slots.posted.insert(id, Posted { slot, index, kept });
        *posted += 1;
    }
    Ok(())
}
