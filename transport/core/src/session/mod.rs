//! Runs the life of the connection as a whole: handshakes, keep-alives, path probes, and changes of the peer's address.

mod life;
mod migration;

pub use self::life::Life;
pub(crate) use self::life::{LifeEvent, Transition};
pub use self::migration::PathValidation;

use crate::config::Entropy;
use crate::context::Context;
use crate::counters::DropReason;
use crate::event::CloseReason;
use crate::limits::{
    HANDSHAKE_TRIES, KEEPALIVES_PER_IDLE_TIMEOUT, MIN_RTO, PROBE_RAISE_INTERVAL, REFUSAL_PATIENCE,
    REFUSED_KEEPALIVES,
};
use crate::recovery::Timed;
use crate::time::Instant;
use crate::timers::Timer;
use migration::Candidate;
use zerolane_wire::{
    Capabilities, ConnectionAnswer, ConnectionVerdict, Delivered, Disconnect, Nop, Operation,
    Packet, PrivateData, Profiles, Reason, RequestConnection, RequestDisconnect, Route, VERSION,
    VERSION_MIN,
};

/// How the connection's datagrams are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Unprotected: both ends asked for that.
    Plain,
    /// This end began the key exchange, and repeats its messages.
    Exchanging,
    /// The peer began the key exchange, and finished it.
    Admitted,
}

/// What a Responder answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// Nothing: its program has not decided.
    Asked,
    Accepted,
    Refused,
}

/// The connection's life.
#[derive(Debug)]
pub(crate) struct Session {
    life: Life,
    initiator: bool,
    entropy: Entropy,
    protection: Protection,
    decision: Decision,
    /// The peer's private data.
    peer_data: Option<PrivateData>,
    /// Whether the current message of the key exchange must be sent.
    handshake_owed: bool,
    handshake_tries: u32,
    /// Sync of the Request_Connection.
    handshake_sync: u32,
    /// Keep-alives in a row after which nothing was heard.
    unanswered_pings: u32,
    /// When the peer was last heard.
    heard: Instant,
    /// When the network last reported the peer's address unreachable, if the peer was not heard since.
    refused: Option<Instant>,
    /// Another possible address of the peer.
    candidate: Option<Candidate>,
    close_reason: CloseReason,
    /// Reason in Request_Disconnect.
    disconnect_reason: Reason,
    /// Sizes of the path probes to send, bytes.
    probes: [Option<usize>; 2],
    /// When the last probes were sent.
    probed: Instant,
}

impl Session {
    pub(crate) fn new(now: Instant, life: Life, entropy: Entropy, protection: Protection) -> Self {
        Session {
            life,
            initiator: life == Life::Connecting,
            entropy,
            protection,
            decision: Decision::Accepted,
            peer_data: None,
            handshake_owed: false,
            handshake_tries: 0,
            handshake_sync: entropy.sync,
            unanswered_pings: 0,
            heard: now,
            refused: None,
            candidate: None,
            close_reason: CloseReason::Local,
            disconnect_reason: Reason::Normal,
            probes: [None; 2],
            probed: now,
        }
    }

    pub(crate) fn life(&self) -> Life {
        self.life
    }

    pub(crate) fn is_established(&self) -> bool {
        self.life == Life::Established
    }

    /// Whether Transfers may be posted: they wait while the connection is being made.
    pub(crate) fn may_post(&self) -> bool {
        matches!(
            self.life,
            Life::Connecting | Life::Answered | Life::Established
        )
    }

    pub(crate) fn is_initiator(&self) -> bool {
        self.initiator
    }

    pub(crate) fn protection(&self) -> Protection {
        self.protection
    }

    /// When the peer was last heard.
    pub(crate) fn last_heard(&self) -> Instant {
        self.heard
    }

    /// Applies `event` to the connection's life. Returns the previous state, and the transition.
    pub(crate) fn step(&mut self, event: LifeEvent) -> (Life, Transition) {
        let before = self.life;
        let (life, transition) = life::step(before, event);
        self.life = life;
        (before, transition)
    }

    /// Whether a datagram with this port and key belongs to this connection.
    pub(crate) fn owns(&self, cx: &Context, d_port: u16, d_key: u32) -> bool {
        d_port == cx.route.s_port && d_key == self.entropy.key
    }

    /// A datagram of the peer arrived.
    pub(crate) fn on_heard(&mut self, cx: &mut Context) {
        self.heard = cx.now;
        cx.links.on_heard(cx.now);
        self.unanswered_pings = 0;
        self.refused = None;
        // The Responder uses our key, so it knows that we have its own.
        if self.initiator && self.is_established() {
            cx.timers.stop(Timer::Handshake);
            cx.timers.stop(Timer::GiveUp);
        }
    }
}

/// Connecting.
impl Session {
    /// Whether a Request_Connection repeats the one that made this connection.
    pub(crate) fn is_request_repeated(
        &self,
        cx: &Context,
        route: Route,
        it: &RequestConnection,
    ) -> bool {
        let same = it.s_key == cx.route.d_key && route.s_port == cx.route.d_port;
        !self.initiator && same && it.sync == self.handshake_sync
    }

    /// Takes the answer to the Request_Connection, and returns the consequence.
    pub(crate) fn on_connection_answer(
        &mut self,
        cx: &mut Context,
        route: Route,
        it: &ConnectionAnswer,
    ) -> Result<Answered, DropReason> {
        if !self.owns(cx, route.d_port, route.d_key) || it.sync != self.handshake_sync {
            return Err(DropReason::WrongKey);
        }
        if self.life != Life::Connecting {
            return Err(DropReason::Duplicate);
        }
        self.on_heard(cx);
        Ok(match it.verdict {
            ConnectionVerdict::Reject {
                reason,
                version_min,
                version_max,
            } => Answered::Rejected(CloseReason::Rejected {
                reason,
                version_min,
                version_max,
            }),
            ConnectionVerdict::Accept {
                version: VERSION_MIN..=VERSION,
                capabilities,
                s_key,
            } => {
                cx.route.d_port = route.s_port;
                cx.route.d_key = s_key;
                Answered::Accepted(capabilities)
            }
            ConnectionVerdict::Accept { .. } => Answered::Nonsense,
        })
    }

    /// The Request_Connection with its route.
    pub(crate) fn request_packet(&self, cx: &Context) -> Packet {
        Packet {
            route: Route {
                d_key: 0,
                ..cx.route
            },
            operation: Operation::RequestConnection(RequestConnection {
                version_min: VERSION_MIN,
                version_max: VERSION,
                capabilities: cx.config.capabilities(cx.config.profiles),
                s_key: self.entropy.key,
                sync: self.handshake_sync,
            }),
        }
    }

    /// Sends the Request_Connection, or the key-exchange message in its place, and repeats it until it is answered.
    pub(crate) fn request_connection(&mut self, cx: &mut Context) {
        match self.protection {
            Protection::Plain => cx.push_control(self.request_packet(cx).operation),
            Protection::Exchanging => self.handshake_owed = true,
            Protection::Admitted => {}
        }
        self.time_handshake(cx);
        self.repeat_handshake(cx);
    }

    /// The key exchange has another message: sends it.
    pub(crate) fn send_handshake_again(&mut self) {
        self.handshake_owed = true;
    }

    /// The keys are known: the last message of the exchange carries the Request_Connection.
    pub(crate) fn exchange_done(&mut self, cx: &mut Context) {
        cx.recovery.answered(Timed::Handshake, cx.now);
        self.handshake_tries = 0;
        self.request_connection(cx);
    }

    /// Whether the message of the key exchange must leave now.
    pub(crate) fn take_handshake(&mut self) -> bool {
        core::mem::take(&mut self.handshake_owed)
    }

    /// A step of the handshake leaves. Times its answer unless it is a repeat (Karn's algorithm).
    pub(crate) fn time_handshake(&mut self, cx: &mut Context) {
        if self.handshake_tries == 0 {
            cx.recovery.time(Timed::Handshake, cx.now);
        } else {
            cx.recovery.untime(Timed::Handshake);
        }
        self.handshake_tries += 1;
    }

    /// Schedules the repetition of the current handshake step.
    fn repeat_handshake(&self, cx: &mut Context) {
        let most = cx.config.connect_timeout / HANDSHAKE_TRIES;
        let wait = cx.recovery.control_timeout().min(most.max(MIN_RTO));
        cx.timers.set(Timer::Handshake, cx.now + wait);
    }

    /// Makes this end the Responder to the request with number `sync`.
    pub(crate) fn respond_to(&mut self, sync: u32, asks: bool) {
        self.handshake_sync = sync;
        if asks {
            self.decision = Decision::Asked;
        }
    }

    /// Answers a request, also a repeated one. While the program has not decided, that only shows that the Initiator
    /// still waits.
    pub(crate) fn answer_connection(&self, cx: &mut Context) {
        let verdict = match self.decision {
            Decision::Asked => {
                let give_up = cx.now + cx.config.connect_timeout;
                return cx.timers.set(Timer::GiveUp, give_up);
            }
            Decision::Accepted => ConnectionVerdict::Accept {
                version: VERSION,
                capabilities: cx.config.capabilities(Profiles::only(cx.profile)),
                s_key: self.entropy.key,
            },
            Decision::Refused => ConnectionVerdict::Reject {
                reason: Reason::Refused,
                version_min: VERSION_MIN,
                version_max: VERSION,
            },
        };
        cx.push_control(Operation::ConnectionAnswer(ConnectionAnswer {
            verdict,
            sync: self.handshake_sync,
        }));
    }

    pub(crate) fn set_peer_data(&mut self, data: Option<PrivateData>) {
        self.peer_data = data;
    }

    pub(crate) fn peer_data(&self) -> Option<&PrivateData> {
        self.peer_data.as_ref()
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.decision == Decision::Asked && self.life == Life::Answered
    }

    /// Whether the peer may have this end's key.
    pub(crate) fn is_accepted(&self) -> bool {
        self.decision == Decision::Accepted
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.decision == Decision::Refused
    }

    /// The program accepts the request.
    pub(crate) fn accept(&mut self, cx: &mut Context) {
        self.decision = Decision::Accepted;
        self.answer_connection(cx);
        let give_up = cx.now + cx.config.connect_timeout;
        cx.timers.set(Timer::GiveUp, give_up);
    }

    /// The program refuses the request. Answers repetitions for a while.
    pub(crate) fn refuse(&mut self, cx: &mut Context) {
        self.decision = Decision::Refused;
        self.answer_connection(cx);
        let wait = cx.recovery.control_timeout() * ANSWERING_TIMEOUTS;
        cx.timers.set(Timer::GiveUp, cx.now + wait);
    }

    /// The private data that travels with `operation`. That of an answer is as long as that of the request, so that no
    /// answer is longer than its request.
    pub(crate) fn private_data(&self, cx: &Context, operation: &Operation) -> Option<PrivateData> {
        match operation {
            Operation::RequestConnection(_) => cx.config.private_data,
            Operation::ConnectionAnswer(ConnectionAnswer {
                verdict: ConnectionVerdict::Accept { .. },
                ..
            }) => cx.config.private_data.filter(|_| self.peer_data.is_some()),
            _ => None,
        }
    }

    /// The connection is open.
    pub(crate) fn established(&mut self, cx: &mut Context) {
        cx.timers.stop(Timer::Handshake);
        cx.recovery.progress();
        if self.initiator {
            // Proves our address, repeatedly, until the Responder is heard. The Responder is open only once it heard
            // us, and forgets us otherwise.
            self.handshake_tries = 0;
            cx.timers.set(Timer::Handshake, cx.now);
        } else {
            cx.timers.stop(Timer::GiveUp);
            cx.recovery.answered(Timed::Handshake, cx.now);
        }
        cx.timers.set(Timer::PathProbe, cx.now);
    }

    pub(crate) fn on_handshake_timeout(&mut self, cx: &mut Context, delivered: Delivered) {
        if self.handshake_tries > 0 {
            cx.recovery.back_off();
        }
        match self.life {
            Life::Connecting => self.request_connection(cx),
            Life::Established => self.prove_address(cx),
            Life::Disconnecting => self.ask_to_disconnect(cx, delivered),
            Life::Answered | Life::Answering | Life::Closed => {}
        }
    }

    /// Third step of the handshake: proves to the Responder that we have its key.
    fn prove_address(&mut self, cx: &mut Context) {
        cx.ping();
        self.handshake_tries += 1;
        self.repeat_handshake(cx);
    }
}

/// Consequence of an answer to a Request_Connection.
pub(crate) enum Answered {
    Accepted(Capabilities),
    Rejected(CloseReason),
    /// A version that was not offered.
    Nonsense,
}

/// Keep-alives and path probes.
impl Session {
    /// A request depends on the peer being alive.
    pub(crate) fn expect_peer(&mut self, cx: &mut Context) {
        if !cx.timers.runs(Timer::Peer) && self.is_established() {
            self.unanswered_pings = 0;
            cx.timers.set(Timer::Peer, cx.now + cx.keepalive());
        }
    }

    /// Pings a peer that is `watched`, or that the network reported unreachable. Returns false if the peer left every
    /// keep-alive of an idle timeout unanswered. Counts silent intervals, not time: a machine that was suspended has
    /// missed one interval, however long it slept.
    pub(crate) fn on_peer_timeout(&mut self, cx: &mut Context, watched: bool) -> bool {
        let lately = cx.keepalive() * 2;
        if !watched && self.refused.is_none_or(|at| cx.now - at > lately) {
            self.refused = None;
            return true;
        }
        let silence = cx.now - self.heard;
        if silence < cx.keepalive() {
            cx.timers.set(Timer::Peer, self.heard + cx.keepalive());
            return true;
        }
        if self.unanswered_pings + 1 >= KEEPALIVES_PER_IDLE_TIMEOUT {
            return false;
        }
        self.unanswered_pings += 1;
        cx.ping();
        cx.timers.set(Timer::Peer, cx.now + cx.keepalive());
        true
    }

    /// The path probes of this round had no answer, or are due. Returns true if the path turns out to be
    /// too narrow.
    pub(crate) fn on_path_probe_timeout(&mut self, cx: &mut Context) -> bool {
        let narrow = cx.path.unanswered(self.heard > self.probed);
        self.probes = cx.path.next_probes();
        if self.probes == [None, None] {
            rest_path(cx);
            return narrow;
        }
        self.probed = cx.now;
        if self.probes[1].is_some() {
            // Tests whether short datagrams arrive.
            cx.ping();
        }
        let wait = cx.recovery.control_timeout();
        cx.timers.set(Timer::PathProbe, cx.now + wait);
        narrow
    }

    /// The path probe that leaves now and its size in bytes, if one is due.
    pub(crate) fn next_probe(&mut self, cx: &mut Context) -> Option<(Packet, usize)> {
        let mut probes = self.probes.iter_mut();
        let size = probes.find_map(Option::take)?;
        let sync = cx.new_sync();
        cx.recovery.time(Timed::Nop(sync), cx.now);
        let nop = Nop {
            send_state: true,
            probe: size as u32,
            sync,
            ..Nop::default()
        };
        let packet = Packet {
            route: cx.route,
            operation: Operation::Nop(nop),
        };
        Some((packet, size))
    }

    /// Takes a Nop: the answer to one of ours, or a question.
    pub(crate) fn on_nop(&mut self, cx: &mut Context, it: &Nop) {
        if it.reply {
            cx.recovery.answered(Timed::Nop(it.sync), cx.now);
            if it.probe != 0
                && cx.path.probe_passed(cx.now, it.probe as usize)
                && cx.path.is_settled()
            {
                rest_path(cx);
            }
        } else if it.send_state {
            let answer = Nop {
                send_state: false,
                reply: true,
                options: None,
                ..*it
            };
            match cx.links.is_several() {
                // An answer tells about the path it came by.
                true => {
                    cx.links.owe(cx.links.selected, Operation::Nop(answer));
                }
                false => cx.push_control(Operation::Nop(answer)),
            }
        }
    }
}

/// Disconnecting.
impl Session {
    /// The network reported the peer's address unreachable. Returns true if that is believed at once: there is no
    /// listener where this end connects to; or the peer is disconnecting, and its process may be gone without an
    /// answer. On an established connection it is a hint: any machine can forge the message, and a NAT sends it about
    /// an address that it assigned to the peer before. The peer is then asked, and given up after some unanswered
    /// keep-alives. A peer that depends on this end has sent from its new address by then.
    pub(crate) fn on_refused(&mut self, cx: &mut Context) -> bool {
        let silence = cx.now - self.heard;
        let silent = silence > cx.recovery.control_timeout().max(REFUSAL_PATIENCE);
        match self.life {
            Life::Connecting | Life::Answering => true,
            Life::Established => {
                if self.refused.replace(cx.now).is_none() {
                    cx.ping();
                    self.expect_peer(cx);
                }
                silent && self.unanswered_pings >= REFUSED_KEEPALIVES
            }
            Life::Answered | Life::Disconnecting | Life::Closed => silent,
        }
    }

    /// Sets the reason in Request_Disconnect.
    pub(crate) fn set_disconnect_reason(&mut self, reason: Reason) {
        if self.may_post() {
            self.disconnect_reason = reason;
        }
    }

    pub(crate) fn close_reason(&self) -> CloseReason {
        self.close_reason
    }

    /// Whether the peer was asked to disconnect, and did not answer.
    pub(crate) fn misses_disconnect_answer(&self) -> bool {
        self.life == Life::Disconnecting && self.handshake_tries > 0
    }

    /// This end disconnects, for this reason.
    pub(crate) fn begin_to_disconnect(&mut self, cx: &mut Context, why: CloseReason) {
        self.close_reason = why;
        self.handshake_tries = 0;
        cx.recovery.progress();
        cx.timers.stop_all();
        cx.timers.set(Timer::Handshake, cx.now);
        let give_up = cx.now + cx.config.connect_timeout;
        cx.timers.set(Timer::GiveUp, give_up);
    }

    /// The peer disconnects; `before` is this end's previous state.
    pub(crate) fn agree_to_disconnect(&mut self, cx: &mut Context, before: Life, why: CloseReason) {
        if matches!(before, Life::Answered | Life::Established) {
            self.close_reason = why;
        }
        if before != self.life {
            cx.timers.stop_all();
            let wait = cx.recovery.control_timeout() * ANSWERING_TIMEOUTS;
            cx.timers.set(Timer::GiveUp, cx.now + wait);
        }
        cx.push_control(Operation::DisconnectAnswer(Disconnect {
            reason: Reason::Normal,
        }));
    }

    /// Sends Request_Disconnect, repeatedly, until answered.
    fn ask_to_disconnect(&mut self, cx: &mut Context, delivered: Delivered) {
        self.request_disconnect(cx, self.disconnect_reason, delivered);
        self.handshake_tries += 1;
        self.repeat_handshake(cx);
    }

    /// Reports what arrived here: earlier reports may have been lost, and questions have no answer from now on.
    pub(crate) fn request_disconnect(
        &self,
        cx: &mut Context,
        reason: Reason,
        delivered: Delivered,
    ) {
        cx.push_control(Operation::RequestDisconnect(RequestDisconnect {
            reason,
            delivered: Some(delivered),
        }));
    }

    /// The connection is over: nothing leaves any more.
    pub(crate) fn end(&mut self, cx: &mut Context) {
        cx.clear_control();
        self.probes = [None; 2];
        cx.timers.stop_all();
    }

    /// The way to the peer changed: an end has a new address. If this end moved, and its last datagram was lost, the
    /// peer has no address to ask, so this end sends at once.
    pub(crate) fn on_new_path(&mut self, cx: &mut Context) {
        cx.ping();
        cx.counters.migrations += 1;
        cx.recovery.forget();
        // Back-off on the old path must not delay the new one.
        for timer in [Timer::Payload, Timer::ProbeTimeout] {
            if cx.timers.runs(timer) {
                cx.timers.set(timer, cx.now);
            }
        }
        if self.is_established() {
            cx.timers.set(Timer::PathProbe, cx.now);
        }
    }
}

/// The path's size is known for now. A path that carries less than assumed is probed again later.
fn rest_path(cx: &mut Context) {
    match cx.path.is_narrow() {
        true => {
            cx.path.search_again();
            cx.timers
                .set(Timer::PathProbe, cx.now + PROBE_RAISE_INTERVAL);
        }
        false => cx.timers.stop(Timer::PathProbe),
    }
}

/// Control timeouts for which an end waits for the last message of a disconnect handshake, or for the repetition of a
/// request that it refused.
const ANSWERING_TIMEOUTS: u32 = 8;
