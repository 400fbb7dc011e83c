//! Keeps many operations in flight at once, for rates and bandwidths.
//!
//! Each has a slot of memory at both ends, and the slots take turns. Small puts are copied when posted, and one in
//! [`SIGNAL_EVERY`] signals its completion, as in perftest (`--cq-mod`): puts take effect in order, so one completion covers
//! all before it.
//!
//! No slot can pass an old message off as a new one: it is 0 before the first message, and the last message of each slot, of
//! which every byte is checked, has memory of its own.

use std::collections::HashMap;
use std::mem;
use std::time::Instant;

use anyhow::{Context, Result};
use zerolane::failure::PostError;
use zerolane::request::{Get, MAX_CONTROL, MAX_INLINE, Message, Put, PutInline, ReceiveMessage};
use zerolane::{Completion, Error, Region, RequestId};

use super::end::End;
use crate::content::message::Content;
use crate::cpu::Meter;
use crate::job::operations::Operations;
use crate::measured::Measured;

/// Small puts for which one tells of its completion.
const SIGNAL_EVERY: u64 = 64;

/// The slots' own memory, and which of them is in flight for what.
struct Slots {
    /// By slot; `None` while it is posted.
    here: Vec<Option<Region>>,
    /// By slot, what its last message comes to; nothing where messages only leave.
    last: Vec<Region>,
    /// The first operation that is the last of its slot.
    last_from: u64,
    posted: HashMap<RequestId, Posted>,
}

/// An operation in flight.
struct Posted {
    slot: usize,
    index: u64,
    /// The slot's memory, if it was not posted: control bytes are copied.
    kept: Option<Region>,
}

impl Slots {
    /// Slots with the content of the messages that leave from them.
    fn filled(job: &Operations, content: &Content) -> Result<Slots> {
        let mut here = regions(job)?;
        here.iter_mut().for_each(|region| content.fill(region));
        Ok(Slots::of(job, here, Vec::new()))
    }

    /// Slots for messages that come.
    fn empty(job: &Operations) -> Result<Slots> {
        let [mut here, mut last] = [regions(job)?, regions(job)?];
        // Every page is touched before the clock runs.
        here.iter_mut().for_each(|region| region.fill(0));
        last.iter_mut().for_each(|region| region.fill(0));
        Ok(Slots::of(job, here, last))
    }

    fn of(job: &Operations, here: Vec<Region>, last: Vec<Region>) -> Slots {
        Slots {
            here: here.into_iter().map(Some).collect(),
            last,
            last_from: job.rounds().saturating_sub(job.depth as u64),
            posted: HashMap::new(),
        }
    }

    /// The slot of this operation, if it is free.
    fn take(&mut self, index: u64) -> Option<(usize, Region)> {
        // Less than the number of slots.
        let slot = (index % self.here.len() as u64) as usize;
        let mut region = self.here[slot].take()?;
        if index >= self.last_from
            && let Some(last) = self.last.get_mut(slot)
        {
            mem::swap(last, &mut region);
        }
        Some((slot, region))
    }

    /// Checks every byte of the last message that came to each slot; `number` is that of an operation's message.
    fn check_last(
        &self,
        job: &Operations,
        content: &Content,
        number: impl Fn(u64) -> u64,
    ) -> Result<()> {
        for index in self.last_from..job.rounds() {
            let slot = (index % self.here.len() as u64) as usize;
            let region = self.here[slot].as_ref();
            content.check_all(region.context("a slot is still posted")?, number(index))?;
        }
        Ok(())
    }

    /// The operation that is over, and its slot's memory, which stays with the slot.
    fn put_back(&mut self, done: Completion) -> Result<(u64, &mut Region)> {
        let posted = self.posted.remove(&done.id);
        let Posted { slot, index, kept } = posted.context("a completion without an operation")?;
        done.result?;
        let region = kept.map_or_else(|| done.into_region(), Ok)?;
        Ok((index, self.here[slot].insert(region)))
    }
}

/// Memory for a message in each slot.
fn regions(job: &Operations) -> Result<Vec<Region>> {
    let region = |_| Ok(Region::anonymous(job.size)?);
    (0..job.depth).map(region).collect()
}

/// Puts, from the first one posted to the last one complete. Seconds are those of the puts: their
/// memory was filled before.
pub(super) fn puts(end: &mut End<'_>) -> Result<Measured> {
    let measured = match end.job.size <= MAX_INLINE {
        true => inline_puts(end)?,
        false => placed_puts(end)?,
    };
    end.say_done()?;
    Ok(measured)
}

fn inline_puts(end: &mut End<'_>) -> Result<Measured> {
    let job = end.job;
    let content = Content::new(job.seed, job.size);
    let mut message = vec![0; job.size];
    content.fill(&mut message);
    let every = SIGNAL_EVERY.min(job.depth as u64);
    let (mut posted, mut complete, meter) = (0, 0, Meter::start(end.core));
    while complete < job.rounds() {
        while posted < job.rounds() && posted - complete < job.depth as u64 {
            content.stamp(&mut message, posted);
            let offset = posted % job.depth as u64 * job.size as u64;
            let tells = (posted + 1).is_multiple_of(every) || posted + 1 == job.rounds();
            let put = PutInline::new(&end.peer, offset, &message).signalled(tells);
            match end.connection.post(put) {
                Ok(_) => posted += 1,
                Err(refused) if matches!(refused.error, Error::Post(PostError::Full)) => break,
                Err(refused) => return Err(refused.into()),
            }
        }
        end.next()?.result?;
        complete = (complete + every).min(job.rounds());
    }
    Ok(metered(job, meter))
}

fn placed_puts(end: &mut End<'_>) -> Result<Measured> {
    let job = end.job;
    let content = Content::new(job.seed, job.size);
    let mut slots = Slots::filled(job, &content)?;
    let (mut index, meter) = (0, Meter::start(end.core));
    while index < job.rounds() || !slots.posted.is_empty() {
        while index < job.rounds()
            && let Some((slot, mut region)) = slots.take(index)
        {
            content.stamp(&mut region, index);
            let offset = (slot * job.size) as u64;
            let id = end.connection.post(Put::new(&end.peer, offset, region))?;
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
    Ok(metered(job, meter))
}

/// What the end has measured that times the job.
fn metered(job: &Operations, meter: Meter<'_>) -> Measured {
    let (seconds, cpu) = meter.stop();
    Measured {
        cpu,
        ..Measured::stream(job.bytes(), seconds)
    }
}

/// The other end of [`puts`]: its memory holds the last message of each slot.
pub(super) fn be_put_to(end: &mut End<'_>) -> Result<Measured> {
    let meter = Meter::start(end.core);
    let served = end.serve()?;
    let served = Measured {
        cpu: meter.stop().1,
        ..served
    };
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
    let mut slots = Slots::empty(job)?;
    let (mut index, started) = (0, Instant::now());
    while index < job.rounds() || !slots.posted.is_empty() {
        while index < job.rounds()
            && let Some((slot, mut region)) = slots.take(index)
        {
            // So that what an earlier get brought does not look right.
            content.stamp(&mut region, u64::MAX);
            let offset = (slot * job.size) as u64;
            let id = end.connection.post(Get::new(&end.peer, offset, region))?;
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
    let depth = job.depth as u64;
    // First, because nothing drives the connection during the check.
    end.say_done()?;
    slots.check_last(job, &content, |index| index % depth)?;
    Ok(Measured::stream(job.bytes(), seconds))
}

/// Sends messages.
pub(super) fn messages(end: &mut End<'_>) -> Result<Measured> {
    let content = Content::new(end.job.seed, end.job.size);
    send(end, &content)
}

fn send(end: &mut End<'_>, content: &Content) -> Result<Measured> {
    let job = end.job;
    let mut slots = Slots::filled(job, content)?;
    let mut index = 0;
    let meter = Meter::start(end.core);
    end.await_ready()?;
    while index < job.rounds() || !slots.posted.is_empty() {
        while index < job.rounds()
            && let Some((slot, mut region)) = slots.take(index)
        {
            content.stamp(&mut region, index);
            let connection = &mut end.connection;
            let (id, kept) = match job.size <= MAX_CONTROL {
                true => (connection.post(Message::new(&region[..]))?, Some(region)),
                false => (connection.post(Message::new(&[]).payload(region))?, None),
            };
            slots.posted.insert(id, Posted { slot, index, kept });
            index += 1;
        }
        slots.put_back(end.next()?)?;
    }
    Ok(Measured {
        cpu: meter.stop().1,
        ..Measured::default()
    })
}

/// The other end of [`messages`], from the go to the last one received.
pub(super) fn receive_messages(end: &mut End<'_>) -> Result<Measured> {
    let job = end.job;
    let content = Content::new(job.seed, job.size);
    let mut slots = Slots::empty(job)?;
    let mut posted = 0;
    expect(end, &mut slots, &mut posted)?;
    let meter = Meter::start(end.core);
    end.say_ready()?;
    let started = Instant::now();
    for index in 0..job.rounds() {
        let message = end.next()?;
        let control = message.control();
        let control = control
            .with_context(|| format!("received {:?} instead of a message", message.kind()))?;
        if job.size <= MAX_CONTROL {
            content.check_all(control, index)?;
        }
        // One of several datagrams may be complete before the one in front of it, of which a datagram is on its way
        // again; the n-th receive has the n-th message all the same.
        let (received, region) = slots.put_back(message)?;
        if job.size > MAX_CONTROL {
            content.check(region, received)?;
        }
        expect(end, &mut slots, &mut posted)?;
    }
    let seconds = started.elapsed().as_secs_f64();
    let (_, cpu) = meter.stop();
    if job.size > MAX_CONTROL {
        slots.check_last(job, &content, |index| index)?;
    }
    Ok(Measured {
        cpu,
        ..Measured::stream(job.bytes(), seconds)
    })
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
        let id = end
            .connection
            .post(ReceiveMessage::new().payload(payload))?;
        let index = *posted;
        slots.posted.insert(id, Posted { slot, index, kept });
        *posted += 1;
    }
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use zerolane_cli::exit::Exit;

    use super::super::end::tests::between;
    use super::*;
    use crate::job::operations::tests::operations;
    use crate::job::test::Test;

    fn job(test: Test) -> Operations {
        Operations {
            test,
            size: 5000,
            depth: 4,
            iters: 10,
            ..operations()
        }
    }

    /// Messages of which nothing comes but the stamp: the first ones, or the last one alone.
    #[test]
    fn Slots__what_did_not_come_is_not_there() {
        let job = job(Test::GetBw);
        let content = Content::reply(job.seed, job.size);
        for whole_until in [0, job.rounds() - 1, job.rounds()] {
            let mut slots = Slots::empty(&job).unwrap();
            for index in 0..job.rounds() {
                let (slot, mut region) = slots.take(index).unwrap();
                if index < whole_until {
                    content.fill(&mut region);
                }
                content.stamp(&mut region, index);
                content.check(&region, index).unwrap();
                slots.here[slot] = Some(region);
            }
            let checked = slots.check_last(&job, &content, |index| index);
            let code = checked.map_err(|error| Exit::of(&error));
            match whole_until == job.rounds() {
                true => assert_eq!(code, Ok(())),
                false => assert_eq!(code, Err(Exit::Corrupt), "{whole_until}"),
            }
        }
    }

    #[test]
    fn receive_messages__a_wrong_byte_between_the_stamps_is_corrupt() {
        let job = job(Test::SendBw);
        let received = |content: &Content| {
            let send = |end: &mut End<'_>| send(end, content);
            let [_, received] = between(&job, send, receive_messages);
            received.map_err(|error| Exit::of(&error))
        };
        let right = Content::new(job.seed, job.size);
        assert!(received(&right).is_ok());
        assert_eq!(received(&right.wrong_at(2500)), Err(Exit::Corrupt));
    }

    #[test]
    fn gets__a_wrong_byte_between_the_stamps_is_corrupt() {
        let job = job(Test::GetBw);
        let got = |wrong: u8| {
            let respond = |end: &mut End<'_>| {
                let mut byte = [0];
                let at = 3 * job.size + 2500;
                end.exported.read(at, &mut byte);
                end.exported.write(at, &[byte[0] ^ wrong]);
                end.serve()
            };
            let [got, _] = between(&job, gets, respond);
            got.map_err(|error| Exit::of(&error))
        };
        assert!(got(0).is_ok());
        assert_eq!(got(1), Err(Exit::Corrupt));
    }
}
