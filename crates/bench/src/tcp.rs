//! The TCP mover: blocking send and recv in a loop, tuned as a good user would.
//!
//! This file has the connection, [`mod@memory`] and [`mod@file`] what goes over it.
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

pub(crate) mod file;
pub(crate) mod memory;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use socket2::{Domain, SockRef, Socket, Type};

use super::congestion;
use super::limits::{CONNECT, STALL};
use super::protocol::TcpTuning;

/// What the receiver says when its clock starts, and when the last byte is in
/// place.
pub(crate) const GO: u8 = b'g';
pub(crate) const DONE: u8 = b'd';

/// A port waiting for the sender.
#[derive(Debug)]
pub(crate) struct Listener(TcpListener);

impl Listener {
    /// Listens on any free port of `address`.
    pub(crate) fn bind(address: IpAddr, tuning: &TcpTuning) -> Result<Listener> {
        let address = SocketAddr::new(address, 0);
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        // Before listen: the window scale is settled by the handshake.
        tune(&socket, tuning)?;
        socket.bind(&address.into())?;
        socket.listen(1)?;
        Ok(Listener(socket.into()))
    }

    /// The port the sender is to connect to.
    pub(crate) fn port(&self) -> Result<u16> {
        Ok(self.0.local_addr()?.port())
    }

    /// The first connection that knows the token.
    pub(crate) fn accept(self, token: u64, tuning: &TcpTuning) -> Result<Connection> {
        let deadline = Instant::now() + CONNECT;
        SockRef::from(&self.0).set_read_timeout(Some(CONNECT))?;
        while Instant::now() < deadline {
            let (mut stream, _) = self.0.accept().context("no sender connected")?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            let mut told = [0; 8];
            if stream.read_exact(&mut told).is_ok() && told == token.to_le_bytes() {
                stream.set_read_timeout(Some(STALL))?;
                return Ok(Connection::new(stream, tuning));
            }
        }
        bail!("no sender with the right token connected")
    }
}

/// A tuned connection that counts its system calls for data.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    recv_flags: MsgFlags,
    syscalls: u64,
}

impl Connection {
    fn new(stream: TcpStream, tuning: &TcpTuning) -> Connection {
        let recv_flags = if tuning.wait_all {
            MsgFlags::MSG_WAITALL
        } else {
            MsgFlags::empty()
        };
        Connection {
            stream,
            recv_flags,
            syscalls: 0,
        }
    }

    /// Connects to the receiver and shows it the token.
    pub(crate) fn open(to: SocketAddr, token: u64, tuning: &TcpTuning) -> Result<Connection> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        tune(&socket, tuning)?;
        socket
            .connect_timeout(&to.into(), CONNECT)
            .with_context(|| format!("cannot connect to the receiver at {to}"))?;
        let mut stream = TcpStream::from(socket);
        stream.write_all(&token.to_le_bytes())?;
        Ok(Connection::new(stream, tuning))
    }

    /// The tuned socket, for who uses it in another way.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// The socket, for who puts something between it and the payload.
    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// System calls for data until now.
    pub(crate) fn syscalls(&self) -> u64 {
        self.syscalls
    }

    fn say(&mut self, word: u8) -> Result<()> {
        Ok(self.stream.write_all(&[word])?)
    }

    fn await_word(&mut self, word: u8) -> Result<()> {
        let mut heard = [0; 1];
        self.stream.read_exact(&mut heard).map_err(stalled)?;
        if heard != [word] {
            bail!(
                "the receiver said {:?} instead of {:?}",
                heard[0] as char,
                word as char
            );
        }
        Ok(())
    }

    /// Sends all of `piece`.
    fn send_all(&mut self, piece: &[u8]) -> Result<()> {
        let mut sent = 0;
        while sent < piece.len() {
            self.syscalls += 1;
            match self.stream.write(&piece[sent..]) {
                Ok(0) => bail!("the receiver closed the connection"),
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(stalled(error)),
            }
        }
        Ok(())
    }

    /// One recv; how many bytes it brought, at least one.
    pub(crate) fn recv_some(&mut self, space: &mut [u8]) -> Result<usize> {
        loop {
            self.syscalls += 1;
            match recv(self.stream.as_raw_fd(), space, self.recv_flags) {
                Ok(0) => bail!("the sender closed the connection in the middle"),
                Ok(bytes) => return Ok(bytes),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(stalled(errno.into())),
            }
        }
    }
}

/// The tuning that copies files fastest.
pub(crate) fn for_files() -> TcpTuning {
    TcpTuning {
        send_bytes: 256 << 10,
        recv_bytes: 256 << 10,
        ..TcpTuning::default()
    }
}

fn tune(socket: &Socket, tuning: &TcpTuning) -> Result<()> {
    socket.set_read_timeout(Some(STALL))?;
    socket.set_write_timeout(Some(STALL))?;
    if let Some(bytes) = tuning.send_buffer {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = tuning.recv_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    congestion::choose(socket, tuning.congestion.as_deref())
}

/// An error of a data connection, in words.
pub(crate) fn stalled(error: std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            anyhow::anyhow!("the peer did nothing for {} s", STALL.as_secs())
        }
        _ => error.into(),
    }
}
