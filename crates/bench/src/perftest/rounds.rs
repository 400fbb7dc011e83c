//! One operation at a time, over a socket: a message there and a message back.

use std::time::Instant;

use anyhow::Result;

use super::content::Content;
use super::job::{Job, Seen};
use super::pipe::Pipe;
use super::test::Test;
use super::times::{Quantiles, Times};

/// Times the rounds of a job. `round` makes one, given its number.
pub(crate) fn timed(job: &Job, mut round: impl FnMut(u64) -> Result<()>) -> Result<Quantiles> {
    let mut times = Times::new()?;
    for index in 0..job.rounds() {
        let start = Instant::now();
        round(index)?;
        if index >= job.warm_up {
            times.record(start.elapsed());
        }
    }
    times.quantiles(job.test.round_trip_parts())
}

/// Both messages of a round.
struct Messages {
    asking: (Vec<u8>, Content),
    answer: (Vec<u8>, Content),
}

impl Messages {
    fn new(job: &Job) -> Messages {
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

/// Asks, and times the answers.
pub(crate) fn initiate(pipe: &mut impl Pipe, job: &Job) -> Result<Seen> {
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
    Ok(Seen {
        latency: Some(latency),
        stream: None,
    })
}

/// Answers. For a fetch that is work: the answer is what the word was, and it is added to.
pub(crate) fn respond(pipe: &mut impl Pipe, job: &Job) -> Result<Seen> {
    let mut messages = Messages::new(job);
    let (ask, content) = &mut messages.asking;
    let (answer, answered) = &mut messages.answer;
    let mut word = 0_u64;
    for index in 0..job.rounds() {
        pipe.receive(ask)?;
        content.check(ask, index)?;
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
    Ok(Seen::default())
}
