//! Exchanges requests and replies at the start of a connection, one at a time.

use crate::error::Error;
use crate::limits::{CONTROL_BYTES, MESSAGE_RATE};
use crate::message::{decode_opening, encode_opening};
use crate::stop::Stop;
use serde::{Serialize, de::DeserializeOwned};
use std::time::{Duration, Instant};
use zerolane::{Completion, Connection, Region, RequestId};

/// How often a wait checks whether it must stop.
const LOOK: Duration = Duration::from_millis(50);

/// Sends one message and waits until the peer has received it.
pub(crate) fn say(
    connection: &mut Connection,
    message: &impl Serialize,
    stop: &Stop,
    patience: Duration,
) -> Result<(), Error> {
    post(connection, message)?;
    sent(connection, stop, patience)
}

/// Sends one message, without waiting.
pub(crate) fn post(
    connection: &mut Connection,
    message: &impl Serialize,
) -> Result<RequestId, Error> {
    let bytes = encode_opening(message).ok_or(Error::TooLong)?;
    let posted = connection.post_send(Region::from_vec(bytes));
    Ok(posted.map_err(zerolane::Error::from)?)
}

/// Waits until the peer has received a posted message.
pub(crate) fn sent(
    connection: &mut Connection,
    stop: &Stop,
    patience: Duration,
) -> Result<(), Error> {
    complete(connection, stop, patience).map(drop)
}

/// Sends bytes that the peer expects and waits until it has received them.
pub(crate) fn send(
    connection: &mut Connection,
    bytes: Vec<u8>,
    stop: &Stop,
    patience: Duration,
) -> Result<(), Error> {
    let posted = connection.post_send(Region::from_vec(bytes));
    posted.map_err(zerolane::Error::from)?;
    sent(connection, stop, patience)
}

/// Receives one message.
pub(crate) fn hear<M: DeserializeOwned>(
    connection: &mut Connection,
    stop: &Stop,
    patience: Duration,
) -> Result<M, Error> {
    receive(connection, CONTROL_BYTES, stop, patience, |bytes| {
        decode_opening(bytes)
    })
}

/// Receives at most `limit` bytes and passes them to `read`.
pub(crate) fn receive<T>(
    connection: &mut Connection,
    limit: usize,
    stop: &Stop,
    patience: Duration,
    read: impl FnOnce(&[u8]) -> Result<T, Error>,
) -> Result<T, Error> {
    let posted = connection.post_recv(Region::from_vec(vec![0; limit]));
    posted.map_err(zerolane::Error::from)?;
    let completion = complete(connection, stop, patience)?;
    let len = completion.result.as_ref().map_or(0, |&len| len);
    read(&completion.into_region()?[..len])
}

/// Waits for the completion of any Transfer in flight. The time limit is `patience`, plus the time that its bytes take
/// at [`MESSAGE_RATE`]: on a slow link a long list of names takes long, and a peer that trickles bytes does not hold
/// its place longer than that.
fn complete(
    connection: &mut Connection,
    stop: &Stop,
    patience: Duration,
) -> Result<Completion, Error> {
    let (started, before) = (Instant::now(), payload(connection));
    loop {
        if let Some(completion) = connection.wait(Some(LOOK))?.got() {
            if let Err(error) = &completion.result {
                return Err(zerolane::Error::Transfer(*error).into());
            }
            return Ok(completion);
        }
        stop.check()?;
        let moved = payload(connection) - before;
        if started.elapsed() > patience + Duration::from_secs(moved / MESSAGE_RATE) {
            return Err(Error::Stalled);
        }
    }
}

/// Bytes of payload sent and received.
fn payload(connection: &Connection) -> u64 {
    let counters = connection.account().protocol;
    // Retransmissions do not count, because the peer may accept nothing.
    counters.bytes_sent + counters.bytes_received - counters.bytes_resent
}

#[cfg(test)]
#[path = "opening_tests.rs"]
mod tests;
