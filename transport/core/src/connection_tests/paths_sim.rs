//! Simulates two connections joined by several links, in virtual time.

use super::sim::{Host, Sim};
use crate::*;
use netsim::Side;
use netsim::link::LinkConfig;
use netsim::pair::{Duplex, seed_of_link};
use std::time::Duration;
use zerolane_wire::encapsulation::Encapsulation;

/// Encapsulation and datagram size of the links, bytes.
pub(super) const DATAGRAM: (Encapsulation, usize) = (Encapsulation::UdpV4, 1472);
/// The first of the consecutive nonces of the Responder's questions.
const NONCE: u32 = 0x5eed_0000;

/// Initiator A, Responder B, and the links of each path.
pub(super) struct PathsSim {
    pub(super) a: Host,
    pub(super) b: Host,
    pub(super) nets: Vec<Duplex<Vec<u8>>>,
    nonce: u32,
    /// Datagrams that arrived at a descheduled end, with their paths.
    waiting: Vec<(Side, usize, Vec<u8>)>,
}

impl PathsSim {
    /// Connected over the first of `links`, with the others joined.
    pub(super) fn over(links: &[LinkConfig], seed: u64) -> PathsSim {
        let mut sim = PathsSim::unjoined(links, seed);
        for path in 1..links.len() {
            let now = sim.now();
            assert_eq!(sim.a.c().add_path(now, DATAGRAM), Some(path), "seed {seed}");
        }
        sim.run_until(Duration::from_secs(20), |sim| {
            let usable = |host: &mut Host, path| host.c().path_life(path) == PathLife::Usable;
            (0..links.len()).all(|path| usable(&mut sim.a, path) && usable(&mut sim.b, path))
        });
        sim
    }

    /// Connected over the first of `links`.
    pub(super) fn unjoined(links: &[LinkConfig], seed: u64) -> PathsSim {
        let config = Config {
            paths: 8,
            ..Config::default()
        };
        let mut sim = Sim::new(links[0], seed, config.clone(), config);
        sim.connect();
        sim.run_for(Duration::from_secs(1));
        let now = sim.net.now();
        let more = (1..).zip(&links[1..]).map(|(path, &link)| {
            let mut net = Duplex::symmetric(link, seed_of_link(seed, path));
            net.advance(Some(now));
            net
        });
        PathsSim {
            nets: std::iter::once(sim.net).chain(more).collect(),
            a: sim.a,
            b: sim.b,
            nonce: NONCE,
            waiting: vec![],
        }
    }

    pub(super) fn now(&self) -> Instant {
        Instant::ZERO + self.nets[0].now()
    }

    pub(super) fn host(&mut self, side: Side) -> &mut Host {
        match side {
            Side::A => &mut self.a,
            Side::B => &mut self.b,
        }
    }

    /// Takes the link of `path` down, or up, in both directions.
    pub(super) fn set_up(&mut self, path: usize, up: bool) {
        for side in Side::BOTH {
            self.nets[path].link_mut(side).set_up(up);
        }
    }

    fn is_stalled(&mut self, side: Side) -> bool {
        self.nets[0].now() < self.host(side).stalled_until
    }

    fn transmit(&mut self, side: Side) {
        if self.is_stalled(side) {
            return;
        }
        let now = self.now();
        // Payload that one path leaves to the others leaves in the same turn.
        let mut sent = true;
        while std::mem::take(&mut sent) {
            for path in 0..self.nets.len() {
                let host = self.host(side);
                host.c().select_path(path);
                for (bytes, _) in host.outgoing(now) {
                    sent = true;
                    self.nets[path].send(side, bytes.len() + 28, bytes);
                }
            }
        }
    }

    /// Delivers `datagram` to `to` by `path`, as the lane does.
    pub(super) fn deliver(&mut self, to: Side, path: usize, datagram: Vec<u8>) {
        let (now, nonce) = (self.now(), self.nonce);
        let host = self.host(to);
        if path > 0 && host.c().path_life(path) == PathLife::Absent {
            let Some(joined) = host.c().joins(&datagram) else {
                return;
            };
            assert_eq!(joined, path);
            host.c().accept_path(now, path, DATAGRAM, nonce);
            self.nonce += 1;
        }
        let host = self.host(to);
        host.c().select_path(path);
        host.arrived.push(datagram);
        host.receive(now);
    }

    /// One step, as [`Sim::step`].
    pub(super) fn step(&mut self, deadline: Duration) -> bool {
        for side in Side::BOTH {
            self.transmit(side);
            let host = self.host(side);
            while let Some(event) = host.poll_event() {
                host.events.push(event);
            }
        }
        let time = self.nets[0].now();
        let hosts = [&self.a, &self.b];
        let timers = hosts.map(|host| {
            let at = host.connection.as_ref()?.next_timeout()?;
            Some((at - Instant::ZERO).max(host.stalled_until))
        });
        let stalls = hosts.map(|host| Some(host.stalled_until).filter(|&until| until > time));
        let arrivals = self.nets.iter().map(Duplex::next_delivery);
        let next = timers.into_iter().chain(stalls).chain(arrivals);
        let next = next.flatten().min();
        let Some(next) = next.filter(|&at| at <= deadline) else {
            for net in &mut self.nets {
                net.advance(Some(deadline));
            }
            return false;
        };
        // All clocks advance together: what is due by then comes first.
        let mut came = std::mem::take(&mut self.waiting);
        for (path, net) in self.nets.iter_mut().enumerate() {
            while let Some((side, datagram)) = net.advance(Some(next)) {
                came.push((side, path, datagram));
            }
        }
        for (side, path, datagram) in came {
            match self.is_stalled(side) {
                true => self.waiting.push((side, path, datagram)),
                false => self.deliver(side, path, datagram),
            }
        }
        let now = self.now();
        for side in Side::BOTH {
            if !self.is_stalled(side) {
                self.host(side).c().on_timeout(now);
            }
        }
        true
    }

    pub(super) fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) {
        let deadline = self.nets[0].now() + limit;
        while !done(self) {
            let went_on = self.step(deadline);
            assert!(
                went_on || done(self),
                "not done at {:?}\n a {:?} {:?}\n b {:?} {:?}",
                self.nets[0].now(),
                self.a.events,
                self.a.connection,
                self.b.events,
                self.b.connection
            );
        }
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let deadline = self.nets[0].now() + time;
        while self.step(deadline) {}
    }

    /// Posts a Transfer of `length` bytes from A to B.
    pub(super) fn post(&mut self, seed: u64, length: u64) -> Posted {
        let now = self.now();
        let source = self.a.filled(seed, length);
        let target = self.b.empty(length);
        let to = self.b.c().post_receive(now, target).expect("posted");
        let from = self.a.c().post_send(now, source, Delivery::Polled);
        Posted {
            seed,
            length,
            target,
            to,
            from: from.expect("posted"),
        }
    }

    /// Runs until it is over, and checks every byte. Returns the time that took.
    pub(super) fn finish(&mut self, it: Posted) -> Duration {
        let start = self.nets[0].now();
        self.run_until(Duration::from_secs(120), |sim| {
            sim.a.sent(it.from) && sim.b.received(it.to).is_some()
        });
        assert!(self.b.holds(it.target, it.seed, it.length));
        self.b.assert_guards();
        for side in Side::BOTH {
            self.host(side).c().assert_bounded();
        }
        self.nets[0].now() - start
    }

    /// Payload bytes that have arrived at B.
    pub(super) fn arrived(&mut self) -> u64 {
        self.b.c().counters().bytes_received
    }
}

/// A Transfer from A to B.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    seed: u64,
    length: u64,
    target: Span,
    pub(super) to: TransferId,
    from: TransferId,
}
