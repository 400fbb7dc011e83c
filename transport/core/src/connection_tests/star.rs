//! Simulates several senders, one receiver and the switch between them, in virtual time.
//!
//! All Data shares one port and its queue.
//!
//! ```text
//!  sender 0 --\                        /-- connection 0 \
//!  sender 1 ---+==[ queue | rate ]====+--- connection 1  } one receiver, one scheduler
//!  sender n --/                        \-- connection n /
//! ```

use super::seeds::Dice;
use super::shared::Scheduler;
use super::sim::{Host, wake_time};
use crate::*;
use netsim::link::{Link, LinkConfig};
use std::time::Duration;

/// Default maximum lateness of a host that shares its core with other work.
const LATE: Duration = Duration::from_micros(60);

/// Contents that alternate in the targets, so that a leftover byte is a wrong one.
const CONTENTS: u64 = 3;
/// Transfers posted ahead by each end of each stream.
const AHEAD: u64 = 2;

/// The load of one sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Length of each Transfer.
    pub(super) length: u64,
    /// Number of Transfers.
    pub(super) transfers: u64,
}

impl Load {
    pub(super) const ENDLESS: Load = Load {
        length: 256 << 10,
        transfers: u64::MAX,
    };
}

struct Stream {
    sender: Host,
    receiver: Host,
    load: Load,
    sources: Vec<Span>,
    targets: Vec<Span>,
    posted: u64,
    /// Pending posted receives, with their numbers and targets.
    expected: Vec<(TransferId, u64, Span)>,
    completed: u64,
    /// The sender receives and sends nothing.
    dead: bool,
    /// Number of the sender's Data that still gets through; all if `None`.
    data_left: Option<u64>,
    finished_at: Option<Duration>,
    /// Maximum lateness of its hosts.
    late: Duration,
    dice: Dice,
}

/// A datagram with its destination: sender or receiver of a stream.
type Parcel = (usize, bool, Vec<u8>);

pub(super) struct Star {
    streams: Vec<Stream>,
    /// Towards the receiver, and back.
    links: [Link<Parcel>; 2],
    now: Duration,
    data_sent: u64,
    data_dropped: u64,
}

impl Star {
    /// Connects `loads.len()` senders over `port`; the way back has its rate and delay.
    pub(super) fn new(port: LinkConfig, seed: u64, scheduler: &Scheduler, loads: &[Load]) -> Star {
        let back = LinkConfig {
            queue_packets: 10_000,
            ..port
        };
        let mut star = Star {
            streams: vec![],
            links: [Link::new(port, seed), Link::new(back, seed + 1)],
            now: Duration::ZERO,
            data_sent: 0,
            data_dropped: 0,
        };
        for (index, &load) in loads.iter().enumerate() {
            star.streams.push(Stream::new(index as u64, seed, load));
        }
        star.run_for(Duration::from_millis(200));
        for stream in &mut star.streams {
            assert!(stream.receiver.connection.is_some(), "seed {seed}");
            stream.receiver.c().set_admission(scheduler.join());
        }
        star
    }

    pub(super) fn now(&self) -> Instant {
        Instant::ZERO + self.now
    }

    pub(super) fn receiver(&mut self, stream: usize) -> &mut Connection {
        self.streams[stream].receiver.c()
    }

    /// Sets the maximum lateness of all hosts.
    pub(super) fn set_late(&mut self, late: Duration) {
        self.streams.iter_mut().for_each(|it| it.late = late);
    }

    /// Nothing is heard from the sender any more.
    pub(super) fn kill(&mut self, stream: usize) {
        self.streams[stream].dead = true;
    }

    /// `datagrams` more of the sender's Data leave; it continues to ask for grants.
    pub(super) fn withhold_after(&mut self, stream: usize, datagrams: u64) {
        self.streams[stream].data_left = Some(datagrams);
    }

    /// The most that any stream has had granted and not received.
    pub(super) fn most_outstanding(&self) -> u64 {
        let outstanding = |it: &Stream| {
            it.receiver
                .connection
                .as_ref()
                .map(Connection::expected_payload)
        };
        self.streams
            .iter()
            .filter_map(outstanding)
            .max()
            .unwrap_or(0)
    }

    /// Times that streams were refused further grants.
    pub(super) fn grants_deferred(&self) -> u64 {
        let receivers = self
            .streams
            .iter()
            .map(|it| it.receiver.connection.as_ref());
        receivers
            .flatten()
            .map(|c| c.counters().grants_deferred)
            .sum()
    }

    /// Bytes that each stream received.
    pub(super) fn received(&self) -> Vec<u64> {
        let bytes = |it: &Stream| {
            it.receiver
                .connection
                .as_ref()
                .map(|c| c.counters().bytes_received)
        };
        self.streams
            .iter()
            .map(|it| bytes(it).unwrap_or(0))
            .collect()
    }

    /// When each stream had all its Transfers.
    pub(super) fn finished(&self) -> Vec<Option<Duration>> {
        self.streams.iter().map(|it| it.finished_at).collect()
    }

    /// Data that entered the queue, and that it dropped, datagrams.
    pub(super) fn data(&self) -> (u64, u64) {
        (self.data_sent, self.data_dropped)
    }

    /// Restarts the count of [`Star::data`].
    pub(super) fn count_data_from_here(&mut self) {
        (self.data_sent, self.data_dropped) = (0, 0);
    }

    /// Starts all loads.
    pub(super) fn start(&mut self) {
        (0..self.streams.len()).for_each(|index| self.start_one(index));
    }

    pub(super) fn start_one(&mut self, index: usize) {
        let now = self.now();
        let stream = &mut self.streams[index];
        for target in stream.targets.clone() {
            stream.post(now, target);
        }
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let deadline = self.now + time;
        while self.step(deadline) {}
    }

    fn step(&mut self, deadline: Duration) -> bool {
        self.transmit();
        let next = self
            .links
            .iter()
            .filter_map(Link::next_delivery)
            .chain(self.streams.iter().filter_map(Stream::next))
            .min()
            .unwrap_or(Duration::MAX);
        if next > deadline {
            self.now = deadline;
            return false;
        }
        self.now = self.now.max(next);
        for link in 0..self.links.len() {
            while let Some((index, to_receiver, datagram)) = self.links[link].pop_due(self.now) {
                self.streams[index].arrive(self.now, to_receiver, datagram);
            }
        }
        let now = self.now;
        self.streams.iter_mut().for_each(|stream| stream.act(now));
        true
    }

    fn transmit(&mut self) {
        let now = self.now();
        for (index, stream) in self.streams.iter_mut().enumerate() {
            for (datagram, is_data) in stream.sender.outgoing(now) {
                if stream.lets_pass(is_data) {
                    let dropped = self.links[0].stats().queue_dropped;
                    let (len, parcel) = (datagram.len(), (index, true, datagram));
                    self.links[0].send(self.now, len + 28, parcel);
                    let dropped = self.links[0].stats().queue_dropped - dropped;
                    self.data_sent += u64::from(is_data);
                    self.data_dropped += if is_data { dropped } else { 0 };
                }
            }
            for (datagram, _) in stream.receiver.outgoing(now) {
                let (len, parcel) = (datagram.len(), (index, false, datagram));
                self.links[1].send(self.now, len + 28, parcel);
            }
        }
    }
}

impl Stream {
    fn new(index: u64, seed: u64, load: Load) -> Stream {
        let entropy = Entropy {
            key: 0xa11c_0001 + index as u32,
            port: 11 + index as u16,
            sync: seed as u32,
        };
        let connection = Connection::connect(Instant::ZERO, Config::default(), entropy);
        let mut sender = Host::new(Some(connection));
        let mut receiver = Host::new(None);
        Stream {
            sources: (0..CONTENTS)
                .map(|content| sender.filled(index * CONTENTS + content, load.length))
                .collect(),
            targets: (0..AHEAD).map(|_| receiver.empty(load.length)).collect(),
            sender,
            receiver,
            load,
            posted: 0,
            expected: vec![],
            completed: 0,
            dead: false,
            data_left: None,
            finished_at: None,
            late: LATE,
            dice: Dice::new(seed ^ index << 32),
        }
    }

    fn lets_pass(&mut self, is_data: bool) -> bool {
        match &mut self.data_left {
            Some(0) if is_data => false,
            Some(left) if is_data => {
                *left -= 1;
                !self.dead
            }
            _ => !self.dead,
        }
    }

    /// Posts the next Transfer at both ends.
    fn post(&mut self, now: Instant, target: Span) {
        if self.posted == self.load.transfers {
            return;
        }
        let source = self.sources[(self.posted % CONTENTS) as usize];
        let id = self.receiver.c().post_receive(now, target).unwrap();
        self.expected.push((id, self.posted, target));
        self.posted += 1;
        self.sender
            .c()
            .post_send(now, source, Delivery::Polled)
            .unwrap();
    }

    fn next(&self) -> Option<Duration> {
        let wakes = [self.sender.wake_at, self.receiver.wake_at]
            .into_iter()
            .flatten();
        let timers = [&self.sender, &self.receiver]
            .into_iter()
            .filter_map(|host| Some(host.connection.as_ref()?.next_timeout()? - Instant::ZERO));
        wakes.chain(timers).min()
    }

    fn arrive(&mut self, now: Duration, to_receiver: bool, datagram: Vec<u8>) {
        if to_receiver && self.receiver.connection.is_none() {
            self.accept(Instant::ZERO + now, &datagram);
            return;
        }
        let host = match to_receiver {
            true => &mut self.receiver,
            false => &mut self.sender,
        };
        let late = Duration::from_nanos(self.dice.below(self.late.as_nanos() as u64));
        host.wake_at.get_or_insert_with(|| wake_time(now) + late);
        host.arrived.push(datagram);
    }

    fn accept(&mut self, now: Instant, datagram: &[u8]) {
        let Ok(packet) = zerolane_wire::Packet::parse(datagram) else {
            return;
        };
        let entropy = Entropy {
            key: 0xb0b0_0000 | u32::from(packet.route.s_port),
            port: 22,
            sync: 5,
        };
        let made = listen(now, Config::default(), entropy, &packet);
        self.receiver.connection = made.ok();
    }

    /// Handles everything due at either end.
    fn act(&mut self, now: Duration) {
        let instant = Instant::ZERO + now;
        for host in [&mut self.sender, &mut self.receiver] {
            let Some(connection) = host.connection.as_mut() else {
                continue;
            };
            if connection.next_timeout().is_some_and(|at| at <= instant) {
                connection.on_timeout(instant);
            }
            if host.wake_at.is_some_and(|at| at <= now) {
                host.wake_at = None;
                host.receive(instant);
            }
        }
        while self.sender.poll_event().is_some() {}
        while let Some(event) = self.receiver.poll_event() {
            if let Event::Received { id, length, .. } = event {
                self.complete(now, id, length);
            }
        }
    }

    fn complete(&mut self, now: Duration, id: TransferId, length: u64) {
        // A later Transfer may complete before an earlier one with losses.
        let index = self.expected.iter().position(|it| it.0 == id);
        let (_, number, target) = self
            .expected
            .swap_remove(index.expect("posted, and not complete before"));
        assert_eq!(length, self.load.length);
        let content = self.sources[(number % CONTENTS) as usize];
        assert!(
            self.receiver.bytes(target) == self.sender.bytes(content),
            "content"
        );
        self.completed += 1;
        if self.completed == self.load.transfers {
            self.finished_at = Some(now);
        }
        self.post(Instant::ZERO + now, target);
    }
}
