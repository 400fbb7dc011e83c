//! Connections.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use zerolane::{Connection, Options};

use super::super::contract::expect_word;
use crate::job::settings::Protection;
use crate::limits::{CONNECT, STALL};

/// A connection that gives up on a peer as soon as the rest of the benchmark does.
pub(crate) fn options(protection: Protection) -> Options {
    Options {
        security: protection.security(),
        idle_timeout: STALL,
        connect_timeout: CONNECT,
        ..Options::default()
    }
}

/// Connects to the responder and shows it the token.
pub(super) fn connect(to: SocketAddr, token: u64, options: &Options) -> Result<Connection> {
    let mut connection = Connection::connect(to, options)
        .with_context(|| format!("cannot connect to the receiver at {to}"))?;
    connection.send(&token.to_le_bytes())?;
    Ok(connection)
}

/// Receives the one-byte message `word`.
pub(super) fn await_word(connection: &mut Connection, word: u8) -> Result<()> {
    let mut heard = [0];
    connection.recv_into(&mut heard)?;
    expect_word(heard[0], word)
}
