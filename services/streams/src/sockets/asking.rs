//! Asks servers whether they carry connections by Zerolane, and answers clients.

use super::question::{NONCE_BYTES, PACKET_BYTES, Question, Yes};
use super::rules::cover;
use super::{Claim, MAX_EXPECTED, Notice, PURPOSE, Pump, Source, State, Use};
use crate::message::{ResetCode, StreamId};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recvfrom, sendto,
    socket_with, sockopt,
};
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerolane::security::{Anyone, random};
use zerolane::worker::ConnectionId;

/// How long an address without Zerolane is not asked again.
const WITHOUT_FOR: Duration = Duration::from_secs(60);
/// Addresses kept for that.
const MAX_WITHOUT: usize = 4096;
/// How long a client may take from its question to its connection: a few lost packets of TCP's handshake.
const CONNECT_WITHIN: Duration = Duration::from_secs(30);
/// How long after a connection was accepted a question for it may still arrive.
const LATE_WITHIN: Duration = Duration::from_secs(10);
/// Connections kept for that.
const MAX_MISSED: usize = 4096;
/// Addresses that programs listen on.
const MAX_LISTENING: usize = 256;
/// Questions read from one socket in one turn.
const QUESTIONS: usize = 64;
/// Each question is sent so often: a lost one would cost Zerolane for a minute.
const COPIES: usize = 2;

/// Where a TCP connection comes from, and the port that it goes to.
pub(super) type Way = (SocketAddr, u16);

/// A connection that a client has announced.
#[derive(Debug)]
pub(super) struct Expected {
    nonce: [u8; NONCE_BYTES],
    answer: Yes,
    since: Instant,
    /// The client has come before the program accepted.
    pub(super) stream: Option<(ConnectionId, StreamId)>,
}

/// An address that a program listens on.
#[derive(Debug)]
pub(super) struct Listening {
    on: SocketAddr,
    socket: OwnedFd,
}

/// A question that was asked.
#[derive(Debug)]
pub(super) struct Asked {
    socket: UdpSocket,
    nonce: [u8; NONCE_BYTES],
    /// The number under which the socket is watched.
    pub(super) watched: u64,
    pub(super) since: Instant,
    pub(super) heard: Heard,
}

/// What came back.
#[derive(Clone, Copy, Debug)]
pub(super) enum Heard {
    Nothing,
    No,
    Yes(Yes),
}

impl Pump {
    /// Asks the server at `to` for a connection from the TCP port `from`.
    pub(super) fn ask_server(
        &mut self,
        caller: u64,
        to: SocketAddr,
        from: u16,
    ) -> io::Result<Asked> {
        let to = canonical(to);
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(to)?;
        socket.set_nonblocking(true)?;
        let nonce = nonce()?;
        let question = Question {
            nonce,
            to: to.port(),
            from,
            source: socket.local_addr()?,
        };
        let mut heard = Heard::Nothing;
        for _ in 0..COPIES {
            // A refusal of the first copy is the error of the second.
            if let Err(error) = socket.send(&question.write())
                && error.kind() == io::ErrorKind::ConnectionRefused
            {
                heard = Heard::No;
            }
        }
        let watched = self.number(Source::Asked(caller));
        epoll::add(
            &self.epoll,
            &socket,
            EventData::new_u64(watched),
            EventFlags::IN,
        )?;
        Ok(Asked {
            socket,
            nonce,
            watched,
            since: Instant::now(),
            heard,
        })
    }

    /// Remembers that an address has no Zerolane.
    pub(super) fn is_without(&mut self, to: SocketAddr) {
        let now = Instant::now();
        if self.without.len() >= MAX_WITHOUT {
            self.without.retain(|_, until| *until > now);
        }
        if self.without.len() < MAX_WITHOUT {
            self.without.insert(canonical(to), now + WITHOUT_FOR);
        }
    }

    /// Whether there is a connection to a pump of this host.
    pub(super) fn has_pump(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        let mut ways = self.ways.iter().filter(|(way, _)| way.0.ip() == ip);
        ways.any(|(_, id)| self.peers.get(id).is_some_and(|it| it.session.is_some()))
    }

    /// Whether that is remembered.
    pub(super) fn was_without(&self, to: SocketAddr) -> bool {
        let until = self.without.get(&canonical(to));
        until.is_some_and(|it| *it > Instant::now())
    }

    /// A program listens on `on`.
    pub(super) fn listen(&mut self, on: SocketAddr, only_v6: bool) {
        if self.listening.values().any(|it| it.on == on) {
            return;
        }
        if let Err(why) = self.try_listen(on, only_v6) {
            (self.notify)(Notice::Deaf(on, why));
        }
    }

    fn try_listen(&mut self, on: SocketAddr, only_v6: bool) -> Result<(), String> {
        if self.listening.len() >= MAX_LISTENING {
            return Err(format!("{MAX_LISTENING} addresses are listened on already"));
        }
        let failed = |what: &str, error: io::Error| format!("{what}: {error}");
        let family = match on {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let made = socket_with(family, SocketType::DGRAM, flags, None);
        let socket = made.map_err(|it| failed("no UDP socket", it.into()))?;
        if on.is_ipv6() {
            let _ = sockopt::set_ipv6_v6only(&socket, only_v6);
        }
        let port = on.port();
        let taken = |it: rustix::io::Errno| failed(&format!("UDP port {port}"), it.into());
        bind(&socket, &on).map_err(taken)?;
        // Clients of either family come to a socket of both.
        let mut homes = vec![on.ip().to_canonical()];
        if on.ip().is_unspecified() && on.is_ipv6() && !only_v6 {
            homes.push(Ipv4Addr::UNSPECIFIED.into());
        }
        for home in homes {
            self.endpoint(home)
                .map_err(|it| failed("no endpoint", it))?;
        }
        let number = self.next;
        self.next += 1;
        let watched = self.number(Source::Listening(number));
        epoll::add(
            &self.epoll,
            &socket,
            EventData::new_u64(watched),
            EventFlags::IN,
        )
        .map_err(|it| failed("no UDP socket", it.into()))?;
        self.listening.insert(number, Listening { on, socket });
        Ok(())
    }

    /// Gives a UDP port back that a program wants.
    pub(super) fn release(&mut self, port: u16) {
        let mut released = Vec::new();
        self.listening.retain(|number, it| {
            let keep = it.on.port() != port;
            if !keep {
                released.push((*number, it.on));
            }
            keep
        });
        for (number, on) in released {
            self.sources
                .retain(|_, it| *it != Source::Listening(number));
            let why = format!("the program uses UDP port {port} itself");
            (self.notify)(Notice::Deaf(on, why));
        }
    }

    /// The UDP port where clients of `home` reach this end.
    fn endpoint(&mut self, home: IpAddr) -> io::Result<u16> {
        if let Some((_, port)) = self.endpoints.get(&home) {
            return Ok(*port);
        }
        let options = self.options(Arc::new(Anyone));
        let id = self.worker.listen(SocketAddr::new(home, 0), options)?;
        let endpoint = self.worker.endpoint(id);
        let port = endpoint
            .ok_or(io::ErrorKind::NotConnected)?
            .local_addr()
            .port();
        self.endpoints.insert(home, (id, port));
        Ok(port)
    }

    /// Answers questions that wait at any listener: clients ask before they connect.
    pub(super) fn take_all_questions(&mut self) {
        let all: Vec<u64> = self.listening.keys().copied().collect();
        all.into_iter().for_each(|it| self.take_questions(it));
    }

    /// Answers questions.
    pub(super) fn take_questions(&mut self, number: u64) {
        for _ in 0..QUESTIONS {
            let Some(listening) = self.listening.get(&number) else {
                return;
            };
            let on = listening.on;
            let mut packet = [MaybeUninit::uninit(); PACKET_BYTES + 1];
            let received = recvfrom(&listening.socket, &mut packet, RecvFlags::empty());
            let Ok(((packet, _), _, from)) = received else {
                return;
            };
            let from = from.and_then(|it| SocketAddr::try_from(it).ok());
            let (Some(question), Some(from)) = (Question::read(packet), from) else {
                continue;
            };
            if let Some(answer) = self.answer(&question, on, canonical(from))
                && let Some(listening) = self.listening.get(&number)
            {
                // A lost answer means TCP.
                let _ = sendto(
                    &listening.socket,
                    &answer.write(),
                    SendFlags::empty(),
                    &from,
                );
            }
        }
    }

    fn answer(&mut self, question: &Question, on: SocketAddr, from: SocketAddr) -> Option<Yes> {
        let source = canonical(question.source);
        if question.to != on.port()
            || (source.ip(), source.port()) != (from.ip(), from.port())
            || !cover(&self.settings.only, from, question.to)
        {
            return None;
        }
        let way = (SocketAddr::new(from.ip(), question.from), question.to);
        if self.missed.iter().any(|it| it.0 == way) {
            return None;
        }
        if let Some(known) = self.expected.get(&way) {
            if known.nonce == question.nonce {
                return Some(known.answer);
            }
            self.forget(known.answer.token);
        }
        if self.expected.len() >= MAX_EXPECTED {
            return None;
        }
        let home = match (on.ip().is_unspecified(), from.ip()) {
            (true, IpAddr::V4(_)) => Ipv4Addr::UNSPECIFIED.into(),
            _ => on.ip().to_canonical(),
        };
        let answer = Yes {
            nonce: question.nonce,
            port: self.endpoint(home).ok()?,
            key: self.identity.public().0,
            token: nonce().ok()?,
        };
        let expected = Expected {
            nonce: question.nonce,
            answer,
            since: Instant::now(),
            stream: None,
        };
        self.expected.insert(way, expected);
        self.claims.insert(answer.token, Claim::Expected(way));
        Some(answer)
    }

    /// Forgets a client that was expected, and sends it away if it has come.
    pub(super) fn forget(&mut self, token: [u8; NONCE_BYTES]) {
        let Some(Claim::Expected(way)) = self.claims.get(&token).copied() else {
            return;
        };
        self.claims.remove(&token);
        let stream = self.expected.remove(&way).and_then(|it| it.stream);
        if let Some((id, stream)) = stream {
            if let Some(it) = self.peers.get_mut(&id) {
                it.uses.remove(&stream);
            }
            self.send_away(id, stream, "the program accepted this connection as TCP");
        }
    }

    /// The program accepted a connection. Its token, if its client announced it.
    pub(super) fn accepts(&mut self, peer: SocketAddr, port: u16) -> Option<[u8; NONCE_BYTES]> {
        // The client asked before its connection was there.
        self.take_all_questions();
        let way = (canonical(peer), port);
        let token = self.expected.get(&way).map(|it| it.answer.token);
        if token.is_none() {
            self.misses(way);
        }
        token
    }

    /// A connection that was announced stays TCP.
    pub(super) fn refuses(&mut self, token: [u8; NONCE_BYTES]) {
        if let Some(Claim::Expected(way)) = self.claims.get(&token).copied() {
            self.forget(token);
            self.misses(way);
        }
    }

    fn misses(&mut self, way: Way) {
        if self.missed.len() >= MAX_MISSED {
            self.missed.pop_front();
        }
        self.missed.push_back((way, Instant::now()));
    }

    /// The program's end of a connection that was announced is known.
    pub(super) fn claim(&mut self, token: [u8; NONCE_BYTES], link: u64) {
        let Some(Claim::Expected(way)) = self.claims.get(&token).copied() else {
            return self.fall_back(link, "its client left");
        };
        let stream = self.expected.remove(&way).and_then(|it| it.stream);
        self.claims.insert(token, Claim::Link(link));
        if let Some((id, stream)) = stream {
            self.offer(link, id, stream);
        }
    }

    /// A client opened a stream.
    pub(super) fn on_opened(&mut self, id: ConnectionId, stream: StreamId) {
        let Some(session) = self.peers.get_mut(&id).and_then(|it| it.session.as_mut()) else {
            return;
        };
        let purpose = session.engine.purpose(stream);
        let token = purpose.strip_prefix(PURPOSE);
        let token = token.and_then(|it| <[u8; NONCE_BYTES]>::try_from(it).ok());
        match token.and_then(|it| self.claims.get(&it).copied().map(|claim| (it, claim))) {
            Some((_, Claim::Link(link))) => self.offer(link, id, stream),
            Some((token, Claim::Expected(way))) => {
                let expected = self.expected.get_mut(&way);
                match expected.filter(|it| it.stream.is_none()) {
                    Some(expected) => {
                        expected.stream = Some((id, stream));
                        if let Some(it) = self.peers.get_mut(&id) {
                            it.uses.insert(stream, Use::Early(token));
                        }
                    }
                    None => self.send_away(id, stream, "this token was used"),
                }
            }
            None => self.send_away(id, stream, "nobody expects this connection"),
        }
    }

    /// Agrees to carry a link by a stream.
    fn offer(&mut self, number: u64, id: ConnectionId, stream: StreamId) {
        let Some(link) = self.links.get_mut(&number) else {
            return self.send_away(id, stream, "the program is gone");
        };
        if let State::Expects(token) = link.state {
            self.claims.remove(&token);
            link.state = State::Offers(id, stream);
            if let Some(it) = self.peers.get_mut(&id) {
                it.uses.insert(stream, Use::Link(number));
                if let Some(session) = &mut it.session {
                    session.engine.accept(stream);
                }
            }
            self.changed.insert(id);
        } else {
            self.send_away(id, stream, "this connection goes by TCP");
        }
    }

    fn send_away(&mut self, id: ConnectionId, stream: StreamId, words: &str) {
        if let Some(session) = self.peers.get_mut(&id).and_then(|it| it.session.as_mut()) {
            session.engine.reset(stream, ResetCode::Denied, words);
            session.engine.release(stream);
            self.changed.insert(id);
        }
    }

    /// Forgets clients that did not come, and what is old.
    pub(super) fn look_at_questions(&mut self, now: Instant) {
        let over =
            |it: &Expected| it.stream.is_none() && now.duration_since(it.since) > CONNECT_WITHIN;
        let late: Vec<_> = self
            .expected
            .values()
            .filter(|it| over(it))
            .map(|it| it.answer.token)
            .collect();
        late.into_iter().for_each(|it| self.forget(it));
        while let Some((_, since)) = self.missed.front()
            && now.duration_since(*since) > LATE_WITHIN
        {
            self.missed.pop_front();
        }
    }
}

impl Asked {
    /// Reads what has come; answers of strangers and doubles are ignored.
    pub(super) fn hear(&mut self) {
        let mut packet = [0; PACKET_BYTES + 1];
        loop {
            let heard = match self.socket.recv(&mut packet) {
                Ok(len) => match Yes::read(&packet[..len]) {
                    Some(yes) if yes.nonce == self.nonce => Heard::Yes(yes),
                    _ => continue,
                },
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Heard::No,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            if matches!(self.heard, Heard::Nothing) {
                self.heard = heard;
            }
        }
    }
}

fn nonce() -> io::Result<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    nonce.copy_from_slice(&random()?[..NONCE_BYTES]);
    Ok(nonce)
}

/// An IPv4 address as such, also if a socket of IPv6 has it.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}
