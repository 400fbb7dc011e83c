//! Receives puts at an end that answers nothing: its program polls the connection, or sleeps while a worker thread does.

use std::time::Duration;

use anyhow::{Context, Result};
use zerolane::Region;
use zerolane::worker::Worker;

use super::super::super::rounds::timed;
use super::end::{End, STALLED, is_done};
use super::latency::Outgoing;
use crate::content::message::Content;
use crate::job::operations::{Target, Wait};
use crate::limits::{self, STALL};
use crate::measured::Measured;

/// Puts, each when the one before is confirmed.
pub(super) fn puts(end: &mut End<'_>) -> Result<Measured> {
    let job = end.job;
    let mut out = Outgoing::new(Content::new(job.seed, job.size), job.size);
    let times = timed(job, |index| {
        Ok(end.connection.put(&end.peer, 0, out.numbered(index))?)
    })?;
    end.say_done()?;
    Ok(Measured::latency(times))
}

/// Is put to until the initiator is done; the last put has to be there.
pub(super) fn be_put_to(mut end: End<'_>) -> Result<Measured> {
    let (job, exported) = (end.job, end.exported.clone());
    match job.target {
        Target::Background => sleep(end)?,
        Target::Active | Target::Answers => {
            end.serve()?;
            end.await_close()?;
        }
    }
    let mut last = vec![0; job.size];
    exported.read(0, &mut last);
    Content::new(job.seed, job.size).check_all(&last, job.rounds() - 1)?;
    Ok(Measured::default())
}

/// This thread sleeps; one of its process serves the initiator.
fn sleep(end: End<'_>) -> Result<()> {
    let End {
        connection, job, ..
    } = end;
    let mut worker = Worker::new()?;
    if job.wait == Wait::Event {
        worker.set_spin(Duration::ZERO);
    }
    let worker = worker.spawn()?;
    let connection = worker.adopt(connection).wait()?;
    let mut word = connection.recv(Region::anonymous(1)?);
    let told = word.wait_for(limits::deadline(job.bytes()));
    is_done(told.context(STALLED)??)?;
    // The initiator, which may not know yet that all it said has come, closes the connection.
    let mut end = connection.recv(Region::anonymous(1)?);
    end.wait_for(STALL).context(STALLED)?.ok();
    Ok(())
}
