//! Runs several Zerolane connections at once for a given time.

use std::iter;
use std::time::Instant;

use anyhow::{Error, Result};
use zerolane::Connection;
use zerolane::counters::{Account, DropReason};
use zerolane::failure::{CloseReason, TransferError};

use super::super::contract::{Flow, GO, Part, at_once, sender_ended};
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

/// Sends until the receiver ends the connection.
fn send_for(
    mut connection: Connection,
    mut pieces: Turns<Pieces<Stamps>>,
    flows: &Flows,
) -> Result<Measured> {
    connection.recv_into(&mut [0])?;
    let before = connection.account();
    let began = Instant::now();
    let deadline = began + flows.time() + FLOW_GRACE;
    let left = |_: &Connection| deadline.checked_duration_since(Instant::now());
    let sent = pieces.run_while(&mut connection, left);
    sender_ended(sent, flows, began, is_by_receiver)?;
    let resent = |account: &Account| account.protocol.bytes_resent;
    Ok(Measured {
        resent_bytes: resent(&connection.account()) - resent(&before),
        ..Measured::default()
    })
}

/// Whether the connection ended because the receiver said so.
fn is_by_receiver(error: &Error) -> bool {
    let of_transfer =
        |it: &TransferError| matches!(it, TransferError::Closed(CloseReason::Peer(_)));
    match error.downcast_ref() {
        Some(zerolane::Error::Closed(CloseReason::Peer(_))) => true,
        Some(zerolane::Error::Transfer(it)) => of_transfer(it),
        Some(_) => false,
        None => error.downcast_ref().is_some_and(of_transfer),
    }
}

fn receive_for(
    mut connection: Connection,
    mut pieces: Turns<Pieces<Stamps>>,
    flows: &Flows,
    flow: &Flow<'_>,
) -> Result<Measured> {
    pieces.post_all(&mut connection)?;
    flow.ready.pass()?;
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

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use zerolane::{Endpoint, Region};

    use super::super::connection::options;
    use super::*;
    use crate::job::settings::Protection;
    use crate::limits::{CONNECT, STALL};

    const FLOWS: Flows = Flows {
        buffer: 1 << 20,
        initiators: 1,
        parallel: 1,
        reverse: false,
        millis: 60_000,
        sample_millis: 1000,
        live: false,
        seed: 3,
    };

    /// What a sender with this timeout says whose receiver says go, and then does as `receive` says; a connection that it returns is
    /// silent.
    fn sent(
        idle_timeout: Duration,
        receive: impl FnOnce(Connection) -> Option<Connection> + Send,
    ) -> Result<Measured> {
        let mut endpoint = Endpoint::bind("127.0.0.1:0", options(Protection::Plain)).unwrap();
        let options = options(Protection::Plain).with(|it| it.times.idle = idle_timeout);
        let to = endpoint.local_addr();
        thread::scope(|scope| {
            let receiver = scope.spawn(move || {
                let mut connection = endpoint.accept(Some(CONNECT)).unwrap().unwrap();
                // A busy machine may take so long to come here that the sender has given it up, in the same words.
                let _ = connection.send(&[GO]);
                receive(connection)
            });
            let laps = FLOWS.laps();
            let buffer = Region::anonymous(laps.buffer).unwrap();
            let stamps = laps.every_word();
            let pieces = Pieces::cut(Direction::Send, buffer, PIECES, &laps, stamps);
            let sent = send_for(Connection::connect(to, &options).unwrap(), pieces, &FLOWS);
            drop(receiver.join().unwrap());
            sent
        })
    }

    #[test]
    fn send_for__a_receiver_that_is_silent_before_the_time_is_over_is_an_error() {
        let error = format!("{:#}", sent(Duration::from_secs(3), Some).unwrap_err());
        assert!(error.contains("stopped answering"), "{error}");
    }

    /// It says why.
    #[test]
    fn send_for__a_receiver_that_ends_the_connection_is_none() {
        let close = |connection: Connection| {
            connection.close().unwrap();
            None
        };
        sent(STALL, close).unwrap();
        sent(STALL, |_| None).unwrap();
    }
}
