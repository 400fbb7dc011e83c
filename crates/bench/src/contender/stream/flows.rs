//! Several connections at the same time, for a time. Only TCP's have flows.

use std::time::Instant;

use anyhow::{Context, Result};

use super::super::contract::{Flow, GO, Part, at_once};
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

/// Sends until the receiver ends the connection. Whether that was right, the receiver says.
fn send_for<S: Stream>(mut stream: S, source: &mut impl Content, flows: &Flows) -> Result<()> {
    await_word(&mut stream, GO).context("the receiver does not start")?;
    let most = stream.send_bytes();
    let deadline = Instant::now() + flows.time() + FLOW_GRACE;
    while Instant::now() < deadline
        && let Some(piece) = source.next(most)?
        && stream.send(piece).is_ok()
    {}
    Ok(())
}

fn receive_for<S: Stream>(
    mut stream: S,
    sink: &mut impl Content,
    flows: &Flows,
    flow: &Flow<'_>,
) -> Result<Measured> {
    let most = stream.receive_bytes();
    flow.ready.wait();
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
