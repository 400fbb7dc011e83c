//! Acts as a peer that does the handshake by the rules and then sends anything.

use super::exchange::{admit, capabilities, exchange};
use super::rule::Terms;
use super::seal::Seal;
use super::victim::{ROOM, Served};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::UdpGsoSegment;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zerolane_handshake::Session;
use zerolane_wire::{
    ConnectionAnswer, ConnectionVerdict, Flags, HEADER_LEN, Header, Op, Operation, Packet, Reason,
    RequestConnection, RequestDisconnect, Route,
};

/// Longest wait for anything.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The victim counts as silent after this long without a datagram.
const SILENCE: Duration = Duration::from_millis(30);
/// The peer's own key and port, and the number of its set-up.
pub(super) const KEY: u32 = 0x6b6b_6b6b;
pub(super) const PORT: u16 = 77;
pub(super) const SYNC: u32 = 5;
/// Sync of the Nop that asks whether the victim is still alive.
const THERE: u32 = 0x7e57_ab1e;

/// Which end of the connection the hostile peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Initiator,
    Responder,
}

pub(super) struct Peer {
    socket: UdpSocket,
    seal: Option<Seal>,
    route: Route,
    /// The last of its own identifiers that was used.
    next_id: u32,
    next_sequence: u32,
    /// Receive buffer.
    buffer: Box<[u8; 65_536]>,
    /// All datagrams that it sent, as on the wire.
    pub(super) sent: Vec<Vec<u8>>,
    /// Longest message it announced, bytes: the victim never grants more.
    pub(super) announced: u64,
    /// The victim that connected.
    pub(super) connecting: Option<JoinHandle<Served>>,
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let patience = Some(Duration::from_millis(5));
    socket.set_read_timeout(patience).unwrap();
    socket
}

impl Peer {
    fn new(socket: UdpSocket, session: Option<&Session>, route: Route) -> Peer {
        Peer {
            socket,
            seal: session.map(Seal::new),
            route,
            next_id: 1,
            next_sequence: 0,
            buffer: Box::new([0; 65_536]),
            sent: vec![],
            announced: 0,
            connecting: None,
        }
    }

    /// Connects to `victim`.
    pub(super) fn connect(victim: SocketAddr, encrypted: bool, terms: &Terms) -> Peer {
        let socket = socket();
        socket.connect(victim).unwrap();
        let session = encrypted.then(|| exchange(&socket, terms));
        let route = Route {
            d_port: 1,
            s_port: PORT,
            d_key: 0,
        };
        let mut peer = Peer::new(socket, session.as_ref(), route);
        if !encrypted {
            peer.say(Operation::RequestConnection(RequestConnection {
                version_min: 1,
                version_max: 1,
                capabilities: capabilities(terms),
                s_key: KEY,
                sync: SYNC,
            }));
        }
        let answer = peer.await_heard(|header, _| header.op == Op::ConnectionAnswer);
        peer.route = Route {
            d_port: answer.0.s_port,
            s_port: PORT,
            d_key: answer.0.s_id,
        };
        peer.say(Operation::Nop(Default::default()));
        peer
    }

    /// A socket that a victim can connect to.
    pub(super) fn listen() -> (UdpSocket, SocketAddr) {
        let socket = socket();
        let address = socket.local_addr().unwrap();
        (socket, address)
    }

    /// Answers the victim that connects to `socket`.
    pub(super) fn accept(socket: UdpSocket, encrypted: bool, terms: &Terms) -> Peer {
        let (request, session, from) = admit(&socket, encrypted, terms);
        let Operation::RequestConnection(asked) = request.operation else {
            panic!("{request:?}");
        };
        socket.connect(from).unwrap();
        let route = Route {
            d_port: request.route.s_port,
            s_port: PORT,
            d_key: asked.s_key,
        };
        let mut peer = Peer::new(socket, session.as_ref(), route);
        (terms.before_answer)(&mut peer, &asked);
        peer.say(Operation::ConnectionAnswer(ConnectionAnswer {
            verdict: ConnectionVerdict::Accept {
                version: 1,
                capabilities: capabilities(terms),
                s_key: KEY,
            },
            sync: asked.sync,
        }));
        peer
    }

    /// Whether the connection is sealed.
    pub(super) fn is_sealed(&self) -> bool {
        self.seal.is_some()
    }

    /// Sends an operation with the right ports and keys.
    pub(super) fn say(&mut self, operation: Operation) {
        let route = self.route;
        let (bytes, len) = Packet { route, operation }.emit();
        self.send(&bytes[..len]);
    }

    /// A header with the right ports and keys.
    pub(super) fn header(&self, op: Op) -> Header {
        Header {
            d_port: self.route.d_port,
            s_port: self.route.s_port,
            d_key: self.route.d_key,
            ..Header::new(op)
        }
    }

    /// Sends a header, and `rest` after it.
    pub(super) fn say_raw(&mut self, header: &Header, rest: &[u8]) {
        if header.op == Op::RequestToSend && header.wide() <= ROOM as u64 {
            self.announced = self.announced.max(header.wide());
        }
        self.send(&[&header.emit()[..], rest].concat());
    }

    /// Seals a datagram, if the connection is sealed.
    pub(super) fn sealed(&mut self, datagram: &[u8]) -> Vec<u8> {
        match &mut self.seal {
            Some(seal) => seal.seal(datagram),
            None => datagram.to_vec(),
        }
    }

    /// Sends a datagram, sealed if the connection is.
    pub(super) fn send(&mut self, datagram: &[u8]) {
        let sealed = self.sealed(datagram);
        self.send_as_is(&sealed);
        self.sent.push(sealed);
        if self.sent.len().is_multiple_of(64) {
            // An overflowing socket buffer would weaken the attack.
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    /// Sends a datagram without a seal, or with an old one.
    pub(super) fn send_as_is(&mut self, datagram: &[u8]) {
        // The victim may have ended.
        let _ = self.socket.send(datagram);
    }

    /// Sends parts of `part` bytes in one system call, which stay together if the kernel can.
    pub(super) fn send_burst(&mut self, burst: &[u8], part: usize) {
        let len = part as u16;
        setsockopt(&self.socket, UdpGsoSegment, &len.into()).unwrap();
        let _ = self.socket.send(burst);
        setsockopt(&self.socket, UdpGsoSegment, &0).unwrap();
    }

    /// The socket it sends from.
    pub(super) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// The seal's next number, where there is a seal.
    pub(super) fn set_number(&mut self, number: u64) {
        if let Some(seal) = &mut self.seal {
            seal.number = number;
        }
    }

    /// A fresh identifier.
    pub(super) fn id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    /// The number of the next announcement.
    pub(super) fn sequence(&mut self) -> u32 {
        self.next_sequence += 1;
        self.next_sequence - 1
    }

    /// The next datagram, opened: `None` if nothing comes for a while.
    pub(super) fn hear(&mut self, time: Duration) -> Option<(Header, Vec<u8>)> {
        let end = Instant::now() + time;
        loop {
            match self.socket.recv(&mut self.buffer[..]) {
                Ok(len) => {
                    let opened = match &self.seal {
                        Some(seal) => seal.open(&self.buffer[..len]),
                        None => Some(self.buffer[..len].to_vec()),
                    };
                    // Leftovers of the key exchange are not sealed.
                    if let Some(opened) = opened
                        && let Ok(header) = Header::parse(&opened)
                    {
                        return Some((header, opened[HEADER_LEN..].to_vec()));
                    }
                }
                Err(error) => assert!(is_empty(&error), "{error}"),
            }
            if Instant::now() >= end {
                return None;
            }
        }
    }

    /// Waits for an operation that `is` accepts, and ignores all others.
    pub(super) fn await_heard(&mut self, is: impl Fn(&Header, &[u8]) -> bool) -> (Header, Vec<u8>) {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some((header, rest)) = self.hear(SILENCE)
                && is(&header, &rest)
            {
                return (header, rest);
            }
        }
        panic!("the victim did not say it");
    }

    /// All operations of the victim until it is silent for a while.
    pub(super) fn listen_for_a_while(&mut self) -> Vec<Header> {
        let mut heard = vec![];
        let end = Instant::now() + PATIENCE;
        while let Some((header, _)) = self.hear(SILENCE) {
            heard.push(header);
            if Instant::now() > end {
                break;
            }
        }
        heard
    }

    /// Whether such an operation comes before the victim is silent for a while.
    fn is_heard(&mut self, is: impl Fn(&Header) -> bool) -> bool {
        let end = Instant::now() + PATIENCE;
        while let Some((header, _)) = self.hear(SILENCE) {
            if is(&header) {
                return true;
            }
            if Instant::now() > end {
                break;
            }
        }
        false
    }

    /// Asks whether the victim is alive, until it answers.
    pub(super) fn is_answered(&mut self) {
        let question = Header {
            flags: Flags::SEND_STATE,
            sync: THERE,
            ..self.header(Op::Nop)
        };
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            self.say_raw(&question, &[]);
            if self.is_heard(|it| it.op == Op::Nop && it.sync == THERE) {
                return;
            }
        }
        panic!("the victim does not answer any more");
    }

    /// Ends the connection, until the victim agrees or has ended.
    pub(super) fn leave(&mut self) {
        for _ in 0..20 {
            self.say(Operation::RequestDisconnect(RequestDisconnect {
                reason: Reason::Normal,
                delivered: None,
            }));
            if self.is_heard(|it| it.op == Op::DisconnectAnswer) {
                break;
            }
        }
        let over = self.header(Op::DisconnectComplete);
        self.say_raw(&over, &[]);
    }
}

fn is_empty(error: &std::io::Error) -> bool {
    let kinds = [
        ErrorKind::WouldBlock,
        ErrorKind::TimedOut,
        ErrorKind::ConnectionRefused,
    ];
    kinds.contains(&error.kind())
}
