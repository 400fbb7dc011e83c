//! The Responder's side: what strangers meet before there is a connection.
//!
//! A Hello costs the gate two key agreements and an entry, so both are bounded: beyond
//! [`COOKIE_FROM_PENDING`] unfinished exchanges, or [`COOKIE_FROM_RATE`] Hellos a second, a stranger
//! first has to return a cookie that was sent to its address, which costs one digest and no memory.
//! No answer is longer than the question times three, and none is sent unasked.

use super::cookie::Cookies;
use super::initiator::OFFER_LEN;
use super::noise::{self, Role};
use super::{Cipher, Ciphers, Credentials, HandshakeDatagram, PublicKey, Session, VERSION};
use crate::Instant;
use crate::limits::{
    COOKIE_FROM_PENDING, COOKIE_FROM_RATE, HANDSHAKE_LIFETIME, MAX_ANSWERS_PER_SECOND,
    MAX_PENDING_HANDSHAKES, MAX_PENDING_PER_ADDRESS,
};
use snow::HandshakeState;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;
use zeroize::Zeroizing;
use zerolane_wire::handshake::{COOKIE_LEN, HandshakeMessage, MAX_HANDSHAKE, Step};
use zerolane_wire::{Operation, Packet, Reason};

/// What to do about a datagram.
#[derive(Debug)]
pub enum Reply {
    /// Nothing: it was counted.
    Nothing,
    /// Send this back where it came from.
    Send(HandshakeDatagram),
    /// The exchange is done.
    Admit(Box<Admitted>),
}

/// A stranger no more: its address and its key are proven.
#[derive(Debug)]
pub struct Admitted {
    /// The keys to speak with it.
    pub session: Session,
    /// Its Request_Connection.
    pub request: Packet,
    /// Whether the owner of its key is trusted. If not, say so with the session's keys.
    pub trusted: bool,
    /// Its last message, to tell a repetition.
    pub finish: Box<[u8]>,
}

/// What the gate counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateCounters {
    /// Exchanges begun, repetitions included.
    pub hellos: u64,
    /// Of those, answered with key agreements.
    pub answered: u64,
    /// Of those, sent to fetch a cookie first.
    pub retried: u64,
    /// Exchanges completed.
    pub admitted: u64,
    /// Datagrams that were no message of any exchange, or a forged one.
    pub malformed: u64,
    /// Exchanges not begun, or forgotten, because of a limit.
    pub limited: u64,
    /// Exchanges refused in words.
    pub refused: u64,
}

/// An exchange that waits for its last message.
struct Pending {
    since: Instant,
    from: SocketAddr,
    /// The Hello's header.
    frame: HandshakeMessage<'static>,
    /// Ours: names the exchange in the last message.
    key: u32,
    /// The Hello's Noise message.
    hello: Box<[u8]>,
    /// With which, and with the Hello, the answer can be worked out again.
    ephemeral: Zeroizing<[u8; 32]>,
    answered: Answered,
}

/// What the Responder made of a Hello.
struct Answered {
    state: HandshakeState,
    cipher: Cipher,
    datagram: HandshakeDatagram,
}

/// Where strangers knock.
pub struct Gate {
    credentials: Credentials,
    cookies: Cookies,
    pending: VecDeque<Pending>,
    /// The second that `hellos` and `answers` count.
    second: Instant,
    hellos: u32,
    answers: u32,
    counters: GateCounters,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate")
            .field("pending", &self.pending.len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl Gate {
    /// A gate that lets in whom `credentials` trust. `draw` gives 32 bytes that nobody can guess.
    pub fn new(now: Instant, credentials: Credentials, draw: &mut dyn FnMut() -> [u8; 32]) -> Gate {
        Gate {
            credentials,
            cookies: Cookies::new(now, draw),
            pending: VecDeque::new(),
            second: now,
            hellos: 0,
            answers: 0,
            counters: GateCounters::default(),
        }
    }

    /// What was counted.
    pub fn counters(&self) -> &GateCounters {
        &self.counters
    }

    /// Exchanges begun and not done.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Takes a datagram of `from`.
    pub fn take(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagram: &[u8],
        draw: &mut dyn FnMut() -> [u8; 32],
    ) -> Reply {
        self.forget_old(now);
        let Ok(message) = HandshakeMessage::parse(datagram) else {
            return self.malformed();
        };
        match message.step {
            Step::Hello => self.hello(now, from, &message, draw),
            Step::Finish => self.finish(from, &message, datagram),
            Step::Retry | Step::Answer | Step::Refusal => self.malformed(),
        }
    }

    fn malformed(&mut self) -> Reply {
        self.counters.malformed += 1;
        Reply::Nothing
    }

    fn forget_old(&mut self, now: Instant) {
        while self
            .pending
            .front()
            .is_some_and(|it| now - it.since > HANDSHAKE_LIFETIME)
        {
            self.pending.pop_front();
        }
        if now - self.second >= Duration::from_secs(1) {
            self.second = now;
            self.hellos = 0;
            self.answers = 0;
        }
    }

    fn hello(
        &mut self,
        now: Instant,
        from: SocketAddr,
        message: &HandshakeMessage<'_>,
        draw: &mut dyn FnMut() -> [u8; 32],
    ) -> Reply {
        self.counters.hellos += 1;
        self.hellos = self.hellos.saturating_add(1);
        let Some((cookie, hello)) = message.body.split_at_checked(COOKIE_LEN) else {
            return self.malformed();
        };
        if let Some(known) = self.pending.iter().find(|it| {
            it.from == from
                && it.frame.s_key == message.s_key
                && it.frame.sync == message.sync
                && *it.hello == *hello
        }) {
            return Reply::Send(known.answered.datagram.clone());
        }
        self.cookies.age(now, draw);
        let loaded = self.pending.len() >= COOKIE_FROM_PENDING || self.hellos > COOKIE_FROM_RATE;
        if loaded && !self.cookies.holds(from, hello, cookie) {
            self.counters.retried += 1;
            let cookie = self.cookies.give(from, hello);
            return Reply::Send(back(message, Step::Retry, Reason::Normal, 0, &cookie));
        }
        if message.pre_shared != self.credentials.pre_shared.is_some() {
            return self.refuse(message, Reason::Denied);
        }
        if !self.has_room(from) {
            self.counters.limited += 1;
            return Reply::Nothing;
        }
        self.answer(now, from, message, hello, draw)
    }

    /// Whether one more exchange may be begun. The oldest makes room: who is real finishes soon.
    fn has_room(&mut self, from: SocketAddr) -> bool {
        let same = |it: &&Pending| it.from.ip() == from.ip();
        if self.pending.iter().filter(same).count() >= MAX_PENDING_PER_ADDRESS
            || self.answers >= MAX_ANSWERS_PER_SECOND
        {
            return false;
        }
        if self.pending.len() >= MAX_PENDING_HANDSHAKES {
            self.pending.pop_front();
            self.counters.limited += 1;
        }
        true
    }

    fn refuse(&mut self, message: &HandshakeMessage<'_>, reason: Reason) -> Reply {
        self.counters.refused += 1;
        Reply::Send(back(message, Step::Refusal, reason, 0, &[]))
    }

    fn answer(
        &mut self,
        now: Instant,
        from: SocketAddr,
        message: &HandshakeMessage<'_>,
        hello: &[u8],
        draw: &mut dyn FnMut() -> [u8; 32],
    ) -> Reply {
        self.answers += 1;
        let frame = HandshakeMessage {
            body: &[],
            ..*message
        };
        let ephemeral = Zeroizing::new(draw());
        let random = draw();
        let key = u32::from_le_bytes([random[0], random[1], random[2], random[3]]);
        let answered = match respond(&self.credentials, &frame, hello, &ephemeral, key) {
            Ok(answered) => answered,
            Err(Some(reason)) => return self.refuse(message, reason),
            Err(None) => return self.malformed(),
        };
        self.counters.answered += 1;
        let answer = answered.datagram.clone();
        self.pending.push_back(Pending {
            since: now,
            from,
            frame,
            key,
            hello: hello.into(),
            ephemeral,
            answered,
        });
        Reply::Send(answer)
    }

    /// Undoes what a forged last message did to exchange `index`: snow takes back its digests when a
    /// message fails, but not the key that half of the message led to. Costs key agreements, so it is
    /// bounded like an answer; beyond that the exchange is lost, as if its packets were.
    fn restore(&mut self, index: usize) {
        if self.answers >= MAX_ANSWERS_PER_SECOND {
            self.counters.limited += 1;
            self.pending.remove(index);
            return;
        }
        self.answers += 1;
        let it = &mut self.pending[index];
        let (frame, hello) = (&it.frame, &it.hello);
        if let Ok(again) = respond(&self.credentials, frame, hello, &it.ephemeral, it.key) {
            it.answered = again;
        }
    }

    fn finish(
        &mut self,
        from: SocketAddr,
        message: &HandshakeMessage<'_>,
        datagram: &[u8],
    ) -> Reply {
        let of_it = |it: &Pending| {
            it.from == from
                && it.key == message.d_key
                && it.frame.s_key == message.s_key
                && it.frame.sync == message.sync
        };
        let Some(index) = self.pending.iter().position(of_it) else {
            return self.malformed();
        };
        let mut payload = [0; MAX_HANDSHAKE];
        let pending = &mut self.pending[index];
        let read = pending
            .answered
            .state
            .read_message(message.body, &mut payload);
        let Ok(len) = read else {
            self.restore(index);
            return self.malformed();
        };
        let Some(done) = self.pending.remove(index) else {
            return self.malformed();
        };
        match admit(done, &payload[..len], &self.credentials, datagram) {
            Some(admitted) => {
                self.counters.admitted += 1;
                Reply::Admit(Box::new(admitted))
            }
            None => self.malformed(),
        }
    }
}

/// The Responder's part of an exchange, the same whenever it is worked out again.
///
/// # Errors
/// The refusal, or `None` if the Hello deserves no answer.
fn respond(
    credentials: &Credentials,
    frame: &HandshakeMessage<'_>,
    hello: &[u8],
    ephemeral: &[u8; 32],
    key: u32,
) -> Result<Answered, Option<Reason>> {
    let begun = noise::begin(Role::Responder, credentials, frame, *ephemeral);
    let mut state = begun.map_err(|_| None)?;
    let mut payload = [0; MAX_HANDSHAKE];
    let len = state.read_message(hello, &mut payload).map_err(|_| None)?;
    let offer = <&[u8; OFFER_LEN]>::try_from(&payload[..len]).map_err(|_| None)?;
    let &[oldest, newest, ciphers, ..] = offer;
    if oldest > VERSION || newest < VERSION {
        return Err(Some(Reason::VersionMismatch));
    }
    let cipher = credentials.ciphers.common(Ciphers(ciphers));
    let cipher = cipher.ok_or(Some(Reason::OtherProtection))?;
    let choice = [VERSION, cipher as u8, 0, 0];
    let mut body = [0; MAX_HANDSHAKE];
    let len = state.write_message(&choice, &mut body).map_err(|_| None)?;
    let datagram = back(frame, Step::Answer, Reason::Normal, key, &body[..len]);
    Ok(Answered {
        state,
        cipher,
        datagram,
    })
}

fn admit(
    mut done: Pending,
    request: &[u8],
    credentials: &Credentials,
    finish: &[u8],
) -> Option<Admitted> {
    let request = Packet::parse(request).ok()?;
    if !matches!(request.operation, Operation::RequestConnection(_)) {
        return None;
    }
    let state = &mut done.answered.state;
    let peer = PublicKey(state.get_remote_static()?.try_into().ok()?);
    let [receive, send] = noise::split(state);
    Some(Admitted {
        session: Session {
            send,
            receive,
            cipher: done.answered.cipher,
            peer,
        },
        request,
        trusted: credentials.trust.trusts(&peer),
        finish: finish.into(),
    })
}

/// A message in answer to `message`.
fn back(
    message: &HandshakeMessage<'_>,
    step: Step,
    reason: Reason,
    s_key: u32,
    body: &[u8],
) -> HandshakeDatagram {
    HandshakeDatagram::new(&HandshakeMessage {
        step,
        pre_shared: false,
        reason,
        d_port: message.s_port,
        s_port: message.d_port,
        d_key: message.s_key,
        s_key,
        sync: message.sync,
        body,
    })
}

/// The refusal of a Hello by an end that gives no protection. `None`: it is no Hello.
pub fn refuse_hello(datagram: &[u8], reason: Reason) -> Option<HandshakeDatagram> {
    let message = HandshakeMessage::parse(datagram).ok()?;
    (message.step == Step::Hello).then(|| back(&message, Step::Refusal, reason, 0, &[]))
}
