//! One place where a run is handed to the mover that carries it.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Result, bail};
use zerolane::Region;

use super::pattern::Pattern;
use super::protocol::{Job, Measured, Mover};
use super::{quic, tcp, tls, zl};

/// A run of the buffer, with all that an end knows about it.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub(crate) job: &'a Job,
    pub(crate) laps: u64,
    /// What the buffer holds.
    pub(crate) pattern: Pattern,
    /// Bytes of all laps.
    pub(crate) bytes: u64,
    /// The core this end is pinned to.
    pub(crate) core: usize,
}

/// A run of a file, with all that an end knows about it.
#[derive(Debug)]
pub(crate) struct FileRun<'a> {
    pub(crate) job: &'a Job,
    /// The sender's file, or where the receiver puts the copy.
    pub(crate) path: PathBuf,
    /// Bytes of the file.
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
pub(crate) type Buffer = Region;

/// A buffer of `len` zero bytes in huge pages where the system gives them, every page touched.
pub(crate) fn buffer(len: usize) -> Result<Buffer> {
    let mut buffer = Region::anonymous(len)?;
    buffer.fill(0);
    Ok(buffer)
}

const MEMORY_ONLY: &str = "this mover carries memory, not files";

/// A receiver waiting for its sender.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(tcp::Listener),
    Tls(tcp::Listener),
    Quinn(Box<quic::Listener>),
    Zerolane(Box<zl::Listener>),
}

impl Listener {
    /// Listens on any free port of `address`.
    pub(crate) fn bind(address: IpAddr, job: &Job) -> Result<Listener> {
        match job.mover {
            Mover::Tcp => tcp::Listener::bind(address, &job.tcp).map(Listener::Tcp),
            Mover::Tls => tcp::Listener::bind(address, &job.tcp).map(Listener::Tls),
            Mover::Quinn => Ok(Listener::Quinn(Box::new(quic::Listener::bind(address)?))),
            Mover::Zerolane => Ok(Listener::Zerolane(Box::new(zl::Listener::bind(
                address,
                zl::options(job.security),
            )?))),
        }
    }

    /// The port the sender is to connect to.
    pub(crate) fn port(&self) -> Result<u16> {
        match self {
            Listener::Tcp(listener) | Listener::Tls(listener) => listener.port(),
            Listener::Quinn(listener) => listener.port(),
            Listener::Zerolane(listener) => Ok(listener.port()),
        }
    }

    /// Receives all laps. The clock runs from the receiver's *go*, said when
    /// the connection stands and the memory is ready, until the last byte is
    /// in place.
    pub(crate) fn receive(self, run: &Run<'_>, buffer: &mut Buffer) -> Result<Measured> {
        match self {
            Listener::Tcp(listener) => tcp::memory::receive(listener, run, buffer),
            Listener::Tls(listener) => tls::receiver::receive(listener, run, buffer),
            Listener::Quinn(listener) => quic::memory::receive(*listener, run, buffer),
            Listener::Zerolane(listener) => zl::memory::receive(*listener, run, buffer),
        }
    }

    /// Receives a file, by the same clock.
    pub(crate) fn receive_file(self, run: &FileRun<'_>) -> Result<Measured> {
        match self {
            Listener::Tcp(listener) => tcp::file::receive(listener, run),
            Listener::Tls(_) | Listener::Quinn(_) => bail!(MEMORY_ONLY),
            Listener::Zerolane(listener) => zl::file::receive(*listener, run),
        }
    }
}

/// Sends all laps. The clock runs from the receiver's *go* until its *done*
/// has come back.
pub(crate) fn send(to: SocketAddr, run: &Run<'_>, buffer: &mut Buffer) -> Result<Measured> {
    match run.job.mover {
        Mover::Tcp => tcp::memory::send(to, run, buffer),
        Mover::Tls => tls::sender::send(to, run, buffer),
        Mover::Quinn => quic::memory::send(to, run, buffer),
        Mover::Zerolane => zl::memory::send(to, run, buffer),
    }
}

/// Sends a file, by the same clock.
pub(crate) fn send_file(to: SocketAddr, run: &FileRun<'_>) -> Result<Measured> {
    match run.job.mover {
        Mover::Tcp => tcp::file::send(to, run),
        Mover::Tls | Mover::Quinn => bail!(MEMORY_ONLY),
        Mover::Zerolane => zl::file::send(to, run),
    }
}
