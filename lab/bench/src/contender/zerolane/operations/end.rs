//! Holds one end of a run: a connection, its own memory that the peer may access, and the key of the peer's.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use zerolane::{Completion, Connection, ExportedRegion, Region, RegionKey, Rights};

use super::super::super::contract::DONE;
use super::super::connection::await_word;
use crate::content::message::Content;
use crate::cpu::Core;
use crate::job::operations::{Operations, Wait};
use crate::job::test::Test;
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
    pub(super) core: Core<'a>,
    /// This end's memory that the peer may reach.
    pub(super) exported: ExportedRegion,
    /// The peer's.
    pub(super) peer: RegionKey,
}

/// What the initiator says, and what the responder does.
pub(super) fn contents(job: &Operations) -> [Content; 2] {
    [
        Content::new(job.seed, job.size),
        Content::reply(job.seed, job.size),
    ]
}

/// Memory for all messages that are in flight at once, made known under [`NAME`]: a peer in shared memory maps it.
fn export(
    connection: &mut Connection,
    job: &Operations,
    own: &Content,
    awaited: &Content,
) -> Result<ExportedRegion> {
    let mut region = Region::memfd(job.size * job.depth)?;
    prepare(&mut region, job, own, awaited);
    let Ok(exported) = ExportedRegion::new(region) else {
        bail!("fresh memory is not aligned");
    };
    connection.export_named(NAME, &exported, Rights::ALL)?;
    Ok(exported)
}

/// The content of `memory` before the first operation. For a get, slot n holds the bytes to get, this end's `own`
/// message of
/// number n; for a fetch there is a word of 0. For a put slot n has the message before that of number n, of those
/// `awaited`: an end that looks at its memory must not find there what is still to come, and fresh memory is 0, as one
/// first message of a byte in 256 is.
fn prepare(memory: &mut [u8], job: &Operations, own: &Content, awaited: &Content) {
    for (slot, message) in (0..).zip(memory.chunks_mut(job.size)) {
        match job.test {
            Test::GetLat | Test::GetBw => {
                own.fill(message);
                own.stamp(message, slot);
            }
            Test::PutLat | Test::PutBw | Test::PutRate => {
                awaited.stamp(message, slot.wrapping_sub(1));
            }
            Test::FetchLat | Test::SendLat | Test::SendBw => return,
        }
    }
}

impl<'a> End<'a> {
    pub(super) fn responder(
        mut connection: Connection,
        job: &'a Operations,
        core: Core<'a>,
    ) -> Result<End<'a>> {
        let [there, back] = contents(job);
        let exported = export(&mut connection, job, &back, &there)?;
        connection.send(&[READY])?;
        await_word(&mut connection, READY)?;
        let peer = connection.open_region(NAME, Rights::ALL)?;
        Ok(End {
            connection,
            job,
            core,
            exported,
            peer,
        })
    }

    pub(super) fn initiator(
        mut connection: Connection,
        job: &'a Operations,
        core: Core<'a>,
    ) -> Result<End<'a>> {
        let [there, back] = contents(job);
        let exported = export(&mut connection, job, &there, &back)?;
        await_word(&mut connection, READY)?;
        let peer = connection.open_region(NAME, Rights::ALL)?;
        connection.send(&[READY])?;
        Ok(End {
            connection,
            job,
            core,
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
            Wait::Event => self.connection.wait(Some(patience))?.got().context(STALLED),
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
        match self.connection.wait(Some(STALL)).map(zerolane::Waited::got) {
            Err(_) => Ok(()),
            Ok(None) => bail!(STALLED),
            Ok(Some(more)) => bail!("received {:?} after the end", more.kind()),
        }
    }
}

/// Whether `word` says that the initiator is done.
pub(super) fn is_done(word: Completion) -> Result<()> {
    word.result?;
    if word.into_region()?[..] != [DONE] {
        bail!("the initiator sent something other than its end");
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

#[cfg(test)]
#[allow(non_snake_case)]
pub(super) mod tests {
    use std::thread;

    use zerolane::Endpoint;

    use super::super::super::connection::options;
    use super::*;
    use crate::job::operations::tests::operations;
    use crate::job::settings::Protection;

    const CORE: Core<'static> = Core {
        number: 0,
        soaker: None,
    };

    /// What the initiator and the responder do with a connection between them.
    pub(in super::super) fn between<T: Send>(
        job: &Operations,
        initiate: impl FnOnce(&mut End<'_>) -> Result<T> + Send,
        respond: impl FnOnce(&mut End<'_>) -> Result<T> + Send,
    ) -> [Result<T>; 2] {
        let options = options(Protection::Plain);
        let mut endpoint = Endpoint::bind("127.0.0.1:0", options.clone()).unwrap();
        let to = endpoint.local_addr();
        thread::scope(|scope| {
            let responder = scope.spawn(move || {
                let connection = endpoint.accept(Some(limits::CONNECT))?;
                respond(&mut End::responder(
                    connection.context("no initiator connected")?,
                    job,
                    CORE,
                )?)
            });
            let initiated = Connection::connect(to, &options)
                .map_err(Into::into)
                .and_then(|connection| initiate(&mut End::initiator(connection, job, CORE)?));
            [initiated, responder.join().unwrap()]
        })
    }

    /// Whatever the seed: of one byte there are 256 that differ.
    #[test]
    fn prepare__no_memory_that_is_put_to_looks_as_if_it_had_been() {
        for (test, depth) in [(Test::PutLat, 1), (Test::PutBw, 128), (Test::PutRate, 1024)] {
            for size in [1, 2, 7, 8, 9, 16, 100] {
                for seed in 0..256 {
                    let job = Operations {
                        test,
                        size,
                        depth,
                        seed,
                        ..operations()
                    };
                    let [there, back] = contents(&job);
                    for (own, awaited) in [(&back, &there), (&there, &back)] {
                        let mut memory = vec![0; size * depth];
                        prepare(&mut memory, &job, own, awaited);
                        let mut slots = (0..).zip(memory.chunks(size));
                        let early = slots.find(|(slot, message)| awaited.is(message, *slot));
                        assert_eq!(early, None, "{job:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn prepare__what_is_got_is_there_and_a_word_that_is_counted_in_is_0() {
        for (test, size, depth) in [(Test::GetBw, 100, 7), (Test::GetLat, 1, 1)] {
            let job = Operations {
                test,
                size,
                depth,
                ..operations()
            };
            let [there, back] = contents(&job);
            let mut memory = vec![0; size * depth];
            prepare(&mut memory, &job, &back, &there);
            for (slot, message) in (0..).zip(memory.chunks(size)) {
                back.check_all(message, slot).unwrap();
            }
        }
        let job = Operations {
            test: Test::FetchLat,
            ..operations()
        };
        let [there, back] = contents(&job);
        let mut word = [0; 8];
        prepare(&mut word, &job, &back, &there);
        assert_eq!(word, [0; 8]);
    }
}
