//! Runs operations over a socket: ping-pong, one message each way, or streams of messages.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::messages::Pipe;
use crate::content::message::Content;
use crate::cpu::Core;
use crate::job::operations::Operations;
use crate::job::test::{Metric, Test};
use crate::measured::Measured;
use crate::measured::times::{Quantiles, Times};

/// Times the rounds of a job. `round` makes one, given its number.
pub(super) fn timed(
    job: &Operations,
    mut round: impl FnMut(u64) -> Result<()>,
) -> Result<Quantiles> {
    let mut times = Times::new()?;
    for index in 0..job.rounds() {
        let start = Instant::now();
        round(index)?;
        if index >= job.warm_up {
            times.record(start.elapsed());
        }
    }
    times.quantiles(job.round_trip_parts())
}

/// Keeps the initiator waiting before the answer of this number, if the job wants it.
pub(super) fn pause(job: &Operations, index: u64) {
    if index == 0 && job.pause_millis > 0 {
        thread::sleep(Duration::from_millis(job.pause_millis));
    }
}

/// Both messages of a round.
struct Messages {
    asking: (Vec<u8>, Content),
    answer: (Vec<u8>, Content),
}

impl Messages {
    fn new(job: &Operations) -> Messages {
        let (ask, answer) = job.test.round_bytes(job.size);
        let message = |content: Content, len| {
            let mut bytes = vec![0; len];
            content.fill(&mut bytes);
            (bytes, content)
        };
        Messages {
            asking: message(Content::new(job.seed, ask), ask),
            answer: message(Content::reply(job.seed, answer), answer),
        }
    }
}

/// Does the initiator's part of the operations.
pub(super) fn initiate(pipe: &mut impl Pipe, job: &Operations, core: Core<'_>) -> Result<Measured> {
    match job.test.metric() {
        Metric::Latency => ask(pipe, job),
        Metric::Stream => stream(pipe, job, job.test.is_inward(), core),
    }
}

/// Does the responder's part of them.
pub(super) fn respond(pipe: &mut impl Pipe, job: &Operations, core: Core<'_>) -> Result<Measured> {
    match job.test.metric() {
        Metric::Latency => answer(pipe, job),
        Metric::Stream => stream(pipe, job, !job.test.is_inward(), core),
    }
}

fn stream(
    pipe: &mut impl Pipe,
    job: &Operations,
    receives: bool,
    core: Core<'_>,
) -> Result<Measured> {
    let content = Content::new(job.seed, job.size);
    if receives {
        return pipe.receive_stream(job, &content, core);
    }
    let cpu = pipe.send_stream(job, &content, core)?;
    Ok(Measured {
        cpu,
        ..Measured::default()
    })
}

/// Asks, and times the answers.
fn ask(pipe: &mut impl Pipe, job: &Operations) -> Result<Measured> {
    let mut messages = Messages::new(job);
    let (ask, asked) = &mut messages.asking;
    let (answer, content) = &mut messages.answer;
    let latency = timed(job, |index| {
        asked.stamp(ask, index);
        pipe.send(ask)?;
        pipe.receive(answer)?;
        content.check(answer, index)
    })?;
    content.check_all(answer, job.rounds() - 1)?;
    Ok(Measured::latency(latency))
}

/// Answers. For a fetch that is work: the answer is what the word was, and it is added to.
fn answer(pipe: &mut impl Pipe, job: &Operations) -> Result<Measured> {
    let mut messages = Messages::new(job);
    let (ask, content) = &mut messages.asking;
    let (answer, answered) = &mut messages.answer;
    let mut word = 0_u64;
    for index in 0..job.rounds() {
        pipe.receive(ask)?;
        content.check(ask, index)?;
        pause(job, index);
        match job.test {
            Test::FetchLat => {
                answered.stamp(answer, word);
                word += 1;
            }
            _ => answered.stamp(answer, index),
        }
        pipe.send(answer)?;
    }
    content.check_all(ask, job.rounds() - 1)?;
    Ok(Measured::default())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use anyhow::bail;
    use zerolane_cli::exit::Exit;

    use super::*;
    use crate::cpu::CpuTime;
    use crate::job::operations::tests::operations;

    /// A peer that answers as it should, but for one byte of one answer.
    struct Peer {
        content: Content,
        answers: u64,
        /// Of which answer, and which byte.
        wrong: (u64, usize),
    }

    impl Pipe for Peer {
        fn send(&mut self, _: &[u8]) -> Result<()> {
            Ok(())
        }

        fn receive(&mut self, message: &mut [u8]) -> Result<()> {
            self.content.fill(message);
            self.content.stamp(message, self.answers);
            if self.answers == self.wrong.0 {
                message[self.wrong.1] ^= 1;
            }
            self.answers += 1;
            Ok(())
        }

        fn send_stream(&mut self, _: &Operations, _: &Content, _: Core<'_>) -> Result<CpuTime> {
            bail!("no stream")
        }

        fn receive_stream(&mut self, _: &Operations, _: &Content, _: Core<'_>) -> Result<Measured> {
            bail!("no stream")
        }
    }

    /// Of any message the stamps, of the last one every byte.
    #[test]
    fn ask__a_wrong_byte_is_corrupt() {
        let job = Operations {
            test: Test::SendLat,
            size: 100,
            iters: 8,
            warm_up: 2,
            ..operations()
        };
        let asked = |wrong| {
            let mut peer = Peer {
                content: Content::reply(job.seed, job.size),
                answers: 0,
                wrong,
            };
            ask(&mut peer, &job).map_err(|error| Exit::of(&error))
        };
        assert!(asked((u64::MAX, 0)).is_ok());
        for (answer, byte) in [(0, 0), (5, 99), (9, 0), (9, 50)] {
            let wrong = asked((answer, byte));
            assert_eq!(wrong, Err(Exit::Corrupt), "byte {byte} of {answer}");
        }
    }
}
