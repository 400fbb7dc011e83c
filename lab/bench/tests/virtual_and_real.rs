//! Tests that the same link gives the same goodput in virtual and in real time.
//!
//! The link, 200 Mb/s and 10 ms, limits the case, so the result depends on the two clocks and not on the machine.

#![allow(non_snake_case)]

use std::collections::VecDeque;
use std::process::Command;
use std::time::Duration;

use netsim::Side;
use netsim::link::LinkConfig;
use netsim::pair::Duplex;
use serde_json::Value;
use zerolane_core::{
    BurstLimit, Config, Connection, Delivery, Entropy, Event, Instant, RegionId, Span, Transmit,
    WorkRequest, listen,
};
use zerolane_wire::{HEADER_LEN, Header, Packet, Profile, Profiles};

const RATE: u64 = 200_000_000;
const RTT: Duration = Duration::from_millis(10);
/// More than is ever granted ahead: nothing is lost.
const QUEUE_PACKETS: usize = 10_000;
const TIME: Duration = Duration::from_secs(3);

/// Length of a Transfer, and how many are posted at a time: as the benchmark's.
const TRANSFER: u64 = 4 << 20;
const POSTED: u64 = 8;

/// IPv4 and UDP.
const OUTER_BYTES: usize = 28;

/// A datagram as far as the engine looks at it: payload has a length only.
#[derive(Clone)]
enum Datagram {
    Control(Vec<u8>),
    Data(Box<Header>, u32),
}

/// An engine at each end of the link, and the clock.
struct Virtual {
    ends: [Option<Connection>; 2],
    net: Duplex<Datagram>,
    config: Config,
}

impl Virtual {
    fn new(link: LinkConfig) -> Virtual {
        let config = Config {
            profiles: Profiles::only(Profile::Extended),
            ..Config::default()
        };
        let initiator = Connection::connect(Instant::ZERO, config.clone(), entropy(1));
        Virtual {
            ends: [Some(initiator), None],
            net: Duplex::symmetric(link, 1),
            config,
        }
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.net.now()
    }

    fn end(&mut self, side: Side) -> &mut Option<Connection> {
        &mut self.ends[usize::from(side == Side::B)]
    }

    fn transmit(&mut self, side: Side) {
        let now = self.now();
        let mut out = Vec::new();
        if let Some(connection) = self.end(side) {
            while let Some(transmit) = connection.poll_transmit(now, BurstLimit::default()) {
                match transmit {
                    // Plain connections exchange no keys.
                    Transmit::Handshake => unreachable!(),
                    Transmit::Control(it) => {
                        let mut bytes = it.bytes().to_vec();
                        bytes.resize(bytes.len().max(it.pad_to), 0);
                        out.push((bytes.len(), Datagram::Control(bytes)));
                    }
                    Transmit::Data(burst) => {
                        let mut left = burst.span.len;
                        for index in 0..burst.segments {
                            let len = u64::from(burst.stu).min(left);
                            left -= len;
                            let header = Box::new(burst.header(index));
                            let size = HEADER_LEN + len as usize;
                            out.push((size, Datagram::Data(header, len as u32)));
                        }
                    }
                    Transmit::Operations(_) => unreachable!("no memory is used"),
                }
            }
        }
        for (size, datagram) in out {
            self.net.send(side, size + OUTER_BYTES, datagram);
        }
    }

    fn deliver(&mut self, side: Side, datagram: &Datagram) {
        let (now, config) = (self.now(), self.config.clone());
        let end = self.end(side);
        match (end.as_mut(), datagram) {
            (Some(it), Datagram::Control(bytes)) => it.on_control(now, bytes, bytes.len()),
            (Some(it), Datagram::Data(header, len)) => {
                it.on_data(now, header, *len, *len, None);
            }
            (None, Datagram::Control(bytes)) => {
                let packet = Packet::parse(bytes).expect("what we send");
                *end = listen(now, config, entropy(2), &packet).ok();
            }
            (None, Datagram::Data(..)) => {}
        }
    }

    /// Goes on to whatever happens next, but not beyond `until`.
    fn step(&mut self, until: Duration) {
        Side::BOTH.into_iter().for_each(|side| self.transmit(side));
        let ends = self.ends.iter().flatten();
        let timers = ends.filter_map(|end| Some(end.next_timeout()? - Instant::ZERO));
        let deadline = timers.chain([until]).min().unwrap_or(until);
        match self.net.advance(Some(deadline)) {
            Some((side, datagram)) => self.deliver(side, &datagram),
            None => {
                let now = self.now();
                let ends = self.ends.iter_mut().flatten();
                ends.for_each(|end| end.on_timeout(now));
            }
        }
    }

    fn events(&mut self, side: Side) -> Vec<Event> {
        let end = self.end(side).as_mut();
        end.map_or(Vec::new(), |end| {
            std::iter::from_fn(|| end.poll_event()).collect()
        })
    }

    fn connect(&mut self) {
        let mut connected = [false; 2];
        while connected != [true; 2] {
            assert!(self.net.now() < TIME, "no connection");
            self.step(TIME);
            for (side, done) in Side::BOTH.into_iter().zip(&mut connected) {
                let events = self.events(side);
                *done |= events.iter().any(|it| matches!(it, Event::Connected(_)));
            }
        }
    }

    fn post(&mut self, side: Side) {
        let now = self.now();
        let span = Span {
            region: RegionId {
                index: 0,
                generation: 1,
            },
            offset: 0,
            len: TRANSFER,
        };
        let end = self.end(side).as_mut().expect("connected");
        let request = match side {
            Side::A => WorkRequest::Send {
                delivery: Delivery::Polled,
            },
            Side::B => WorkRequest::Receive,
        };
        end.post(now, request, span).expect("room");
    }

    /// Payload that is at B after [`TIME`], in Mb/s.
    fn goodput(&mut self) -> f64 {
        self.connect();
        for side in [Side::B, Side::A] {
            (0..POSTED).for_each(|_| self.post(side));
        }
        let end = self.net.now() + TIME;
        while self.net.now() < end {
            self.step(end);
            for side in Side::BOTH {
                let over = |it: &Event| matches!(it, Event::Sent { .. } | Event::Received { .. });
                let over: VecDeque<Event> = self.events(side).into_iter().filter(over).collect();
                over.iter().for_each(|_| self.post(side));
            }
        }
        let received = self.end(Side::B).as_ref().expect("connected");
        let bytes = received.counters().bytes_received;
        bytes as f64 * 8.0 / 1e6 / TIME.as_secs_f64()
    }
}

fn entropy(number: u32) -> Entropy {
    Entropy {
        key: 0xa11c_e000 + number,
        port: 11,
        sync: 77,
    }
}

/// Other programs may take the cores for a while.
const ATTEMPTS: usize = 4;

/// What `bench rtt` measures over the same link with two processes.
fn real_goodput() -> f64 {
    let words = format!(
        "bench rtt --at {}ms --rate {RATE}bit --queue {QUEUE_PACKETS} --time {}s --only extended \
         --reps 1 --json",
        RTT.as_millis(),
        TIME.as_secs()
    );
    let output = Command::new(env!("CARGO_BIN_EXE_zerolane-bench"))
        .args(words.split_whitespace())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["cells"][0]["results"][0]["mbps"]["median"]
        .as_f64()
        .unwrap_or_else(|| panic!("{report}"))
}

#[test]
#[ignore = "measures real time: .ci/run runs it alone"]
fn goodput__is_the_same_in_virtual_and_in_real_time() {
    if !netlab::netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let link = LinkConfig {
        delay: RTT / 2,
        rate_bits_per_s: Some(RATE),
        queue_packets: QUEUE_PACKETS,
        ..LinkConfig::default()
    };
    let virtual_mbps = Virtual::new(link).goodput();
    // A busy machine can only pull them apart, so the closest of a few runs counts.
    let closest = (0..ATTEMPTS)
        .map(|_| {
            let real_mbps = real_goodput();
            eprintln!("virtual {virtual_mbps:.1} Mb/s, real {real_mbps:.1} Mb/s");
            (real_mbps / virtual_mbps - 1.0).abs()
        })
        .find(|&apart| apart <= 0.1);
    assert!(
        closest.is_some(),
        "more than 10 % apart in each of {ATTEMPTS} runs"
    );
}
