//! Runs one operation at a time, for latencies.
//!
//! Put: the peer detects a small one by reading its memory, as in perftest's `ib_write_lat`. It detects a large one, or any
//! if it sleeps, by the immediate that comes with it.

use std::mem;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail, ensure};
use zerolane::request::{MAX_CONTROL, MAX_INLINE, Message, PutInline, ReceiveMessage, WorkKind};
use zerolane::{Completion, Region};

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
        end.put(out.numbered(index), false)?;
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
        end.put(out.numbered(index), is_last(job, index))?;
    }
    back.content.check_all(&back.bytes, job.rounds() - 1)?;
    end.finish()
}

/// Gets the same message again and again, each time into memory that has lost its head; the last time, when every byte
/// is checked, into memory that never had it.
pub(super) fn gets(end: &mut End<'_>) -> Result<Measured> {
    let job = end.job;
    let content = Content::reply(job.seed, job.size);
    let [mut answer, mut last] = [touched(job.size), touched(job.size)];
    let head = job.size.min(WORD);
    let times = timed(job, |index| {
        if index + 1 == job.rounds() {
            mem::swap(&mut answer, &mut last);
        }
        answer[..head].fill(0);
        end.connection.get(&end.peer, 0, &mut answer)?;
        content.check(&answer, 0)
    })?;
    content.check_all(&answer, 0)?;
    end.say_done()?;
    Ok(Measured::latency(times))
}

/// So many bytes of 0, every page of them touched before the clock runs.
fn touched(len: usize) -> Vec<u8> {
    let mut bytes = vec![1; len];
    bytes.fill(0);
    bytes
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
    let (there, back) = both_ways(end.job, true);
    exchange(end, Mail::new(there, back)?)
}

fn exchange(end: &mut End<'_>, mut mail: Mail) -> Result<Measured> {
    let job = end.job;
    mail.expect(end, 0)?;
    let times = timed(job, |index| {
        mail.send(end, index, false)?;
        mail.receive(end, index)
    })?;
    mail.check_last(job)?;
    mail.take_back_all(end)?;
    end.say_done()?;
    Ok(Measured::latency(times))
}

/// The other end of [`messages`].
pub(super) fn answer_messages(end: &mut End<'_>) -> Result<Measured> {
    let (back, there) = both_ways(end.job, false);
    answer(end, Mail::new(back, there)?)
}

fn answer(end: &mut End<'_>, mut mail: Mail) -> Result<Measured> {
    let job = end.job;
    mail.expect(end, 0)?;
    for index in 0..job.rounds() {
        mail.receive(end, index)?;
        pause(job, index);
        mail.send(end, index, is_last(job, index))?;
    }
    mail.check_last(job)?;
    mail.take_back_all(end)?;
    end.finish()
}

/// Memory of messages that are not control alone. What is sent comes back when its confirmation does, behind the
/// answer: so there are two of those, which take turns.
struct Letters {
    out: Vec<Region>,
    back: Option<Region>,
    /// What the last message comes to, of which every byte is checked: memory that no other one came to.
    last: Option<Region>,
}

impl Letters {
    /// What the next message comes to.
    fn room(&mut self, is_last: bool) -> Option<Region> {
        match is_last {
            true => self.last.take(),
            false => self.back.take(),
        }
    }
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
                back: Some(empty(size)?),
                last: Some(empty(size)?),
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
            let is_last = index + 1 == end.job.rounds();
            let room = self.letters.as_mut().and_then(|it| it.room(is_last));
            end.connection.post(ReceiveMessage::new().payload(room))?;
        }
        Ok(())
    }

    fn send(&mut self, end: &mut End<'_>, index: u64, signalled: bool) -> Result<()> {
        let Some(letters) = &mut self.letters else {
            let message = self.out.numbered(index);
            end.connection
                .post(Message::new(message).signalled(signalled))?;
            return Ok(());
        };
        while letters.out.is_empty() {
            letters.out.push(sent(end.next()?)?);
        }
        if let Some(mut region) = letters.out.pop() {
            self.out.content.stamp(&mut region, index);
            end.connection.post(Message::new(&[]).payload(region))?;
        }
        Ok(())
    }

    /// Receives the message of this number, and expects the one after it.
    fn receive(&mut self, end: &mut End<'_>, index: u64) -> Result<()> {
        let message = loop {
            let done = end.next()?;
            match &mut self.letters {
                Some(letters) if done.kind() == WorkKind::Message => letters.out.push(sent(done)?),
                _ => break done,
            }
        };
        let content = &self.incoming.content;
        match &mut self.letters {
            None => {
                message.result?;
                content.check_all(message.control().unwrap_or_default(), index)?;
            }
            Some(letters) => {
                ensure!(message.result? == end.job.size, "a message was cut");
                let region = message.into_region()?;
                content.check(&region, index)?;
                letters.back = Some(region);
            }
        }
        self.expect(end, index + 1)
    }

    /// Checks every byte of the last message that was received.
    fn check_last(&self, job: &Operations) -> Result<()> {
        let Some(letters) = &self.letters else {
            // Each one was when it came.
            return Ok(());
        };
        let last = letters.back.as_ref().context("no message was received")?;
        self.incoming.content.check_all(last, job.rounds() - 1)
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

/// Memory of 0 for a message, every page of it touched before the clock runs.
fn empty(len: usize) -> Result<Region> {
    let mut region = Region::anonymous(len)?;
    region.fill(0);
    Ok(region)
}

/// The memory of a message that was sent.
fn sent(done: Completion) -> Result<Region> {
    ensure!(
        done.kind() == WorkKind::Message,
        "received {:?}",
        done.kind()
    );
    if let Err(error) = &done.result {
        bail!("a message failed: {error}");
    }
    Ok(done.into_region()?)
}

/// Whether a message tells of its completion: the last reply, which brings about nothing.
fn is_last(job: &Operations, index: u64) -> bool {
    index + 1 == job.rounds()
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

    fn put(&mut self, message: &[u8], signalled: bool) -> Result<()> {
        let (connection, to) = (&mut self.connection, &self.peer);
        if message.len() <= MAX_INLINE {
            let wakes = self.job.wait != Wait::Poll;
            let put = PutInline::new(to, 0, message).signalled(signalled);
            connection.post(put.immediate(wakes.then_some(0)))?;
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
            told.kind() == WorkKind::Immediate,
            "received {:?} instead of a put",
            told.kind()
        );
        self.exported.read(0, bytes);
        content.check(bytes, index)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use zerolane_cli::exit::Exit;

    use super::super::end::tests::between;
    use super::*;
    use crate::job::operations::tests::operations;

    /// At either end, between the stamps of a letter.
    #[test]
    fn messages__a_wrong_byte_of_the_last_one_is_corrupt() {
        let job = Operations {
            test: Test::SendLat,
            size: 5000,
            iters: 4,
            warm_up: 0,
            ..operations()
        };
        let [there, back] = contents(&job);
        let mail = |out: &Content, incoming: &Content| {
            let incoming = Incoming::new(incoming.clone(), job.size);
            Mail::new(Outgoing::new(out.clone(), job.size), incoming).unwrap()
        };
        let run = |sent: &Content, answered: &Content| {
            let asking = mail(sent, &back);
            let answering = mail(answered, &there);
            let exchange = |end: &mut End<'_>| exchange(end, asking);
            let answer = |end: &mut End<'_>| answer(end, answering);
            let ends = between(&job, exchange, answer);
            ends.map(|end| end.map_err(|error| Exit::of(&error)))
        };
        let right = run(&there, &back);
        assert!(right.iter().all(Result::is_ok), "{right:?}");
        assert_eq!(run(&there.wrong_at(2500), &back)[1], Err(Exit::Corrupt));
        assert_eq!(run(&there, &back.wrong_at(2500))[0], Err(Exit::Corrupt));
    }

    /// Of the last message nothing comes but its stamp.
    #[test]
    fn Mail__what_did_not_come_is_not_there() {
        let job = Operations {
            test: Test::SendLat,
            size: 5000,
            ..operations()
        };
        let (there, back) = both_ways(&job, true);
        let content = back.content.clone();
        let mut mail = Mail::new(there, back).unwrap();
        let letters = mail.letters.as_mut().unwrap();
        content.fill(letters.back.as_mut().unwrap());
        let mut last = letters.room(true).unwrap();
        content.stamp(&mut last, job.rounds() - 1);
        letters.back = Some(last);
        let error = mail.check_last(&job).unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Corrupt);
    }

    #[test]
    fn gets__a_wrong_byte_between_the_stamps_is_corrupt() {
        let job = Operations {
            test: Test::GetLat,
            size: 5000,
            ..operations()
        };
        let respond = |end: &mut End<'_>| {
            let mut byte = [0];
            end.exported.read(2500, &mut byte);
            end.exported.write(2500, &[byte[0] ^ 1]);
            end.serve()
        };
        let [got, _] = between(&job, gets, respond);
        assert_eq!(Exit::of(&got.unwrap_err()), Exit::Corrupt);
    }
}
