//! Sends and receives raw UDP as a good user would: connected sockets, the largest possible receive buffer, GSO and GRO.
//!
//! Raw UDP neither retransmits nor paces. In a stream, datagrams that do not fit the receiver's socket buffer are lost, and
//! the report says so. A message of a ping-pong is at most as long as the receiver's socket is sure to hold.

mod datagrams;

use std::io::{self, ErrorKind::ConnectionRefused as Refused};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBufForce, UdpGroSegment, UdpGsoSegment};
use socket2::SockRef;

use super::contract::{Contender, GO, Listener, Part};
use super::messages::{Pipe, await_word, insist};
use super::rounds;
use crate::content::message::{Content, mask};
use crate::cpu::{Core, CpuTime, Meter};
use crate::job::operations::{DATAGRAM_MAX, Operations, Wait};
use crate::job::test::Metric;
use crate::job::{Job, Work};
use crate::limits::{CONNECT, STALL};
use crate::measured::Measured;

/// SO_RCVBUF to ask for, bytes: what Zerolane asks for.
const RECEIVE_BUFFER: usize = 8 << 20;
/// Most datagrams in one super-packet: what every kernel with UDP_SEGMENT takes.
const SEGMENTS_MAX: usize = 64;
/// Largest message of a ping-pong, bytes: what the smallest usual receive buffer holds with the kernel's share of it.
const MESSAGE_MAX: usize = 64 << 10;
/// Time between two tries of the handshake.
const RETRY: Duration = Duration::from_secs(1);
/// Time between two tries to say that a stream is over.
const END_RETRY: Duration = Duration::from_millis(1);

/// Raw UDP.
#[derive(Debug)]
pub(super) struct Udp;

impl Contender for Udp {
    fn able(&self, job: &Job) -> Result<(), String> {
        match &job.work {
            Work::Operations(it)
                if it.test.metric() == Metric::Stream || it.size <= MESSAGE_MAX =>
            {
                Ok(())
            }
            Work::SourceSink(it) => datagrams::able(it),
            Work::Operations(_) => Err(format!(
                "raw UDP has no flow control: ping-pong messages have at most {MESSAGE_MAX} bytes"
            )),
            _ => Err(NO_STREAM.into()),
        }
    }

    fn listen(&self, bind: IpAddr, _: &Job) -> Result<Box<dyn Listener>> {
        Ok(Box::new(Listening(bind_to(bind)?)))
    }

    fn initiate(&self, to: SocketAddr, part: &mut Part<'_>) -> Result<Vec<Measured>> {
        let socket = connect(to, part.job.token)?;
        Ok(vec![match &part.job.work {
            Work::Operations(job) => {
                let core = part.core();
                rounds::initiate(&mut Connection::new(socket, job)?, job, core)?
            }
            Work::SourceSink(job) => {
                let connection = Connection::of_datagrams(socket, datagrams::segment(job))?;
                datagrams::send(connection, part, job)?
            }
            _ => bail!(NO_STREAM),
        }])
    }
}

/// Why it does no other work.
const NO_STREAM: &str = "raw UDP carries no stream of bytes";

/// A socket waiting for the initiator.
#[derive(Debug)]
struct Listening(UdpSocket);

impl Listener for Listening {
    fn port(&self) -> Result<u16> {
        Ok(self.0.local_addr()?.port())
    }

    fn respond(self: Box<Self>, part: &mut Part<'_>) -> Result<Vec<Measured>> {
        let socket = accept(self.0, part.job.token)?;
        Ok(vec![match &part.job.work {
            Work::Operations(job) => {
                let core = part.core();
                rounds::respond(&mut Connection::new(socket, job)?, job, core)?
            }
            Work::SourceSink(job) => {
                let connection = Connection::of_datagrams(socket, datagrams::segment(job))?;
                datagrams::receive(connection, part, job)?
            }
            _ => bail!(NO_STREAM),
        }])
    }
}

/// A connected socket of a run.
#[derive(Debug)]
struct Connection {
    socket: UdpSocket,
    wait: Wait,
    /// Bytes of the datagrams that messages are cut into.
    segment: usize,
    /// Whether the kernel cuts.
    gso: bool,
}

/// Takes the first peer that knows the token.
fn accept(socket: UdpSocket, token: u64) -> Result<UdpSocket> {
    let token = token.to_le_bytes();
    let deadline = Instant::now() + CONNECT;
    socket.set_read_timeout(Some(CONNECT))?;
    let mut told = [0; 9];
    while Instant::now() < deadline {
        let (len, from) = socket
            .recv_from(&mut told)
            .context("no initiator connected")?;
        if told[..len] != token {
            continue;
        }
        socket.connect(from)?;
        socket.send(&token)?;
        // The token again, if our answer was late; then the word that it was heard.
        loop {
            let len = socket.recv(&mut told)?;
            if told[..len] != token {
                return Ok(socket);
            }
        }
    }
    bail!("no initiator with the right token connected")
}

/// Connects to the responder and shows it the token.
fn connect(to: SocketAddr, token: u64) -> Result<UdpSocket> {
    let token = token.to_le_bytes();
    let unspecified = match to {
        SocketAddr::V4(_) => IpAddr::from([0_u8; 4]),
        SocketAddr::V6(_) => IpAddr::from([0_u16; 8]),
    };
    let socket = bind_to(unspecified)?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(RETRY))?;
    let mut told = [0; 9];
    let deadline = Instant::now() + CONNECT;
    while Instant::now() < deadline {
        socket.send(&token)?;
        if socket.recv(&mut told).is_ok_and(|len| told[..len] == token) {
            socket.send(&[GO])?;
            return Ok(socket);
        }
    }
    bail!("{to} does not answer")
}

fn bind_to(address: IpAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((address, 0))?;
    // Only a privileged process gets more than the system's limit.
    if setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER).is_err() {
        SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER)?;
    }
    Ok(socket)
}

impl Connection {
    fn new(socket: UdpSocket, job: &Operations) -> Result<Connection> {
        let streams = job.test.metric() == Metric::Stream;
        let segment = match streams {
            true => job.size.min(job.datagram),
            false => job.datagram,
        };
        let several = streams || job.size > segment;
        Connection::over(socket, job.socket_wait(), segment, several)
    }

    /// One that blocks, and carries many datagrams of at most this size.
    fn of_datagrams(socket: UdpSocket, segment: usize) -> Result<Connection> {
        Connection::over(socket, Wait::Event, segment, true)
    }

    fn over(socket: UdpSocket, wait: Wait, segment: usize, several: bool) -> Result<Connection> {
        socket.set_read_timeout(Some(STALL))?;
        socket.set_write_timeout(Some(STALL))?;
        socket.set_nonblocking(wait == Wait::Poll)?;
        // Its datagrams are at most the payload of a packet, which fits 16 bits.
        let gso = several && setsockopt(&socket, UdpGsoSegment, &(segment as i32)).is_ok();
        if several {
            // Without, every datagram is received alone.
            let _ = setsockopt(&socket, UdpGroSegment, &true);
        }
        Ok(Connection {
            socket,
            wait,
            segment,
            gso,
        })
    }

    /// Most bytes that one call takes, whole datagrams.
    fn burst(&self) -> usize {
        (DATAGRAM_MAX / self.segment).clamp(1, SEGMENTS_MAX) * self.segment
    }

    /// Sends at most a burst, cut into datagrams, by the kernel if it can.
    fn send_burst(&mut self, burst: &[u8]) -> Result<()> {
        if self.gso || burst.len() <= self.segment {
            match insist(self.wait, || self.socket.send(burst)) {
                Ok(_) => return Ok(()),
                Err(error) => self.lose_gso(error)?,
            }
        }
        for datagram in burst.chunks(self.segment) {
            insist(self.wait, || self.socket.send(datagram))?;
        }
        Ok(())
    }

    /// Cuts by itself from now on, if that is what the kernel refused.
    fn lose_gso(&mut self, error: anyhow::Error) -> Result<()> {
        if !(self.gso && is_gso_refused(&error)) {
            return Err(error);
        }
        self.gso = false;
        Ok(setsockopt(&self.socket, UdpGsoSegment, &0)?)
    }

    fn receive_some(&mut self, space: &mut [u8]) -> Result<usize> {
        insist(self.wait, || self.socket.recv(space))
    }

    /// Says that the stream is over, until the receiver has heard it.
    fn end_stream(&mut self) -> Result<()> {
        self.socket.set_nonblocking(false)?;
        self.socket.set_read_timeout(Some(END_RETRY))?;
        let deadline = Instant::now() + STALL;
        while Instant::now() < deadline {
            match (self.socket.send(&[]), self.socket.recv(&mut [0])) {
                (_, Ok(0)) => return Ok(()),
                // It has heard, and gone.
                (Err(error), _) | (_, Err(error)) if error.kind() == Refused => return Ok(()),
                _ => {}
            }
        }
        bail!("the receiver of the stream is gone")
    }
}

/// Whether the interface takes no super-packets (quinn's list of such errors).
fn is_gso_refused(error: &anyhow::Error) -> bool {
    let raw = error.downcast_ref().and_then(io::Error::raw_os_error);
    [nix::libc::EIO, nix::libc::EINVAL].map(Some).contains(&raw)
}

impl Pipe for Connection {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let burst = self.burst();
        message
            .chunks(burst)
            .try_for_each(|burst| self.send_burst(burst))
    }

    fn receive(&mut self, message: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        while filled < message.len() {
            filled += self.receive_some(&mut message[filled..])?;
        }
        Ok(())
    }

    /// Datagram by datagram: each has a number of its own, so that what is lost can be counted.
    fn send_stream(&mut self, job: &Operations, _: &Content, core: Core<'_>) -> Result<CpuTime> {
        let train = Train::new(job);
        let mut ring = vec![0; job.depth * job.size];
        for message in ring.chunks_mut(job.size) {
            message
                .chunks_mut(train.segment)
                .for_each(|datagram| train.content.fill(datagram));
        }
        // Bursts of whole messages, or messages of whole bursts.
        let together = match job.size > train.segment {
            true => job.size,
            false => (self.burst() / job.size).clamp(1, job.depth) * job.size,
        };
        let meter = Meter::start(core);
        await_word(self, GO)?;
        let (mut index, mut at, burst) = (0, 0, self.burst());
        while index < train.datagrams {
            let batch = (at - at % together + together).min(ring.len());
            let end = batch.min(at + burst);
            // The stream may end within a burst, then of messages of one datagram each.
            let left = (train.datagrams - index).saturating_mul(train.segment as u64);
            let len = usize::try_from(left).map_or(end - at, |left| left.min(end - at));
            let datagrams = &mut ring[at..at + len];
            for datagram in datagrams.chunks_mut(train.segment) {
                train.content.stamp(datagram, index);
                index += 1;
            }
            self.send_burst(datagrams)?;
            at = end % ring.len();
        }
        self.end_stream()?;
        Ok(meter.stop().1)
    }

    fn receive_stream(
        &mut self,
        job: &Operations,
        _: &Content,
        core: Core<'_>,
    ) -> Result<Measured> {
        let mut train = Train::new(job);
        // Every page is touched before the clock runs, as Zerolane's are.
        let mut ring = vec![1; (job.depth * job.size).max(2 * DATAGRAM_MAX)];
        ring.fill(0);
        let mut filled = 0;
        let meter = Meter::start(core);
        self.send(&[GO])?;
        let started = Instant::now();
        let mut last = Duration::ZERO;
        loop {
            if ring.len() - filled < DATAGRAM_MAX {
                filled = 0;
            }
            let got = self.receive_some(&mut ring[filled..filled + DATAGRAM_MAX])?;
            if got == 0 {
                break;
            }
            last = started.elapsed();
            train.take(&ring[filled..filled + got])?;
            filled += got;
        }
        let (_, cpu) = meter.stop();
        self.socket.send(&[])?;
        Ok(Measured {
            cpu,
            lost_bytes: job.bytes() - train.bytes,
            ..Measured::stream(train.bytes, last.as_secs_f64())
        })
    }
}

/// A stream as the datagrams it is sent in.
struct Train {
    content: Content,
    segment: usize,
    size: usize,
    /// Datagrams of a message.
    cut: u64,
    /// Datagrams of the stream.
    datagrams: u64,
    /// Number of the next expected datagram.
    next: u64,
    /// Bytes that came.
    bytes: u64,
}

impl Train {
    fn new(job: &Operations) -> Train {
        let segment = job.size.min(job.datagram);
        let cut = job.size.div_ceil(segment) as u64;
        Train {
            content: Content::new(job.seed, segment),
            segment,
            size: job.size,
            cut,
            datagrams: job.rounds() * cut,
            next: 0,
            bytes: 0,
        }
    }

    /// Checks the datagrams that came as one.
    fn take(&mut self, merged: &[u8]) -> Result<()> {
        for datagram in merged.chunks(self.segment) {
            // The number is known as far as its length can tell it; datagrams do not overtake
            // each other on a veth, so it is the next one of that kind.
            let ahead = self.content.index(datagram).wrapping_sub(self.next);
            let index = self.next + (ahead & mask(datagram.len()));
            ensure!(index < self.datagrams, "datagram {index} was never sent");
            self.content.check(datagram, index)?;
            ensure!(
                datagram.len() == self.len(index),
                "datagram {index} has {} bytes, not {}",
                datagram.len(),
                self.len(index)
            );
            self.next = index + 1;
            self.bytes += datagram.len() as u64;
        }
        Ok(())
    }

    /// Length of a datagram: the last of a message is the rest.
    fn len(&self, index: u64) -> usize {
        match (index + 1) % self.cut {
            0 => self.size - (self.cut as usize - 1) * self.segment,
            _ => self.segment,
        }
    }
}
