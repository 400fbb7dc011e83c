//! Carries buffers and files over the kernel's TCP: blocking send and recv in a loop, tuned as a good user would.
//!
//! # What was tried
//!
//! `zerolane bench bulk --only tcp --bytes 2GiB` with the `--tcp-*` options, on
//! veth, MTU 1500, 64 MiB buffers, 2 cores, Linux 6.18; medians of 3 to 14 runs
//! by turns, while the machine also did other work (best run in brackets):
//!
//! | what | Gb/s |
//! |---|---|
//! | cubic, 1 MiB chunks, autotuned buffers (the defaults here) | 20 (30) |
//! | reno | 19 (25) |
//! | bbr: paces, and loses half | 8 (13) |
//! | recv of 64 KiB | 15 (16) |
//! | recv of 256 KiB | 15 to 20 (23) |
//! | recv of 4 MiB | 14 (21) |
//! | MSG_WAITALL, 1 MiB | 14 to 16 (30) |
//! | SO_RCVBUF of 1 MiB | 12 (15) |
//! | SO_RCVBUF of 2 to 4 MiB (less falls out of the cache) | 15 to 23 (35) |
//! | SO_SNDBUF of 1 to 4 MiB | as without |
//!
//! Congestion control and chunk size matter; the rest is within the noise of
//! these runs. SO_RCVBUF of 4 MiB is the candidate to try again on a quiet
//! machine before a figure is quoted: its CPU time was the lowest.

pub(super) mod lent;

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use socket2::{Domain, Socket, Type};

use super::congestion;
use super::contract::{Contender, Listener, Part};
use super::socket::{self, Connection};
use crate::job::source_sink::Source;
use crate::job::{Job, Work};
use crate::limits::FLOWS_MAX;
use crate::measured::Measured;

/// The kernel's TCP.
#[derive(Debug)]
pub(super) struct Tcp {
    /// Its congestion control, which it has to get; `None`: as the job says.
    pub(super) congestion: Option<&'static str>,
}

impl Contender for Tcp {
    fn able(&self, job: &Job) -> Result<(), String> {
        match &job.work {
            Work::SourceSink(it) if matches!(it.source, Source::Sendfile | Source::Splice) => {
                Err("it uses send and recv".into())
            }
            _ => self.congestion.map_or(Ok(()), congestion::able),
        }
    }

    fn listen(&self, bind: IpAddr, job: &Job) -> Result<Box<dyn Listener>> {
        Ok(Box::new(Listening::bind(bind, self.congestion, job)?))
    }

    fn initiate(&self, to: SocketAddr, part: &mut Part<'_>) -> Result<Vec<Measured>> {
        let job = part.job;
        socket::initiate(part, || connect(to, self.congestion, job))
    }
}

/// A port waiting for the initiators.
#[derive(Debug)]
pub(super) struct Listening(Socket);

impl Listening {
    /// Listens on any free port of `address`.
    pub(super) fn bind(address: IpAddr, congestion: Option<&str>, job: &Job) -> Result<Listening> {
        let address = SocketAddr::new(address, 0);
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        // Before listen: the window scale is settled by the handshake.
        tune(&socket, congestion, job)?;
        socket.bind(&address.into())?;
        socket.listen(FLOWS_MAX as i32)?;
        Ok(Listening(socket))
    }

    /// The next connection whose other end knows the token.
    pub(super) fn accept(&self, job: &Job) -> Result<Connection> {
        socket::accept(&self.0, job)
    }
}

impl Listener for Listening {
    fn port(&self) -> Result<u16> {
        let address = self.0.local_addr()?.as_socket();
        Ok(address.context("a TCP socket has a port")?.port())
    }

    fn respond(self: Box<Self>, part: &mut Part<'_>) -> Result<Vec<Measured>> {
        socket::respond(part, &self.0)
    }
}

/// Connects to the receiver and shows it the token.
pub(super) fn connect(to: SocketAddr, congestion: Option<&str>, job: &Job) -> Result<Connection> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    tune(&socket, congestion, job)?;
    socket
        .connect_timeout(&to.into(), job.connect())
        .with_context(|| format!("cannot connect to the receiver at {to}"))?;
    socket::introduce(socket, job)
}

fn tune(socket: &Socket, strict: Option<&str>, job: &Job) -> Result<()> {
    socket::bound(socket, job)?;
    if matches!(job.work, Work::Operations(_)) {
        // Messages do not wait for others.
        socket.set_tcp_nodelay(true)?;
    }
    if let Some(bytes) = job.tcp.send_buffer {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = job.tcp.recv_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    congestion::choose(socket, strict.or(job.tcp.congestion.as_deref()))
}
