//! Answers unauthenticated peers on the Responder's side, before a connection exists.
//!
//! A Hello costs the gate two key agreements and an entry, so both are limited. Beyond [`COOKIE_FROM_PENDING`]
//! unfinished exchanges, [`COOKIE_FROM_PENDING_OF_ORIGIN`] of its origin, or [`COOKIE_FROM_RATE`] Hellos a second, a
//! peer must first return a cookie that was sent to its address, which costs one digest and no memory. No answer is
//! longer than three times the question, and none is sent unasked.

use crate::cookie::Cookies;
use crate::limits::{
    CODE_GUESSES, COOKIE_FROM_PENDING, COOKIE_FROM_PENDING_OF_ORIGIN, HANDSHAKE_LIFETIME,
    MAX_PENDING_HANDSHAKES, MAX_PENDING_OF_ORIGIN,
};
use crate::pace::{GateLimit, Origin, Pace};
use crate::responder::{Admitted, Answered, admit, back, respond};
use crate::{Credentials, HandshakeDatagram, PreShared};
use std::collections::VecDeque;
use std::net::SocketAddr;
use zeroize::Zeroizing;
use zerolane_core::Instant;
use zerolane_wire::Reason;
use zerolane_wire::handshake::{COOKIE_LEN, HandshakeMessage, MAX_HANDSHAKE, Proof, Step};

/// The action for a datagram.
#[derive(Debug)]
pub enum Reply {
    /// Nothing: the datagram was counted.
    Nothing,
    /// Send this back to the datagram's source.
    Send(HandshakeDatagram),
    /// The exchange is done.
    Admit(Box<Admitted>),
}

/// Counters of the gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateCounters {
    /// Exchanges begun, repetitions included.
    pub hellos: u64,
    /// Of those, answered with key agreements.
    pub answered: u64,
    /// Of those, answered with a cookie to return.
    pub retried: u64,
    /// Exchanges completed.
    pub admitted: u64,
    /// Datagrams that belonged to no exchange, or were forged.
    pub malformed: u64,
    /// Exchanges refused with a reason.
    pub refused: u64,
    /// Wrong guesses at a code.
    pub wrong_codes: u64,
    limited: [u64; GateLimit::ALL.len()],
}

impl GateCounters {
    /// Exchanges not begun, or forgotten, because of `limit`.
    pub fn limited(&self, limit: GateLimit) -> u64 {
        self.limited[limit as usize]
    }

    /// The sum over all limits.
    pub fn limited_total(&self) -> u64 {
        self.limited.iter().sum()
    }

    fn limit(&mut self, limit: GateLimit) {
        self.limited[limit as usize] += 1;
    }
}

/// An exchange that waits for its last message.
struct Pending {
    since: Instant,
    from: SocketAddr,
    /// The Hello's header.
    frame: HandshakeMessage<'static>,
    /// This end's key: identifies the exchange in the last message.
    key: u32,
    /// The Hello's Noise message.
    hello: Box<[u8]>,
    /// The answer can be recomputed from this and the Hello.
    ephemeral: Zeroizing<[u8; 32]>,
    stage: Stage,
}

/// The stage of an exchange. With a code, finished exchanges are remembered for as long as their messages may still
/// come: a late Hello of the admitted one must not be refused, the others must be told, and none may begin again.
enum Stage {
    /// Waits for its last message.
    Answered(Box<Answered>),
    /// It was admitted.
    Over,
    /// The code was wrong, or is no longer valid.
    Denied,
}

/// The gate of a listening end.
pub struct Gate {
    credentials: Credentials,
    cookies: Cookies,
    pending: VecDeque<Pending>,
    pace: Pace,
    /// With a code: the guesses left. None after a right one.
    tries: u32,
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
    /// A gate that admits the peers that `credentials` trust. `draw` returns 32 unpredictable bytes.
    pub fn new(now: Instant, credentials: Credentials, draw: &mut dyn FnMut() -> [u8; 32]) -> Gate {
        Gate {
            credentials,
            cookies: Cookies::new(now, draw),
            pending: VecDeque::new(),
            pace: Pace::new(now),
            tries: CODE_GUESSES,
            counters: GateCounters::default(),
        }
    }

    /// The counters.
    pub fn counters(&self) -> &GateCounters {
        &self.counters
    }

    /// Whether the gate admits no more clients: its code was used, or guessed at too often.
    pub fn is_spent(&self) -> bool {
        self.proof() == Proof::Code && self.tries == 0
    }

    fn proof(&self) -> Proof {
        PreShared::proof(self.credentials.pre_shared.as_ref())
    }

    /// Remembered exchanges: unfinished ones, and with a code also those recently finished.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Takes a datagram that came from `from`.
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
        self.pace.pass(now);
    }

    fn hello(
        &mut self,
        now: Instant,
        from: SocketAddr,
        message: &HandshakeMessage<'_>,
        draw: &mut dyn FnMut() -> [u8; 32],
    ) -> Reply {
        self.counters.hellos += 1;
        self.pace.hello();
        let Some((cookie, hello)) = message.body.split_at_checked(COOKIE_LEN) else {
            return self.malformed();
        };
        if let Some(known) = self.pending.iter().find(|it| {
            it.from == from
                && it.frame.s_key == message.s_key
                && it.frame.sync == message.sync
                && *it.hello == *hello
        }) {
            return match &known.stage {
                Stage::Answered(answered) => Reply::Send(answered.datagram.clone()),
                Stage::Over => Reply::Nothing,
                Stage::Denied => self.refuse(message, Reason::Denied),
            };
        }
        self.cookies.age(now, draw);
        let origin = Origin::of(from.ip());
        let of_origin = self.pending_of(origin);
        let loaded = self.pending.len() >= COOKIE_FROM_PENDING
            || of_origin >= COOKIE_FROM_PENDING_OF_ORIGIN
            || self.pace.is_loaded();
        if loaded && !self.cookies.holds(from, hello, cookie) {
            self.counters.retried += 1;
            let cookie = self.cookies.give(from, hello);
            return Reply::Send(back(message, Step::Retry, Reason::Normal, 0, &cookie));
        }
        if message.proof != self.proof() || self.is_spent() {
            return self.refuse(message, Reason::Denied);
        }
        if let Err(limit) = self.make_room(origin, of_origin) {
            self.counters.limit(limit);
            return Reply::Nothing;
        }
        self.answer(now, from, message, hello, draw)
    }

    fn pending_of(&self, origin: Origin) -> usize {
        let same = |it: &&Pending| Origin::of(it.from.ip()) == origin;
        self.pending.iter().filter(same).count()
    }

    /// Makes room for an exchange of `origin`, which has `of_origin`, if the limits permit. Drops the oldest exchange:
    /// an honest client finishes soon.
    fn make_room(&mut self, origin: Origin, of_origin: usize) -> Result<(), GateLimit> {
        if of_origin >= MAX_PENDING_OF_ORIGIN {
            return Err(GateLimit::PendingOfOrigin);
        }
        self.pace.answer(origin)?;
        if self.pending.len() >= MAX_PENDING_HANDSHAKES {
            self.pending.pop_front();
            self.counters.limit(GateLimit::Pending);
        }
        Ok(())
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
            stage: Stage::Answered(Box::new(answered)),
        });
        Reply::Send(answer)
    }

    /// Undoes the effect of a forged last message on exchange `index`: snow restores its digests when a message fails,
    /// but not the key that half of the message led to. Costs key agreements, so it is limited like an answer. Beyond
    /// the limit the exchange is lost, as by packet loss.
    fn restore(&mut self, index: usize) {
        let it = &mut self.pending[index];
        if let Err(limit) = self.pace.answer(Origin::of(it.from.ip())) {
            self.counters.limit(limit);
            self.pending.remove(index);
            return;
        }
        let (frame, hello) = (&it.frame, &it.hello);
        if let Ok(again) = respond(&self.credentials, frame, hello, &it.ephemeral, it.key) {
            it.stage = Stage::Answered(Box::new(again));
        }
    }

    /// Ends this exchange after a wrong guess; the last permitted guess ends all.
    fn wrong_code(&mut self, index: usize, message: &HandshakeMessage<'_>) -> Reply {
        self.counters.wrong_codes += 1;
        self.tries = self.tries.saturating_sub(1);
        self.pending[index].stage = Stage::Denied;
        if self.tries == 0 {
            self.deny_all();
        }
        self.refuse(message, Reason::Denied)
    }

    /// The code was right: no other client may use it.
    fn right_code(&mut self, index: usize) {
        self.tries = 0;
        self.deny_all();
        self.pending[index].stage = Stage::Over;
    }

    fn deny_all(&mut self) {
        for it in &mut self.pending {
            it.stage = Stage::Denied;
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
        let answered = match &mut self.pending[index].stage {
            Stage::Answered(answered) => answered,
            Stage::Over => return Reply::Nothing,
            Stage::Denied => return self.refuse(message, Reason::Denied),
        };
        let mut payload = [0; MAX_HANDSHAKE];
        let Ok(len) = answered.state.read_message(message.body, &mut payload) else {
            // If its key could be decrypted, the Hello's sender sent it: then the codes differ.
            let is_guess = answered.state.get_remote_static().is_some();
            if is_guess && self.proof() == Proof::Code {
                return self.wrong_code(index, message);
            }
            self.restore(index);
            return self.malformed();
        };
        let admitted = admit(answered, &payload[..len], &self.credentials, datagram);
        match self.proof() {
            Proof::Code => self.right_code(index),
            Proof::None | Proof::PreSharedKey => drop(self.pending.remove(index)),
        }
        match admitted {
            Some(admitted) => {
                self.counters.admitted += 1;
                Reply::Admit(Box::new(admitted))
            }
            None => self.malformed(),
        }
    }
}
