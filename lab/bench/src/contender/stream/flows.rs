//! Runs several stream connections at once for a given time. Only TCP supports flows.

use std::io::{self, ErrorKind};
use std::time::Instant;

use anyhow::{Context, Error, Result};

use super::super::contract::{Flow, GO, Part, at_once, sender_ended};
use super::super::kernel::Counts;
use super::{Buffer, Content, Stream, await_word};
use crate::job::{Flows, Role};
use crate::limits::FLOW_GRACE;
use crate::measured::Measured;
use crate::measured::progress::Progress;

/// Does an end's part of the flows, over what `connect` connects.
pub(super) fn flow<S: Stream>(
    role: Role,
    part: &mut Part<'_>,
    flows: &Flows,
    mut connect: impl FnMut() -> Result<S>,
) -> Result<Vec<Measured>> {
    let (laps, sends) = (flows.laps(), flows.sends(role));
    let mut connections = Vec::new();
    for _ in 0..flows.connections(role) {
        let buffer = match sends {
            true => part.filled(&laps)?,
            false => part.memory.take(laps.buffer)?,
        };
        let buffer = Buffer::new(buffer, &laps, laps.every_word());
        connections.push((connect()?, buffer));
    }
    let before = Counts::now();
    let mut measured = at_once(
        part,
        flows.parallel,
        connections,
        |(stream, mut buffer), flow| match sends {
            true => send_for(stream, &mut buffer, flows).map(|()| Measured::default()),
            false => receive_for(stream, &mut buffer, flows, flow),
        },
    )?;
    // The kernel counts what is sent by all connections together.
    if sends && let Some(first) = measured.first_mut() {
        *first = Measured {
            cpu: first.cpu,
            ..Counts::now().since(before)
        };
    }
    Ok(measured)
}

/// Sends until the receiver ends the connection.
fn send_for<S: Stream>(mut stream: S, source: &mut impl Content, flows: &Flows) -> Result<()> {
    await_word(&mut stream, GO).context("the receiver did not start")?;
    let most = stream.send_bytes();
    let began = Instant::now();
    let deadline = began + flows.time() + FLOW_GRACE;
    while Instant::now() < deadline
        && let Some(piece) = source.next(most)?
    {
        let sent = stream.send(piece);
        if sent.is_err() {
            return sender_ended(sent, flows, began, is_by_receiver);
        }
    }
    Ok(())
}

/// Whether the connection ended because the receiver closed it.
fn is_by_receiver(error: &Error) -> bool {
    let closed = |it: &io::Error| {
        matches!(
            it.kind(),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
        )
    };
    error.downcast_ref().is_some_and(closed)
}

fn receive_for<S: Stream>(
    mut stream: S,
    sink: &mut impl Content,
    flows: &Flows,
    flow: &Flow<'_>,
) -> Result<Measured> {
    let most = stream.receive_bytes();
    flow.ready.pass()?;
    stream.send(&[GO])?;
    let mut progress = Progress::start(flows.time(), flows.sample_time(), flow.tell);
    let mut bytes = 0;
    while let Some(left) = progress.left()
        && let Some(space) = sink.space(most)
    {
        let got = stream.receive_within(space, left)?;
        bytes += got as u64;
        progress.reached(bytes);
        sink.filled(got)?;
    }
    Ok(progress.measured(bytes))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use zerolane::Region;

    use super::*;

    /// Says go, and fails to send in this way.
    struct Failing(ErrorKind);

    impl Stream for Failing {
        fn send_bytes(&self) -> usize {
            4096
        }

        fn receive_bytes(&self) -> usize {
            4096
        }

        fn send(&mut self, _: &[u8]) -> Result<()> {
            Err(io::Error::from(self.0).into())
        }

        fn receive(&mut self, space: &mut [u8]) -> Result<usize> {
            space[0] = GO;
            Ok(1)
        }

        fn syscalls(&self) -> u64 {
            0
        }
    }

    fn sent(error: ErrorKind, millis: u64) -> Result<()> {
        let flows = Flows {
            buffer: 1 << 20,
            initiators: 1,
            parallel: 1,
            reverse: false,
            millis,
            sample_millis: 1000,
            live: false,
            seed: 3,
        };
        let laps = flows.laps();
        let buffer = Region::anonymous(laps.buffer).unwrap();
        let mut buffer = Buffer::new(buffer, &laps, laps.every_word());
        send_for(Failing(error), &mut buffer, &flows)
    }

    #[test]
    fn send_for__what_ends_it_early_and_is_not_the_receiver_is_an_error() {
        for error in [ErrorKind::TimedOut, ErrorKind::HostUnreachable] {
            assert!(sent(error, 60_000).is_err(), "{error:?}");
            // The receiver has what it wanted.
            sent(error, 0).unwrap();
        }
        for closed in [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset] {
            sent(closed, 60_000).unwrap();
        }
    }
}
