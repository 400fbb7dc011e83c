//! Runs remote memory operations and messages as a user of the library would.
//!
//! A polling end calls [`Connection::poll`] again and again and reads its memory. For events, an end sleeps in
//! [`Connection::wait`] without spinning first. A blocking call of the library spins without limit in the first case and not
//! at all in the second.

mod end;
mod latency;
mod stream;
mod target;

use std::time::Duration;

use anyhow::Result;
use zerolane::Connection;

use self::end::End;
use crate::cpu::Core;
use crate::job::operations::{Operations, Target, Wait};
use crate::job::test::Test;
use crate::limits::STALL;
use crate::measured::Measured;

/// How long a connection looks again and again inside its blocking calls, before it sleeps.
pub(super) fn spin(job: &Operations) -> Duration {
    match job.wait {
        Wait::Poll => STALL,
        Wait::Event => Duration::ZERO,
    }
}

/// Answers what the initiator of `job` asks.
pub(super) fn respond(
    connection: Connection,
    job: &Operations,
    core: Core<'_>,
) -> Result<Measured> {
    let mut end = End::responder(connection, job, core)?;
    if job.target != Target::Answers {
        return target::be_put_to(end);
    }
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
pub(super) fn initiate(
    connection: Connection,
    job: &Operations,
    core: Core<'_>,
) -> Result<Measured> {
    let mut end = End::initiator(connection, job, core)?;
    let measured = match job.test {
        Test::PutLat if job.target != Target::Answers => target::puts(&mut end),
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
