//! Several connections at the same time, for a time.

use std::iter;
use std::time::Instant;

use anyhow::Result;
use zerolane::Connection;
use zerolane::counters::{Account, DropReason};

use super::super::contract::{Flow, GO, Part, at_once};
use super::memory::Pieces;
use super::turns::{Direction, Turns};
use crate::content::stage::Stamps;
use crate::job::{Flows, Role};
use crate::limits::FLOW_GRACE;
use crate::measured::Measured;
use crate::measured::progress::Progress;

/// Pieces of a flow's buffer. So many that looking one through, in which time the sender gets no answer, takes less
/// than a round trip, and that enough are in flight on a long path meanwhile.
const PIECES: usize = 64;

/// Does an end's part of the flows, over connections that `connect` makes.
pub(super) fn flow(
    role: Role,
    part: &mut Part<'_>,
    flows: &Flows,
    mut connect: impl FnMut() -> Result<Connection>,
) -> Result<Vec<Measured>> {
    let (laps, sends) = (flows.laps(), flows.sends(role));
    let mut connections = Vec::new();
    for _ in 0..flows.connections(role) {
        let (direction, buffer) = match sends {
            true => (Direction::Send, part.filled(&laps)?),
            false => (Direction::Receive, part.memory.take(laps.buffer)?),
        };
        let pieces = Pieces::cut(direction, buffer, PIECES, &laps, laps.every_word());
        connections.push((connect()?, pieces));
    }
    at_once(
        part,
        flows.parallel,
        connections,
        |(connection, pieces), flow| match sends {
            true => send_for(connection, pieces, flows),
            false => receive_for(connection, pieces, flows, flow),
        },
    )
}

/// Sends until the receiver ends the connection. Whether that was right, the receiver says.
fn send_for(
    mut connection: Connection,
    mut pieces: Turns<Pieces<Stamps>>,
    flows: &Flows,
) -> Result<Measured> {
    connection.recv_into(&mut [0])?;
    let before = connection.account();
    let deadline = Instant::now() + flows.time() + FLOW_GRACE;
    let left = |_: &Connection| deadline.checked_duration_since(Instant::now());
    let _ = pieces.run_while(&mut connection, left);
    let resent = |account: &Account| account.protocol.bytes_resent;
    Ok(Measured {
        resent_bytes: resent(&connection.account()) - resent(&before),
        ..Measured::default()
    })
}

fn receive_for(
    mut connection: Connection,
    mut pieces: Turns<Pieces<Stamps>>,
    flows: &Flows,
    flow: &Flow<'_>,
) -> Result<Measured> {
    pieces.post_all(&mut connection)?;
    flow.ready.wait();
    connection.send(&[GO])?;
    let before = connection.account();
    let by_path = by_path(&connection);
    let received =
        |it: &Connection| it.account().protocol.bytes_received - before.protocol.bytes_received;
    let mut progress = Progress::start(flows.time(), flows.sample_time(), flow.tell);
    pieces.run_while(&mut connection, |connection| {
        progress.reached(received(connection));
        progress.left()
    })?;
    let after = connection.account();
    let arrived = progress.measured(received(&connection));
    let path_bytes = by_path_since(&connection, &by_path);
    // The sender learns by this that the time is over; it may be busy sending.
    let _ = connection.close();
    Ok(Measured {
        cipher: after.cipher.map(|it| it.name().to_owned()),
        repeated_bytes: repeated(&after) - repeated(&before),
        path_bytes,
        ..arrived
    })
}

/// Payload that came by each path.
fn by_path(connection: &Connection) -> Vec<u64> {
    let paths = connection.paths().into_iter();
    paths.map(|(_, it)| it.bytes_received).collect()
}

/// The same since `before`; empty where there is one.
fn by_path_since(connection: &Connection, before: &[u64]) -> Vec<u64> {
    let now = by_path(connection);
    if now.len() < 2 {
        return Vec::new();
    }
    let before = before.iter().chain(iter::repeat(&0));
    let since = now.iter().zip(before);
    since
        .map(|(it, before)| it.saturating_sub(*before))
        .collect()
}

/// Payload that was there already, or whose Block was: the account counts STUs.
fn repeated(account: &Account) -> u64 {
    let count = |reason| account.protocol.dropped(reason);
    let stus = count(DropReason::Duplicate) + count(DropReason::NoGrant);
    stus * u64::from(account.stu)
}
