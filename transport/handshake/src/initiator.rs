//! Runs the Initiator's side of one key exchange.
//!
//! The connection's timers repeat its messages until an answer comes; a forged answer changes nothing.

use crate::code::{self, Agreement};
use crate::noise::{self, Role};
use crate::{
    Cipher, Ciphers, Credentials, HandshakeDatagram, PreShared, PublicKey, Session, VERSION,
};
use snow::HandshakeState;
use zerolane_wire::Reason;
use zerolane_wire::handshake::{COOKIE_LEN, HandshakeMessage, MAX_HANDSHAKE, Proof, Step};

/// Length of the Initiator's offer in the first message: versions, ciphers, room.
pub(crate) const OFFER_LEN: usize = 8;
/// Length of the Responder's choice in the second message.
pub(crate) const CHOICE_LEN: usize = 4;

/// The outcome of a datagram.
#[derive(Debug)]
pub(crate) enum Taken {
    /// It belongs to another exchange, or is forged.
    Nothing,
    /// The message to send changed: send it at once.
    SendAgain,
    /// The keys are known; the message to send is the last one.
    Done(Box<Session>),
    /// The Responder refuses. Any host on the path can forge this.
    Refused(Reason),
    /// The Responder proved a key that is not trusted.
    Untrusted(PublicKey),
}

/// The Initiator's side of one exchange.
pub(crate) struct Initiator {
    credentials: Credentials,
    state: HandshakeState,
    /// The first Noise message, which stays the same when a cookie is added.
    hello: Vec<u8>,
    s_port: u16,
    d_port: u16,
    s_key: u32,
    sync: u32,
    current: HandshakeDatagram,
    finished: bool,
    /// With a code, until the Answer: this end's half of the agreement on a key.
    agreement: Option<Agreement>,
}

impl Initiator {
    /// `None` if the cryptography rejects the credentials, which never happens in a correct build.
    pub(crate) fn new(
        credentials: Credentials,
        ephemeral: [u8; 32],
        (d_port, s_port): (u16, u16),
        s_key: u32,
        sync: u32,
    ) -> Option<Initiator> {
        let proof = PreShared::proof(credentials.pre_shared.as_ref());
        let frame = frame(proof, (d_port, s_port), s_key, sync);
        let mut state = noise::begin(Role::Initiator, &credentials, &frame, ephemeral).ok()?;
        let mut payload = offer(credentials.ciphers).to_vec();
        let mut agreement = None;
        if let Some(PreShared::Code(code)) = &credentials.pre_shared {
            let (half, share) = code::begin(Role::Initiator, code, &ephemeral);
            payload.extend(share);
            agreement = Some(half);
        }
        let mut hello = vec![0; MAX_HANDSHAKE];
        let len = state.write_message(&payload, &mut hello).ok()?;
        hello.truncate(len);
        let current = with_cookie(&frame, &[0; COOKIE_LEN], &hello);
        Some(Initiator {
            credentials,
            state,
            hello,
            s_port,
            d_port,
            s_key,
            sync,
            current,
            finished: false,
            agreement,
        })
    }

    /// Whether the message to send is the last one.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Another exchange for the same connection. `None` with a code: a Responder remembers finished exchanges of a
    /// code, and would take another one for a guess.
    pub(crate) fn anew(&self, ephemeral: [u8; 32]) -> Option<Initiator> {
        if matches!(self.credentials.pre_shared, Some(PreShared::Code(_))) {
            return None;
        }
        let ports = (self.d_port, self.s_port);
        let credentials = self.credentials.clone();
        Initiator::new(credentials, ephemeral, ports, self.s_key, self.sync)
    }

    /// The message to send now, and again until an answer comes.
    pub(crate) fn message(&self) -> HandshakeDatagram {
        self.current.clone()
    }

    /// Takes a datagram. `request` is the Request_Connection that travels with the last message.
    pub(crate) fn take(&mut self, datagram: &[u8], request: &[u8]) -> Taken {
        let Ok(message) = HandshakeMessage::parse(datagram) else {
            return Taken::Nothing;
        };
        if message.d_key != self.s_key || message.sync != self.sync {
            return Taken::Nothing;
        }
        if self.finished && !self.may_be_wrong(&message) {
            return Taken::Nothing;
        }
        match message.step {
            Step::Retry => self.retry(message.body),
            Step::Answer => self.answer(&message, request).unwrap_or(Taken::Nothing),
            Step::Refusal => Taken::Refused(message.reason),
            Step::Hello | Step::Finish => Taken::Nothing,
        }
    }

    /// Whether it may report that the code was wrong. That is all a Responder can report about the last message without
    /// keys, which it does not have then.
    fn may_be_wrong(&self, message: &HandshakeMessage<'_>) -> bool {
        let by_code = matches!(self.credentials.pre_shared, Some(PreShared::Code(_)));
        by_code && message.step == Step::Refusal
    }

    fn frame(&self) -> HandshakeMessage<'static> {
        let ports = (self.d_port, self.s_port);
        let proof = PreShared::proof(self.credentials.pre_shared.as_ref());
        frame(proof, ports, self.s_key, self.sync)
    }

    fn retry(&mut self, cookie: &[u8]) -> Taken {
        let Ok(cookie) = <[u8; COOKIE_LEN]>::try_from(cookie) else {
            return Taken::Nothing;
        };
        let next = with_cookie(&self.frame(), &cookie, &self.hello);
        if next == self.current {
            // A late copy: the timer repeats what was sent.
            return Taken::Nothing;
        }
        self.current = next;
        Taken::SendAgain
    }

    /// `None` if the message is forged. snow restores its digests when a message fails. All keys that follow from the
    /// Answer depend on them, so the right Answer still counts.
    fn answer(&mut self, message: &HandshakeMessage<'_>, request: &[u8]) -> Option<Taken> {
        let mut payload = [0; MAX_HANDSHAKE];
        let len = self.state.read_message(message.body, &mut payload).ok()?;
        let peer = PublicKey(self.state.get_remote_static()?.try_into().ok()?);
        if !self.credentials.trust.trusts(&peer) {
            return Some(Taken::Untrusted(peer));
        }
        let (choice, share) = payload[..len].split_at(len.min(CHOICE_LEN));
        let Some(cipher) = chosen(choice, self.credentials.ciphers) else {
            return Some(Taken::Refused(Reason::ProtocolViolation));
        };
        if let Some(agreement) = self.agreement.take() {
            let Some(key) = agreement.finish(share) else {
                return Some(Taken::Refused(Reason::ProtocolViolation));
            };
            noise::set_key(&mut self.state, &key).ok()?;
        }
        let mut body = [0; MAX_HANDSHAKE];
        let len = self.state.write_message(request, &mut body).ok()?;
        self.current = HandshakeDatagram::new(&HandshakeMessage {
            step: Step::Finish,
            d_key: message.s_key,
            body: &body[..len],
            ..self.frame()
        });
        self.finished = true;
        let [send, receive] = noise::split(&mut self.state);
        Some(Taken::Done(Box::new(Session {
            send,
            receive,
            cipher,
            peer,
        })))
    }
}

fn frame(
    proof: Proof,
    (d_port, s_port): (u16, u16),
    s_key: u32,
    sync: u32,
) -> HandshakeMessage<'static> {
    HandshakeMessage {
        step: Step::Hello,
        proof,
        reason: Reason::Normal,
        d_port,
        s_port,
        d_key: 0,
        s_key,
        sync,
        body: &[],
    }
}

fn with_cookie(
    frame: &HandshakeMessage<'_>,
    cookie: &[u8; COOKIE_LEN],
    hello: &[u8],
) -> HandshakeDatagram {
    let body = [&cookie[..], hello].concat();
    HandshakeDatagram::new(&HandshakeMessage {
        body: &body,
        ..*frame
    })
}

fn offer(ciphers: Ciphers) -> [u8; OFFER_LEN] {
    [VERSION, VERSION, ciphers.0, 0, 0, 0, 0, 0]
}

/// The Responder's choice, if it was offered.
fn chosen(payload: &[u8], offered: Ciphers) -> Option<Cipher> {
    match payload {
        [VERSION, cipher, ..] => {
            let only = Ciphers(*cipher).common(offered)?;
            (only as u8 == *cipher).then_some(only)
        }
        _ => None,
    }
}
