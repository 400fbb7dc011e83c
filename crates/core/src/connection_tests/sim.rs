//! Two connections joined by an emulated link in virtual time, with memory that is written the way
//! a speculating lane writes it: payload lands where the forecast says, headers are checked after,
//! what missed is moved.

use crate::*;
use netlab::Side;
use netlab::link::LinkConfig;
use netlab::pair::Duplex;
use std::collections::HashMap;
use std::time::Duration;
use zerolane_wire::{HEADER_LEN, Header, Op};

/// The byte that content numbered `seed` has at `offset`: tells both, so that misplacement shows.
pub(super) fn content(seed: u64, offset: u64) -> u8 {
    let mut x = seed ^ (offset / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 29;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 32;
    x.to_le_bytes()[(offset % 8) as usize]
}

/// One host: a connection, its memory, and what it was told.
pub(super) struct Host {
    pub(super) connection: Option<Connection>,
    memory: Vec<Vec<u8>>,
    pub(super) events: Vec<Event>,
    pub(super) placed: u64,
    pub(super) moved: u64,
    /// Spans of posted memory that must not be written any more.
    frozen: HashMap<u32, Vec<u8>>,
}

impl Host {
    fn new(connection: Option<Connection>) -> Host {
        Host {
            connection,
            memory: vec![],
            events: vec![],
            placed: 0,
            moved: 0,
            frozen: HashMap::new(),
        }
    }

    /// A region whose bytes are `content(seed, offset)`.
    pub(super) fn filled(&mut self, seed: u64, len: u64) -> Span {
        self.region((0..len).map(|i| content(seed, i)).collect())
    }

    /// A region of bytes that no content has.
    pub(super) fn empty(&mut self, len: u64) -> Span {
        self.region(vec![0xee; len as usize])
    }

    fn region(&mut self, bytes: Vec<u8>) -> Span {
        let len = bytes.len() as u64;
        self.memory.push(bytes);
        let index = self.memory.len() as u32 - 1;
        Span {
            region: RegionId {
                index,
                generation: 1,
            },
            offset: 0,
            len,
        }
    }

    pub(super) fn bytes(&self, span: Span) -> &[u8] {
        &self.memory[span.region.index as usize][span.offset as usize..span.end() as usize]
    }

    fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        &mut self.memory[span.region.index as usize][span.offset as usize..span.end() as usize]
    }

    /// From here on the region must stay as it is.
    pub(super) fn freeze(&mut self, span: Span) {
        let whole = self.memory[span.region.index as usize].clone();
        self.frozen.insert(span.region.index, whole);
    }

    pub(super) fn assert_frozen(&self) {
        for (&index, bytes) in &self.frozen {
            assert!(
                self.memory[index as usize] == *bytes,
                "region {index} written after its end"
            );
        }
    }

    pub(super) fn holds(&self, span: Span, seed: u64, len: u64) -> bool {
        let bytes = self.bytes(span);
        (0..len).all(|i| bytes[i as usize] == content(seed, i))
    }

    pub(super) fn c(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("connection")
    }

    /// Receives a datagram as the UDP lane does.
    fn receive(&mut self, now: Instant, datagram: &[u8]) {
        let header = match Header::parse(datagram) {
            Ok(header) if header.op == Op::Data => header,
            _ => return self.c().on_control(now, datagram, datagram.len()),
        };
        let payload = &datagram[HEADER_LEN..];
        let mut forecast = Forecast::default();
        self.c().forecast(1, &mut forecast);
        let guess = forecast.runs().next().map(|run| run.span);
        let landed = guess.map(|span| span.part(0, span.len.min(payload.len() as u64)));
        if let Some(landed) = landed {
            let count = landed.len as usize;
            self.bytes_mut(landed).copy_from_slice(&payload[..count]);
        }
        let len = payload.len() as u32;
        match self.c().on_data(now, &header, len, len, landed) {
            Placement::InPlace => self.placed += u64::from(len),
            Placement::Move(span) => {
                self.moved += u64::from(len);
                self.bytes_mut(span).copy_from_slice(payload);
            }
            Placement::Drop(_) => {}
        }
    }
}

/// Initiator A, Responder B.
pub(super) struct Sim {
    pub(super) a: Host,
    pub(super) b: Host,
    pub(super) net: Duplex<Vec<u8>>,
    b_config: Config,
    seed: u64,
    /// Every datagram sent, when recording.
    pub(super) trace: Option<Vec<(Side, Vec<u8>)>>,
}

impl Sim {
    pub(super) fn new(link: LinkConfig, seed: u64, a: Config, b: Config) -> Sim {
        let entropy = Entropy {
            key: 0xa11c_e000 | seed as u32 & 0xfff,
            port: 11,
            sync: 77,
        };
        let connection = Connection::connect(Instant::ZERO, a, entropy);
        Sim {
            a: Host::new(Some(connection)),
            b: Host::new(None),
            net: Duplex::symmetric(link, seed),
            b_config: b,
            seed,
            trace: None,
        }
    }

    pub(super) fn now(&self) -> Instant {
        Instant::ZERO + self.net.now()
    }

    pub(super) fn host(&mut self, side: Side) -> &mut Host {
        match side {
            Side::A => &mut self.a,
            Side::B => &mut self.b,
        }
    }

    fn transmit(&mut self, side: Side) {
        let now = self.now();
        loop {
            let host = self.host(side);
            let Some(connection) = host.connection.as_mut() else {
                return;
            };
            let Some(transmit) = connection.poll_transmit(now, BurstLimit::default()) else {
                break;
            };
            match transmit {
                Transmit::Control(it) => {
                    let mut bytes = it.bytes().to_vec();
                    bytes.resize(bytes.len().max(it.pad_to), 0);
                    self.send(side, bytes);
                }
                Transmit::Data(burst) => {
                    let mut at = 0;
                    for index in 0..burst.segments {
                        let len = u64::from(burst.stu).min(burst.span.len - at);
                        let mut bytes = burst.header(index).emit().to_vec();
                        bytes.extend_from_slice(self.host(side).bytes(burst.span.part(at, len)));
                        at += len;
                        self.send(side, bytes);
                    }
                }
            }
        }
        let host = self.host(side);
        while let Some(event) = host.c().poll_event() {
            host.events.push(event);
        }
    }

    pub(super) fn send(&mut self, side: Side, bytes: Vec<u8>) {
        if let Some(trace) = &mut self.trace {
            trace.push((side, bytes.clone()));
        }
        // UDP and IP in front of it count on the wire.
        self.net.send(side, bytes.len() + 28, bytes);
    }

    fn deliver(&mut self, to: Side, datagram: &[u8]) {
        let now = self.now();
        if to == Side::B && self.b.connection.is_none() {
            let Ok(packet) = zerolane_wire::Packet::parse(datagram) else {
                return;
            };
            let entropy = Entropy {
                key: 0xb0b0_0000 | self.seed as u32 & 0xfff,
                port: 22,
                sync: 5,
            };
            match listen(now, self.b_config.clone(), entropy, &packet) {
                Ok(connection) => self.b.connection = Some(connection),
                Err(Some(rejection)) => {
                    let (bytes, len) = rejection.emit();
                    self.send(Side::B, bytes[..len].to_vec());
                }
                Err(None) => {}
            }
            return;
        }
        self.host(to).receive(now, datagram);
    }

    /// One step: transmit what is due, then go to the next delivery or timer. False when nothing
    /// is left to happen before `deadline`.
    pub(super) fn step(&mut self, deadline: Duration) -> bool {
        self.transmit(Side::A);
        self.transmit(Side::B);
        let timer = [&self.a, &self.b]
            .into_iter()
            .filter_map(|host| host.connection.as_ref()?.next_timeout())
            .min()
            .map(|at| at - Instant::ZERO);
        let until = timer.unwrap_or(Duration::MAX).min(deadline);
        if self.net.next_delivery().is_none() && until >= deadline {
            return false;
        }
        if self.net.next_delivery().is_some_and(|at| at > deadline) && until >= deadline {
            return false;
        }
        match self.net.advance(Some(until)) {
            Some((side, datagram)) => self.deliver(side, &datagram),
            None => {
                let now = self.now();
                for side in [Side::A, Side::B] {
                    if let Some(connection) = self.host(side).connection.as_mut() {
                        connection.on_timeout(now);
                    }
                }
            }
        }
        true
    }

    /// Runs until `done`, or panics at `limit` of virtual time.
    pub(super) fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&Sim) -> bool) {
        let deadline = self.net.now() + limit;
        while !done(self) {
            assert!(
                self.step(deadline),
                "seed {}: not done at {:?}\n a {:?} {:?}\n b {:?} {:?}",
                self.seed,
                self.net.now(),
                self.a.events,
                self.a.connection,
                self.b.events,
                self.b.connection
            );
        }
    }

    /// Runs for `time`.
    pub(super) fn run_for(&mut self, time: Duration) {
        let deadline = self.net.now() + time;
        while self.step(deadline) {}
    }

    pub(super) fn connect(&mut self) {
        self.run_until(Duration::from_secs(5), |sim| {
            sim.a.connected() && sim.b.connected()
        });
    }
}

impl Host {
    pub(super) fn connected(&self) -> bool {
        self.events
            .iter()
            .any(|event| matches!(event, Event::Connected(_)))
    }

    pub(super) fn sent(&self, id: TransferId) -> bool {
        self.events.contains(&Event::Sent { id })
    }

    pub(super) fn received(&self, id: TransferId) -> Option<u64> {
        self.events.iter().find_map(|event| match event {
            Event::Received {
                id: other, length, ..
            } if *other == id => Some(*length),
            _ => None,
        })
    }

    pub(super) fn failed(&self, id: TransferId) -> Option<TransferError> {
        self.events.iter().find_map(|event| match event {
            Event::Failed { id: other, error } if *other == id => Some(*error),
            _ => None,
        })
    }
}
