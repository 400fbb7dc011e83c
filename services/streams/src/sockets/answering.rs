//! Answers the calls of programs' libraries.

use super::asking::{Asked, Heard, canonical};
use super::call::{Answer, CALL_BYTES, Call};
use super::question::{NONCE_BYTES, Yes};
use super::rules::cover;
use super::{Link, MAX_CALLERS, Notice, Pump, Source, State};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketFlags, accept_with,
    getsockname, recvmsg, send, sockopt,
};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long one conversation may take: a program may block in `connect` for as long as TCP tries.
const TALK_WITHIN: Duration = Duration::from_secs(300);

/// How long a client waits for the answer of a host that it is connected with already.
const KNOWN_WITHIN: Duration = Duration::from_millis(250);

/// Lines in one packet of a list: some ten kilobytes.
const LINES: usize = 128;

/// A program that calls.
#[derive(Debug)]
pub(super) struct Caller {
    socket: OwnedFd,
    /// The number under which the socket is watched.
    watched: u64,
    stage: Stage,
    since: Instant,
}

/// How far its call is.
#[derive(Debug)]
enum Stage {
    /// It has said nothing, or nothing that must be remembered.
    New,
    /// It connects there.
    Connects(SocketAddr),
    /// The server was asked.
    Asks(SocketAddr, Asked),
    /// TCP is connected; the answer is due until then.
    Waits(SocketAddr, Asked, Instant),
    /// It gives its connection.
    Gives(SocketAddr, Yes),
    /// It gives the connection that it accepted.
    Accepts {
        token: [u8; NONCE_BYTES],
        local: SocketAddr,
        peer: SocketAddr,
    },
}

impl Pump {
    /// Lets programs in.
    pub(super) fn take_callers(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while let Ok(socket) = accept_with(&self.door, flags) {
            // The secret is in the environment of programs, which their user and root can read. Programs that root
            // started may have become another user since.
            let own = rustix::process::geteuid();
            let known = sockopt::socket_peercred(&socket)
                .is_ok_and(|it| own.is_root() || it.uid == own || it.uid.is_root());
            if !known || self.callers.len() >= MAX_CALLERS {
                continue;
            }
            let number = self.next;
            self.next += 1;
            let watched = self.number(Source::Caller(number));
            let data = EventData::new_u64(watched);
            if epoll::add(&self.epoll, &socket, data, EventFlags::IN).is_err() {
                self.sources.remove(&watched);
                continue;
            }
            let caller = Caller {
                socket,
                watched,
                stage: Stage::New,
                since: Instant::now(),
            };
            self.callers.insert(number, caller);
        }
    }

    /// A program says something, or has hung up.
    pub(super) fn hear(&mut self, number: u64) {
        let Some(caller) = self.callers.get(&number) else {
            return;
        };
        match receive(&caller.socket) {
            Received::Nothing => {}
            Received::Packet(packet, len, descriptor) => {
                match Call::read(&packet[..len], &self.runner.secret) {
                    Some(call) => self.on_call(number, call, descriptor),
                    None => self.hang_up(number),
                }
            }
            Received::End => self.hang_up(number),
        }
    }

    fn on_call(&mut self, number: u64, call: Call, descriptor: Option<OwnedFd>) {
        let Some(caller) = self.callers.get_mut(&number) else {
            return;
        };
        let stage = std::mem::replace(&mut caller.stage, Stage::New);
        match (call, stage) {
            (Call::Hello, Stage::New) => {
                self.loaded += 1;
                self.reply(number, Answer::Go);
            }
            (Call::Listen { on, only_v6 }, Stage::New) => {
                self.listen(on, only_v6);
                self.reply(number, Answer::Go);
            }
            (Call::Release(port), Stage::New) => {
                self.release(port);
                self.reply(number, Answer::Go);
            }
            (Call::Names(port), Stage::New) => {
                let link = self.ports.get(&port).and_then(|it| self.links.get(it));
                let answer = link.map_or(Answer::Plain, |it| Answer::Names {
                    local: it.local,
                    peer: it.peer,
                });
                self.reply(number, answer);
            }
            (Call::Show, Stage::New) => self.show(number),
            (Call::Connect(to), Stage::New) => self.connects(number, to),
            (Call::From(port), Stage::Connects(to)) => match self.ask_server(number, to, port) {
                Ok(asked) => {
                    self.set_stage(number, Stage::Asks(to, asked));
                    self.reply(number, Answer::Go);
                }
                Err(error) => {
                    (self.notify)(Notice::Plain(to, error.to_string()));
                    self.reply(number, self.refusal());
                }
            },
            (Call::Connected(micros), Stage::Asks(to, asked)) => {
                let round_trip = Duration::from_micros(micros.into());
                // A host that has a pump is worth waiting for, if it is busy: one without says so, or is silent always.
                let least = match self.has_pump(to.ip()) {
                    true => self.settings.answer_within.max(KNOWN_WITHIN),
                    false => self.settings.answer_within,
                };
                let due = asked.since + least.max(2 * round_trip);
                self.set_stage(number, Stage::Waits(to, asked, due));
                self.take_answer(number);
            }
            (Call::Accepted { local, peer }, Stage::New) => self.accepted(number, local, peer),
            (Call::Take(port), Stage::Gives(to, yes)) => {
                // Its end was connected before: what else was parked for the port is older.
                self.take_programs();
                let Some(tcp) = descriptor else {
                    return self.hang_up(number);
                };
                let local = getsockname(&tcp).ok();
                let local = local.and_then(|it| SocketAddr::try_from(it).ok());
                let names = (local.unwrap_or(to), to);
                let link = self.add(Link::new(tcp, port, names, true, State::Dials(yes.token)));
                self.reply(number, Answer::Go);
                let to = SocketAddr::new(to.ip().to_canonical(), yes.port);
                match self.dial(with_scope(to, names.1), yes.key) {
                    Ok(id) => self.ask(link, id),
                    Err(error) => self.fall_back(link, &error.to_string()),
                }
            }
            (Call::Take(port), Stage::Accepts { token, local, peer }) => {
                self.take_programs();
                let Some(tcp) = descriptor else {
                    self.refuses(token);
                    return self.hang_up(number);
                };
                let state = State::Expects(token);
                let link = self.add(Link::new(tcp, port, (local, peer), false, state));
                self.reply(number, Answer::Go);
                self.claim(token, link);
            }
            (_, stage) => {
                // Out of order.
                self.set_stage(number, stage);
                self.hang_up(number);
            }
        }
    }

    /// What a program is told about a connection that Zerolane does not carry.
    fn refusal(&self) -> Answer {
        match self.settings.strict {
            true => Answer::Refused,
            false => Answer::Plain,
        }
    }

    /// A program connects.
    fn connects(&mut self, number: u64, to: SocketAddr) {
        if !cover(&self.settings.only, to, to.port()) {
            (self.notify)(Notice::Plain(to, "no rule covers it".into()));
            return self.reply(number, Answer::Plain);
        }
        if self.was_without(to) {
            let why = "there was no Zerolane there less than a minute ago";
            (self.notify)(Notice::Plain(to, why.into()));
            return self.reply(number, self.refusal());
        }
        self.set_stage(number, Stage::Connects(to));
        self.reply(number, Answer::Go);
    }

    /// A program accepted a connection.
    fn accepted(&mut self, number: u64, local: SocketAddr, peer: SocketAddr) {
        if !cover(&self.settings.only, peer, local.port()) {
            (self.notify)(Notice::Plain(peer, "no rule covers it".into()));
            return self.reply(number, Answer::Plain);
        }
        match self.accepts(peer, local.port()) {
            Some(token) => {
                self.set_stage(number, Stage::Accepts { token, local, peer });
                self.reply(number, Answer::Carried);
            }
            None => {
                (self.notify)(Notice::Plain(peer, "the client did not ask".into()));
                self.reply(number, self.refusal());
            }
        }
    }

    /// The answer to a question may have come.
    pub(super) fn take_answer(&mut self, number: u64) {
        let Some(caller) = self.callers.get_mut(&number) else {
            return;
        };
        let (Stage::Asks(_, asked) | Stage::Waits(_, asked, _)) = &mut caller.stage else {
            return;
        };
        asked.hear();
        let heard = asked.heard;
        let Stage::Waits(to, _, due) = caller.stage else {
            return self.dial_early(number, heard);
        };
        match heard {
            Heard::Yes(yes) => {
                self.set_stage(number, Stage::Gives(to, yes));
                self.reply(number, Answer::Carried);
            }
            Heard::Nothing if Instant::now() < due => {}
            _ => {
                let why = match heard {
                    Heard::No => "there is no Zerolane at its UDP port",
                    _ => "its UDP port does not answer",
                };
                self.is_without(to);
                (self.notify)(Notice::Plain(to, why.into()));
                self.set_stage(number, Stage::New);
                self.reply(number, self.refusal());
            }
        }
    }

    /// Begins to connect to a pump while the program's TCP still does.
    fn dial_early(&mut self, number: u64, heard: Heard) {
        let stage = self.callers.get(&number).map(|it| &it.stage);
        if let (Heard::Yes(yes), Some(&Stage::Asks(to, _))) = (heard, stage) {
            let there = SocketAddr::new(to.ip().to_canonical(), yes.port);
            // An error comes again when the program gives the connection.
            let _ = self.dial(with_scope(there, to), yes.key);
        }
    }

    /// Tells the programs whose answer has not come in time.
    pub(super) fn tell_late(&mut self) {
        let now = Instant::now();
        let due = |it: &Caller| matches!(it.stage, Stage::Waits(_, _, due) if due <= now);
        let late: Vec<u64> = self
            .callers
            .iter()
            .filter(|(_, it)| due(it))
            .map(|(it, _)| *it)
            .collect();
        if !late.is_empty() {
            // The server may be this pump.
            self.take_all_questions();
        }
        late.into_iter().for_each(|it| self.take_answer(it));
    }

    /// When [`Pump::tell_late`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let due = |it: &Caller| match it.stage {
            Stage::Waits(_, _, due) => Some(due),
            _ => None,
        };
        self.callers.values().filter_map(due).min()
    }

    fn set_stage(&mut self, number: u64, stage: Stage) {
        let Some(caller) = self.callers.get_mut(&number) else {
            return;
        };
        let old = std::mem::replace(&mut caller.stage, stage);
        if let Stage::Asks(_, asked) | Stage::Waits(_, asked, _) = old {
            self.sources.remove(&asked.watched);
        }
    }

    fn reply(&mut self, number: u64, answer: Answer) {
        let Some(caller) = self.callers.get(&number) else {
            return;
        };
        // The socket's buffer has room for one answer.
        if send(&caller.socket, &answer.write(), SendFlags::NOSIGNAL).is_err() {
            self.hang_up(number);
        }
    }

    /// Lists the connections, several a packet, as many as there is room for.
    fn show(&mut self, number: u64) {
        let Some(caller) = self.callers.get(&number) else {
            return;
        };
        let lines: Vec<String> = self.links.values().map(Link::shown).collect();
        for lines in lines.chunks(LINES) {
            let lines = lines.join("\n");
            if send(&caller.socket, lines.as_bytes(), SendFlags::NOSIGNAL).is_err() {
                break;
            }
        }
        self.hang_up(number);
    }

    fn hang_up(&mut self, number: u64) {
        let Some(caller) = self.callers.remove(&number) else {
            return;
        };
        self.sources.remove(&caller.watched);
        match caller.stage {
            Stage::Accepts { token, .. } => self.refuses(token),
            Stage::Asks(_, asked) | Stage::Waits(_, asked, _) => {
                self.sources.remove(&asked.watched);
            }
            _ => {}
        }
    }

    /// Ends conversations that take too long.
    pub(super) fn look_at_callers(&mut self, now: Instant) {
        let late: Vec<u64> = self
            .callers
            .iter()
            .filter(|(_, it)| now.duration_since(it.since) > TALK_WITHIN)
            .map(|(it, _)| *it)
            .collect();
        late.into_iter().for_each(|it| self.hang_up(it));
    }
}

/// An address of the interface that `of` names.
fn with_scope(address: SocketAddr, of: SocketAddr) -> SocketAddr {
    match (address, canonical(of)) {
        (SocketAddr::V6(mut it), SocketAddr::V6(of)) => {
            it.set_scope_id(of.scope_id());
            it.into()
        }
        _ => address,
    }
}

enum Received {
    Nothing,
    Packet([u8; CALL_BYTES], usize, Option<OwnedFd>),
    End,
}

/// Reads a packet, and the descriptor that comes with it.
fn receive(socket: &OwnedFd) -> Received {
    let mut packet = [0; CALL_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut packet)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    );
    let len = match received {
        Ok(it) => it.bytes,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Received::Nothing,
        Err(_) => return Received::End,
    };
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            descriptor = descriptors.last();
        }
    }
    match len {
        0 => Received::End,
        _ => Received::Packet(packet, len, descriptor),
    }
}
