//! The kernel's TCP: blocking send and recv in a loop, tuned as a good user would.
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
mod messages;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::socket::{MsgFlags, recv};
use socket2::{Domain, SockRef, Socket, Type};

use super::congestion;
use super::contract::{Contender, Listener, Part};
use super::messages::{insist, is_idle};
use super::rounds;
use super::stream::{self, Stream};
use crate::job::operations::Wait;
use crate::job::settings::TcpTuning;
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
                Err("this is send and recv".into())
            }
            _ => Ok(()),
        }
    }

    fn listen(&self, bind: IpAddr, job: &Job) -> Result<Box<dyn Listener>> {
        Ok(Box::new(Listening::bind(bind, self.congestion, job)?))
    }

    fn initiate(&self, to: SocketAddr, part: &mut Part<'_>) -> Result<Vec<Measured>> {
        let job = part.job;
        let connect = || Connection::open(to, self.congestion, job);
        match &job.work {
            Work::Operations(operations) => {
                let mut connection = connect()?.for_messages(operations.socket_wait())?;
                Ok(vec![rounds::initiate(&mut connection, operations)?])
            }
            _ => stream::initiate(part, connect),
        }
    }
}

/// A port waiting for the initiators.
#[derive(Debug)]
pub(super) struct Listening(TcpListener);

impl Listening {
    /// Listens on any free port of `address`.
    pub(super) fn bind(address: IpAddr, congestion: Option<&str>, job: &Job) -> Result<Listening> {
        let address = SocketAddr::new(address, 0);
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        // Before listen: the window scale is settled by the handshake.
        tune(&socket, congestion, job)?;
        socket.bind(&address.into())?;
        socket.listen(FLOWS_MAX as i32)?;
        Ok(Listening(socket.into()))
    }

    /// The next connection that knows the token.
    pub(super) fn accept(&self, job: &Job) -> Result<Connection> {
        let deadline = Instant::now() + job.connect();
        SockRef::from(&self.0).set_read_timeout(Some(job.connect()))?;
        while Instant::now() < deadline {
            let (mut stream, _) = self.0.accept().context("no sender connected")?;
            // A stranger does not take all of the time.
            stream.set_read_timeout(Some(job.connect() / 3))?;
            let mut told = [0; 8];
            if stream.read_exact(&mut told).is_ok() && told == job.token.to_le_bytes() {
                stream.set_read_timeout(Some(job.stall()))?;
                return Ok(Connection::new(stream, &job.tcp));
            }
        }
        bail!("no sender with the right token connected")
    }
}

impl Listener for Listening {
    fn port(&self) -> Result<u16> {
        Ok(self.0.local_addr()?.port())
    }

    fn respond(self: Box<Self>, part: &mut Part<'_>) -> Result<Vec<Measured>> {
        let job = part.job;
        match &job.work {
            Work::Operations(operations) => {
                let connection = self.accept(job)?;
                let mut connection = connection.for_messages(operations.socket_wait())?;
                Ok(vec![rounds::respond(&mut connection, operations)?])
            }
            _ => stream::respond(part, || self.accept(job)),
        }
    }
}

/// A tuned connection that counts its system calls for data.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    wait: Wait,
    recv_flags: MsgFlags,
    send_bytes: usize,
    recv_bytes: usize,
    syscalls: u64,
}

impl Connection {
    fn new(stream: TcpStream, tuning: &TcpTuning) -> Connection {
        let recv_flags = match tuning.wait_all {
            true => MsgFlags::MSG_WAITALL,
            false => MsgFlags::empty(),
        };
        Connection {
            stream,
            wait: Wait::Event,
            recv_flags,
            send_bytes: tuning.send_bytes,
            recv_bytes: tuning.recv_bytes,
            syscalls: 0,
        }
    }

    /// Connects to the receiver and shows it the token.
    pub(super) fn open(to: SocketAddr, congestion: Option<&str>, job: &Job) -> Result<Connection> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        tune(&socket, congestion, job)?;
        socket
            .connect_timeout(&to.into(), job.connect())
            .with_context(|| format!("cannot connect to the receiver at {to}"))?;
        let mut stream = TcpStream::from(socket);
        stream.write_all(&job.token.to_le_bytes())?;
        Ok(Connection::new(stream, &job.tcp))
    }

    /// For messages that do not wait for others; one that polls does not sleep.
    fn for_messages(self, wait: Wait) -> Result<Connection> {
        SockRef::from(&self.stream).set_tcp_nodelay(true)?;
        self.stream.set_nonblocking(wait == Wait::Poll)?;
        Ok(Connection { wait, ..self })
    }

    /// The tuned socket, for what uses it in another way.
    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }

    fn recv(&mut self, space: &mut [u8]) -> std::io::Result<usize> {
        self.syscalls += 1;
        Ok(recv(self.stream.as_raw_fd(), space, self.recv_flags)?)
    }
}

impl Stream for Connection {
    fn send_bytes(&self) -> usize {
        self.send_bytes
    }

    fn receive_bytes(&self) -> usize {
        self.recv_bytes
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let mut sent = 0;
        while sent < bytes.len() {
            self.syscalls += 1;
            let taken = insist(self.wait, || self.stream.write(&bytes[sent..]))?;
            ensure!(taken > 0, "the receiver closed the connection");
            sent += taken;
        }
        Ok(())
    }

    fn receive(&mut self, space: &mut [u8]) -> Result<usize> {
        let got = insist(self.wait, || self.recv(space))?;
        ensure!(got > 0, "the peer closed the connection in the middle");
        Ok(got)
    }

    fn receive_within(&mut self, space: &mut [u8], time: Duration) -> Result<usize> {
        // A time of 0 is none to the kernel.
        let time = time.max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(time))?;
        match self.recv(space) {
            Ok(0) => bail!("the sender closed the connection"),
            Ok(got) => Ok(got),
            Err(error) if is_idle(&error) || error.kind() == ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    fn syscalls(&self) -> u64 {
        self.syscalls
    }
}

fn tune(socket: &Socket, strict: Option<&str>, job: &Job) -> Result<()> {
    socket.set_read_timeout(Some(job.stall()))?;
    socket.set_write_timeout(Some(job.stall()))?;
    if let Some(bytes) = job.tcp.send_buffer {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = job.tcp.recv_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    congestion::choose(socket, strict.or(job.tcp.congestion.as_deref()))
}
