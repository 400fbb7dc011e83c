//! One place where a run is handed to the mover that carries it.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, bail};

use super::pattern::Pattern;
use super::protocol::{Job, Measured, Mover};
use super::tcp;

/// A job, with all that an end knows about it.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub(crate) job: &'a Job,
    /// What the buffer holds.
    pub(crate) pattern: Pattern,
    /// Bytes of all laps.
    pub(crate) bytes: u64,
    /// The core this end is pinned to.
    pub(crate) core: usize,
}

/// A number that nobody else knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token(pub(crate) u64);

impl Token {
    /// A fresh one, from the kernel.
    pub(crate) fn new() -> Result<Token> {
        let mut bytes = [0; 8];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Token(u64::from_le_bytes(bytes)))
    }
}

/// The memory that both movers send from and receive into.
pub(crate) type Buffer = Vec<u8>;

/// A buffer of `len` zero bytes, every page of it touched.
pub(crate) fn buffer(len: usize) -> Result<Buffer> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(len)?;
    buffer.resize(len, 0);
    Ok(buffer)
}

/// A receiver waiting for its sender.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(tcp::Listener),
}

impl Listener {
    /// Listens on any free port of `address`.
    pub(crate) fn bind(address: IpAddr, job: &Job) -> Result<Listener> {
        match job.mover {
            Mover::Tcp => tcp::Listener::bind(address, &job.tcp).map(Listener::Tcp),
            Mover::Zerolane => bail!("the Zerolane mover is not part of this build"),
        }
    }

    /// The port the sender is to connect to.
    pub(crate) fn port(&self) -> Result<u16> {
        match self {
            Listener::Tcp(listener) => listener.port(),
        }
    }

    /// Receives the whole run. The clock runs from the receiver's *go*, said
    /// when the connection stands and the memory is ready, until the last byte
    /// is in place.
    pub(crate) fn receive(self, run: &Run<'_>, buffer: &mut Buffer) -> Result<Measured> {
        match self {
            Listener::Tcp(listener) => listener.receive(run, buffer),
        }
    }
}

/// Sends the whole run. The clock runs from the receiver's *go* until its
/// *done* has come back.
pub(crate) fn send(to: SocketAddr, run: &Run<'_>, buffer: &mut Buffer) -> Result<Measured> {
    match run.job.mover {
        Mover::Tcp => tcp::send(to, run, buffer),
        Mover::Zerolane => bail!("the Zerolane mover is not part of this build"),
    }
}
