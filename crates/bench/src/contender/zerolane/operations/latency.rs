//! One operation at a time.
//!
//! Put: the peer sees a small one by looking at its memory, as in perftest's `ib_write_lat`, and is
//! told of a large one, or of any if it sleeps, by the immediate that comes with it.

use std::sync::atomic::Ordering;

use anyhow::{Result, bail, ensure};
use zerolane::request::{MAX_CONTROL, MAX_INLINE, WorkKind};
use zerolane::{Completion, Region, Work};

use super::super::super::rounds::{pause, timed};
use super::end::{End, contents, look};
use crate::content::message::Content;
use crate::job::operations::{Operations, Wait};
use crate::job::test::Test;
use crate::limits::STALL;
use crate::measured::Measured;

/// A fetch-op's word.
const WORD: usize = 8;

/// A message that is sent over and over with another stamp.
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    content: Content,
}

impl Outgoing {
    pub(super) fn new(content: Content, len: usize) -> Outgoing {
        let mut bytes = vec![0; len];
        content.fill(&mut bytes);
        Outgoing { bytes, content }
    }

    pub(super) fn numbered(&mut self, index: u64) -> &[u8] {
        self.content.stamp(&mut self.bytes, index);
        &self.bytes
    }
}

/// What comes from the peer, and where it is looked at.
struct Incoming {
    bytes: Vec<u8>,
    content: Content,
}

impl Incoming {
    fn new(content: Content, len: usize) -> Incoming {
        Incoming {
            bytes: vec![0; len],
            content,
        }
    }
}

fn both_ways(job: &Operations, initiator: bool) -> (Outgoing, Incoming) {
    let [there, back] = contents(job);
    match initiator {
        true => (
            Outgoing::new(there, job.size),
            Incoming::new(back, job.size),
        ),
        false => (
            Outgoing::new(back, job.size),
            Incoming::new(there, job.size),
        ),
    }
}

/// Puts and is put to, by turns.
pub(super) fn puts(end: &mut End<'_>) -> Result<Measured> {
    let job = end.job;
    let (mut out, mut back) = both_ways(job, true);
    let times = timed(job, |index| {
        end.put(out.numbered(index), unsignalled())?;
        end.be_put(&mut back, index)
    })?;
    back.content.check_all(&back.bytes, job.rounds() - 1)?;
    end.say_done()?;
    Ok(Measured::latency(times))
}

/// The other end of [`puts`].
pub(super) fn answer_puts(end: &mut End<'_>) -> Result<Measured> {
    let job = end.job;
    let (mut out, mut back) = both_ways(job, false);
    for index in 0..job.rounds() {
        end.be_put(&mut back, index)?;
        pause(job, index);
        end.put(out.numbered(index), last(job, index))?;
    }
    back.content.check_all(&back.bytes, job.rounds() - 1)?;
    end.finish()
}

/// Gets the same message again and again, each time into memory that has lost it.
pub(super) fn gets(end: &mut End<'_>) -> Result<Measured> {
    let job = end.job;
    let mut answer = Incoming::new(Content::reply(job.seed, job.size), job.size);
    let head = job.size.min(WORD);
    let times = timed(job, |_| {
        answer.bytes[..head].fill(0);
        end.connection.get(&end.peer, 0, &mut answer.bytes)?;
        answer.content.check(&answer.bytes, 0)
    })?;
    answer.content.check_all(&answer.bytes, 0)?;
    end.say_done()?;
    Ok(Measured::latency(times))
}

/// Counts in the peer's memory.
pub(super) fn fetches(end: &mut End<'_>) -> Result<Measured> {
    let times = timed(end.job, |index| {
        let before = end.connection.fetch_add(&end.peer, 0, 1)?;
        ensure!(before == index, "the counter was {before}, not {index}");
        Ok(())
    })?;
    end.say_done()?;
    Ok(Measured::latency(times))
}

/// Sends and receives messages by turns.
pub(super) fn messages(end: &mut End<'_>) -> Result<Measured> {
    let job = end.job;
    let (there, back) = both_ways(job, true);
    let mut mail = Mail::new(there, back)?;
    mail.expect(end, 0)?;
    let times = timed(job, |index| {
        mail.send(end, index, unsignalled())?;
        mail.receive(end, index)
    })?;
    mail.take_back_all(end)?;
    end.say_done()?;
    Ok(Measured::latency(times))
}

/// The other end of [`messages`].
pub(super) fn answer_messages(end: &mut End<'_>) -> Result<Measured> {
    let job = end.job;
    let (back, there) = both_ways(job, false);
    let mut mail = Mail::new(back, there)?;
    mail.expect(end, 0)?;
    for index in 0..job.rounds() {
        mail.receive(end, index)?;
        pause(job, index);
        mail.send(end, index, last(job, index))?;
    }
    mail.take_back_all(end)?;
    end.finish()
}

/// Memory of messages that are not control alone. What is sent comes back when its confirmation does, behind the
/// answer: so there are two of those, which take turns.
struct Letters {
    out: Vec<Region>,
    back: Option<Region>,
}

/// How many regions messages are sent from.
const OUTGOING: usize = 2;

/// Messages that are sent and received by turns. Receives are posted ahead, as in perftest.
struct Mail {
    out: Outgoing,
    incoming: Incoming,
    /// Of messages that are more than control.
    letters: Option<Letters>,
}

impl Mail {
    fn new(out: Outgoing, incoming: Incoming) -> Result<Mail> {
        let size = out.bytes.len();
        let letters = match size <= MAX_CONTROL {
            true => None,
            false => Some(Letters {
                out: (0..OUTGOING)
                    .map(|_| {
                        let mut region = Region::anonymous(size)?;
                        out.content.fill(&mut region);
                        Ok(region)
                    })
                    .collect::<Result<_>>()?,
                back: Some(Region::anonymous(size)?),
            }),
        };
        Ok(Mail {
            out,
            incoming,
            letters,
        })
    }

    /// Posts the receive of the message of this number, if there is one.
    fn expect(&mut self, end: &mut End<'_>, index: u64) -> Result<()> {
        if index < end.job.rounds() {
            let room = self.letters.as_mut().and_then(|it| it.back.take());
            end.connection.post_message_recv(room)?;
        }
        Ok(())
    }

    fn send(&mut self, end: &mut End<'_>, index: u64, work: Work) -> Result<()> {
        let Some(letters) = &mut self.letters else {
            let message = self.out.numbered(index);
            end.connection.post_message(message, None, work)?;
            return Ok(());
        };
        while letters.out.is_empty() {
            letters.out.push(sent(end.next()?)?);
        }
        if let Some(mut region) = letters.out.pop() {
            self.out.content.stamp(&mut region, index);
            end.connection
                .post_message(&[], Some(region.into()), Work::default())?;
        }
        Ok(())
    }

    /// Receives the message of this number, and expects the one after it.
    fn receive(&mut self, end: &mut End<'_>, index: u64) -> Result<()> {
        let message = loop {
            let done = end.next()?;
            match &mut self.letters {
                Some(letters) if done.kind == WorkKind::Message => letters.out.push(sent(done)?),
                _ => break done,
            }
        };
        let content = &self.incoming.content;
        match &mut self.letters {
            None => {
                message.result?;
                content.check_all(&message.control, index)?;
            }
            Some(letters) => {
                ensure!(message.result? == end.job.size, "a message was cut");
                let region = message.into_region();
                content.check(&region, index)?;
                letters.back = Some(region);
            }
        }
        self.expect(end, index + 1)
    }

    /// Waits until all that was sent is known to have arrived.
    fn take_back_all(&mut self, end: &mut End<'_>) -> Result<()> {
        while let Some(letters) = &mut self.letters
            && letters.out.len() < OUTGOING
        {
            letters.out.push(sent(end.next()?)?);
        }
        Ok(())
    }
}

/// The memory of a message that was sent.
fn sent(done: Completion) -> Result<Region> {
    ensure!(done.kind == WorkKind::Message, "{:?} came", done.kind);
    if let Err(error) = &done.result {
        bail!("a message failed: {error}");
    }
    Ok(done.into_region())
}

/// A reply tells of its completion by what it brings about.
fn unsignalled() -> Work {
    Work::default().unsignalled()
}

/// The last reply brings about nothing, so it tells.
fn last(job: &Operations, index: u64) -> Work {
    match index + 1 == job.rounds() {
        true => Work::default(),
        false => unsignalled(),
    }
}

impl End<'_> {
    /// Whether a put is looked for, not told of.
    fn is_looked_for(&self) -> bool {
        self.job.wait == Wait::Poll && self.job.size <= MAX_INLINE
    }

    /// Waits until the last reply is known to have arrived, and serves what is left to do.
    fn finish(&mut self) -> Result<Measured> {
        let replied_small = match self.job.test {
            // All others are known to have arrived.
            Test::SendLat => self.job.size <= MAX_CONTROL,
            _ => self.job.size <= MAX_INLINE,
        };
        // A large one is complete when it returns.
        if replied_small {
            self.next()?.result?;
        }
        self.serve()
    }

    fn put(&mut self, message: &[u8], work: Work) -> Result<()> {
        let (connection, to) = (&mut self.connection, &self.peer);
        if self.job.wait == Wait::Poll && message.len() <= MAX_INLINE {
            connection.post_put_inline(to, 0, message, work)?;
        } else if message.len() <= MAX_INLINE {
            connection.post_put_inline(to, 0, message, work.with_immediate(0))?;
        } else {
            connection.put_with_immediate(to, 0, message, 0)?;
        }
        Ok(())
    }

    /// Waits for the message of this number in this end's memory.
    fn be_put(&mut self, expected: &mut Incoming, index: u64) -> Result<()> {
        let Incoming { bytes, content } = expected;
        if self.is_looked_for() {
            let word = (bytes.len() == WORD).then(|| self.exported.word(0));
            return look(STALL, || {
                self.connection.poll()?;
                match word {
                    Some(word) => {
                        let word = word.load(Ordering::Acquire);
                        bytes.copy_from_slice(&word.to_ne_bytes());
                    }
                    None => self.exported.read(0, bytes),
                }
                Ok(content.is(bytes, index).then_some(()))
            });
        }
        let told = self.next()?;
        ensure!(
            told.kind == WorkKind::Immediate,
            "{:?} came instead of a put",
            told.kind
        );
        self.exported.read(0, bytes);
        content.check(bytes, index)
    }
}
