//! The Zerolane mover: one connection, the buffer posted in pieces.
//!
//! This file has the connection and its account, [`mod@memory`] and [`mod@file`] what goes over it.

pub(crate) mod file;
pub(crate) mod memory;
pub(crate) mod pieces;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use zerolane::counters::Account;
use zerolane::{Connection, Endpoint, Options};

use super::cpu::CpuTime;
use super::limits::{CONNECT, STALL};
use super::protocol::{Measured, Protection};

/// What the receiver says when its clock starts, and when the last byte is in
/// place.
const GO: u8 = b'g';
const DONE: u8 = b'd';

/// A port waiting for the sender.
#[derive(Debug)]
pub(crate) struct Listener(Endpoint);

/// A connection that gives up on a peer as soon as the rest of the benchmark does.
pub(crate) fn options(protection: Protection) -> Options {
    Options {
        security: protection.security(),
        idle_timeout: STALL,
        connect_timeout: CONNECT,
        ..Options::default()
    }
}

impl Listener {
    /// Listens on any free port of `address`.
    pub(crate) fn bind(address: IpAddr, options: Options) -> Result<Listener> {
        Ok(Listener(Endpoint::bind((address, 0), options)?))
    }

    /// The port the sender is to connect to.
    pub(crate) fn port(&self) -> u16 {
        self.0.local_addr().port()
    }

    /// The first connection, which must know the token.
    pub(crate) fn accept(mut self, token: u64) -> Result<Connection> {
        let accepted = self.0.accept(Some(CONNECT))?;
        let mut connection = accepted.context("no sender connected")?;
        let mut told = [0; 8];
        connection.recv_into(&mut told)?;
        ensure!(
            told == token.to_le_bytes(),
            "the sender does not know the token"
        );
        Ok(connection)
    }
}

/// Connects to the receiver and shows it the token.
pub(crate) fn open(to: SocketAddr, token: u64, options: &Options) -> Result<Connection> {
    let mut connection = Connection::connect(to, options)
        .with_context(|| format!("cannot connect to the receiver at {to}"))?;
    connection.send(&token.to_le_bytes())?;
    Ok(connection)
}

/// Receives the one-byte message `word`.
pub(crate) fn await_word(connection: &mut Connection, word: u8) -> Result<()> {
    let mut heard = [0];
    connection.recv_into(&mut heard)?;
    if heard != [word] {
        bail!(
            "the receiver said {:?} instead of {:?}",
            heard[0] as char,
            word as char
        );
    }
    Ok(())
}

/// What the run cost, from the accounts before and after it.
fn measured(bytes: u64, seconds: f64, cpu: CpuTime, before: &Account, after: &Account) -> Measured {
    let syscalls = |it: &Account| it.tx_data_syscalls + it.rx_data_syscalls;
    let drops = |it: &Account| {
        it.dropped_socket_buffer
            + it.dropped_truncated
            + it.dropped_on_send
            + it.protocol.dropped_total()
    };
    let moved_bytes = after.bytes_moved() - before.bytes_moved();
    Measured {
        bytes,
        seconds,
        cpu,
        syscalls: syscalls(after) - syscalls(before),
        placed_bytes: after.bytes_placed - before.bytes_placed,
        moved_bytes,
        misplaced: moved_bytes.div_ceil(u64::from(after.stu.max(1))),
        drops: drops(after) - drops(before),
    }
}

/// The longest that either end waits for the other.
const PATIENCE: Option<Duration> = Some(STALL);
