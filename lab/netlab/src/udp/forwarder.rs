//! Runs the relay's thread: one loop over all sockets.

use super::{MAX_CLIENTS, MAX_IN_FLIGHT_PACKETS, Old, State};
use crate::worker::Shared;
use netsim::Side;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Biggest datagram there is.
const MAX_DATAGRAM_BYTES: usize = 65_535;

/// Datagrams taken from one socket before the next one's turn, so that a busy
/// socket does not hold up deliveries that are due.
const BATCH_PACKETS: usize = 64;

/// Wanted for each socket, because what the kernel drops here is loss that
/// was not configured. Without root the kernel gives what its limit allows.
const SOCKET_BUFFER_BYTES: usize = 8 << 20;

const IPV4_UDP_HEADER_BYTES: usize = 20 + 8;
const IPV6_UDP_HEADER_BYTES: usize = 40 + 8;

/// A datagram on a link, and the client that it is from or for.
#[derive(Clone, Debug)]
pub(super) struct Datagram {
    client: usize,
    bytes: Vec<u8>,
}

/// A client, and the socket that stands for it towards the server.
#[derive(Debug)]
struct Client {
    address: SocketAddr,
    upstream: UdpSocket,
}

#[derive(Debug)]
pub(super) struct Forwarder {
    /// Stands for the server towards the clients.
    front: UdpSocket,
    /// Sockets that each side saw before a rebind. They stay open, so that the kernel does not report to a sender that the address is gone.
    forgotten: [Vec<UdpSocket>; 2],
    server: SocketAddr,
    clients: Vec<Client>,
    client_of: HashMap<SocketAddr, usize>,
    shared: Arc<Shared<State>>,
    start: Instant,
    buffer: Vec<u8>,
}

/// Which sockets have something to read.
struct Readable {
    front: bool,
    /// Indices of clients.
    upstream: Vec<usize>,
}

/// What a receive call gave, other than a failure of the socket.
enum Received {
    Datagram(usize, SocketAddr),
    /// The other end refused what was sent before.
    Refused,
    Nothing,
}

impl Forwarder {
    pub(super) fn new(
        front: UdpSocket,
        server: SocketAddr,
        shared: Arc<Shared<State>>,
    ) -> io::Result<Self> {
        prepare(&front)?;
        Ok(Self {
            front,
            forgotten: [Vec::new(), Vec::new()],
            server,
            clients: Vec::new(),
            client_of: HashMap::new(),
            shared,
            start: Instant::now(),
            buffer: vec![0; MAX_DATAGRAM_BYTES],
        })
    }

    /// Relays until told to stop, or until a socket fails.
    pub(super) fn run(mut self) -> io::Result<()> {
        while !self.shared.is_stopping() {
            let readable = self.wait()?;
            let rebinding = std::mem::take(&mut self.shared.state().rebinding);
            for side in Side::BOTH {
                if let Some(old) = rebinding[side.index()] {
                    self.rebind(side, old)?;
                }
            }
            if readable.front {
                self.receive_from_clients()?;
            }
            for client in readable.upstream {
                self.receive_from_server(client)?;
            }
            self.deliver();
        }
        Ok(())
    }

    /// Puts new sockets in the places of those that `side` sees.
    fn rebind(&mut self, side: Side, old: Old) -> io::Result<()> {
        let mut forgotten = Vec::new();
        match side {
            Side::A => {
                let front = UdpSocket::bind((self.front.local_addr()?.ip(), 0))?;
                prepare(&front)?;
                forgotten.push(std::mem::replace(&mut self.front, front));
            }
            Side::B => {
                for client in &mut self.clients {
                    let upstream = connected_to(self.server)?;
                    forgotten.push(std::mem::replace(&mut client.upstream, upstream));
                }
            }
        }
        if old == Old::Refused {
            forgotten.clear();
        }
        self.forgotten[side.index()] = forgotten;
        Ok(())
    }

    /// Waits for a datagram, the next delivery or a wake-up.
    fn wait(&self) -> io::Result<Readable> {
        let timeout = self.time_to_next_delivery().map(TimeSpec::from);
        let upstream = self.clients.iter().map(|client| client.upstream.as_fd());
        let mut fds: Vec<PollFd<'_>> = [self.shared.wake_fd(), self.front.as_fd()]
            .into_iter()
            .chain(upstream)
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        match ppoll(&mut fds, timeout, None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Errors count too: reading is what clears them.
        let ready = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
        if ready(&fds[0]) {
            self.shared.woken();
        }
        Ok(Readable {
            front: ready(&fds[1]),
            upstream: (0..self.clients.len())
                .filter(|&client| ready(&fds[2 + client]))
                .collect(),
        })
    }

    fn time_to_next_delivery(&self) -> Option<Duration> {
        let state = self.shared.state();
        let next = state
            .links
            .iter()
            .filter_map(|link| link.next_delivery())
            .min()?;
        Some(next.saturating_sub(self.start.elapsed()))
    }

    fn receive_from_clients(&mut self) -> io::Result<()> {
        for _ in 0..BATCH_PACKETS {
            match receive(&self.front, &mut self.buffer)? {
                Received::Datagram(length, from) => match self.client_at(from)? {
                    Some(client) => self.put_on_link(Side::A, client, length),
                    None => self.shared.state().refused += 1,
                },
                Received::Refused => {}
                Received::Nothing => break,
            }
        }
        Ok(())
    }

    fn receive_from_server(&mut self, client: usize) -> io::Result<()> {
        for _ in 0..BATCH_PACKETS {
            match receive(&self.clients[client].upstream, &mut self.buffer)? {
                Received::Datagram(length, _) => self.put_on_link(Side::B, client, length),
                Received::Refused => self.shared.state().unsent += 1,
                Received::Nothing => break,
            }
        }
        Ok(())
    }

    /// The client at this address, known or new; `None` if there are too many.
    fn client_at(&mut self, address: SocketAddr) -> io::Result<Option<usize>> {
        if let Some(&client) = self.client_of.get(&address) {
            return Ok(Some(client));
        }
        if self.clients.len() == MAX_CLIENTS {
            return Ok(None);
        }
        let client = self.clients.len();
        let upstream = connected_to(self.server)?;
        self.clients.push(Client { address, upstream });
        self.client_of.insert(address, client);
        self.shared.state().clients = self.clients.len();
        Ok(Some(client))
    }

    /// Hands the first `length` bytes of the buffer to a link.
    fn put_on_link(&self, from: Side, client: usize, length: usize) {
        let mut state = self.shared.state();
        let State {
            links, overflowed, ..
        } = &mut *state;
        let link = &mut links[from.index()];
        if link.in_flight() >= MAX_IN_FLIGHT_PACKETS {
            *overflowed += 1;
            return;
        }
        let size = length + header_bytes(self.server);
        let bytes = self.buffer[..length].to_vec();
        link.send(self.start.elapsed(), size, Datagram { client, bytes });
    }

    /// Sends on what is due on either link.
    fn deliver(&self) {
        let now = self.start.elapsed();
        let mut state = self.shared.state();
        for side in Side::BOTH {
            while let Some(datagram) = state.links[side.index()].pop_due(now) {
                state.unsent += self.send_on(side, &datagram);
            }
        }
    }

    /// Sends one datagram on; returns how many the kernel turned out not to
    /// have taken.
    fn send_on(&self, from: Side, datagram: &Datagram) -> u64 {
        let send = || {
            let client = &self.clients[datagram.client];
            match from {
                Side::A => client.upstream.send(&datagram.bytes),
                Side::B => self.front.send_to(&datagram.bytes, client.address),
            }
        };
        match send() {
            Ok(_) => 0,
            // This tells of an earlier datagram; this one was not tried yet.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                1 + u64::from(send().is_err())
            }
            Err(_) => 1,
        }
    }
}

fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Received> {
    match socket.recv_from(buffer) {
        Ok((length, from)) => Ok(Received::Datagram(length, from)),
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(Received::Nothing),
            ErrorKind::ConnectionRefused => Ok(Received::Refused),
            _ => Err(error),
        },
    }
}

fn connected_to(server: SocketAddr) -> io::Result<UdpSocket> {
    let socket = match server {
        SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?,
        SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?,
    };
    socket.connect(server)?;
    prepare(&socket)?;
    Ok(socket)
}

/// Non-blocking, with a buffer as big as it gets.
fn prepare(socket: &UdpSocket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    if setsockopt(socket, sockopt::RcvBufForce, &SOCKET_BUFFER_BYTES).is_err() {
        setsockopt(socket, sockopt::RcvBuf, &SOCKET_BUFFER_BYTES)?;
    }
    Ok(())
}

fn header_bytes(address: SocketAddr) -> usize {
    match address {
        SocketAddr::V4(_) => IPV4_UDP_HEADER_BYTES,
        SocketAddr::V6(_) => IPV6_UDP_HEADER_BYTES,
    }
}
