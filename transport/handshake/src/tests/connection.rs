//! Tests that connections come up through the key exchange, over a network that loses and repeats datagrams.

use super::*;
use crate::limits::HANDSHAKE_LIFETIME;
use std::time::Duration;
use zerolane_core::{
    CloseReason, Config, Connection, Entropy, Event, HandshakeOutcome, Life, SERVICE_PORT,
    Transmit, listen,
};

/// Longer than the lifetime of an exchange.
const PATIENCE: Duration = Duration::from_secs(60);

/// The receiver of a datagram.
#[derive(Clone, Copy, PartialEq)]
enum To {
    Initiator,
    Responder,
}

/// One Initiator, one gate and the resulting connection. Sealed datagrams travel unsealed, but marked.
struct World {
    now: Instant,
    a: Connection,
    a_exchange: Exchange,
    a_session: Option<Session>,
    gate: Gate,
    b: Option<(Connection, Exchange)>,
    wire: Vec<(Instant, To, Vec<u8>)>,
    random: u64,
    /// Percentage of datagrams lost; as many are repeated, and as many delayed.
    loss: u64,
    draw: Box<dyn FnMut() -> [u8; 32]>,
    /// Before this, datagrams selected by `lost` are lost.
    recovers: Instant,
    lost: fn(To, &[u8]) -> bool,
}

fn patient() -> Config {
    Config {
        connect_timeout: PATIENCE,
        ..Config::default()
    }
}

/// Passes a handshake message to an end's exchange, and its outcome to the connection.
fn hear(
    connection: &mut Connection,
    exchange: &mut Exchange,
    now: Instant,
    bytes: &[u8],
) -> Option<Box<Session>> {
    let (outcome, session) = exchange.take(bytes, connection.request().bytes());
    connection.on_handshake(now, outcome);
    session
}

impl World {
    fn new(seed: u64, loss: u64, a: Credentials, b: Credentials) -> World {
        let entropy = Entropy {
            key: 0xabcd,
            port: 9,
            sync: 42,
        };
        let mut draw: Box<dyn FnMut() -> [u8; 32]> = Box::new(draw());
        World {
            now: Instant::ZERO,
            a: Connection::connect_protected(Instant::ZERO, patient(), entropy),
            a_exchange: Exchange::initiate(a, draw(), SERVICE_PORT, entropy).unwrap(),
            a_session: None,
            gate: Gate::new(Instant::ZERO, b, &mut draw),
            b: None,
            wire: vec![],
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            loss,
            draw,
            recovers: Instant::ZERO,
            lost: |_, _| false,
        }
    }

    fn chance(&mut self) -> bool {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.random >> 33) % 100 < self.loss
    }

    fn send(&mut self, to: To, bytes: Vec<u8>) {
        let copies = if self.chance() { 2 } else { 1 };
        for _ in 0..copies {
            if self.chance() {
                continue;
            }
            let late = if self.chance() { 7 } else { 1 };
            let at = self.now + Duration::from_millis(late);
            self.wire.push((at, to, bytes.clone()));
        }
    }

    fn transmit(&mut self, to: To) {
        loop {
            let now = self.now;
            let from = match to {
                To::Responder => Some(&mut self.a),
                To::Initiator => self.b.as_mut().map(|it| &mut it.0),
            };
            match from.and_then(|it| it.poll_transmit(now, Default::default())) {
                Some(Transmit::Handshake) => {
                    let message = self.a_exchange.message(now, || Some((self.draw)()));
                    let message = message.expect("an Initiator's");
                    self.send(to, message.bytes().to_vec());
                }
                Some(Transmit::Control(it)) => self.send(to, it.bytes().to_vec()),
                Some(Transmit::Data(_) | Transmit::Operations(_)) => panic!("nothing to transfer"),
                None => return,
            }
        }
    }

    fn deliver(&mut self, to: To, bytes: &[u8]) {
        if self.now < self.recovers && (self.lost)(to, bytes) {
            return;
        }
        let protected = HandshakeMessage::is(bytes);
        match (to, &mut self.b) {
            (To::Initiator, _) if protected => {
                if let Some(session) = hear(&mut self.a, &mut self.a_exchange, self.now, bytes) {
                    let before = self.a_session.replace(*session);
                    assert!(
                        before.is_none() || self.recovers > Instant::ZERO,
                        "one session"
                    );
                }
            }
            // A lane without keys drops what it cannot open.
            (To::Initiator, _) if self.a_session.is_some() => {
                self.a.on_control(self.now, bytes, bytes.len());
            }
            (To::Responder, Some((b, exchange))) if protected => {
                assert!(hear(b, exchange, self.now, bytes).is_none());
            }
            (To::Responder, Some((b, _))) => b.on_control(self.now, bytes, bytes.len()),
            (To::Responder, None) => self.knock(bytes),
            (To::Initiator, _) => {}
        }
    }

    fn knock(&mut self, bytes: &[u8]) {
        match self.gate.take(self.now, address(1), bytes, &mut self.draw) {
            Reply::Nothing => {}
            Reply::Send(datagram) => self.send(To::Initiator, datagram.bytes().to_vec()),
            Reply::Admit(admitted) => {
                let entropy = Entropy {
                    key: 0xb0b,
                    port: 5,
                    sync: 1,
                };
                let Admitted {
                    request, finish, ..
                } = *admitted;
                let made = Connection::admit(self.now, patient(), entropy, &request);
                self.b = Some((made.unwrap(), Exchange::admitted(finish)));
            }
        }
    }

    /// Runs for `most`, or until both are connected.
    fn run(&mut self, most: Duration) {
        let end = self.now + most;
        while self.now < end && !self.is_open() {
            self.transmit(To::Responder);
            self.transmit(To::Initiator);
            let next_packet = self.wire.iter().map(|(at, ..)| *at).min();
            let timers = [
                self.a.next_timeout(),
                self.b.as_ref().and_then(|it| it.0.next_timeout()),
            ];
            let Some(next) = timers.into_iter().flatten().chain(next_packet).min() else {
                return;
            };
            self.now = self.now.max(next);
            let due = |(at, ..): &(Instant, To, Vec<u8>)| *at <= self.now;
            let (due, rest) = self.wire.drain(..).partition(due);
            self.wire = rest;
            let due: Vec<(Instant, To, Vec<u8>)> = due;
            for (_, to, bytes) in due {
                self.deliver(to, &bytes);
            }
            self.a.on_timeout(self.now);
            if let Some((b, _)) = &mut self.b {
                b.on_timeout(self.now);
            }
        }
    }

    fn is_open(&self) -> bool {
        let open = |it: &Connection| it.life() == Life::Established;
        open(&self.a) && self.b.as_ref().is_some_and(|it| open(&it.0))
    }
}

#[test]
fn connect__without_loss_takes_two_round_trips() {
    let mut world = World::new(0, 0, credentials(1), credentials(2));
    world.run(Duration::from_secs(5));
    assert!(world.is_open());
    // And one more step, by which the Responder knows.
    assert_eq!(world.now, Instant::ZERO + Duration::from_millis(5));
    assert_eq!(world.a_session.unwrap().peer, identity(2).public());
}

#[test]
fn connect__survives_loss_repetition_and_reordering() {
    let mut open = 0;
    for seed in 0..200 {
        let mut world = World::new(seed, 20, credentials(1), credentials(2));
        world.run(Duration::from_secs(5));
        open += u32::from(world.is_open());
        assert!(world.gate.counters().admitted <= 1, "seed {seed}");
    }
    // At 20 % loss each way a few fail, as without protection.
    assert!(open >= 195, "{open} of 200");
}

fn is_step(bytes: &[u8], step: Step) -> bool {
    HandshakeMessage::parse(bytes).is_ok_and(|it| it.step == step)
}

/// A Responder that forgot the exchange never answers its last message.
#[test]
fn connect__begins_again_when_its_exchange_was_forgotten() {
    let mut world = World::new(0, 0, credentials(1), credentials(2));
    world.recovers = Instant::ZERO + HANDSHAKE_LIFETIME * 2;
    world.lost = |to, bytes| to == To::Responder && is_step(bytes, Step::Finish);
    world.run(PATIENCE);
    assert!(world.is_open(), "at {:?}", world.now);
    assert_eq!(world.gate.counters().admitted, 1);
}

/// A Responder that admitted the Initiator does not know another exchange.
#[test]
fn connect__does_not_give_up_the_exchange_by_which_it_was_let_in() {
    let mut world = World::new(0, 0, credentials(1), credentials(2));
    world.recovers = Instant::ZERO + HANDSHAKE_LIFETIME * 2;
    world.lost = |to, bytes| to == To::Initiator && !HandshakeMessage::is(bytes);
    world.run(PATIENCE);
    assert!(world.is_open(), "at {:?}", world.now);
    assert_eq!(world.gate.counters().answered, 1, "no other exchange");
}

#[test]
fn connect__begins_again_over_loss_repetition_and_reordering() {
    for seed in 0..50 {
        let mut world = World::new(seed, 20, credentials(1), credentials(2));
        world.recovers = Instant::ZERO + HANDSHAKE_LIFETIME * 2;
        world.lost = |to, bytes| to == To::Responder && is_step(bytes, Step::Finish);
        world.run(PATIENCE);
        assert!(world.is_open(), "seed {seed}");
    }
}

/// Another exchange would count as a guess.
#[test]
fn connect__by_a_code_never_begins_again() {
    let code = "1234-5678";
    let mut world = World::new(0, 0, with_code(1, code), with_code(2, code));
    world.recovers = Instant::ZERO + HANDSHAKE_LIFETIME * 2;
    world.lost = |to, bytes| to == To::Responder && is_step(bytes, Step::Finish);
    world.run(PATIENCE);
    assert_eq!(world.gate.counters().hellos, 1);
}

fn with_code(n: u8, code: &str) -> Credentials {
    Credentials {
        pre_shared: Some(code.parse::<Code>().unwrap().into()),
        ..credentials(n)
    }
}

#[test]
fn connect__by_a_code_survives_loss_repetition_and_reordering() {
    let mut open = 0;
    for seed in 0..200 {
        let code = "1234-5678";
        let mut world = World::new(seed, 20, with_code(1, code), with_code(2, code));
        world.run(Duration::from_secs(5));
        open += u32::from(world.is_open());
        let counters = world.gate.counters();
        assert_eq!(counters.wrong_codes, 0, "seed {seed}");
        assert!(counters.admitted <= 1, "seed {seed}");
        let why = CloseReason::ExchangeRefused(zerolane_wire::Reason::Denied);
        assert_ne!(
            world.a.poll_event(),
            Some(Event::Closed(why)),
            "seed {seed}"
        );
    }
    assert!(open >= 195, "{open} of 200");
}

#[test]
fn connect__by_a_wrong_code_is_told_so_under_loss_and_counts_once() {
    let mut told = 0;
    for seed in 0..200 {
        let (a, b) = (with_code(1, "1234-5679"), with_code(2, "1234-5678"));
        let mut world = World::new(seed, 20, a, b);
        world.run(Duration::from_secs(10));
        assert!(world.b.is_none(), "seed {seed}");
        assert!(world.gate.counters().wrong_codes <= 1, "seed {seed}");
        let why = CloseReason::ExchangeRefused(zerolane_wire::Reason::Denied);
        told += u32::from(world.a.poll_event() == Some(Event::Closed(why)));
    }
    assert!(told >= 195, "{told} of 200");
}

#[test]
fn connect__untrusted_peer_is_named() {
    let a = Credentials {
        trust: Arc::new(Only(identity(9).public())),
        ..credentials(1)
    };
    let mut world = World::new(0, 0, a, credentials(2));
    world.run(Duration::from_secs(5));
    let why = CloseReason::Untrusted(identity(2).public().0);
    assert_eq!(world.a.poll_event(), Some(Event::Closed(why)));
    assert!(world.b.is_none());
}

#[test]
fn connect__to_an_end_that_gives_no_protection_is_refused_in_words() {
    let mut world = World::new(0, 0, credentials(1), credentials(2));
    let hello = world.a.poll_transmit(world.now, Default::default());
    assert_eq!(hello, Some(Transmit::Handshake));
    let hello = world
        .a_exchange
        .message(world.now, || None)
        .expect("a Hello");
    let reason = zerolane_wire::Reason::PlainOnly;
    let refusal = refuse_hello(hello.bytes(), reason).unwrap();
    let heard = hear(
        &mut world.a,
        &mut world.a_exchange,
        world.now,
        refusal.bytes(),
    );
    assert!(heard.is_none());
    let why = CloseReason::ExchangeRefused(reason);
    assert_eq!(world.a.poll_event(), Some(Event::Closed(why)));
}

#[test]
fn on_handshake__a_plain_connection_ignores_it() {
    let entropy = Entropy {
        key: 1,
        port: 2,
        sync: 3,
    };
    let packet = Packet::parse(&request()).unwrap();
    let mut plain = listen(Instant::ZERO, Config::default(), entropy, &packet).unwrap();
    plain.on_handshake(Instant::ZERO, HandshakeOutcome::Nothing);
    plain.on_handshake(Instant::ZERO, HandshakeOutcome::Done);
    assert_eq!(plain.counters().dropped_total(), 2);
    assert_eq!(plain.life(), Life::Answered);
}
