//! Tests that the soak over sockets (`transport/zerolane/tests/soak`) passes in virtual time.
//!
//! Several initiators run random operations on one target's memory, with Transfers and messages both ways and cancels,
//! against an oracle. All share the target's link, and each initiator has its own link back. In addition, no
//! outstanding operation may wait for long without progress.
//!
//! `ZEROLANE_SEEDS=500 cargo test --release -p zerolane-core soak` runs for a night.

use super::seeds::{Dice, each};
use super::shared::Scheduler;
use super::sim::{Host, wake_time};
use crate::ExportAs;
use crate::*;
use netsim::link::{Link, LinkConfig, Loss, Reorder};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;
use zerolane_wire::{FetchOpKind, Reason, Rights};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

const INITIATORS: usize = 3;
/// Operations in flight, each with a buffer.
const IN_FLIGHT: usize = 24;
/// Longest payload of an operation, bytes.
const MAX_LEN: u64 = 512 << 10;
/// An initiator's memory at the target. The first bytes have known content; cancelled puts may have left anything
/// behind them.
const KNOWN: u64 = 3 << 20;
const SCRATCH: u64 = MAX_LEN + 4096;
const WORDS: u64 = 8;
/// Receives posted at each end, of Transfers and of messages.
const RECEIVES: usize = 3;
/// How long operations are posted.
const WORK: Duration = Duration::from_secs(20);

/// A kind of link. Its rate is low: this scales all times of the path, and simulates faster.
#[derive(Clone, Copy, Debug)]
struct Path {
    rtt: Duration,
    jitter: Duration,
    mbits: u64,
    loss: f64,
    reorder: (f64, Duration),
    duplicate: f64,
    queue: usize,
}

/// Loses, reorders by more than a burst, duplicates and jitters.
const BAD: Path = Path {
    rtt: Duration::from_millis(5),
    jitter: MS,
    mbits: 50,
    loss: 0.02,
    reorder: (0.05, MS),
    duplicate: 0.02,
    queue: 1000,
};

const OTHERS: [Path; 5] = [
    Path {
        loss: 0.0,
        duplicate: 0.0,
        jitter: Duration::ZERO,
        ..BAD
    },
    Path {
        rtt: Duration::from_millis(60),
        loss: 0.01,
        reorder: (0.02, Duration::from_millis(3)),
        ..BAD
    },
    Path {
        rtt: Duration::from_millis(20),
        mbits: 10,
        loss: 0.01,
        duplicate: 0.01,
        queue: 100,
        ..BAD
    },
    Path {
        rtt: MS,
        jitter: Duration::ZERO,
        loss: 0.0,
        reorder: (0.0, MS),
        duplicate: 0.0,
        queue: 20,
        ..BAD
    },
    Path {
        rtt: Duration::from_micros(500),
        jitter: Duration::from_micros(100),
        mbits: 100,
        loss: 0.001,
        reorder: (0.01, Duration::from_micros(200)),
        duplicate: 0.001,
        ..BAD
    },
];

impl Path {
    fn of_seed(seed: u64) -> Path {
        match seed % 2 {
            0 => BAD,
            _ => OTHERS[(seed / 2 % OTHERS.len() as u64) as usize],
        }
    }

    fn config(self) -> LinkConfig {
        LinkConfig {
            delay: self.rtt / 2,
            jitter: self.jitter,
            loss: Loss::Random(self.loss),
            reorder: Reorder {
                probability: self.reorder.0,
                by: self.reorder.1,
            },
            duplicate: self.duplicate,
            rate_bits_per_s: Some(self.mbits * 1_000_000),
            queue_packets: self.queue,
            ..LinkConfig::default()
        }
    }

    /// Longest time without progress that is no stall: a full queue, and some round trips with it.
    fn patience(self) -> Duration {
        let queued = self.queue as u64 * 1500 * 8;
        let queue = Duration::from_micros(queued / self.mbits);
        8 * (self.rtt + queue) + 40 * (self.rtt + 4 * self.jitter + self.reorder.1) + 500 * MS
    }
}

/// A pending request.
struct Asked {
    what: What,
    slot: Option<usize>,
    len: u64,
    at: Duration,
    cancel: Option<Duration>,
    cancelled: bool,
}

enum What {
    /// Of these bytes of the area.
    Put(u64, u64),
    /// Of these bytes, which must have the given content.
    Get(u64, u64, Vec<u8>),
    /// The word's expected previous value.
    Fetch(u64),
    /// Without a comparison: a put into the unknown area, a message, a Transfer.
    Plain,
}

/// A host with reused buffers.
struct End {
    host: Host,
    slots: Vec<Span>,
    free: Vec<usize>,
    receives: HashMap<TransferId, Span>,
    messages: HashMap<TransferId, (Span, Span)>,
}

impl End {
    fn new(connection: Option<Connection>) -> End {
        let mut host = Host::new(connection);
        End {
            slots: (0..IN_FLIGHT).map(|_| host.empty(MAX_LEN)).collect(),
            free: (0..IN_FLIGHT).collect(),
            host,
            receives: HashMap::new(),
            messages: HashMap::new(),
        }
    }

    fn post_receives(&mut self, now: Instant) {
        for _ in 0..RECEIVES {
            let (room, payload) = (self.host.empty(MAX_LEN), self.host.empty(MAX_LEN));
            let control = self.host.empty(128);
            self.receive(now, room);
            self.receive_message(control, payload);
        }
    }

    fn receive(&mut self, now: Instant, room: Span) {
        let id = self.host.c().post_receive(now, room).unwrap();
        self.receives.insert(id, room);
    }

    fn receive_message(&mut self, control: Span, payload: Span) {
        let posted = self.host.c().post_message_receive(control, Some(payload));
        self.messages.insert(posted.unwrap(), (control, payload));
    }

    /// Fills a slot with the content called `name`.
    fn fill(&mut self, slot: usize, name: u64, len: u64) -> Span {
        let span = self.slots[slot].part(0, len);
        let bytes = self.host.bytes_mut(span);
        for (index, chunk) in (0..).zip(bytes.chunks_mut(8)) {
            chunk.copy_from_slice(&word(name, index)[..chunk.len()]);
        }
        span
    }

    fn send_message(&mut self, now: Instant, slot: usize, name: u64, len: u64) -> TransferId {
        let payload = (len > 0).then(|| self.fill(slot, name, len));
        let mut control = [0; 16];
        control[..8].copy_from_slice(&name.to_le_bytes());
        let flags = WorkFlags::default();
        let posted = self.host.c().post_message(now, &control, payload, flags);
        posted.unwrap()
    }

    /// Sum of the counters that change when payload arrives.
    fn received(&self) -> u64 {
        let connection = self.host.connection.as_ref();
        connection.map_or(0, |it| it.counters().bytes_received)
    }
}

/// The word at `index` of the content called `name`: the first word is the name.
fn word(name: u64, index: u64) -> [u8; 8] {
    let mut x = name ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    if index > 0 {
        x = (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^= x >> 32;
    }
    x.to_le_bytes()
}

/// The payload's name, if it is long enough to have one.
fn name_of(bytes: &[u8]) -> Option<u64> {
    let name = u64::from_le_bytes(*bytes.first_chunk()?);
    for (index, chunk) in (0..).zip(bytes.chunks(8)) {
        assert_eq!(
            chunk,
            &word(name, index)[..chunk.len()],
            "payload {name}, word {index}"
        );
    }
    Some(name)
}

/// An initiator, and the other end of its connection.
struct Pair {
    initiator: End,
    target: End,
    area: Span,
    words: Span,
    area_place: RemotePlace,
    words_place: RemotePlace,
    /// Content of area and words once all requests are complete.
    known: Vec<u8>,
    counts: [u64; WORDS as usize],
    asked: BTreeMap<TransferId, Asked>,
    dice: Dice,
    name: u64,
    /// At the target: content of its slots, and Transfers and messages to be returned once a slot is free.
    answering: HashMap<TransferId, usize>,
    owed: VecDeque<Option<u64>>,
    /// Sent, returned, and arrived here; messages likewise.
    transfers: [u64; 3],
    messages: [u64; 3],
    cancelled: u64,
    /// Not yet shown. Those of long puts come in any order.
    /// The bytes of the put that each belongs to.
    immediates: HashMap<u32, u64>,
    /// Received bytes at the last progress, and its time.
    received: u64,
    moved: Duration,
    longest: Duration,
    now: Duration,
    done: u64,
    /// The longest duration of an operation.
    slowest: Duration,
}

/// A datagram with its destination: the pair, its target or its initiator.
type Parcel = (usize, bool, Vec<u8>);

struct Soak {
    path: Path,
    pairs: Vec<Pair>,
    /// Towards the target, then towards each initiator.
    links: Vec<Link<Parcel>>,
    now: Duration,
}

impl Soak {
    fn new(seed: u64) -> Soak {
        let path = Path::of_seed(seed);
        let links = (0..=INITIATORS as u64).map(|n| Link::new(path.config(), seed * 8 + n));
        let mut soak = Soak {
            path,
            pairs: (0..INITIATORS as u64).map(|n| Pair::new(seed, n)).collect(),
            links: links.collect(),
            now: Duration::ZERO,
        };
        soak.run_until(10 * S, |soak| soak.pairs.iter().all(Pair::connected));
        let scheduler = Scheduler::new(Schedule::default());
        let now = Instant::ZERO + soak.now;
        for pair in &mut soak.pairs {
            pair.begin(now, &scheduler);
        }
        soak
    }

    /// Payload bytes sent, retransmitted, and received, both ways.
    fn bytes(&self) -> [u64; 3] {
        let ends = self.pairs.iter().flat_map(|it| [&it.initiator, &it.target]);
        let counters = ends.filter_map(|end| Some(end.host.connection.as_ref()?.counters()));
        counters.fold([0; 3], |[sent, again, received], it| {
            [
                sent + it.bytes_sent,
                again + it.bytes_resent,
                received + it.bytes_received,
            ]
        })
    }

    fn run_until(&mut self, time: Duration, done: impl Fn(&Soak) -> bool) -> bool {
        let deadline = self.now + time;
        while !done(self) {
            if !self.step(deadline) {
                return false;
            }
        }
        true
    }

    fn step(&mut self, deadline: Duration) -> bool {
        self.transmit();
        let deliveries = self.links.iter().filter_map(Link::next_delivery);
        let next = deliveries
            .chain(self.pairs.iter().filter_map(Pair::next))
            .min();
        let Some(next) = next.filter(|&it| it <= deadline) else {
            self.now = deadline;
            return false;
        };
        self.now = self.now.max(next);
        for link in &mut self.links {
            while let Some((index, to_target, datagram)) = link.pop_due(self.now) {
                self.pairs[index].arrive(self.now, to_target, datagram);
            }
        }
        for pair in &mut self.pairs {
            pair.act(self.now);
            pair.watch(self.now, self.path);
        }
        true
    }

    fn transmit(&mut self) {
        let now = Instant::ZERO + self.now;
        for (index, pair) in self.pairs.iter_mut().enumerate() {
            for (datagram, _) in pair.initiator.host.outgoing(now) {
                let len = datagram.len() + 28;
                self.links[0].send(self.now, len, (index, true, datagram));
            }
            for (datagram, _) in pair.target.host.outgoing(now) {
                let len = datagram.len() + 28;
                self.links[1 + index].send(self.now, len, (index, false, datagram));
            }
        }
    }
}

impl Pair {
    fn new(seed: u64, index: u64) -> Pair {
        let entropy = Entropy {
            key: 0xa11c_0001 + index as u32,
            port: 11 + index as u16,
            sync: seed as u32,
        };
        let connection = Connection::connect(Instant::ZERO, Config::default(), entropy);
        let mut target = End::new(None);
        let area = target.host.empty(KNOWN + SCRATCH);
        let words = target.host.words(&[0; WORDS as usize]);
        let nowhere = RemotePlace {
            handle: 0,
            mx: 0,
            address: 0,
        };
        Pair {
            initiator: End::new(Some(connection)),
            known: target.host.bytes(area.part(0, KNOWN)).to_vec(),
            target,
            area,
            words,
            area_place: nowhere,
            words_place: nowhere,
            counts: [0; WORDS as usize],
            asked: BTreeMap::new(),
            dice: Dice::new(seed * 16 + index),
            name: 0,
            answering: HashMap::new(),
            owed: VecDeque::new(),
            transfers: [0; 3],
            messages: [0; 3],
            cancelled: 0,
            immediates: HashMap::new(),
            received: 0,
            moved: Duration::ZERO,
            longest: Duration::ZERO,
            now: Duration::ZERO,
            done: 0,
            slowest: Duration::ZERO,
        }
    }

    fn connected(&self) -> bool {
        let life = |end: &End| end.host.connection.as_ref().map(Connection::life);
        let stands = Some(Life::Established);
        life(&self.initiator) == stands && life(&self.target) == stands
    }

    fn begin(&mut self, now: Instant, scheduler: &Scheduler) {
        let target = self.target.host.c();
        target.set_admission(scheduler.join());
        let mut export = |span| {
            let (handle, mx) = target.export(span, Rights::ALL, ExportAs::Handle).unwrap();
            RemotePlace {
                handle,
                mx,
                address: 0,
            }
        };
        self.area_place = export(self.area);
        self.words_place = export(self.words);
        self.initiator.post_receives(now);
        self.target.post_receives(now);
        self.moved = now - Instant::ZERO;
    }

    fn next(&self) -> Option<Duration> {
        let ends = [&self.initiator.host, &self.target.host];
        let wakes = ends.iter().filter_map(|host| host.wake_at);
        let timers = ends
            .iter()
            .filter_map(|host| Some(host.connection.as_ref()?.next_timeout()? - Instant::ZERO));
        let cancels = self.asked.values().filter_map(|it| it.cancel);
        wakes.chain(timers).chain(cancels).min()
    }

    fn arrive(&mut self, now: Duration, to_target: bool, datagram: Vec<u8>) {
        if to_target && self.target.host.connection.is_none() {
            let Ok(packet) = zerolane_wire::Packet::parse(&datagram) else {
                return;
            };
            let entropy = Entropy {
                key: 0xb0b0_0000 | u32::from(packet.route.s_port),
                port: 22,
                sync: 5,
            };
            let made = listen(Instant::ZERO + now, Config::default(), entropy, &packet);
            self.target.host.connection = made.ok();
            return;
        }
        let host = match to_target {
            true => &mut self.target.host,
            false => &mut self.initiator.host,
        };
        let late = Duration::from_nanos(self.dice.below(60_000));
        host.wake_at.get_or_insert_with(|| wake_time(now) + late);
        host.arrived.push(datagram);
    }

    fn act(&mut self, now: Duration) {
        self.now = now;
        let at = Instant::ZERO + now;
        for host in [&mut self.initiator.host, &mut self.target.host] {
            let Some(connection) = host.connection.as_mut() else {
                continue;
            };
            if connection.next_timeout().is_some_and(|it| it <= at) {
                connection.on_timeout(at);
            }
            if host.wake_at.is_some_and(|it| it <= now) {
                host.wake_at = None;
                host.receive(at);
            }
        }
        let due =
            |(&id, it): (&TransferId, &Asked)| it.cancel.is_some_and(|at| at <= now).then_some(id);
        let doomed: Vec<TransferId> = self.asked.iter().filter_map(due).collect();
        for id in doomed {
            let asked = self.asked.get_mut(&id).unwrap();
            (asked.cancel, asked.cancelled) = (None, true);
            self.initiator.host.c().cancel(at, id);
        }
        while let Some(event) = poll(&mut self.initiator) {
            self.moved = now;
            self.take(at, event);
        }
        while let Some(event) = poll(&mut self.target) {
            self.moved = now;
            self.take_at_target(at, event);
        }
        self.pay(at);
    }

    /// Checks that pending requests make progress.
    fn watch(&mut self, now: Duration, path: Path) {
        let received = self.initiator.received() + self.target.received();
        let over = self.asked.is_empty() && self.owed.is_empty() && self.answering.is_empty();
        if received != self.received || over {
            self.received = received;
            self.moved = now;
        }
        self.longest = self.longest.max(now - self.moved);
        if now - self.moved >= path.patience() {
            let ends = [&self.initiator, &self.target].map(|it| it.host.connection.as_ref());
            let states = ends.map(|it| it.map(|it| it.path_state(Instant::ZERO + now)));
            panic!(
                "at {now:?}: nothing moved since {:?}, {} outstanding\n{ends:#?}\n{states:#?}",
                self.moved,
                self.asked.len()
            );
        }
    }

    /// A length from 1 to [`MAX_LEN`], with all orders of magnitude equally likely.
    fn len(&mut self) -> u64 {
        let below = 2 << self.dice.below(u64::from(MAX_LEN.ilog2()));
        1 + self.dice.below(below)
    }

    /// Posts a random request, if there is a slot.
    fn asks_progress(&mut self, now: Instant) -> bool {
        let Some(slot) = self.initiator.free.pop() else {
            return false;
        };
        match self.dice.below(100) {
            0..38 => self.put(now, slot),
            38..62 => self.get(now, slot),
            62..76 => self.fetch(now, slot),
            76..88 => self.message(now, slot),
            _ => self.transfer(now, slot),
        }
        true
    }

    fn asked(&mut self, id: TransferId, what: What, slot: usize, len: u64) {
        let asked = Asked {
            what,
            slot: Some(slot),
            len,
            at: self.now,
            cancel: None,
            cancelled: false,
        };
        assert!(self.asked.insert(id, asked).is_none(), "{id} twice");
    }

    fn doom(&mut self, now: Instant, id: TransferId) {
        let wait = Duration::from_micros(self.dice.below(100_000));
        if let Some(asked) = self.asked.get_mut(&id) {
            asked.cancel = Some(now - Instant::ZERO + wait);
        }
    }

    /// Bytes of the area, and whether they may be used only after all earlier requests are complete: a get may see a
    /// later put, and long puts are not ordered among each other.
    fn part(&mut self, len: u64, puts: bool) -> (u64, bool) {
        for attempt in 0.. {
            let from = self.dice.below(KNOWN - len);
            let overlaps = |it: &&Asked| match it.what {
                What::Put(start, end) | What::Get(start, end, _) => {
                    puts && start < from + len && from < end
                }
                _ => false,
            };
            let conflict = self.asked.values().any(|it| overlaps(&it));
            if !conflict || attempt == 8 {
                return (from, conflict || self.dice.chance(2));
            }
        }
        unreachable!()
    }

    fn put(&mut self, now: Instant, slot: usize) {
        let (len, name) = (self.len(), self.next_name());
        let span = self.initiator.fill(slot, name, len);
        let doomed = self.dice.chance(8);
        let (from, fence) = match doomed {
            true => (KNOWN + self.dice.below(SCRATCH - len), false),
            false => self.part(len, true),
        };
        let immediate = (!doomed && self.dice.chance(15)).then_some(name as u32);
        let place = RemotePlace {
            address: from,
            ..self.area_place
        };
        let flags = WorkFlags {
            fence,
            ..WorkFlags::default()
        };
        let connection = self.initiator.host.c();
        let id = connection.post_put(now, place, span, immediate, flags);
        let id = id.unwrap();
        self.immediates
            .extend(immediate.map(|number| (number, len)));
        if doomed {
            self.asked(id, What::Plain, slot, len);
            return self.doom(now, id);
        }
        let bytes = self.initiator.host.bytes(span);
        self.known[from as usize..(from + len) as usize].copy_from_slice(bytes);
        self.asked(id, What::Put(from, from + len), slot, len);
    }

    fn get(&mut self, now: Instant, slot: usize) {
        let len = self.len();
        let (from, fence) = self.part(len, false);
        let place = RemotePlace {
            address: from,
            ..self.area_place
        };
        let flags = WorkFlags {
            fence,
            ..WorkFlags::default()
        };
        let span = self.initiator.slots[slot].part(0, len);
        let id = self.initiator.host.c().post_get(now, place, span, flags);
        let id = id.unwrap();
        let expected = self.known[from as usize..(from + len) as usize].to_vec();
        self.asked(id, What::Get(from, from + len, expected), slot, len);
        if self.dice.chance(8) {
            self.doom(now, id);
        }
    }

    fn fetch(&mut self, now: Instant, slot: usize) {
        let index = self.dice.below(WORDS);
        let n = self.dice.next();
        let place = RemotePlace {
            address: 8 * index,
            ..self.words_place
        };
        let count = &mut self.counts[index as usize];
        let (kind, after) = match n % 3 {
            0 => (FetchOpKind::Add, count.wrapping_add(n)),
            1 => (FetchOpKind::Swap, n),
            _ => (FetchOpKind::Increment, count.wrapping_add(1)),
        };
        let atomic = Atomic {
            kind,
            word: zerolane_wire::Word::U64,
            operand: n,
            comparand: 0,
        };
        let before = std::mem::replace(count, after);
        let flags = WorkFlags::default();
        let id = self
            .initiator
            .host
            .c()
            .post_fetch_op(now, place, atomic, flags);
        self.asked(id.unwrap(), What::Fetch(before), slot, 8);
    }

    fn message(&mut self, now: Instant, slot: usize) {
        let (len, name) = (self.len() / 4, self.next_name());
        let id = self.initiator.send_message(now, slot, name, len);
        self.messages[0] += 1;
        self.asked(id, What::Plain, slot, len);
    }

    fn transfer(&mut self, now: Instant, slot: usize) {
        let (len, name) = (self.len(), self.next_name());
        let span = self.initiator.fill(slot, name, len);
        let id = self
            .initiator
            .host
            .c()
            .post_send(now, span, Delivery::Interrupt);
        let id = id.unwrap();
        self.transfers[0] += 1;
        self.asked(id, What::Plain, slot, len);
        if self.dice.chance(15) {
            self.cancelled += 1;
            self.doom(now, id);
        }
    }

    fn next_name(&mut self) -> u64 {
        self.name += 1;
        self.name
    }

    fn take(&mut self, now: Instant, event: Event) {
        match event {
            Event::Received { id, length, .. } => match self.initiator.receives.remove(&id) {
                Some(room) => {
                    name_of(self.initiator.host.bytes(room.part(0, length)));
                    self.transfers[2] += 1;
                    self.initiator.receive(now, room);
                }
                None => self.complete(id, None),
            },
            Event::Message { id, payload, .. } => {
                let (control, room) = self.initiator.messages.remove(&id).unwrap();
                name_of(self.initiator.host.bytes(room.part(0, payload)));
                self.messages[2] += 1;
                self.initiator.receive_message(control, room);
            }
            Event::Sent { id } => self.complete(id, None),
            Event::Fetched { id, value } => self.complete(id, Some(value)),
            Event::Failed { id, error } => {
                let asked = self.asked.remove(&id).expect("what was asked for");
                let fine = [
                    TransferError::Cancelled,
                    TransferError::Refused(Reason::Cancelled),
                ];
                assert!(asked.cancelled && fine.contains(&error), "{id}: {error}");
                self.initiator.free.extend(asked.slot);
            }
            Event::Connected(_) | Event::Announced { .. } => {}
            event => panic!("{event:?}"),
        }
    }

    fn complete(&mut self, id: TransferId, value: Option<u64>) {
        let asked = self.asked.remove(&id).expect("what was asked for");
        self.done += 1;
        self.slowest = self.slowest.max(self.now - asked.at);
        match asked.what {
            What::Get(from, _, expected) => {
                let slot = self.initiator.slots[asked.slot.unwrap()].part(0, asked.len);
                assert!(
                    self.initiator.host.bytes(slot) == expected,
                    "get from {from}"
                );
            }
            What::Fetch(before) => assert_eq!(value, Some(before), "the word before"),
            What::Put(..) | What::Plain => {}
        }
        self.initiator.free.extend(asked.slot);
    }

    fn take_at_target(&mut self, now: Instant, event: Event) {
        match event {
            Event::Received { id, length, .. } => {
                let room = self.target.receives.remove(&id).unwrap();
                name_of(self.target.host.bytes(room.part(0, length)));
                self.target.receive(now, room);
                self.owed.push_back(None);
            }
            Event::Message { id, payload, .. } => {
                let (control, room) = self.target.messages.remove(&id).unwrap();
                let name = *self.target.host.bytes(control).first_chunk().unwrap();
                let name = u64::from_le_bytes(name);
                let inside = name_of(self.target.host.bytes(room.part(0, payload)));
                assert!(inside.is_none_or(|it| it == name), "another's payload");
                self.target.receive_message(control, room);
                self.owed.push_back(Some(name));
            }
            Event::Failed { id, error } => {
                let room = self.target.receives.remove(&id).expect("a receive");
                assert_eq!(error, TransferError::Refused(Reason::Cancelled));
                self.target.receive(now, room);
            }
            Event::Sent { id } => {
                let slot = self.answering.remove(&id).expect("an answer");
                self.target.free.push(slot);
            }
            Event::Immediate {
                value,
                region,
                length,
            } => {
                let put = self.immediates.remove(&value);
                assert_eq!(put, Some(length), "{value} shown twice, or its bytes");
                assert_eq!(region.start.handle, self.area_place.handle);
            }
            Event::Connected(_) | Event::Announced { .. } => {}
            event => panic!("{event:?}"),
        }
    }

    /// Answers while there are slots.
    fn pay(&mut self, now: Instant) {
        while !self.owed.is_empty() {
            let Some(slot) = self.target.free.pop() else {
                return;
            };
            let len = self.len();
            let id = match self.owed.pop_front().unwrap() {
                Some(name) => {
                    self.messages[1] += 1;
                    self.target.send_message(now, slot, name, len / 4)
                }
                None => {
                    self.transfers[1] += 1;
                    let span = self.target.fill(slot, self.transfers[1], len);
                    let sent = self
                        .target
                        .host
                        .c()
                        .post_send(now, span, Delivery::Interrupt);
                    sent.unwrap()
                }
            };
            self.answering.insert(id, slot);
        }
    }

    fn is_over(&self) -> bool {
        self.asked.is_empty() && self.owed.is_empty() && self.answering.is_empty()
    }

    fn check(&self) {
        let area = self.target.host.bytes(self.area.part(0, KNOWN));
        assert!(area == self.known, "the target's memory at the end");
        for (index, &count) in (0..).zip(&self.counts) {
            assert_eq!(self.target.host.word(self.words.part(8 * index, 8)), count);
        }
        assert!(self.immediates.is_empty(), "{:?}", self.immediates);
        let [sent, back, arrived] = self.transfers;
        assert!(sent - self.cancelled <= back && back <= sent && arrived == back);
        assert_eq!(self.messages, [self.messages[0]; 3]);
        self.initiator.host.assert_guards();
        self.target.host.assert_guards();
    }
}

fn poll(end: &mut End) -> Option<Event> {
    end.host.poll_event()
}

#[test]
fn soak__everything_comes_true_and_nothing_waits_for_long() {
    each(6, |seed| {
        let mut soak = Soak::new(seed);
        let end = soak.now + WORK;
        while soak.now < end {
            let now = Instant::ZERO + soak.now;
            for pair in &mut soak.pairs {
                while pair.asks_progress(now) {}
            }
            soak.run_until(2 * MS, |_| false);
        }
        let worked = soak.now;
        let all = |soak: &Soak| soak.pairs.iter().all(Pair::is_over);
        assert!(soak.run_until(300 * S, all), "it does not end");
        soak.run_until(S, |_| false);
        soak.pairs.iter().for_each(Pair::check);
        let done: Vec<u64> = soak.pairs.iter().map(|it| it.done).collect();
        let longest = soak.pairs.iter().map(|it| it.longest).max().unwrap();
        let slowest: Vec<Duration> = soak.pairs.iter().map(|it| it.slowest).collect();
        let [sent, again, received] = soak.bytes().map(|bytes| bytes >> 20);
        eprintln!(
            "seed {seed}: {:?}: {done:?} done, drained in {:?}, longest without progress {longest:?}, slowest {slowest:.1?}, \
             MiB sent {sent}, of those again {again}, received {received}",
            soak.path,
            soak.now - worked
        );
    });
}
