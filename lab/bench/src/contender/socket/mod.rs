//! Sends and receives over the kernel's stream sockets, TCP and UNIX, with blocking calls in a loop.

mod messages;

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::socket::{MsgFlags, recv};
use socket2::Socket;

use super::contract::Part;
use super::gave_up::GaveUp;
use super::messages::{insist, is_idle};
use super::rounds;
use super::stream::{self, Stream};
use crate::job::operations::Wait;
use crate::job::settings::TcpTuning;
use crate::job::{Job, Work};
use crate::measured::Measured;

/// Does the initiator's part over what `connect` connects.
pub(super) fn initiate(
    part: &mut Part<'_>,
    connect: impl Fn() -> Result<Connection>,
) -> Result<Vec<Measured>> {
    match &part.job.work {
        Work::Operations(operations) => {
            let mut connection = connect()?.for_messages(operations.socket_wait())?;
            Ok(vec![rounds::initiate(
                &mut connection,
                operations,
                part.core(),
            )?])
        }
        _ => stream::initiate(part, connect),
    }
}

/// Does the responder's part over what `listening` accepts.
pub(super) fn respond(part: &mut Part<'_>, listening: &Socket) -> Result<Vec<Measured>> {
    let job = part.job;
    match &job.work {
        Work::Operations(operations) => {
            let connection = accept(listening, job)?;
            let mut connection = connection.for_messages(operations.socket_wait())?;
            Ok(vec![rounds::respond(
                &mut connection,
                operations,
                part.core(),
            )?])
        }
        _ => stream::respond(part, || accept(listening, job)),
    }
}

/// Shows the responder at the other end of a connected socket the token.
pub(super) fn introduce(mut socket: Socket, job: &Job) -> Result<Connection> {
    socket.write_all(&job.token.to_le_bytes())?;
    Ok(Connection::new(socket, &job.tcp))
}

/// The next connection whose other end knows the token.
pub(super) fn accept(listening: &Socket, job: &Job) -> Result<Connection> {
    let deadline = Instant::now() + job.connect();
    listening.set_read_timeout(Some(job.connect()))?;
    while Instant::now() < deadline {
        let (mut socket, _) = listening.accept().context("no sender connected")?;
        // A foreign peer must not use up all of the time.
        socket.set_read_timeout(Some(job.connect() / 3))?;
        let mut told = [0; 8];
        if socket.read_exact(&mut told).is_ok() && told == job.token.to_le_bytes() {
            bound(&socket, job)?;
            return Ok(Connection::new(socket, &job.tcp));
        }
    }
    Err(GaveUp("no sender with the right token connected").into())
}

/// Bounds the time of a call on `socket` that waits for the peer.
pub(super) fn bound(socket: &Socket, job: &Job) -> Result<()> {
    socket.set_read_timeout(Some(job.stall()))?;
    Ok(socket.set_write_timeout(Some(job.stall()))?)
}

/// A connected socket that counts its system calls for data.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: Socket,
    wait: Wait,
    recv_flags: MsgFlags,
    send_bytes: usize,
    recv_bytes: usize,
    pub(super) syscalls: u64,
}

impl Connection {
    fn new(socket: Socket, tuning: &TcpTuning) -> Connection {
        let recv_flags = match tuning.wait_all {
            true => MsgFlags::MSG_WAITALL,
            false => MsgFlags::empty(),
        };
        Connection {
            socket,
            wait: Wait::Event,
            recv_flags,
            send_bytes: tuning.send_bytes,
            recv_bytes: tuning.recv_bytes,
            syscalls: 0,
        }
    }

    /// For messages that do not wait for others; one that polls does not sleep.
    pub(super) fn for_messages(self, wait: Wait) -> Result<Connection> {
        self.socket.set_nonblocking(wait == Wait::Poll)?;
        Ok(Connection { wait, ..self })
    }

    fn recv(&mut self, space: &mut [u8]) -> std::io::Result<usize> {
        self.syscalls += 1;
        Ok(recv(self.socket.as_raw_fd(), space, self.recv_flags)?)
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
            let taken = insist(self.wait, || self.socket.write(&bytes[sent..]))?;
            ensure!(taken > 0, GaveUp("the receiver closed the connection"));
            sent += taken;
        }
        Ok(())
    }

    fn receive(&mut self, space: &mut [u8]) -> Result<usize> {
        let got = insist(self.wait, || self.recv(space))?;
        ensure!(
            got > 0,
            GaveUp("the peer closed the connection before the end")
        );
        Ok(got)
    }

    fn receive_within(&mut self, space: &mut [u8], time: Duration) -> Result<usize> {
        // A time of 0 is none to the kernel.
        let time = time.max(Duration::from_millis(1));
        self.socket.set_read_timeout(Some(time))?;
        match self.recv(space) {
            Ok(0) => Err(GaveUp("the sender closed the connection").into()),
            Ok(got) => Ok(got),
            Err(error) if is_idle(&error) || error.kind() == ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    fn syscalls(&self) -> u64 {
        self.syscalls
    }
}
