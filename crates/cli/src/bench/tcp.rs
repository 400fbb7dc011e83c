//! The TCP mover: blocking send and recv in a loop, tuned as a good user would.
//!
//! The bytes go from the sender's buffer to the receiver's buffer, a lap at a
//! time, without any buffer of our own in between.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use socket2::SockRef;

use super::cpu::Meter;
use super::limits::{CONNECT, STALL};
use super::mover::Run;
use super::pattern::WORD;
use super::protocol::{Measured, TcpTuning};
use crate::exit::Exit;

/// What the receiver says when its clock starts, and when the last byte is in
/// place.
const GO: &[u8; 1] = b"g";
const DONE: &[u8; 1] = b"d";

/// A port waiting for the sender.
#[derive(Debug)]
pub(crate) struct Listener(TcpListener);

impl Listener {
    /// Listens on any free port of `address`.
    pub(crate) fn bind(address: IpAddr, tuning: &TcpTuning) -> Result<Listener> {
        let socket = socket2::Socket::new(
            socket2::Domain::for_address(SocketAddr::new(address, 0)),
            socket2::Type::STREAM,
            None,
        )?;
        // Before listen: the window scale is settled by the handshake.
        tune(SockRef::from(&socket), tuning)?;
        socket.bind(&SocketAddr::new(address, 0).into())?;
        socket.listen(1)?;
        Ok(Listener(socket.into()))
    }

    /// The port the sender is to connect to.
    pub(crate) fn port(&self) -> Result<u16> {
        Ok(self.0.local_addr()?.port())
    }

    /// Receives the whole run into `buffer`.
    pub(crate) fn receive(self, run: &Run<'_>, buffer: &mut [u8]) -> Result<Measured> {
        let mut stream = self.accept(run.job.token)?;
        let chunk = run.job.tcp.recv_bytes;
        let flags = if run.job.tcp.wait_all {
            MsgFlags::MSG_WAITALL
        } else {
            MsgFlags::empty()
        };
        let mut syscalls = 0;

        stream.write_all(GO)?;
        let meter = Meter::start(run.core);
        for lap in 0..run.job.laps {
            let mut filled = 0;
            let mut checked = 0;
            while filled < buffer.len() {
                let end = buffer.len().min(filled + chunk);
                filled += recv_some(&stream, &mut buffer[filled..end], flags)?;
                syscalls += 1;
                let whole = filled / WORD * WORD;
                run.pattern
                    .check_stamps(&buffer[checked..whole], checked, lap)
                    .context(Exit::Corrupt)?;
                checked = whole;
            }
        }
        let (seconds, cpu) = meter.stop();
        stream.write_all(DONE)?;
        Ok(Measured {
            bytes: run.bytes,
            seconds,
            cpu,
            syscalls,
            ..Measured::default()
        })
    }

    /// The first connection that knows the token.
    fn accept(&self, token: u64) -> Result<TcpStream> {
        let deadline = Instant::now() + CONNECT;
        SockRef::from(&self.0).set_read_timeout(Some(CONNECT))?;
        while Instant::now() < deadline {
            let (mut stream, _) = self.0.accept().context("no sender connected")?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            let mut told = [0; 8];
            if stream.read_exact(&mut told).is_ok() && told == token.to_le_bytes() {
                stream.set_read_timeout(Some(STALL))?;
                return Ok(stream);
            }
        }
        bail!("no sender with the right token connected")
    }
}

/// Sends the whole run from `buffer`.
pub(crate) fn send(to: SocketAddr, run: &Run<'_>, buffer: &mut [u8]) -> Result<Measured> {
    let mut stream = connect(to, &run.job.tcp)?;
    stream.write_all(&run.job.token.to_le_bytes())?;
    let mut word = [0; 1];
    stream
        .read_exact(&mut word)
        .context("waiting for the receiver's go")?;

    let meter = Meter::start(run.core);
    let mut syscalls = 0;
    for lap in 0..run.job.laps {
        let mut base = 0;
        for piece in buffer.chunks_mut(run.job.tcp.send_bytes) {
            run.pattern.stamp(piece, base, lap);
            syscalls += send_all(&mut stream, piece)?;
            base += piece.len();
        }
    }
    // What is still in the socket costs this core too: wait until it is there.
    stream
        .read_exact(&mut word)
        .context("waiting for the receiver's done")?;
    let (seconds, cpu) = meter.stop();
    Ok(Measured {
        bytes: run.bytes,
        seconds,
        cpu,
        syscalls,
        ..Measured::default()
    })
}

fn connect(to: SocketAddr, tuning: &TcpTuning) -> Result<TcpStream> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(to),
        socket2::Type::STREAM,
        None,
    )?;
    tune(SockRef::from(&socket), tuning)?;
    socket
        .connect_timeout(&to.into(), CONNECT)
        .with_context(|| format!("cannot connect to the receiver at {to}"))?;
    Ok(socket.into())
}

fn tune(socket: SockRef<'_>, tuning: &TcpTuning) -> Result<()> {
    socket.set_read_timeout(Some(STALL))?;
    socket.set_write_timeout(Some(STALL))?;
    if let Some(bytes) = tuning.send_buffer {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = tuning.recv_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    if let Some(name) = &tuning.congestion {
        socket.set_tcp_congestion(name.as_bytes()).with_context(|| {
            format!("TCP congestion control {name:?} is not to be had; see tcp_available_congestion_control")
        })?;
    }
    Ok(())
}

/// Sends all of `piece`; how many system calls that took.
fn send_all(stream: &mut TcpStream, piece: &[u8]) -> Result<u64> {
    let mut sent = 0;
    let mut syscalls = 0;
    while sent < piece.len() {
        match stream.write(&piece[sent..]) {
            Ok(0) => bail!("the receiver closed the connection"),
            Ok(bytes) => sent += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(stalled(error)),
        }
        syscalls += 1;
    }
    Ok(syscalls)
}

/// One recv; how many bytes it brought, at least one.
fn recv_some(stream: &TcpStream, space: &mut [u8], flags: MsgFlags) -> Result<usize> {
    loop {
        match recv(stream.as_raw_fd(), space, flags) {
            Ok(0) => bail!("the sender closed the connection in the middle"),
            Ok(bytes) => return Ok(bytes),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(stalled(errno.into())),
        }
    }
}

fn stalled(error: std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            anyhow::anyhow!("the peer did nothing for {} s", STALL.as_secs())
        }
        _ => error.into(),
    }
}
